// Saves texts and pictures as files, and copies texts.

import { element } from "./markup.js";

export function saveText(text, name, type = "text/plain") {
  saveBlob(new Blob([text], { type }), name);
}

/** Saves a picture as SVG with its style, without highlights. */
export async function saveSvg(drawing, name) {
  saveText(styled(drawing, await style()), name, "image/svg+xml");
}

/** Saves a picture as PNG, three times as large, on white, in the page's font. */
export async function savePng(drawing, name, scale = 3) {
  const light = (await style()).replace(/@media[^]*$/, "");
  const faces = await Promise.all([face("math.woff2", "normal"), face("math-italic.woff2", "italic")]);
  const family = light.replace("font-family:serif", 'font-family:"rrnn Math",serif');
  const url = URL.createObjectURL(new Blob([styled(drawing, faces.join("") + family)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = element("canvas", { width: image.naturalWidth * scale, height: image.naturalHeight * scale });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    saveBlob(await new Promise((done) => canvas.toBlob(done, "image/png")), name);
  } finally {
    URL.revokeObjectURL(url);
  }
}

export function copies(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copying is not allowed";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
}

async function style() {
  return (await fetch("/picture.css")).text();
}

function styled(drawing, css) {
  return drawing.replaceAll('<g class="on">', "<g>").replace("</desc>", () => `</desc><style>${css}</style>`);
}

async function face(file, slant) {
  const bytes = new Uint8Array(await (await fetch(`/${file}`)).arrayBuffer());
  const data = btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
  return `@font-face{font-family:"rrnn Math";font-style:${slant};src:url(data:font/woff2;base64,${data})}`;
}

function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // not before the browser has read it
}
