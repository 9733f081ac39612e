// The tab Explain: shows what the prediction of a trained classifier for a sentence is based on.

import { describe } from "./address.js";
import { ask } from "./api.js";
import { bar, element, number, picture, stale } from "./markup.js";
import { stage } from "./stage.js";

const $ = (id) => document.getElementById(id);

/** Fills the panel; returns a function to call when the panel is opened. */
export async function explain() {
  const shown = stage($("unit-stage"));
  const { runs } = await ask("runs");
  let found = null, pressed = null, drawn = null;

  $("no-runs").hidden = runs.length > 0;
  $("explain-form").hidden = !runs.length;
  $("run").append(...runs.map(({ name }) => element("option", { value: name }, name)));
  if (runs.length) $("run").value = mostAccurate(runs).name;

  function showRun() {
    const run = runs.find(({ name }) => name === $("run").value);
    if (!run) return;
    const accuracy = run.accuracy === null ? "" : `, ${number(run.accuracy)} % validation accuracy`;
    $("run-note").textContent = `${run.cell} on ${run.data}${accuracy}`;
    describe("explain", { subject: `${run.name} (${run.cell})` });
  }

  async function update(target = null) {
    $("explained").setAttribute("aria-busy", "true");
    try {
      const answer = await ask("explain", { run: $("run").value, text: $("sentence").value, target });
      if (!answer) return;
      found = answer;
      $("explain-problem").replaceChildren();
      $("explained").hidden = false;
      stale(false, $("explained"));
      showPrediction(found);
      showWords();
      showUnits();
    } catch (error) {
      $("explain-problem").textContent = error.message;
      stale(true, $("explained"));
    }
    $("explained").setAttribute("aria-busy", "false");
  }

  function showWords() {
    const by = $("words-by").querySelector(":checked").value;
    const values = found.words.map((word) => word[by]); // null for words if scores are not sums
    const largest = Math.max(...values.map(Math.abs), 1e-9);
    $("words").replaceChildren(...found.words.map(({ token, known }, i) => {
      const kind = `${values[i] < 0 ? "minus" : ""} ${known ? "" : "unknown"}`.trim();
      const word = element("li", { class: kind }, token,
        element("small", {}, `${values[i] === null ? "–" : worth(values[i])}${known ? "" : " unknown"}`));
      word.style.setProperty("--part", Math.abs(values[i]) / largest);
      return word;
    }));
    $("words-note").textContent = noteOn(by, found);
  }

  function showUnits() {
    $("inside").hidden = !found.units.length;
    $("map-card").hidden = !found.maps.length;
    pressed = drawn = null;
    const largest = Math.max(...found.units.flatMap(({ adds, paths }) => [adds, ...paths.map((path) => path.adds ?? 0)]).map(Math.abs), 0);
    $("units-note").textContent = noteOnUnits(found);
    $("units").replaceChildren(...found.units.map((unit) => element("li", {},
      element("h3", {}, element("span", {}, `Unit ${unit.unit}${unit.direction === "backward" ? ", backward" : ""}`),
        bar(unit.adds, largest), element("strong", { class: side(unit.adds) }, worth(unit.adds))),
      element("ol", { class: "paths" }, ...unit.paths.map((path) => element("li", {}, pathButton(unit, path, largest)))),
      unit.covered === null ? null : element("p", { class: "note" }, `These paths cover ${percent(unit.covered)} of the total path weight.`))));
    $("units").querySelector("button")?.click();
  }

  function pathButton(unit, path, largest) {
    const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => press(button, unit, path) },
      element("span", { class: "trail" }, ...phrase(path, unit.direction)), bar(path.adds ?? 0, largest),
      element("strong", { class: side(path.adds) }, path.adds === null ? "–" : worth(path.adds)));
    return button;
  }

  function press(button, unit, path) {
    pressed?.setAttribute("aria-pressed", "false");
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    if (drawn !== unit.cell) shown.show(found.pictures[unit.cell]);
    drawn = unit.cell;
    shown.light(path.states, path.edges);
    showMap(unit);
    $("unit-caption").textContent = `${unit.cell} over the ${unit.semiring} semiring: the path ${path.text || "without a word"} has the weight `
      + `${number(path.weight ?? "±∞")} in the score ${number(unit.score ?? "±∞")} of unit ${unit.unit}`;
  }

  /** Shows at which words the paths of a unit, or of the head to which it belongs, enter. */
  function showMap({ unit, direction }) {
    const map = found.maps.find(({ units, direction: way }) => units.includes(unit) && way === direction);
    if (!map) return;
    $("map-note").textContent = map.says;
    $("map").replaceChildren(picture(map.svg));
  }

  function showPrediction({ label, target, margin, probabilities, labels }) {
    $("verdict").replaceChildren(element("strong", {}, label), ` with probability ${percent(probabilities[label])}; `,
      `the margin of ${target} is ${worth(margin)}`);
    $("chances").replaceChildren(...labels.map((name) => {
      const share = bar(probabilities[name], 1);
      share.classList.add("plain");
      return element("div", {}, element("dt", {}, name),
        element("dd", {}, share, element("span", {}, percent(probabilities[name]))));
    }));
    $("target").replaceChildren(...labels.map((name) => element("option", { value: name }, name)));
    $("target").value = target;
  }

  $("run").addEventListener("change", () => {
    showRun();
    update();
  });
  $("target").addEventListener("change", () => update($("target").value));
  $("words-by").addEventListener("change", showWords);
  $("explain-form").addEventListener("submit", (event) => {
    event.preventDefault();
    update();
  });
  showRun();
  return () => {
    if (runs.length && !found) update();
  };
}

