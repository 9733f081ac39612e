// Tabs in the ARIA pattern: one tab is in the tab order; the arrow keys, Home and End select another.

export function tabs(list, select) {
  const all = [...list.querySelectorAll("[role=tab]")];

  function choose(tab, focus = false) {
    for (const other of all) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    if (focus) tab.focus();
    select(tab.id.replace("tab-", ""));
  }

  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(event.target);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    choose(all[(next + all.length) % all.length], true);
  });
  return (name) => choose(all.find((tab) => tab.id === `tab-${name}`) ?? all[0]);
}
