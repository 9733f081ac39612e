// Explain: a run, a sentence, the prediction, and what it rests on.

import { ask } from "./api.js";
import { element } from "./markup.js";

const $ = (id) => document.getElementById(id);

export async function explain() {
  const { runs } = await ask("runs");
  $("run").append(...runs.map((name) => element("option", { value: name }, name)));
}