/** Returns the run with the highest validation accuracy; of several, the newest. */
function mostAccurate(runs) {
  return runs.reduce((best, run) => ((run.accuracy ?? -1) > (best.accuracy ?? -1) ? run : best));
}

/** Returns the class of a contribution's colour. */
function side(adds) {
  return adds === null || worth(adds) === "0" ? "" : adds < 0 ? "against" : "for";
}

function noteOnUnits({ exact, target, units }) {
  const how = exact ? "exactly" : "to first order";
  const paths = units.every(({ paths }) => paths.every(({ adds }) => adds === null))
    ? "Over this semiring a unit’s contribution does not divide among its paths."
    : "A unit’s contribution is divided among its paths by their shares in its score.";
  return `What the units of the first layer add to the margin of ${target}, ${how}: + speaks for ${target}, − against it. ${paths} Select a path to see it in the automaton.`;
}

/** Says what the numbers below the words mean, and whether they are exact. */
function noteOn(by, { exact, unexplained, note, words, target }) {
  const colours = `Green speaks for ${target}, red against it.`;
  if (by === "without")
    return `${colours} The number is how much the margin of ${target} loses when the word is deleted: exact, since the whole model runs on the shorter text. ${note}`;
  if (words.every((word) => word.adds === null)) return note;
  const how = exact ? "exactly: with the base, the numbers add up to the margin"
    : `to first order; ${number(unexplained)} of the margin remains unexplained`;
  return `${colours} The number is what the paths that enter at the word add to the margin of ${target}, ${how}. ${note}`;
}

/** Shows a path from its first to its last consumed word: [skipped] words in a weaker colour, ε for ε-arcs. */
function phrase({ steps }, direction) {
  const taken = steps.map(({ kind }) => kind !== "skipped");
  const inside = steps.slice(Math.max(taken.indexOf(true), 0), taken.lastIndexOf(true) + 1);
  if (direction === "backward") inside.reverse();
  if (!inside.length) return [element("span", { class: "loop" }, "no word")];
  return inside.map(({ kind, token }) => element("span", { class: kind === "consumed" ? "" : "loop" },
    `${kind === "skipped" ? `[${token}]` : token} `));
}

function percent(share) {
  return `${(100 * share).toFixed(1)}\u00a0%`;
}

/** Formats a contribution to the margin with a sign and two decimals. */
function worth(value) {
  const text = value.toFixed(2).replace("-", "−");
  return /[1-9]/.test(text) ? `${value > 0 ? "+" : ""}${text}` : "0";
}
