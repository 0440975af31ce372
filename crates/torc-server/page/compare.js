// The outputs of two attempts: numbers, times and directories are masked, and what is left differs.
// @ts-check
import { problem } from "./act.js";
import { ansi } from "./ansi.js";
import { get } from "./api.js";
import { h, put } from "./dom.js";
import { num } from "./format.js";

/** Bytes at the end of each output that are compared, and lines of them. */
const BYTES = 256 << 10;
const LINES = 1500;
/** Equal lines that stay beside a difference. */
const AROUND = 2;

/** `=` in both, `-` only in the earlier one, `+` only in the later one. @typedef {{sign: string, text: string}} Line */

/** @param {any} job @param {any} earlier @param {any} later @param {string} stream @param {() => void} back */
export function compared(job, earlier, later, stream, back) {
  const lines = h("div.loglines.wrap", { role: "log", "aria-label": "Comparison" }, h("p.empty", "loading both"));
  const name = (/** @type {any} */ a) => `${a.run_id > 1 ? `run ${a.run_id}, ` : ""}attempt ${a.attempt_id}`;
  const load = async (/** @type {any} */ a) => (await get(`/jobs/${job.id}/logs`, { stream, run_id: a.run_id, attempt_id: a.attempt_id, offset: -BYTES, limit: BYTES })).text;
  Promise.all([load(earlier), load(later)]).then(([a, b]) => {
    const all = folded(differences(split(a), split(b)));
    const isSame = all.every((one) => typeof one === "number" || one.sign === "=");
    put(lines, isSame ? h("p.empty", all.length ? "They differ in nothing but numbers, times and paths." : "Both wrote nothing here.") : all.map(row));
  }).catch((error) => put(lines, problem(error)));
  return h("section.log", { "aria-label": "Attempts compared" },
    h("div.logbar", h("strong", `${stream}: ${name(earlier)} (−) against ${name(later)} (+)`), h("span.push", h("button.small", { onclick: back }, "Back to the output"))),
    h("div.logbox", { tabindex: "0" }, lines));
}

/** @param {Line | number} one */
function row(one) {
  if (typeof one === "number") return h("div.line.quiet", `… ${num(one)} equal line${one === 1 ? "" : "s"}`);
  const mark = one.sign === "=" ? " " : one.sign === "-" ? "−" : "+";
  return h(`div.line${one.sign === "-" ? ".gone" : one.sign === "+" ? ".new" : ""}`, null, h("span.no", mark), h("span.text", ansi(one.text)));
}

function split(/** @type {string} */ text) {
  return text.replace(/\n$/, "").split("\n").filter((/** @type {any} */ _, /** @type {any} */ __, /** @type {any} */ all) => all.length > 1 || all[0] !== "").slice(-LINES);
}

/** A line without what differs from run to run anyway. @param {string} line */
function masked(line) {
  return line.replace(/(^|[\s"'(])[./][^\s"']*\//g, "$1/").replace(/\d+(?:[.:]\d+)*/g, "0");
}

/** The longest common subsequence, after equal ends are set aside. @param {string[]} a @param {string[]} b @returns {Line[]} */
function differences(a, b) {
  const [ka, kb] = [a.map(masked), b.map(masked)];
  let before = 0, after = 0;
  while (before < a.length && before < b.length && ka[before] === kb[before]) before++;
  while (after < a.length - before && after < b.length - before && ka[a.length - 1 - after] === kb[b.length - 1 - after]) after++;
  const [na, nb] = [a.length - before - after, b.length - before - after];
  // Cell (i, j): length of the longest common part of what follows.
  const table = new Uint16Array((na + 1) * (nb + 1));
  const at = (/** @type {number} */ i, /** @type {any} */ j) => i * (nb + 1) + j;
  for (let i = na - 1; i >= 0; i--) {
    for (let j = nb - 1; j >= 0; j--) table[at(i, j)] = ka[before + i] === kb[before + j] ? table[at(i + 1, j + 1)] + 1 : Math.max(table[at(i + 1, j)], table[at(i, j + 1)]);
  }
  /** @type {Line[]} */ const out = b.slice(0, before).map((text) => ({ sign: "=", text }));
  for (let i = 0, j = 0; i < na || j < nb;) {
    if (i < na && j < nb && ka[before + i] === kb[before + j]) { out.push({ sign: "=", text: b[before + j] }); i++; j++; }
    else if (i < na && (j === nb || table[at(i + 1, j)] >= table[at(i, j + 1)])) out.push({ sign: "-", text: a[before + i++] });
    else out.push({ sign: "+", text: b[before + j++] });
  }
  return out.concat(b.slice(b.length - after).map((text) => ({ sign: "=", text })));
}

/** Equal lines far from a difference become their number. @param {Line[]} all @returns {(Line | number)[]} */
function folded(all) {
  /** @type {(Line | number)[]} */ const out = [];
  all.forEach((line, i) => {
    const isNear = all.slice(Math.max(0, i - AROUND), i + AROUND + 1).some((one) => one.sign !== "=");
    const last = out[out.length - 1];
    if (isNear) out.push(line);
    else if (typeof last === "number") out[out.length - 1] = last + 1;
    else out.push(1);
  });
  return out;
}
