// The tab Design: shows what the compiler makes of a cell's text, as it is typed.

import { ask, later } from "./api.js";
import { editor } from "./editor.js";
import { element, picture } from "./markup.js";
import { stage } from "./stage.js";
import { tabs } from "./tabs.js";

const $ = (id) => document.getElementById(id);
const NOTES = {
  c: "The CPU kernels, forward and backward, in float32.",
  triton: "The GPU kernels, unrolled by two steps (real ones unroll more).",
  chunks: "How chunks of time run in parallel, and the numbers that each chunk carries.",
  ir: "The program of one time step, from which the other code is generated.",
};

export function design(cells) {
  const shown = stage($("cell-stage"));
  const text = editor($("cell-editor"), $("cell-problem"));
  let code = {}, which = "c", drawing = "";

  const chooseCode = tabs($("tab-c").parentElement, (name) => {
    which = name;
    showCode();
  });

  function showCode() {
    $("code").textContent = code[which] ?? "";
    $("code").setAttribute("aria-labelledby", `tab-${which}`);
    $("code-note").textContent = NOTES[which];
  }

  async function update() {
    try {
      const found = await ask("design", { text: text.area.value });
      if (!found) return;
      text.blame(null);
      shown.show(found.picture);
      drawing = found.picture.svg ?? "";
      $("cell-save").disabled = !drawing;
      $("cell-caption").textContent = caption(found);
      showFacts(found.facts);
      $("equations").replaceChildren(...found.equations.map(({ left, right }) =>
        element("div", { class: "equation" }, element("span", {}, picture(left)),
          element("span", { class: "equals" }, "="), element("span", {}, picture(right)))));
      code = found.code;
      showCode();
    } catch (error) {
      text.blame(error);
      shown.stale();
      $("cell-caption").textContent = "The last valid cell: fix the text to update the picture";
    }
  }

  const soon = later(update);
  text.area.addEventListener("input", soon);
  $("example").append(...cells.map(({ name }) => element("option", { value: name }, name)));
  $("example").addEventListener("change", () => pick($("example").value));
  $("cell-save").addEventListener("click", () => save(drawing, $("example").value));
  copies($("copy-latex"), () => code.latex);
  copies($("copy-code"), () => code[which]);
  chooseCode("c");

  function pick(name) {
    const cell = cells.find((one) => one.name === name) ?? cells[0];
    $("example").value = cell.name;
    $("example-paper").textContent = cell.paper;
    text.set(cell.text.trimEnd());
    update();
  }
  pick("F");
}

function caption({ name, semiring, facts }) {
  const silent = facts.epsilon ? ` (${facts.epsilon} ε)` : "";
  return `${name} over the ${semiring} semiring: ${count(facts.states, "state")}, ${count(facts.arcs, "arc")}${silent}`;
}

function showFacts(facts) {
  const names = facts.stored.map(([state, symbol]) => `${state} as ${symbol}`).join(", ");
  const training = facts.bytes_training === null ? "no gradient in this semiring" : `${facts.bytes_training} in training`;
  const backwards = facts.carried_back === null ? "no gradient in this semiring" : `${facts.carried_back} in the backward pass`;
  const tiles = [
    ["Stored states", facts.stored.length, names || "no memory needed"],
    ["Numbers per chunk", facts.carried, backwards],
    ["Bytes per step and unit", facts.bytes, `${training}, float32`],
    ["Rows of W per unit", facts.projections, `and ${count(facts.parameters, "parameter")}`],
  ];
  document.getElementById("facts").replaceChildren(...tiles.map(([title, value, note]) =>
    element("div", { class: "card fact" }, element("dt", {}, title),
      element("dd", {}, element("strong", {}, String(value)), element("span", { class: "note" }, note)))));
}

function count(n, what) {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

/** Saves the picture as a file, with its style and without highlights. */
async function save(text, name) {
  const style = await (await fetch("/picture.css")).text();
  const whole = text.replaceAll('<g class="on">', "<g>").replace("</desc>", `</desc><style>${style}</style>`);
  const url = URL.createObjectURL(new Blob([whole], { type: "image/svg+xml" }));
  element("a", { href: url, download: `${name}.svg` }).click();
  URL.revokeObjectURL(url);
}

function copies(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copying is not allowed";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
}
