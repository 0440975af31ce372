// What a terminal would make of a line, as text nodes and classes. Nothing else of it is obeyed.
// @ts-check
import { h } from "./dom.js";

const SGR = /\x1b\[([0-9;]*)m/g;
// Other control sequences and characters are not shown.
const OTHER = /\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
// Characters that turn the direction of writing around would let a line lie.
const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;
const MAX = 4000;

/** The last state of a line that was written over (progress bars). @param {string} line */
export function collapsed(line) {
  const text = line.replace(/\r+$/, "");
  const last = text.lastIndexOf("\r");
  return last < 0 ? text : text.slice(last + 1);
}

/** @param {string} line @returns {(Node | string)[]} */
export function ansi(line) {
  let text = collapsed(line).replace(TURNS, "�");
  let left = 0;
  if (text.length > MAX) { left = text.length - MAX; text = text.slice(0, MAX); }
  /** @type {(Node | string)[]} */ const out = [];
  /** @type {Set<string>} */ let classes = new Set();
  let from = 0;
  const push = (/** @type {string} */ piece) => {
    const clean = piece.replace(OTHER, "");
    if (clean) out.push(classes.size ? h("span", { class: [...classes].join(" ") }, clean) : clean);
  };
  for (const found of text.matchAll(SGR)) {
    push(text.slice(from, found.index));
    from = found.index + found[0].length;
    classes = styled(classes, found[1]);
  }
  push(text.slice(from));
  if (left) out.push(h("span.more", ` … ${left.toLocaleString("en-US")} more characters`));
  return out;
}

/** Several lines. @param {string} text */
export function ansiLines(text) {
  return text.split("\n").map((line) => [ansi(line), "\n"]);
}

/** @param {Set<string>} before @param {string} codes */
function styled(before, codes) {
  let now = new Set(before);
  const list = codes === "" ? [0] : codes.split(";").map(Number);
  for (let i = 0; i < list.length; i++) {
    const code = list[i];
    const drop = (/** @type {string} */ start) => { now = new Set([...now].filter((c) => !c.startsWith(start))); };
    if (code === 0) now.clear();
    else if (code === 1) now.add("a-bold");
    else if (code === 2) now.add("a-dim");
    else if (code === 3) now.add("a-it");
    else if (code === 4) now.add("a-ul");
    else if (code === 22) { now.delete("a-bold"); now.delete("a-dim"); }
    else if (code >= 30 && code <= 37) { drop("a-f"); now.add("a-f" + (code - 30)); }
    else if (code >= 90 && code <= 97) { drop("a-f"); now.add("a-f" + (code - 90)); }
    else if (code === 39) drop("a-f");
    else if (code === 38 || code === 48) i += list[i + 1] === 5 ? 2 : 4;
  }
  return now;
}
