// The output of an attempt: any size, opened at its end or at the evidence, searched on the server.
// @ts-check
import { problem } from "./act.js";
import { ansi } from "./ansi.js";
import { get, REPORT } from "./api.js";
import { add, command, copy, download, h, put } from "./dom.js";
import { bytes, num } from "./format.js";
import { every } from "./live.js";

const PIECE = 64 << 10;
const MAX_LINES = 1200;
const STREAMS = [["stderr", "Standard error"], ["stdout", "Standard output"], ["script_stderr", "Recovery script, error"], ["script_stdout", "Recovery script, output"]];

/** @param {import("./app.js").Place} place @param {any} job @param {{run_id: number, attempt_id: number, stream: string, at: number | null, running: boolean, hasScript: boolean, to: (stream: string) => void}} options */
export function log(place, job, options) {
  const { stream } = options;
  const which = { stream, run_id: options.run_id, attempt_id: options.attempt_id };
  const lines = h("div.loglines", { role: "log", "aria-label": "Output" });
  const [facts, hits, news] = [h("span.quiet"), h("span.quiet", { role: "status" }), h("button.news", { type: "button", hidden: true, onclick: () => toEnd() })];
  const box = h("div.logbox", { tabindex: "0", "data-key": "l", onscroll: scrolled }, lines);
  /** Bytes of the file that are in the document. */
  let begin = 0, end = 0, size = 0, follows = options.at === null;
  /** Number of the first line, when it is known. @type {number | null} */ let first = null;
  let rest = "";
  let waiting = 0;
  let busy = false;

  function split(text, isLast) {
    const all = (rest + text).split("\n");
    rest = isLast ? "" : all.pop() || "";
    if (isLast && all.length && all[all.length - 1] === "") all.pop();
    return all;
  }

  /** @param {string[]} texts @param {number | null} number */
  function drawn(texts, number) {
    return texts.map((text, i) => {
      const n = number === null ? null : number + i;
      return h("div.line", n === null ? null : { id: "L" + n }, n === null ? h("span.no") : h("a.no", { href: "#L" + n, "aria-label": `line ${n}` }, num(n)), h("span.text", null, ansi(text)));
    });
  }

  /** Shows a piece anew. @param {number} offset @param {number | null} number */
  async function open(offset, number) {
    busy = true;
    try {
      const piece = await get(`/jobs/${job.id}/logs`, { ...which, offset, limit: PIECE });
      rest = "";
      begin = piece.offset;
      end = piece.next_offset;
      size = piece.size;
      first = begin === 0 ? 1 : number;
      let texts = split(piece.text, true);
      // The first line is cut off unless the file begins there or a line was asked for.
      if (begin > 0 && number === null && texts.length > 1) { begin += new TextEncoder().encode(texts[0]).length + 1; texts = texts.slice(1); }
      put(lines, begin > 0 ? earlier() : null, drawn(texts.slice(-MAX_LINES), first));
      if (!texts.length) put(lines, h("p.empty", null, options.running ? "Nothing written so far." : "It wrote nothing here."));
      put(facts, `${bytes(size)}`);
    } finally {
      busy = false;
    }
  }

  function earlier() {
    return h("button.plain.earlier", { type: "button", onclick: back }, `↑ ${bytes(begin)} above`);
  }

  async function back() {
    if (busy || begin === 0) return;
    busy = true;
    try {
      const from = Math.max(0, begin - PIECE);
      const piece = await get(`/jobs/${job.id}/logs`, { ...which, offset: from, limit: begin - from });
      let texts = piece.text.replace(/\n$/, "").split("\n");
      let at = piece.offset;
      if (at > 0 && texts.length > 1) { at += new TextEncoder().encode(texts[0]).length + 1; texts = texts.slice(1); }
      const height = box.scrollHeight;
      begin = at;
      first = begin === 0 ? 1 : null;
      const old = lines.querySelector(".earlier");
      if (old) old.remove();
      lines.prepend(...(begin > 0 ? [earlier()] : []), ...drawn(texts, first));
      while (lines.childElementCount > MAX_LINES * 1.5) { lines.lastElementChild?.remove(); follows = false; }
      box.scrollTop += box.scrollHeight - height;
    } finally {
      busy = false;
    }
  }

  async function more() {
    if (busy) return;
    const piece = await get(`/jobs/${job.id}/logs`, { ...which, offset: end, limit: PIECE }).catch(() => null);
    if (!piece || piece.size === size && piece.next_offset === end) return;
    size = piece.size;
    put(facts, bytes(size));
    if (!follows && !nearEnd()) { waiting = size - end; news.hidden = false; news.textContent = `↓ ${bytes(waiting)} new`; return; }
    if (size - end > 4 * PIECE) return toEnd();
    const texts = split(piece.text, false);
    end = piece.next_offset;
    const known = first === null ? null : first + lines.querySelectorAll(".line").length;
    lines.querySelector(".empty")?.remove();
    add(lines, drawn(texts, known));
    while (lines.childElementCount > MAX_LINES) { lines.querySelector(".line")?.remove(); first = null; }
    if (follows) box.scrollTop = box.scrollHeight;
  }

  const nearEnd = () => end >= size && box.scrollTop + box.clientHeight > box.scrollHeight - 40;

  function scrolled() {
    follows = nearEnd();
    if (follows) news.hidden = true;
    if (box.scrollTop < 60 && begin > 0 && lines.childElementCount > 5) back();
    if (!busy && end < size && box.scrollTop + box.clientHeight > box.scrollHeight - 200) forward();
  }

  async function forward() {
    follows = false;
    const had = end;
    const piece = await get(`/jobs/${job.id}/logs`, { ...which, offset: end, limit: PIECE });
    if (end !== had) return;
    end = piece.next_offset;
    const known = first === null ? null : first + lines.querySelectorAll(".line").length;
    add(lines, drawn(split(piece.text, end >= piece.size), known));
    while (lines.childElementCount > MAX_LINES * 1.5) { lines.querySelector(".line")?.remove(); first = null; }
  }

  async function toEnd() {
    news.hidden = true;
    await open(-PIECE, null);
    follows = true;
    box.scrollTop = box.scrollHeight;
  }

  // Search: over the whole file, on the server.
  const text = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Search the whole output", "aria-label": "Search the whole output", onkeydown: (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") { e.preventDefault(); if (found && found.q === text.value + regex.checked) jump(e.shiftKey ? -1 : 1); else search(); } } }));
  const regex = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  /** @type {{q: string, at: number, hits: any[], total: number} | null} */ let found = null;

  async function search() {
    if (!text.value) { put(hits); found = null; return; }
    put(hits, "searching…");
    try {
      const view = await get(`/jobs/${job.id}/logs/search`, { ...which, text: text.value, regex: regex.checked || undefined });
      found = { q: text.value + regex.checked, at: -1, hits: view.hits, total: view.total };
      if (!view.hits.length) { put(hits, `not found in ${num(view.lines)} lines`); return; }
      jump(1);
    } catch (error) {
      put(hits, problem(error));
    }
  }

  async function jump(step) {
    if (!found || !found.hits.length) return;
    found.at = (found.at + step + found.hits.length) % found.hits.length;
    const hit = found.hits[found.at];
    put(hits, `${num(found.at + 1)} of ${num(found.total)}`);
    await showLine(hit.offset, hit.line);
  }

  async function showLine(offset, line) {
    follows = false;
    await open(offset, line);
    box.scrollTop = 0;
    if (begin > 0 && begin === offset) lines.querySelector(".line")?.classList.add("hit");
    document.getElementById("L" + line)?.classList.add("hit");
  }

  async function start() {
    const asked = /^#L(\d+)/.exec(location.hash);
    try {
      if (asked && !REPORT) {
        const view = await get(`/jobs/${job.id}/logs/search`, { ...which, line: Number(asked[1]) });
        if (view.hits.length) return await showLine(view.hits[0].offset, Number(asked[1]));
      }
      if (options.at !== null) {
        await open(Math.max(0, options.at - 2000), null);
        follows = false;
        markEvidence();
      } else await toEnd();
    } catch (error) {
      put(lines, problem(error));
    }
  }

  function markEvidence() {
    // The lines after the 2000 bytes of context begin with the evidence.
    let left = /** @type {number} */ (options.at) - begin;
    for (const line of lines.querySelectorAll(".line")) {
      const length = new TextEncoder().encode(line.querySelector(".text")?.textContent || "").length + 1;
      if (left < length) { line.classList.add("hit"); box.scrollTop = /** @type {HTMLElement} */ (line).offsetTop - box.offsetTop - 80; return; }
      left -= length;
    }
  }

  async function save() {
    const parts = [];
    for (let offset = 0; ;) {
      const piece = await get(`/jobs/${job.id}/logs`, { ...which, offset, limit: 1 << 20 });
      parts.push(piece.text);
      if (piece.next_offset >= piece.size || piece.next_offset === offset) break;
      offset = piece.next_offset;
    }
    download(`${job.name.replace(/[^\w.-]+/g, "_")}_a${options.attempt_id}.${stream}`, parts.join(""), "text/plain");
  }

  const wrap = h("label.inline", null, h("input", { type: "checkbox", onchange: (/** @type {Event} */ e) => lines.classList.toggle("wrap", /** @type {HTMLInputElement} */ (e.target).checked) }), "wrap");
  const tabs = STREAMS.filter(([key]) => options.hasScript || !key.startsWith("script")).map(([key, title]) => h("button.tab", { type: "button", role: "tab", "aria-selected": String(key === stream), onclick: () => options.to(key) }, title));
  const path = h("button.small", { type: "button", onclick: async () => { const piece = await get(`/jobs/${job.id}/logs`, { ...which, limit: 1 }).catch(() => null); copy(piece ? piece.path : "", path); } }, "Copy path");
  const el = h("section.log", { "aria-label": "Log" },
    h("div.logbar", null, h("div.tabs", { role: "tablist", "aria-label": "Streams" }, tabs), facts,
      REPORT ? null : h("span.push.row", null, text, h("label.inline", null, regex, "regex"),
        h("button.small", { type: "button", onclick: () => jump(-1), "aria-label": "Previous hit" }, "↑"), h("button.small", { type: "button", onclick: () => (found ? jump(1) : search()), "aria-label": "Next hit" }, "↓"), hits, wrap, path,
        h("button.small", { type: "button", onclick: save }, "Download"))),
    box, news,
    REPORT ? null : h("details", null, h("summary", null, "The same in a terminal"), command(`torc logs ${job.id} --attempt ${options.attempt_id} --${stream.includes("stdout") ? "stdout" : "stderr"}`)));
  if (options.running) place.leave(every(more, 1000));
  start();
  return el;
}
