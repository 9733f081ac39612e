import { ask } from "./api.js";
import { design } from "./design.js";
import { explain } from "./explain.js";
import { element } from "./markup.js";
import { score } from "./score.js";
import { tabs } from "./tabs.js";

const PANELS = ["design", "score", "explain"];

let openExplain = () => {};

try {
  const found = await ask("start");
  design(found.cells);
  score(found);
  openExplain = await explain();
} catch (error) {
  document.getElementById("main").prepend(element("p", { class: "card problem", role: "alert" }, error.message));
}

const choose = tabs(document.querySelector(".top [role=tablist]"), (name) => {
  for (const other of PANELS) document.getElementById(`panel-${other}`).hidden = other !== name;
  if (name === "explain") openExplain();
  history.replaceState(null, "", `#${name}`);
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · rrnn explore`;
});
choose(location.hash.slice(1));
document.body.dataset.ready = "yes";
