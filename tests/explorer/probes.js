// What a test asks the page about itself.

/** Visible texts whose contrast with what is behind them is below WCAG's AA: [ratio, text, class]. */
function faint() {
  const parse = (colour) => {
    const parts = colour.match(/[\d.]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1; // color(srgb 0.5 …)
    return [parts[0] * scale, parts[1] * scale, parts[2] * scale, parts[3] ?? 1];
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const behind = (e) => {
    const colour = e ? parse(getComputedStyle(e).backgroundColor) : [255, 255, 255, 1];
    return colour[3] === 1 ? colour : over(colour, behind(e.parentElement));
  };
  const found = [];
  for (const e of document.body.querySelectorAll("*")) {
    // the editor's letters are those of the lines behind it, which are looked at
    if (e.closest("svg") || e.matches("textarea, :disabled") || !e.checkVisibility({ opacityProperty: true })) continue;
    const own = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => n.data).join("");
    const text = e.matches("input") ? e.value : own;
    if (!text.trim()) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(over(parse(style.color), behind(e))), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push([ratio, text.slice(0, 40), e.className]);
  }
  return found;
}

/** What one can reach or hear of and that has no name. */
function nameless() {
  const asked = 'button, input, select, textarea, [tabindex="0"], [role=tabpanel], [role=region], img';
  return [...document.querySelectorAll(asked)]
    .filter((e) => !(e.labels?.length || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby")
      || e.textContent.trim() || e.hasAttribute("alt")))
    .map((e) => e.outerHTML.slice(0, 100));
}
