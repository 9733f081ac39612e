import { ask } from "./api.js";
import { design } from "./design.js";
import { explain } from "./explain.js";
import { element } from "./markup.js";
import { score } from "./score.js";
import { tabs } from "./tabs.js";

const PANELS = ["design", "score", "explain"];

const open = {}; // panel → the function to call when it is opened

try {
  const found = await ask("start");
  design(found.cells);
  open.score = score(found);
  open.explain = await explain();
} catch (error) {
  document.getElementById("main").prepend(element("p", { class: "card problem", role: "alert" }, error.message));
}

const choose = tabs(document.querySelector(".top [role=tablist]"), (name) => {
  for (const other of PANELS) document.getElementById(`panel-${other}`).hidden = other !== name;
  open[name]?.();
  history.replaceState(null, "", `#${name}`);
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · rrnn explore`;
});
choose(location.hash.slice(1));
addEventListener("hashchange", () => {
  const name = location.hash.slice(1);
  if (PANELS.includes(name)) choose(name); // #main, the target of the skip link, is no panel
});
document.body.dataset.ready = "yes";
