// The tab Design: shows what the compiler makes of a cell's text, as it is typed.

import { address, describe } from "./address.js";
import { ask, later } from "./api.js";
import { editor } from "./editor.js";
import { copies, savePng, saveSvg, saveText } from "./files.js";
import { element, picture, stale } from "./markup.js";
import { stage } from "./stage.js";
import { tabs } from "./tabs.js";

const $ = (id) => document.getElementById(id);
const NOTES = {
  c: "The CPU kernels, forward and backward, in float32.",
  triton: "The GPU kernels, unrolled by two steps (real ones unroll more).",
  python: "The code that builds this cell, and a layer of it.",
  chunks: "How chunks of time run in parallel, and the numbers that each chunk carries.",
  ir: "The program of one time step, from which the other code is generated.",
};
const STORED = "rrnn-cell";
const FIRST = "F";

/** Fills the panel. `scoreCell` opens a cell in the tab Score. Returns a function that shows the cell of an address. */
export function design(cells, scoreCell) {
  const shown = stage($("cell-stage"));
  const text = editor($("cell-editor"), $("cell-problem"));
  let found = null, which = "c";

  const chooseCode = tabs($("tab-c").parentElement, (name) => {
    which = name;
    showCode();
  });

  function showCode() {
    $("code").textContent = found?.code[which] ?? "";
    $("code").setAttribute("aria-labelledby", `tab-${which}`);
    $("code-note").textContent = NOTES[which];
  }

  async function update() {
    remember();
    try {
      const answer = await ask("design", { text: text.area.value });
      if (!answer) return;
      found = answer;
      text.blame(null);
      shown.show(found.picture);
      $("cell-caption").textContent = caption(found);
      showFacts(found.facts);
      $("equations").replaceChildren(...found.equations.map(({ left, right }) =>
        element("div", { class: "equation" }, element("span", {}, picture(left)),
          element("span", { class: "equals" }, "="), element("span", {}, picture(right)))));
      showCode();
      usable(true);
    } catch (error) {
      text.blame(error);
      shown.stale();
      $("cell-caption").textContent = "The last valid cell: fix the text to update this page";
      usable(false);
    }
    describeTab();
  }

  /** Fades everything that belongs to an earlier text, and lets nobody copy, save or score it. */
  function usable(is) {
    stale(!is, $("facts"), $("equations"), $("code"));
    for (const id of ["copy-latex", "copy-code", "cell-save-cell"]) $(id).disabled = !is;
    for (const id of ["cell-save-svg", "cell-save-png"]) $(id).disabled = !is || !found?.picture.svg;
    $("cell-score").disabled = !is || Boolean(found?.weights.why);
    $("cell-score").title = (is && found?.weights.why) || "";
  }

  /** Returns the example that this text is or was edited from, and whether it is still the same. */
  function source() {
    const cell = cells.find(({ name }) => name === text.history.tag);
    return { cell, same: cell?.text.trim() === text.area.value.trim() };
  }

  /** Keeps the text in the address and in local storage, and shows where it comes from. */
  function remember() {
    const { cell, same } = source();
    $("example").value = same ? cell.name : "";
    $("example-paper").textContent = same ? cell.paper : cell ? `edited from ${cell.name}` : "your own text";
    $("cell-undo").disabled = !text.history.canUndo;
    $("cell-redo").disabled = !text.history.canRedo;
    try {
      localStorage.setItem(STORED, JSON.stringify({ text: text.area.value, from: cell?.name }));
    } catch { /* storage is switched off or full: the address has the text, too */ }
    describeTab();
  }

  function describeTab() {
    const { cell, same } = source();
    const from = cell ? { from: cell.name } : {};
    const origin = same ? cell.paper : cell ? `edited from ${cell.name}` : "own text";
    const name = same ? cell.name : found?.name ?? "";
    describe("design", { subject: name && `${name} (${origin})`, query: same ? from : { ...from, text: text.area.value } });
  }

  /** Returns the name of files: the cell's own, and where that would hide an edit, the edit. */
  function fileName() {
    const { cell, same } = source();
    if (same) return cell.name;
    return cell?.name === found.name ? `${found.name}-edited` : found.name;
  }

  const soon = later(update);
  text.changed(() => {
    soon();
    $("cell-undo").disabled = !text.history.canUndo;
    $("cell-redo").disabled = !text.history.canRedo;
  });
  $("example").append(element("option", { value: "", disabled: true, hidden: true }, "own text"),
    ...cells.map(({ name }) => element("option", { value: name }, name)));
  $("example").addEventListener("change", () => pick($("example").value));
  $("cell-undo").addEventListener("click", text.history.undo);
  $("cell-redo").addEventListener("click", text.history.redo);
  $("cell-save-cell").addEventListener("click", () => saveText(`${text.area.value.trimEnd()}\n`, `${fileName()}.cell`));
  $("cell-save-svg").addEventListener("click", () => saveSvg(found.picture.svg, `${fileName()}.svg`));
  $("cell-save-png").addEventListener("click", () => savePng(found.picture.svg, `${fileName()}.png`));
  $("cell-score").addEventListener("click", () => {
    const { cell, same } = source();
    scoreCell({ name: found.name, text: text.area.value, semiring: found.semiring, example: same ? cell.name : null, ...found.weights });
  });
  copies($("copy-latex"), () => found.code.latex);
  copies($("copy-code"), () => found.code[which]);
  chooseCode("c");

  function pick(name) {
    const cell = cells.find((one) => one.name === name) ?? cells[0];
    text.set(cell.text.trimEnd(), cell.name);
    update();
  }

  /** Shows the cell that a query holds; returns whether it holds one. */
  function load(query) {
    const [from, own] = [query.get("from"), query.get("text")];
    const known = cells.some(({ name }) => name === from);
    if (own === null && !known) return false;
    if (own !== null && own !== text.area.value) text.set(own, known ? from : undefined);
    else if (own === null) text.set(cells.find(({ name }) => name === from).text.trimEnd(), from);
    update();
    return true;
  }

  if (!load(address().query)) {
    const kept = stored();
    if (kept) text.set(kept.text, kept.from);
    if (kept) update();
    else pick(FIRST);
  }
  return load;
}

/** Returns the text of the last visit, or null. */
function stored() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORED));
    return typeof kept?.text === "string" ? kept : null;
  } catch {
    return null;
  }
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
    ["Numbers per chunk", facts.carried ?? "–", facts.carried === null ? "runs one step after another" : backwards],
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
