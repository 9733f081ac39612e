// The tab Score: runs Forward on a string step by step, with an automaton and its weights.

import { describe } from "./address.js";
import { ask, later } from "./api.js";
import { editor } from "./editor.js";
import { forward } from "./forward.js";
import { bar, element, number, stale } from "./markup.js";
import { numbers } from "./numbers.js";
import { stage } from "./stage.js";

const $ = (id) => document.getElementById(id);
const TEXT = "text", CELL = "cell";

/** Fills the panel. Returns `opened`, to call when it is opened, and `pickCell`, which shows a cell of the tab Design. */
export function score({ automata, semirings, example }) {
  const shown = stage($("score-stage"));
  const text = editor($("wfsa-editor"), $("score-problem"));
  const table = numbers($("numbers"), $("constants"), () => soon());
  const player = forward(shown, () => press(null));
  // Remembers the semiring of the paper's automata, and one string for them and one for texts.
  let pressed = null, chosen = "real", kind = null, cell = null;
  const strings = { numbers: example.string, text: example.text_string };

  function machine() {
    if ($("automaton").value === TEXT) return { text: text.area.value };
    const own = cell && $("automaton").value === CELL ? { cell: cell.text } : { automaton: $("automaton").value };
    return { ...own, semiring: $("semiring").value, ...table.read() };
  }

  async function update() {
    try {
      const found = await ask("score", { machine: machine(), string: $("string").value });
      if (!found) return;
      text.blame(null);
      shown.show(found.picture);
      player.show(found);
      showPaths(found);
      $("semiring").value = found.semiring.name; // a text names its own semiring
      $("score-total").replaceChildren("score ", element("strong", {}, number(found.prefixes.at(-1))),
        ` over the ${found.semiring.name} semiring`);
      stale(false, $("forward-card"), $("paths-card"));
    } catch (error) {
      text.blame(error);
      shown.stale();
      player.pause();
      stale(true, $("forward-card"), $("paths-card"));
      $("score-total").replaceChildren();
    }
  }
  const soon = later(update);

  function showPaths({ paths, states, count, why, prefixes }) {
    const largest = Math.max(...paths.map((path) => path.size), 0);
    $("paths-note").textContent = why ?? note(paths, count, prefixes.at(-1));
    $("paths").replaceChildren(...paths.map((path) => {
      const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => press(button, path) },
        element("strong", {}, number(path.weight)), bar(path.weight < 0 ? -path.size : path.size, largest), element("span", { class: "trail" }, ...trail(path, states)));
      return element("li", {}, button);
    }));
    pressed = null;
  }

  function press(button, path) {
    pressed?.setAttribute("aria-pressed", "false");
    pressed = button === pressed ? null : button;
    pressed?.setAttribute("aria-pressed", "true");
    if (pressed) {
      player.pause();
      shown.light(path.states, path.edges);
    } else if (button) player.light();
  }

  function pick() {
    const own = automata.find((one) => one.name === $("automaton").value) ?? ($("automaton").value === CELL ? cell : null);
    const subject = $("automaton").value === TEXT ? "a WFSA as text" : $("automaton").selectedOptions[0].textContent;
    describe("score", { subject });
    $("score-numbers").hidden = !own;
    $("score-text").hidden = Boolean(own);
    $("semiring").disabled = !own;
    $("automaton-says").textContent = own ? own.says : "an automaton as text, in one of three formats";
    if (kind) strings[kind] = $("string").value;
    kind = own ? "numbers" : "text";
    $("string").value = strings[kind];
    if (own) $("semiring").value = own === cell ? cell.semiring : chosen;
    if (own) table.show(own, $("alphabet").value);
    update();
  }

  $("automaton").append(...automata.map(({ name }) => element("option", { value: name }, name)),
    element("option", { value: TEXT }, "WFSA as text"));
  $("semiring").append(...semirings.map((name) => element("option", { value: name }, name)));
  $("automaton").value = example.automaton;
  $("alphabet").value = example.alphabet;
  text.set(example.text.trimEnd());
  $("automaton").addEventListener("change", pick);
  $("semiring").addEventListener("change", () => {
    if ($("automaton").value === CELL) cell.semiring = $("semiring").value;
    else chosen = $("semiring").value;
    update();
  });
  $("alphabet").addEventListener("input", () => {
    table.rename($("alphabet").value);
    soon();
  });
  $("string").addEventListener("input", soon);
  text.changed(soon);
  $("score-form").addEventListener("submit", (event) => event.preventDefault());
  pick();

  /** Shows a cell of the tab Design: under its own name, or, if it is one of the paper's, with the paper's numbers. */
  function pickCell(given) {
    if (automata.some(({ name }) => name === given.example)) {
      $("automaton").value = given.example;
    } else {
      cell = { ...given, key: given.text };
      $("automaton").querySelector(`[value=${CELL}]`)?.remove();
      $("automaton").append(element("option", { value: CELL }, `${given.example ?? given.name} (from Design)`));
      $("automaton").value = CELL;
    }
    pick();
  }
  return { opened: player.reveal, pickCell };
}

function note(paths, count, total) {
  if (!paths.length) return "No path derives this string: its score is the semiring’s zero.";
  const all = count === null ? "more paths than can be counted derive" : count === 1 ? "one path derives" : `${count} paths derive`;
  const start = `${all[0].toUpperCase()}${all.slice(1)} the string`;
  if (count !== paths.length) return `${start}; these are the best ${paths.length}. Select one to see it in the picture.`;
  return `${start}; ⊕ of ${count === 1 ? "it" : "them"} is the score, ${number(total)}. Select one to see it in the picture.`;
}

/** Writes a path as q₀ –the→ q₀ –film→ …, with loops in a weaker colour. */
function trail(path, states) {
  const parts = [element("b", {}, states[path.states[0]])];
  path.symbols.forEach((symbol, i) => {
    const loop = path.states[i] === path.states[i + 1];
    parts.push(element("span", { class: loop ? "hop loop" : "hop" }, ` ${symbol ?? "ε"} → `),
      element("b", { class: loop ? "loop" : "" }, states[path.states[i + 1]]));
  });
  return parts;
}
