// A textarea above a coloured copy of its text, which has the line numbers, the colours and the mark of an error.

import { element } from "./markup.js";
import { undoable } from "./undo.js";

const WORDS = /(#.*)|("[^"]*")|\b(cell|semiring|states|family|initial|final|read|loop|arc|mix|epsilon|epsilon_limit|output|one|zero|score)\b(?!\s*=)|\b(\d+(?:\.\d+)?)\b/g;
const KINDS = ["", "comment", "string", "word", "number"];

export function editor(root, problem) {
  const area = root.querySelector("textarea");
  const lines = root.querySelector(".lines");
  let bad = null;

  function paint() {
    const texts = area.value.split("\n");
    lines.replaceChildren(...texts.map((text, i) =>
      element("div", { class: i + 1 === bad ? "line bad" : "line" }, ...coloured(text))));
    follow();
  }

  function follow() {
    lines.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
  }

  function goTo(line) {
    const before = area.value.split("\n").slice(0, line - 1);
    const start = before.reduce((sum, text) => sum + text.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (area.value.split("\n")[line - 1] ?? "").length);
  }

  const history = undoable(area, () => area.dispatchEvent(new CustomEvent("restored")));
  area.addEventListener("input", paint);
  area.addEventListener("restored", paint);
  area.addEventListener("scroll", follow);
  new ResizeObserver(follow).observe(area);
  return {
    area,
    history,
    /** Calls `run` whenever the text has changed by typing, undo or redo. */
    changed(run) {
      for (const name of ["input", "restored"]) area.addEventListener(name, run);
    },
    /** Replaces the text, which can be undone; `tag` is anything that belongs to it. */
    set(text, tag) {
      history.set(text, tag);
      area.scrollTop = 0;
      paint();
    },
    /** Shows an error at its line; null removes it. */
    blame(error) {
      bad = error?.line ?? null;
      area.setAttribute("aria-invalid", String(Boolean(error)));
      const place = error?.line && element("button", { type: "button", class: "place", onclick: () => goTo(error.line) },
        `Line ${error.line}`);
      problem.replaceChildren(...(error ? [place, element("span", {}, error.message)] : []).filter(Boolean));
      paint();
    },
  };
}

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(WORDS)) {
    const kind = KINDS[match.findIndex((group, i) => i > 0 && group !== undefined)];
    parts.push(text.slice(end, match.index), element("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  parts.push(text.slice(end) || (parts.length ? "" : "\u200b"));
  return parts;
}
