// The table of weights of one of the paper's automata: a row for each symbol, a column for each weight function.

import { element } from "./markup.js";

export function numbers(table, constants, changed) {
  let own = null, symbols = [];
  const values = new Map(); // "automaton (or a cell's text) function symbol" → the text that was typed

  const key = (name, symbol = "") => `${own.key ?? own.name} ${name} ${symbol}`;

  function field(label, at, value) {
    if (!values.has(at)) values.set(at, String(value));
    return element("input", {
      type: "text", inputmode: "decimal", "aria-label": label, value: values.get(at), size: 5, maxlength: 24,
      oninput: (event) => {
        values.set(at, event.target.value);
        event.target.setAttribute("aria-invalid", String(!isNumber(event.target.value)));
        changed();
      },
    });
  }

  function show(automaton, alphabet) {
    own = automaton;
    symbols = split(alphabet);
    const head = element("tr", {}, element("th", { scope: "col" }, "α"),
      ...own.functions.map(({ label }) => element("th", { scope: "col" }, `${label}(α)`)));
    const rows = symbols.map((symbol) => element("tr", {}, element("th", { scope: "row" }, symbol),
      ...own.functions.map(({ name, label, value }) =>
        element("td", {}, field(`${label} of ${symbol}`, key(name, symbol), value[symbol] ?? value[""])))));
    table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
    constants.replaceChildren(...own.constants.map(({ name, label, value }) =>
      element("label", {}, `${label} `, field(label, key(name), value))));
  }

  return {
    show,
    rename: (alphabet) => show(own, alphabet),
    /** Returns the weights for a request. A text that is no number is sent as typed, so that the error can show it. */
    read() {
      const value = (at) => (isNumber(values.get(at)) ? Number(values.get(at)) : values.get(at));
      const functions = own.functions.map(({ name }) =>
        [name, Object.fromEntries(symbols.map((symbol) => [symbol, value(key(name, symbol))]))]);
      return {
        alphabet: symbols,
        functions: Object.fromEntries(functions),
        constants: Object.fromEntries(own.constants.map(({ name }) => [name, value(key(name))])),
      };
    },
  };
}

function isNumber(text) {
  return text.trim() !== "" && Number.isFinite(Number(text));
}

function split(alphabet) {
  return [...new Set(alphabet.split(/\s+/).filter(Boolean))];
}
