// Elements and text nodes. Data never becomes markup.
// @ts-check

const SVG = "http://www.w3.org/2000/svg";

/** A node, a text, nothing, or a list of these. @typedef {any} Child */

/** Makes an element: `h("button.primary", { onclick }, "Retry")`; properties may be left out.
 * @param {string} tag name with classes
 * @param {...Child} children
 * @returns {HTMLElement} */
export function h(tag, ...children) {
  const [name, ...classes] = tag.split(".");
  const el = document.createElement(name || "div");
  if (name === "button") el.setAttribute("type", "button");
  return /** @type {HTMLElement} */ (fill(el, classes, children));
}

/** The same for SVG.
 * @param {string} tag @param {...Child} children
 * @returns {SVGElement} */
export function s(tag, ...children) {
  const [name, ...classes] = tag.split(".");
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, name), classes, children));
}

/** @param {Element} el @param {string[]} classes @param {Child[]} children */
function fill(el, classes, children) {
  if (classes.length) el.classList.add(...classes);
  const props = children[0] && Object.getPrototypeOf(children[0]) === Object.prototype ? children.shift() : {};
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), /** @type {any} */ (value));
    else if (key === "style") for (const [k, v] of Object.entries(value)) /** @type {any} */ (el).style.setProperty(k, v);
    else if (key === "class") el.classList.add(...String(value).split(" ").filter(Boolean));
    else if (key === "value" || key === "checked") /** @type {any} */ (el)[key] = value;
    else el.setAttribute(key, value === true ? "" : String(value));
  }
  add(el, children);
  return el;
}

/** A small button. @param {Child} text @param {(e: any) => any} onclick @param {Record<string, any>} [more] @returns {HTMLElement} */
export function button(text, onclick, more) {
  return h("button.small", { onclick, ...more }, text);
}

/** @param {Node} el @param {Child[]} children */
export function add(el, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(el, child);
    else if (child instanceof Node) el.appendChild(child);
    else el.appendChild(document.createTextNode(String(child)));
  }
}

/** Puts children in the place of what is there. @param {Element} el @param {...Child} children */
export function put(el, ...children) {
  el.replaceChildren();
  add(el, children);
  return el;
}

/** Copies text, and says so on the button. @param {string} text @param {HTMLElement} button */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Cannot copy here";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** A line of code with a copy button. @param {string} text */
export function command(text) {
  const button = h("button.small", { onclick: () => copy(text, button) }, "Copy");
  return h("div.command", h("code", text), button);
}

/** Hands a text to the user as a file. @param {string} name @param {BlobPart} content @param {string} type */
export function download(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  document.body.appendChild(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

let toastTimer = 0;
/** Says something for a few seconds. @param {string} text @param {boolean} [bad] */
export function toast(text, bad) {
  let box = document.getElementById("toast");
  if (!box) document.body.appendChild(box = h("div", { id: "toast", role: "status" }));
  box.className = bad ? "bad show" : "show";
  box.textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.className = ""; }, bad ? 8000 : 4000);
}
