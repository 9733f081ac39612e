// A picture whose arcs and states can be highlighted. The server draws each in its own group: arcs, states, labels.

import { element, picture, stale } from "./markup.js";

export function stage(figure) {
  const frame = figure.querySelector(".picture");
  let groups = [], edges = [], states = 0, svg = null;

  // A picture that is wider than its frame can be scrolled, also with the keyboard.
  const reach = () => {
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  };
  new ResizeObserver(reach).observe(frame);

  return {
    show(drawn) {
      stale(false, frame);
      if (!drawn.svg) {
        [groups, edges, states, svg] = [[], [], 0, null];
        frame.replaceChildren(element("p", { class: "note" }, drawn.why));
        return;
      }
      svg = picture(drawn.svg);
      svg.style.setProperty("--wide", parseFloat(svg.getAttribute("width")));
      groups = [...svg.children].filter((child) => child.localName === "g");
      [edges, states] = [drawn.edges, drawn.states];
      for (const group of groups) group.classList.remove("on");
      frame.replaceChildren(svg);
      reach();
    },
    /** Highlights exactly these states and arrows, given by number. */
    light(litStates = [], litEdges = []) {
      groups.forEach((group, i) => {
        const on = i < edges.length ? litEdges.includes(i)
          : i < edges.length + states ? litStates.includes(i - edges.length)
          : litEdges.includes(i - edges.length - states);
        group.classList.toggle("on", on);
      });
    },
    stale() {
      stale(true, frame);
    },
  };
}
