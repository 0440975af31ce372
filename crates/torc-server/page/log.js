// The output of an attempt: any size, opened at its end or at the evidence, searched on the server.
// @ts-check
import { problem } from "./act.js";
import { ansi } from "./ansi.js";
import { get, REPORT } from "./api.js";
import { add, button, command, copy, download, h, put } from "./dom.js";
import { bytes, count, num } from "./format.js";
import { every } from "./live.js";

const PIECE = 64 << 10;
const MAX_LINES = 1200;
const STREAMS = [["stderr", "Standard error"], ["stdout", "Standard output"], ["script_stderr", "Recovery script, error"], ["script_stdout", "Recovery script, output"]];

/** @param {import("./app.js").Place} place @param {any} job @param {{run_id: number, attempt_id: number, stream: string, at: number | null, running: boolean, hasScript: boolean, to: (stream: string) => void}} options */
export function log(place, job, options) {
  const { stream } = options;
  const which = { stream, run_id: options.run_id, attempt_id: options.attempt_id };
  const lines = h("div.loglines", { role: "log", "aria-label": "Output" });
  const [facts, hits, news] = [h("span.quiet"), h("span.quiet", { role: "status" }), h("button.news", { hidden: true, onclick: () => toEnd() })];
  const box = h("div.logbox", { tabindex: "0", "data-key": "l", onscroll: scrolled }, lines);
  /** Bytes of the file that are in the document. */
  let begin = 0, end = 0, size = 0, follows = options.at === null;
  /** Number of the first line, when it is known. @type {number | null} */ let first = null;
  let rest = "";
  let busy = false;

  function split(/** @type {string} */ text, /** @type {any} */ isLast) {
    const all = (rest + text).split("\n");
    rest = isLast ? "" : all.pop() || "";
    if (isLast && all.length && all[all.length - 1] === "") all.pop();
    return all;
  }

  /** @param {string[]} texts @param {number | null} number */
  function drawn(texts, number) {
    let isFolded = false;
    return texts.map((text, i) => {
      const n = number === null ? null : number + i;
      const [, mark, title] = /^::(group|endgroup)::(.*)/.exec(text) || [];
      if (mark) isFolded = mark === "group";
      const one = h("div.line", { id: n === null ? null : "L" + n, hidden: isFolded && !mark, class: mark || "" }, n === null ? h("span.no") : h("a.no", { href: "#L" + n, "aria-label": `line ${n}`, onclick: mine }, num(n)),
        mark === "group" ? h("button.plain.text", { "aria-expanded": "false", onclick: () => fold(one) }, title || "group") : h("span.text", ansi(mark ? "" : text)));
      return one;
    });
  }

  /** A link to a line; with Shift, to the lines from the one before. @param {MouseEvent} e */
  function mine(e) {
    e.preventDefault();
    if (REPORT) return;
    const [, before] = /^#L(\d+)/.exec(location.hash) || [];
    const line = Number(/** @type {HTMLAnchorElement} */ (e.currentTarget).hash.slice(2));
    const from = e.shiftKey && before ? Number(before) : line;
    history.replaceState(null, "", from === line ? `#L${line}` : `#L${Math.min(from, line)}-L${Math.max(from, line)}`);
    markLines();
  }

  /** The lines that the address names. */
  function markLines() {
    const [, from, to] = /^#L(\d+)(?:-L(\d+))?/.exec(location.hash) || [];
    lines.querySelectorAll(".hit").forEach((one) => one.classList.remove("hit"));
    for (let n = Number(from); n <= Math.min(Number(to || from), Number(from) + MAX_LINES); n++) reveal(lines.querySelector("#L" + n));
  }

  /** Opens or closes a group of lines. @param {Element} head @param {boolean} [open] */
  function fold(head, open) {
    const knob = /** @type {Element} */ (head.querySelector("button"));
    const isOpen = open ?? knob.getAttribute("aria-expanded") !== "true";
    knob.setAttribute("aria-expanded", String(isOpen));
    for (let one = head.nextElementSibling; one && !one.matches(".group,.endgroup"); one = one.nextElementSibling) one.toggleAttribute("hidden", !isOpen);
  }

  /** Marks a line, which may be in a group that is closed. @param {Element | null} line */
  function reveal(line) {
    if (!line) return;
    line.classList.add("hit");
    if (!line.hasAttribute("hidden")) return;
    for (let head = line.previousElementSibling; head; head = head.previousElementSibling) if (head.matches(".group")) return fold(head, true);
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
      if (!texts.length) put(lines, h("p.empty", options.running ? "Nothing written so far." : "It wrote nothing here."));
      put(facts, `${bytes(size)}`);
    } finally {
      busy = false;
    }
  }

  function earlier() {
    return h("button.plain.earlier", { onclick: back }, `↑ ${bytes(begin)} above`);
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
    if (!follows && !nearEnd()) { news.hidden = false; news.textContent = `↓ ${size - end > PIECE ? bytes(size - end) : count(piece.text.split("\n").length - 1, "new line")}`; return; }
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
  const text = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Search the whole output", "aria-label": "Search the whole output", onkeydown: (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") { e.preventDefault(); if (found && found.q === wanted()) jump(e.shiftKey ? -1 : 1); else search(); } } }));
  const exact = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  const wanted = () => text.value + regex.checked + exact.checked;
  const regex = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  /** @type {{q: string, at: number, hits: any[], total: number} | null} */ let found = null;

  async function search() {
    if (!text.value) { put(hits); found = null; return; }
    put(hits, "searching…");
    try {
      const view = await get(`/jobs/${job.id}/logs/search`, { ...which, text: text.value, regex: regex.checked || undefined, case: exact.checked || undefined });
      found = { q: wanted(), at: -1, hits: view.hits, total: view.total };
      if (!view.hits.length) { put(hits, `not found in ${num(view.lines)} lines`); return; }
      jump(1);
    } catch (error) {
      put(hits, problem(error));
    }
  }

  async function jump(/** @type {number} */ step) {
    if (!found || !found.hits.length) return;
    found.at = (found.at + step + found.hits.length) % found.hits.length;
    const hit = found.hits[found.at];
    put(hits, `${num(found.at + 1)} of ${num(found.total)}`);
    await showLine(hit.offset, hit.line);
  }

  async function showLine(/** @type {number} */ offset, /** @type {number} */ line) {
    follows = false;
    await open(offset, line);
    box.scrollTop = 0;
    if (begin > 0 && begin === offset) reveal(lines.querySelector(".line"));
    reveal(lines.querySelector("#L" + line));
  }

  async function start() {
    const asked = /^#L(\d+)/.exec(location.hash);
    try {
      if (asked && !REPORT) {
        const view = await get(`/jobs/${job.id}/logs/search`, { ...which, line: Number(asked[1]) });
        if (view.hits.length) { await showLine(view.hits[0].offset, Number(asked[1])); return markLines(); }
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
      if (left < length) { reveal(line); box.scrollTop = /** @type {HTMLElement} */ (line).offsetTop - box.offsetTop - 80; return; }
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

  const wrap = h("label.inline", h("input", { type: "checkbox", onchange: (/** @type {Event} */ e) => lines.classList.toggle("wrap", /** @type {HTMLInputElement} */ (e.target).checked) }), "wrap");
  const tabs = STREAMS.filter(([key]) => options.hasScript || !key.startsWith("script")).map(([key, title]) => h("button.tab", { role: "tab", "aria-selected": String(key === stream), onclick: () => options.to(key) }, title));
  const path = button("Copy path", async () => { const piece = await get(`/jobs/${job.id}/logs`, { ...which, limit: 1 }).catch(() => null); copy(piece ? piece.path : "", path); });
  const el = h("section.log", { "aria-label": "Log" },
    h("div.logbar", h("div.tabs", { role: "tablist", "aria-label": "Streams" }, tabs), facts,
      REPORT ? null : h("span.push.row", text, h("label.inline", regex, "regex"), h("label.inline", exact, "case"),
        button("↑", () => jump(-1), { "aria-label": "Previous hit", "data-key": "N" }), button("↓", () => (found ? jump(1) : search()), { "aria-label": "Next hit", "data-key": "n" }), hits, wrap, path,
        button("Download", save))),
    box, news,
    REPORT ? null : h("details", h("summary", "The same in a terminal"), command(`torc logs ${job.id} --attempt ${options.attempt_id} --${stream.includes("stdout") ? "stdout" : "stderr"}`)));
  if (options.running) place.leave(every(more, 1000));
  start();
  return el;
}
