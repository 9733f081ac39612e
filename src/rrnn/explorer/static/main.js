import { address, openTab } from "./address.js";
import { ask } from "./api.js";
import { design } from "./design.js";
import { explain } from "./explain.js";
import { element } from "./markup.js";
import { score } from "./score.js";
import { tabs } from "./tabs.js";

const PANELS = ["design", "score", "explain"];

const open = {}; // panel → the function to call when it is opened
let load = () => {}; // shows the cell that the address holds, if it holds one

try {
  const found = await ask("start");
  const scored = score(found);
  open.score = scored.opened;
  load = design(found.cells, (cell) => {
    scored.pickCell(cell);
    choose("score");
    scrollTo(0, 0);
  });
  open.explain = await explain();
} catch (error) {
  document.getElementById("main").prepend(element("p", { class: "card problem", role: "alert" }, error.message));
}

const choose = tabs(document.querySelector(".top [role=tablist]"), (name) => {
  for (const other of PANELS) document.getElementById(`panel-${other}`).hidden = other !== name;
  open[name]?.();
  openTab(name);
});
choose(address().name);
addEventListener("hashchange", () => {
  const { name, query } = address();
  if (!PANELS.includes(name)) return; // #main, the target of the skip link, is no panel
  if (name === "design") load(query);
  choose(name);
});
document.body.dataset.ready = "yes";
