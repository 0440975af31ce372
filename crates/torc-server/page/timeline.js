// Attempts over time, on a canvas: rows are slots of runners, families or jobs, bars are attempts.
// @ts-check
import { buffer, get, REPORT } from "./api.js";
import { crowds, decode, OPEN, rows, save, squeezed, STATES } from "./bars.js";
import { color } from "./charts.js";
import { button, download, h, put } from "./dom.js";
import { fresh, inks } from "./draw.js";
import { badge, clock, count, dur, num } from "./format.js";
import { every } from "./live.js";
import { timeSpent, whatIf } from "./whatif.js";

/** The strip of the whole run, the axis below it, the names of rows. */
const [STRIP, TOP, LEFT] = [46, 74, 120];
/** The picture is at most this high. */
const MAX_HEIGHT = 4000;
const GROUPS = [["runner", "Rows: runners"], ["family", "Rows: families"], ["job", "Rows: jobs"]];

/** @param {import("./app.js").Place} place */
export async function timeline(place) {
  const id = place.workflow;
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { tabindex: "0", role: "img", "aria-label": "Attempts over time; the table below says the same" }));
  const [tip, panel, what, legend, says, chosen] = [h("div.tip", { hidden: true }), h("section"), h("section"), h("p.legend"), h("span.quiet", { role: "status" }), h("p.quiet.chosen", { "aria-live": "polite" })];
  const box = h("div.timeline", canvas, tip);
  const tool = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ run) => button(text, run, { "aria-label": label, title: label });
  let by = place.params.get("rows") || "runner";
  const squeeze = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", onchange: () => { span = null; lay(); } }));
  put(place.main, h("div.row", h("h1", "Timeline"), says, h("span.push.row", null,
    h("select", { "aria-label": "Rows", onchange: (/** @type {Event} */ e) => { by = /** @type {HTMLSelectElement} */ (e.target).value; address(); if (raw && (raw.picture || raw.more)) load(); else lay(); } }, GROUPS.map(([value, text]) => h("option", { value, selected: value === by }, text))),
    h("label.inline", squeeze, "squeeze pauses"),
    tool("−", "Zoom out", () => zoom(1.5)), tool("+", "Zoom in", () => zoom(1 / 1.5)), tool("All", "Show all", () => { span = null; draw(); }),
    tool("PNG", "Save as a picture", () => canvas.toBlob((blob) => { if (blob) download(`timeline_wf${id}.png`, blob, "image/png"); })),
    tool("CSV", "Save the attempts", () => store("csv")), tool("Trace", "Save for ui.perfetto.dev", () => store("json")))), box, chosen, legend, panel, what);
  /** @type {any} */ let raw = null;
  /** As drawn: the same, or without pauses. @type {any} */ let data = null;
  /** @type {any} */ let laid = null;
  /** @type {any} */ let times = null;
  /** What is seen; null: all. @type {[number, number] | null} */ let span = null;
  /** @type {any[]} */ let families = [];
  /** By pixel of the strip. @type {ReturnType<typeof crowds> | null} */ let crowd = null;
  /** The end that is predicted: early, likely and late, ms from the begin. @type {number[] | null} */ let ghost = null;
  let now = 0, shownNow = 0, current = -1, last = 1, seenBefore = "", finer = 0;

  const end = (/** @type {number} */ i) => (data.length[i] === OPEN ? shownNow : data.start[i] + data.length[i]);
  const range = () => span || [0, last];
  const family = (/** @type {number} */ i) => (data.meta[i] >>> 4) & 0xfff;

  /** Of many attempts the server draws those together that share a pixel, and the ones in the span that is seen anew. */
  async function load() {
    const seen = span && raw && raw.picture ? `&from_ms=${Math.round(raw.base + span[0])}&until_ms=${Math.round(raw.base + span[1])}` : "";
    const [bytes, view] = await Promise.all([buffer(`/workflows/${id}/timeline${by === "job" ? "" : `?rows=${by}${seen}`}`), get(`/workflows/${id}/families`)]);
    current = -1;
    const isFirst = !raw;
    raw = decode(bytes);
    if (isFirst && place.params.has("from")) span = [Number(place.params.get("from")) - raw.base, Number(place.params.get("until")) - raw.base];
    seenBefore = seen;
    families = view.families;
    now = view.is_complete ? 0 : Math.max(0, view.at_ms - raw.base);
    const key = (/** @type {string} */ background, /** @type {string} */ text) => h("span", h("span.key", { style: { background } }), text);
    put(legend, families.slice(0, 12).map((f) => key(color(f.number), f.name)), h("span", h("span.key.hatch"), "failed"), h("span", h("span.key.waitkey"), "waited"), key("var(--area)", "CPUs busy"), key("var(--quiet)", "CPUs there"), key("var(--warn)", "ready jobs"));
    lay();
  }

  /** What is seen has an address. */
  function address() {
    // Whole milliseconds, so that the address selects the same again.
    if (span) span = [Math.round(span[0]), Math.round(span[1])];
    const part = span && span.map((t) => Math.round(raw.base + times.back(t)));
    place.replace(`w/${id}/timeline?rows=${by}${part ? `&from=${part[0]}&until=${part[1]}` : ""}`);
  }

  /** Rows and times anew. */
  function lay() {
    if (!raw) return;
    const seen = new Map();
    /** @type {Record<string, (i: number) => number>} */
    const groups = { runner: (/** @type {number} */ i) => raw.meta[i] >>> 16, family: (/** @type {number} */ i) => (raw.meta[i] >>> 4) & 0xfff, job: (/** @type {number} */ i) => { const job = raw.job[i]; if (!seen.has(job)) seen.set(job, seen.size); return seen.get(job); } };
    laid = rows(raw, now, groups[by] || groups.runner);
    times = squeeze.checked ? squeezed(raw, laid.order, now) : { cuts: [], there: (/** @type {number} */ t) => t, back: (/** @type {number} */ t) => t };
    data = raw;
    if (squeeze.checked) {
      const start = raw.start.map(times.there);
      data = { ...raw, start, length: raw.length.map((/** @type {number} */ ms, /** @type {number} */ i) => (ms === OPEN ? OPEN : times.there(raw.start[i] + ms) - start[i])) };
    }
    shownNow = times.there(now);
    last = Math.max(1, shownNow);
    for (let i = 0; i < data.n; i++) last = Math.max(last, end(i));
    if (ghost) last = Math.max(last, ghost[3]);
    if (raw.picture) last = Math.max(last, raw.picture.last_ms);
    squeeze.disabled = !!raw.picture;
    laid.names = by === "family" ? families.map((f) => f.name) : by === "job" ? [...seen.keys()].map((job) => `job ${job}`) : raw.runners.map((/** @type {any} */ r) => r.host);
    crowd = null;
    const isEmpty = !data.n && !raw.picture && !ghost;
    box.hidden = legend.hidden = panel.hidden = isEmpty;
    put(says, isEmpty ? "No attempt has begun yet." : `${count(raw.picture ? raw.picture.attempts : data.n, "attempt")}${raw.several.size ? " (narrow ones drawn together)" : ""} on ${count(data.runners.length, "runner")}`);
    draw();
  }

  let queued = false, teller = 0;
  function draw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; if (data && box.clientWidth > LEFT) paint(); });
  }

  function paint() {
    const width = box.clientWidth;
    const row = Math.max(3, Math.min(18, Math.floor((Math.max(260, innerHeight - 330) - TOP) / Math.max(1, laid.total))));
    const height = Math.min(TOP + laid.total * row + 8, MAX_HEIGHT);
    const c = fresh(canvas, width, height);
    const ink = inks();
    const [from, until] = range();
    const plot = width - LEFT;
    const scale = plot / (until - from);
    c.font = "11px system-ui, sans-serif";
    axis(c, from, until, scale, height, ink);
    strip(c, plot, ink);
    // The names of rows, and the time that an allocation has.
    let under = 0;
    for (let g = 0; g < laid.first.length; g++) {
      const y = TOP + laid.first[g] * row;
      const high = ((g + 1 < laid.first.length ? laid.first[g + 1] : laid.total) - laid.first[g]) * row;
      if (!high || y > height) continue;
      const runner = by === "runner" && data.runners[g];
      if (runner && runner.stop_by_ms) {
        const x = (/** @type {number} */ ms) => Math.max(LEFT, LEFT + (times.there(ms - data.base) - from) * scale);
        c.fillStyle = ink("soft");
        c.fillRect(x(runner.started_ms), y, x(runner.ended_ms || runner.stop_by_ms) - x(runner.started_ms), high);
        c.fillStyle = ink("bad");
        c.fillRect(x(runner.stop_by_ms), y, 2, high);
      }
      c.fillStyle = ink("line");
      if (y - under >= 11 || g === 0 || high >= 11) { c.fillRect(0, y, width, 1); c.fillStyle = ink("quiet"); c.fillText(clip(c, laid.names[g] || "", LEFT - 10), 4, y + 11); under = y; }
    }
    // What is narrower than a pixel is drawn once for each row and pixel, and narrow bars of a row that touch as one.
    const drawn = new Float64Array(laid.total).fill(-1);
    const [runFrom, runOf] = [new Float64Array(laid.total), new Int16Array(laid.total).fill(-1)];
    const bar = Math.max(1, row - 1);
    const flush = (/** @type {number} */ r) => { if (runOf[r] >= 0) { use(color(runOf[r])); c.fillRect(runFrom[r], TOP + r * row + 1, drawn[r] - runFrom[r], bar); runOf[r] = -1; } };
    const [wait, bad] = [ink("wait"), ink("bad")];
    // Setting a style costs more than drawing with it.
    let used = "";
    const use = (/** @type {any} */ next) => { if (next !== used) { c.fillStyle = next; used = next; } };
    for (const i of laid.order) {
      const a = data.start[i], b = data.length[i] === OPEN ? shownNow : a + data.length[i];
      if (b < from || a > until) continue;
      const r = laid.slot[i];
      const left = Math.max(LEFT, LEFT + (a - from) * scale), right = Math.max(left + 1, LEFT + (b - from) * scale);
      if (right - drawn[r] < 1) continue;
      const y = TOP + r * row;
      const of = (data.meta[i] >>> 4) & 0xfff, isBad = (data.meta[i] & 15) >= 4;
      if (right - left < 3 && !isBad && i !== current) {
        if (runOf[r] !== of || left - drawn[r] > 0.75) { flush(r); runOf[r] = of; runFrom[r] = left; }
        drawn[r] = right;
        continue;
      }
      flush(r);
      if (row > 6) { const w = Math.max(LEFT, LEFT + (a - Math.min(data.wait[i], a) - from) * scale, drawn[r]); if (left - w > 2) { use(wait); c.fillRect(w, y + row / 2 - 1, left - w, 2); } }
      use(color(of));
      c.fillRect(left, y + 1, right - left, bar);
      if (isBad) { use(bad); if (right - left < 5) c.fillRect(left, y + 1, right - left, bar); else for (let s = left; s < right; s += 5) c.fillRect(s, y + 1, 2, bar); }
      if (i === current) { c.strokeStyle = ink("ink"); c.lineWidth = 2; c.strokeRect(left, y, right - left, row); }
      drawn[r] = right;
    }
    for (let r = 0; r < laid.total; r++) flush(r);
    if (ghost) shadow(c, ghost.map((t) => Math.max(LEFT, LEFT + (t - from) * scale)), height, ink);
    canvas.dataset.row = String(row);
    clearTimeout(teller);
    teller = setTimeout(tellSpan, 120);
    clearTimeout(finer);
    if (raw.picture && (span || seenBefore)) finer = setTimeout(refine, 300);
  }

  /** What is seen, one by one where it can be. */
  function refine() {
    const [from, until] = range();
    const key = span ? `&from_ms=${Math.round(raw.base + from)}&until_ms=${Math.round(raw.base + until)}` : "";
    if (key !== seenBefore && !brush && !down) load().catch(() => {});
  }

  /** What is predicted: nothing but a light hatch, which is no bar. @param {CanvasRenderingContext2D} c @param {number[]} xs @param {number} height @param {(name: string) => string} ink */
  function shadow(c, [begin, early, likely, late], height, ink) {
    c.fillStyle = ink("accent");
    c.globalAlpha = 0.25;
    for (let x = begin; x < likely; x += 6) c.fillRect(x, TOP, 1, height);
    c.fillRect(early, TOP, Math.max(1, late - early), height);
    c.globalAlpha = 1;
    c.fillRect(likely, TOP - 8, 2, height);
    c.fillText("predicted end", Math.min(likely + 4, box.clientWidth - 80), TOP + 14);
  }

  function clip(/** @type {any} */ c, /** @type {string} */ text, /** @type {number} */ width) {
    while (text.length > 3 && c.measureText(text).width > width) text = text.slice(0, -2) + "…";
    return text;
  }

  function axis(/** @type {any} */ c, /** @type {number} */ from, /** @type {number} */ until, /** @type {any} */ scale, /** @type {number} */ height, /** @type {any} */ ink) {
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5, 1728e5, 6048e5];
    const step = steps.find((ms) => (until - from) / ms < Math.max(2, box.clientWidth / 110)) || 6048e5;
    for (let t = Math.ceil(from / step) * step; t <= until; t += step) {
      const x = LEFT + (t - from) * scale;
      c.fillStyle = ink("line");
      c.fillRect(x, STRIP + 10, 1, height);
      c.fillStyle = ink("quiet");
      const at = times.back(t);
      const text = step < 1000 ? `+${(at / 1000).toFixed(3)} s` : step < 864e5 ? clock(data.base + at) : new Date(data.base + at).toLocaleDateString();
      if (x < box.clientWidth - 60) c.fillText(text, x + 3, STRIP + 20);
    }
    c.fillStyle = ink("bad");
    for (const [at] of times.cuts) { const x = LEFT + (times.there(at) - from) * scale; if (x > LEFT) c.fillText("≈", x - 9, STRIP + 20); }
  }

  /** CPUs busy and there, and ready jobs, over the whole run, with what is seen of it. @param {CanvasRenderingContext2D} c @param {number} plot @param {(name: string) => string} ink */
  function strip(c, plot, ink) {
    if (!crowd || crowd.busy.length !== Math.ceil(plot) + 2) crowd = crowds(data, plot, (t) => (t / last) * plot, end, (ms) => times.there(ms - data.base), shownNow || last);
    const { busy, there, ready } = crowd;
    const most = (/** @type {Float64Array} */ all) => all.reduce((a, b) => Math.max(a, b), 1);
    const [top, crowded] = [Math.max(most(busy), most(there)), most(ready)];
    c.fillStyle = ink("area");
    for (let i = 0; i < plot; i++) { const high = (busy[i] / top) * (STRIP - 8); c.fillRect(LEFT + i, STRIP - high, 1, high); }
    for (const [name, all, of] of /** @type {[string, Float64Array, number][]} */ ([["quiet", there, top], ["warn", ready, crowded]])) {
      c.fillStyle = ink(name);
      for (let i = 0; i < plot; i++) if (all[i] > 0) c.fillRect(LEFT + i, STRIP - (all[i] / of) * (STRIP - 8), 1, 1.5);
    }
    c.fillStyle = ink("quiet");
    [`${num(Math.min(most(busy), most(there)))} of ${num(most(there))} CPUs`, `${num(crowded)} ready at once`, "drag to select"].forEach((text, i) => c.fillText(text, 4, 14 + 14 * i));
    const [a, b] = brush || span || [0, last];
    if (a > 0 || b < last) {
      const x = (/** @type {number} */ t) => LEFT + Math.max(0, Math.min(1, t / last)) * plot;
      c.globalAlpha = 0.75;
      c.fillStyle = ink("card");
      c.fillRect(LEFT, 4, x(a) - LEFT, STRIP - 4);
      c.fillRect(x(b), 4, LEFT + plot - x(b), STRIP - 4);
      c.globalAlpha = 1;
      c.strokeStyle = ink("accent");
      c.lineWidth = 2;
      c.strokeRect(x(a), 4, Math.max(2, x(b) - x(a)), STRIP - 4);
    }
  }

  /** What ran in the selected span, in words. */
  function tellSpan() {
    address();
    if (!span) { put(chosen); return; }
    const [from, until] = span;
    let n = 0, bad = 0, busy = 0;
    for (let i = 0; i < data.n; i++) {
      const a = Math.max(from, data.start[i]), b = Math.min(until, end(i));
      if (b < a) continue;
      n++;
      busy += b - a;
      if ((data.meta[i] & 15) >= 4) bad++;
    }
    if (raw.picture && seenBefore) [n, bad] = [raw.picture.attempts, raw.picture.failed];
    const text = `Selected ${clock(data.base + times.back(Math.max(0, from)))} to ${clock(data.base + times.back(until))} (${dur((until - from) / 1000)}): ${count(n, "attempt")}, ${num(bad)} of them failed, ${(busy / (until - from)).toFixed(1)} at once on average.`;
    if (chosen.textContent !== text) put(chosen, text);
  }

  function under(/** @type {any} */ e) {
    const spot = canvas.getBoundingClientRect();
    const [from, until] = range();
    const t = from + ((e.clientX - spot.left - LEFT) / (spot.width - LEFT)) * (until - from);
    const r = Math.floor((e.clientY - spot.top - TOP) / Number(canvas.dataset.row || 10));
    const slack = (until - from) / (spot.width - LEFT);
    for (let i = data.n - 1; i >= 0; i--) if (laid.slot[i] === r && data.start[i] - slack <= t && end(i) + slack >= t) return i;
    return -1;
  }

  function zoom(/** @type {number} */ factor, /** @type {number | void} */ middle) {
    const [from, until] = range();
    const m = middle ?? (from + until) / 2;
    const next = /** @type {[number, number]} */ ([Math.max(0, m - (m - from) * factor), Math.min(last, m + (until - m) * factor)]);
    if (next[1] - next[0] > 5) span = next[0] <= 0 && next[1] >= last ? null : next;
    draw();
  }

  function pan(/** @type {number} */ share) {
    const [from, until] = range();
    const d = Math.max(-from, Math.min(last - until, (until - from) * share));
    if (d) { span = [from + d, until + d]; draw(); }
  }

  /** A drag in the strip selects, one below it moves. @type {[number, number] | null} */ let brush = null;
  let drag = 0, moved = false, down = false, anchor = 0;
  const inStrip = (/** @type {any} */ e) => e.clientY - canvas.getBoundingClientRect().top < STRIP + 4;
  const ofWhole = (/** @type {any} */ e) => { const spot = canvas.getBoundingClientRect(); return Math.max(0, Math.min(last, ((e.clientX - spot.left - LEFT) / (spot.width - LEFT)) * last)); };
  canvas.addEventListener("wheel", (e) => {
    if (!data || inStrip(e)) return;
    e.preventDefault();
    const spot = canvas.getBoundingClientRect();
    const [from, until] = range();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 1000);
    else zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, from + ((e.clientX - spot.left - LEFT) / (spot.width - LEFT)) * (until - from));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => {
    if (!data) return;
    moved = false;
    drag = e.clientX;
    if (inStrip(e)) { anchor = ofWhole(e); brush = [anchor, anchor]; } else down = true;
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", (e) => {
    if (brush) {
      // A click without a drag shows all again.
      span = brush[1] - brush[0] > Math.max(5, last / 400) ? brush : null;
      brush = null;
      draw();
    } else if (down && !moved) { const i = under(e); if (data.several.has(i)) zoom(0.1, data.start[i]); else if (i >= 0) place.go(`j/${data.job[i]}`); }
    down = false;
  });
  canvas.addEventListener("pointercancel", () => { down = false; brush = null; draw(); });
  canvas.addEventListener("pointermove", (e) => {
    if (!data) return;
    if (brush) { const t = ofWhole(e); brush = [Math.min(anchor, t), Math.max(anchor, t)]; draw(); return; }
    canvas.style.cursor = inStrip(e) ? "crosshair" : "grab";
    if (down) {
      if (Math.abs(e.clientX - drag) > 3) moved = true;
      pan((drag - e.clientX) / (canvas.clientWidth - LEFT));
      drag = e.clientX;
      return;
    }
    hover(under(e), e.offsetX, e.offsetY);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("keydown", (e) => {
    /** @type {Record<string, () => void>} */
    const keys = { a: () => pan(-0.1), d: () => pan(0.1), w: () => zoom(1 / 1.3), s: () => zoom(1.3), Escape: () => { span = null; draw(); }, ArrowRight: () => step(1), ArrowLeft: () => step(-1), Enter: () => { if (current >= 0) place.go(`j/${data.job[current]}`); } };
    if (data && keys[e.key]) { e.preventDefault(); e.stopPropagation(); keys[e.key](); }
  });

  function step(/** @type {number} */ by) {
    const at = laid.order.indexOf(current);
    current = laid.order[Math.max(0, Math.min(data.n - 1, at + by))] ?? -1;
    if (current >= 0) { const [from, until] = range(); if (data.start[current] < from || data.start[current] > until) span = [data.start[current] - (until - from) / 2, data.start[current] + (until - from) / 2]; hover(current, 200, TOP); }
    draw();
  }

  let asked = -1;
  async function hover(/** @type {number} */ i, /** @type {number} */ px, /** @type {number} */ py) {
    if (i < 0) { tip.hidden = true; asked = -1; return; }
    tip.style.left = `${Math.max(0, Math.min(px + 12, box.clientWidth - 245))}px`;
    tip.style.top = `${py + 14}px`;
    tip.hidden = false;
    if (asked === i) return;
    asked = i;
    const of = families[family(i)];
    const took = raw.length[i] === OPEN ? now - raw.start[i] : raw.length[i];
    const said = [badge(STATES[data.meta[i] & 15]), h("p.quiet", `${dur(took / 1000)} from ${clock(data.base + raw.start[i])}, waited ${dur(data.wait[i] / 1000)}`)];
    put(tip, h("strong", of ? of.name : `job ${data.job[i]}`), raw.several.has(i) ? "several attempts; a click shows them larger" : said);
    if (raw.several.has(i)) return;
    const one = await get(`/jobs/${data.job[i]}`).catch(() => null);
    if (asked === i && one) put(tip, h("strong", one.name), said);
  }

  const store = (/** @type {string} */ kind) => { if (raw) save(kind, id, raw, now, families); };

  const watcher = new ResizeObserver(draw);
  watcher.observe(box);
  place.leave(() => watcher.disconnect());
  if (!REPORT) place.leave(every(async () => { if (now && !brush) await load(); }, 5000));
  await load();
  await timeSpent(place, panel);
  if (!REPORT) await whatIf(place, what, (end) => {
    const begin = Math.max(0, Date.now() - raw.base);
    ghost = end && !squeeze.checked ? [begin, begin + end.low_seconds * 1000, begin + end.seconds * 1000, begin + end.high_seconds * 1000] : null;
    lay();
  });
}
