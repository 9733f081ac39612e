// The table of Forward, filled in step by step. Step t is the column after t symbols; one more step shows the score.

import { element, number } from "./markup.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 1100;

export function forward(shown, stepped) {
  let found = null, step = 0, timer = null;

  const end = () => found.string.length + 1;

  function show(result) {
    pause();
    found = result;
    $("step").max = end();
    $("forward").replaceChildren(...table(found));
    go(end(), false);
  }

  function go(to, byHand = true) {
    step = Math.max(0, Math.min(end(), to));
    if (byHand) stepped();
    $("step").value = step;
    $("step").setAttribute("aria-valuetext", heading());
    for (const cell of $("forward").querySelectorAll("[data-t]")) {
      const t = Number(cell.dataset.t);
      const last = cell.parentElement.classList.contains("scores") && t === end() - 1;
      cell.classList.toggle("filled", t < step || (t === step && !last));
      cell.classList.toggle("now", t === step || (step === end() && last));
    }
    reveal();
    $("first").disabled = $("back").disabled = step === 0;
    $("next").disabled = $("last").disabled = step === end();
    say();
    light();
  }

  /** Scrolls the column into view beside the names of the states, without scrolling the page. */
  function reveal() {
    const cell = $("forward").querySelector("td.now"), box = $("forward").parentElement;
    if (!cell || !box.clientWidth) return;
    const names = $("forward").querySelector("th").offsetWidth;
    const right = cell.offsetLeft + cell.offsetWidth - box.clientWidth;
    box.scrollLeft = Math.max(right, Math.min(box.scrollLeft, cell.offsetLeft - names));
  }

  /** Returns the arcs into a state that count in this column; ε-arcs start in the same column. */
  function terms(state) {
    const zero = found.semiring.zero;
    return found.arcs.filter(([source, symbol, target]) => target === state
      && (symbol === null ? found.table[step][source] !== zero
        : step > 0 && symbol === found.string[step - 1] && found.table[step - 1][source] !== zero));
  }

  function say() {
    const { semiring, states, table: rows, final, prefixes } = found;
    const lines = [];
    if (step === end()) {
      const ends = states.map((_, q) => q).filter((q) => final[q] !== semiring.zero);
      const parts = ends.map((q) => product(semiring, number(rows.at(-1)[q]), number(final[q]), states[q]));
      lines.push(equation("score", sum(semiring, parts), prefixes.at(-1)));
    } else {
      states.forEach((name, q) => {
        const value = rows[step][q];
        if (value === semiring.zero) return;
        const parts = step === 0 && found.initial[q] !== semiring.zero ? [[`${number(found.initial[q])} `, element("small", {}, "(λ)")]] : [];
        for (const [source, symbol, , weight] of terms(q))
          parts.push(product(semiring, number(rows[symbol === null ? step : step - 1][source]), number(weight), states[source]));
        lines.push(equation(name, sum(semiring, parts), value));
      });
    }
    $("step-says").replaceChildren(element("h3", {}, heading()), ...lines);
  }

  function heading() {
    if (step === 0) return "Before the first symbol";
    if (step === end()) return "At the end: multiply by the final weights";
    return `After ${step}: ${found.string[step - 1]}`;
  }

  function light() {
    const { semiring, table: rows, final, arcs } = found;
    const here = rows[Math.min(step, end() - 1)];
    const states = here.map((_, q) => q).filter((q) => here[q] !== semiring.zero);
    if (step === end()) return shown.light(states.filter((q) => final[q] !== semiring.zero), []);
    shown.light(states, [...new Set(states.flatMap((q) => terms(q).map((arc) => arc[4])))]);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "▶ Play";
    $("play").setAttribute("aria-pressed", "false");
  }

  function play() {
    if (timer) return pause();
    go(step === end() ? 0 : step + 1);
    timer = setInterval(() => (step === end() ? pause() : go(step + 1)), PAUSE);
    $("play").textContent = "❚❚ Pause";
    $("play").setAttribute("aria-pressed", "true");
  }

  const by = (change) => () => {
    pause();
    go(change());
  };
  $("first").addEventListener("click", by(() => 0));
  $("back").addEventListener("click", by(() => step - 1));
  $("next").addEventListener("click", by(() => step + 1));
  $("last").addEventListener("click", by(end));
  $("step").addEventListener("input", by(() => Number($("step").value)));
  $("play").addEventListener("click", play);
  return { show, pause, light, reveal };
}

function table({ states, string, table: rows, prefixes, initial, final, semiring }) {
  const head = element("tr", {}, element("th", { scope: "col" }, "state"),
    ...["start", ...string].map((symbol, t) => element("th", { scope: "col", "data-t": t }, symbol)));
  const cells = (values) => values.map((value, t) =>
    element("td", { "data-t": t, class: value === semiring.zero ? "zero" : "" }, element("span", {}, number(value))));
  const body = states.map((name, q) => element("tr", {},
    element("th", { scope: "row", class: [initial, final].map((w, i) => (w[q] === semiring.zero ? "" : ["initial", "final"][i])).join(" ") },
      name), ...cells(rows.map((row) => row[q]))));
  const scores = element("tr", { class: "scores" }, element("th", { scope: "row" }, "score"), ...cells(prefixes));
  return [element("thead", {}, head), element("tbody", {}, ...body), element("tfoot", {}, scores)];
}

/** Writes name = 0.9 · 2 (q₁) + 0.25 · 2 (q₃) = 2.3, each term with the state that it comes from. */
function equation(name, parts, value) {
  const plain = parts.filter((part) => typeof part === "string").join("");
  return element("p", {}, element("b", {}, name), " = ", ...parts, plain.trim() === number(value) ? null : ` = ${number(value)}`);
}

function product(semiring, left, right, from) {
  const text = right === number(semiring.one) ? left : `${left} ${semiring.times} ${right}`;
  return [`${text} `, element("small", {}, `(${from})`)];
}

function sum({ plus }, terms) {
  const word = terms.length > 1 && /^[a-z⊕]/.test(plus);
  const joined = terms.flatMap((term, i) => (i ? [word ? ", " : ` ${plus} `, ...term] : term));
  return word ? [`${plus}{`, ...joined, "}"] : joined;
}
