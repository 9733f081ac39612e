// The tab Score: runs Forward on a string step by step, with an automaton and its weights.

import { ask, later } from "./api.js";
import { editor } from "./editor.js";
import { forward } from "./forward.js";
import { element, number } from "./markup.js";
import { numbers } from "./numbers.js";
import { stage } from "./stage.js";

const $ = (id) => document.getElementById(id);
const TEXT = "text";

/** Fills the panel; returns a function to call when the panel is opened. */
export function score({ automata, semirings, example }) {
  const shown = stage($("score-stage"));
  const text = editor($("wfsa-editor"), $("score-problem"));
  const table = numbers($("numbers"), $("constants"), () => soon());
  const player = forward(shown, () => press(null));
  // Remembers the semiring of the paper's automata, and one string for them and one for texts.
  let pressed = null, chosen = "real", kind = null;
  const strings = { numbers: example.string, text: example.text_string };

  function machine() {
    if ($("automaton").value === TEXT) return { text: text.area.value };
    return { automaton: $("automaton").value, semiring: $("semiring").value, ...table.read() };
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
    } catch (error) {
      text.blame(error);
      shown.stale();
      $("score-total").replaceChildren();
    }
  }
  const soon = later(update);

  function showPaths({ paths, states, count, why, prefixes }) {
    const largest = Math.max(...paths.map((path) => path.size), 0);
    $("paths-note").textContent = why ?? note(paths, count, prefixes.at(-1));
    $("paths").replaceChildren(...paths.map((path) => {
      const bar = element("span", { class: path.weight < 0 ? "bar minus" : "bar", "aria-hidden": "true" });
      bar.style.setProperty("--part", largest ? path.size / largest : 0);
      const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => press(button, path) },
        element("strong", {}, number(path.weight)), bar, element("span", { class: "trail" }, ...trail(path, states)));
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
    const own = automata.find((one) => one.name === $("automaton").value);
    $("score-numbers").hidden = !own;
    $("score-text").hidden = Boolean(own);
    $("semiring").disabled = !own;
    $("automaton-says").textContent = own ? own.says : "an automaton as text, in one of three formats";
    if (kind) strings[kind] = $("string").value;
    kind = own ? "numbers" : "text";
    $("string").value = strings[kind];
    if (own) $("semiring").value = chosen;
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
    chosen = $("semiring").value;
    update();
  });
  $("alphabet").addEventListener("input", () => {
    table.rename($("alphabet").value);
    soon();
  });
  for (const field of [$("string"), text.area]) field.addEventListener("input", soon);
  $("score-form").addEventListener("submit", (event) => event.preventDefault());
  pick();
  return player.reveal;
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
