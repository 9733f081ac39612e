// The history of a text field. The browser's own forgets everything when a program replaces the text, so this one takes
// its place: for the keys, for the browser's menu, and for two buttons.

const MOST = 300, PAUSE = 700; // entries; milliseconds within which typing is one step

export function undoable(area, changed) {
  let entries = [], at = -1, last = { time: 0, kind: "" };

  function push(entry) {
    entries = [...entries.slice(Math.max(0, at + 2 - MOST), at + 1), entry];
    at = entries.length - 1;
  }

  function typed({ inputType = "" }) {
    const entry = { text: area.value, caret: area.selectionEnd, tag: entries[at]?.tag };
    const now = performance.now();
    // Each word is a step of its own, and so is whatever is not typing.
    const same = inputType.startsWith("insertText") && inputType === last.kind && now - last.time < PAUSE
      && !/\s$/.test(area.value.slice(0, area.selectionEnd));
    last = { time: now, kind: inputType };
    if (same) entries[at] = entry;
    else push(entry);
  }

  function go(to) {
    if (!entries[to]) return;
    at = to;
    last = { time: 0, kind: "" };
    area.value = entries[at].text;
    area.setSelectionRange(entries[at].caret, entries[at].caret);
    changed();
  }

  const undo = () => go(at - 1), redo = () => go(at + 1);
  area.addEventListener("input", typed);
  area.addEventListener("beforeinput", (event) => {
    if (!event.inputType.startsWith("history")) return;
    event.preventDefault();
    if (event.inputType === "historyUndo") undo();
    else redo();
  });
  area.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && !(key === "y" && event.ctrlKey)) return;
    event.preventDefault();
    if (key === "z" && !event.shiftKey) undo();
    else redo();
  });
  return {
    undo,
    redo,
    /** Replaces the text as one step; `tag` is anything that belongs to it. */
    set(text, tag) {
      area.value = text;
      last = { time: 0, kind: "" };
      push({ text, tag, caret: 0 });
    },
    get tag() {
      return entries[at]?.tag;
    },
    get canUndo() {
      return at > 0;
    },
    get canRedo() {
      return at < entries.length - 1;
    },
  };
}
