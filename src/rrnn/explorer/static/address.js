// The address and the title of the page: which tab is open, and what it shows.

const shown = {}; // tab → { query, subject }
let open = null; // until the page has read its address

/** Returns the tab that the address names, and what it says about it. */
export function address() {
  const [name, query = ""] = location.hash.slice(1).split("?", 2);
  return { name, query: new URLSearchParams(query) };
}

export function openTab(name) {
  open = name;
  write();
}

/** Notes what a tab shows: a `subject` for the title, and a `query` for the address that leads back to it. */
export function describe(name, { subject = "", query = {} }) {
  shown[name] = { subject, query: new URLSearchParams(query).toString() };
  if (name === open) write();
}

function write() {
  const { subject, query } = shown[open] ?? {};
  history.replaceState(null, "", `#${open}${query ? `?${query}` : ""}`);
  const tab = `${open[0].toUpperCase()}${open.slice(1)}`;
  document.title = `${tab}${subject ? `: ${subject}` : ""} · rrnn explore`;
}
