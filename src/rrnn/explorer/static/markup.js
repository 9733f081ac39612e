// Creates HTML elements, and copies SVG and MathML node by node, only with allowed names: nothing that the server
// sends is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";
const ALLOWED = {
  [SVG]: new Set("svg title desc g rect circle path text tspan".split(" ")),
  [MATHML]: new Set("math mrow mi mo mn msub msup msubsup mfrac msqrt mspace".split(" ")),
};
const ATTRIBUTES = new Set(
  ("class role width height viewBox x y cx cy r rx d dy font-size font-style text-anchor text-decoration " +
    "fill-opacity xml:space stretchy lspace rspace").split(" "),
);

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** Fades parts of the page that show an earlier state, and keeps them from being used, selected or copied. */
export function stale(is, ...parts) {
  for (const part of parts) {
    part.classList.toggle("stale", is);
    part.inert = is;
  }
}

/** Turns SVG or MathML text into elements of this page. */
export function picture(text) {
  const parsed = new DOMParser().parseFromString(text, "application/xml").documentElement;
  return copy(parsed) ?? document.createTextNode("");
}

function copy(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  if (node.nodeType !== Node.ELEMENT_NODE || !ALLOWED[node.namespaceURI]?.has(node.localName)) return null;
  const made = document.createElementNS(node.namespaceURI, node.localName);
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name)) made.setAttribute(name, value);
  for (const child of node.childNodes) {
    const inner = copy(child);
    if (inner) made.append(inner);
  }
  return made;
}

/** Formats a number with four digits and a true minus sign; several components in angle brackets. */
export function number(value) {
  if (Array.isArray(value)) return `⟨${value.map((x) => number(x ?? "±∞")).join(", ")}⟩`;
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("e+", "e").replaceAll("-", "−");
}

/** Returns a bar of a share of its full length: green for positive values, red for negative ones. */
export function bar(value, largest) {
  const made = element("span", { class: value < 0 ? "bar minus" : "bar", "aria-hidden": "true" });
  made.style.setProperty("--part", largest ? Math.min(1, Math.abs(value) / largest) : 0);
  return made;
}
