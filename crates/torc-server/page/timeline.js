// Attempts over time, on a canvas: rows are slots of runners, bars are attempts.
// @ts-check
import { buffer, get, REPORT } from "./api.js";
import { color } from "./charts.js";
import { download, h, put } from "./dom.js";
import { badge, clock, count, dur, num } from "./format.js";
import { every } from "./live.js";

const STATES = ["queued", "claimed", "running", "completed", "failed", "canceled", "terminated"];
const OPEN = 0xffffffff;
const [TOP, LEFT] = [74, 120];

/** Reads the server's columns. @param {ArrayBuffer} bytes */
export function decode(bytes) {
  const view = new DataView(bytes);
  const n = view.getUint32(4, true);
  const base = Number(view.getBigInt64(8, true));
  const column = (/** @type {number} */ c) => new Uint32Array(bytes, 24 + c * n * 4, n);
  const names = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 24 + n * 20, view.getUint32(20, true))));
  return { n, base, job: column(0), start: column(1), length: column(2), wait: column(3), meta: column(4), runners: names.runners };
}

/** A row for each bar, so that none covers another. @param {ReturnType<typeof decode>} data @param {number} now */
export function rows(data, now) {
  const order = Uint32Array.from({ length: data.n }, (_, i) => i).sort((a, b) => data.start[a] - data.start[b]);
  /** @type {number[][]} */ const ends = data.runners.map(() => []);
  const slot = new Uint32Array(data.n);
  for (const i of order) {
    const runner = data.meta[i] >>> 16;
    const free = ends[runner] || (ends[runner] = []);
    let at = 0;
    while (at < free.length && free[at] > data.start[i]) at++;
    free[at] = data.length[i] === OPEN ? now : data.start[i] + data.length[i];
    slot[i] = at;
  }
  /** @type {number[]} */ const first = [];
  let total = 0;
  ends.forEach((free, runner) => { first[runner] = total; total += free.length; });
  for (let i = 0; i < data.n; i++) slot[i] += first[data.meta[i] >>> 16];
  return { slot, first, total, order };
}

/** @param {import("./app.js").Place} place */
export async function timeline(place) {
  const id = place.workflow;
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { tabindex: "0", role: "img", "aria-label": "Attempts over time; the table below says the same" }));
  const [tip, panel, legend, says] = [h("div.tip", { hidden: true }), h("section"), h("p.legend"), h("span.quiet", { role: "status" })];
  const box = h("div.timeline", null, canvas, tip);
  put(place.main, h("div.row", null, h("h1", null, "Timeline"), says, h("span.push.row", null,
    button("−", "Zoom out", () => zoom(1.5)), button("+", "Zoom in", () => zoom(1 / 1.5)), button("All", "Show all", () => { span = null; draw(); }),
    button("PNG", "Save as a picture", () => canvas.toBlob((blob) => { if (blob) download(`timeline_wf${id}.png`, blob, "image/png"); })))), box, legend, panel);
  /** @type {any} */ let data = null;
  /** @type {any} */ let laid = null;
  /** @type {[number, number] | null} */ let span = null;
  /** @type {any[]} */ let families = [];
  let now = 0, at = 0, current = -1;

  /** @param {string} text @param {string} label @param {() => void} run */
  function button(text, label, run) {
    return h("button.small", { type: "button", "aria-label": label, title: label, onclick: run }, text);
  }

  const end = (/** @type {number} */ i) => (data.length[i] === OPEN ? now : data.start[i] + data.length[i]);
  const all = () => /** @type {[number, number]} */ ([0, Math.max(1, now, data.n ? data.start.reduce((/** @type {number} */ m, /** @type {number} */ s, /** @type {number} */ i) => Math.max(m, end(i)), 0) : 1)]);
  const range = () => span || (whole ??= all());
  /** @type {[number, number] | null} */ let whole = null;

  async function load() {
    const [bytes, view] = await Promise.all([buffer(`/workflows/${id}/timeline`), get(`/workflows/${id}/families`)]);
    data = decode(bytes);
    families = view.families;
    now = view.is_complete ? 0 : Math.max(0, view.at_ms - data.base);
    whole = null;
    laid = rows(data, now);
    put(says, `${count(data.n, "attempt")} on ${count(data.runners.length, "runner")}`);
    put(legend, families.slice(0, 12).map((f) => h("span", null, h("span.key", { style: { background: color(f.number) } }), f.name)), h("span", null, h("span.key.hatch"), "failed"), h("span", null, h("span.key.waitkey"), "waited"));
    draw();
    if (!REPORT && !view.is_complete) return;
    if (!at) at = 1;
  }

  let queued = false;
  function draw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; paint(); });
  }

  function paint() {
    if (!data) return;
    const ratio = devicePixelRatio || 1;
    const width = box.clientWidth;
    const row = Math.max(3, Math.min(18, Math.floor((Math.max(260, innerHeight - 330) - TOP) / Math.max(1, laid.total))));
    const height = TOP + Math.min(laid.total * row, 4000) + 8;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    c.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const ink = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const [from, until] = range();
    const plot = width - LEFT;
    const x = (/** @type {number} */ ms) => LEFT + ((ms - from) / (until - from)) * plot;
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = ink("--quiet");
    axis(c, from, until, x, height, ink);
    density(c, x, plot, ink);
    data.runners.forEach((/** @type {any} */ runner, /** @type {number} */ at) => {
      const y = TOP + laid.first[at] * row;
      const next = at + 1 < laid.first.length ? laid.first[at + 1] : laid.total;
      if ((next - laid.first[at]) * row >= 11) { c.fillStyle = ink("--quiet"); c.fillText(clip(c, runner.host, LEFT - 10), 2, y + 11); }
      c.fillStyle = ink("--line");
      c.fillRect(0, y, width, 1);
      if (runner.stop_by_ms) { c.fillStyle = ink("--bad"); c.fillRect(x(runner.stop_by_ms - data.base), y, 2, (next - laid.first[at]) * row); }
    });
    // What is narrower than a pixel is drawn once for each row and pixel.
    const last = new Float64Array(laid.total).fill(-1);
    const wait = ink("--wait"), bad = ink("--bad");
    // Setting a style costs more than drawing with it.
    let used = "";
    const use = (/** @type {string} */ next) => { if (next !== used) { c.fillStyle = next; used = next; } };
    const scale = plot / (until - from);
    for (const i of laid.order) {
      const a = data.start[i], b = data.length[i] === OPEN ? now : a + data.length[i];
      if (b < from || a > until) continue;
      const r = laid.slot[i];
      const left = Math.max(LEFT, LEFT + (a - from) * scale), right = Math.max(left + 1, LEFT + (b - from) * scale);
      if (right - last[r] < 1) continue;
      const y = TOP + r * row;
      const waited = Math.min(data.wait[i], a);
      const w = Math.max(LEFT, x(a - waited), last[r]);
      if (left - w > 2 && row > 6) { use(wait); c.fillRect(w, y + row / 2 - 1, left - w, 2); }
      const state = data.meta[i] & 15;
      use(color((data.meta[i] >>> 4) & 0xfff));
      c.fillRect(left, y + 1, right - left, Math.max(1, row - 1));
      if (state >= 4) { use(bad); if (right - left < 5) c.fillRect(left, y + 1, right - left, Math.max(1, row - 1)); else for (let s = left; s < right; s += 5) c.fillRect(s, y + 1, 2, Math.max(1, row - 1)); }
      if (i === current) { c.strokeStyle = ink("--ink"); c.lineWidth = 2; c.strokeRect(left, y, right - left, row); }
      last[r] = right;
    }
    canvas.dataset.row = String(row);
  }

  /** @param {CanvasRenderingContext2D} c @param {string} text @param {number} width */
  function clip(c, text, width) {
    while (text.length > 3 && c.measureText(text).width > width) text = text.slice(0, -2) + "…";
    return text;
  }

  /** @param {CanvasRenderingContext2D} c @param {number} from @param {number} until @param {(ms: number) => number} x @param {number} height @param {(name: string) => string} ink */
  function axis(c, from, until, x, height, ink) {
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5, 1728e5, 6048e5];
    const step = steps.find((ms) => (until - from) / ms < Math.max(2, box.clientWidth / 110)) || 6048e5;
    for (let t = Math.ceil(from / step) * step; t <= until; t += step) {
      c.fillStyle = ink("--line");
      c.fillRect(x(t), 14, 1, height);
      c.fillStyle = ink("--quiet");
      const text = step < 1000 ? `+${(t / 1000).toFixed(3)} s` : step < 864e5 ? clock(data.base + t) : new Date(data.base + t).toLocaleDateString();
      if (x(t) < box.clientWidth - 60) c.fillText(text, x(t) + 3, 10);
    }
  }

  /** How many run, above the rows. @param {CanvasRenderingContext2D} c @param {(ms: number) => number} x @param {number} plot @param {(name: string) => string} ink */
  function density(c, x, plot, ink) {
    const slots = new Float64Array(Math.ceil(plot) + 2);
    for (let i = 0; i < data.n; i++) {
      const a = Math.max(0, Math.floor(x(data.start[i]) - LEFT)), b = Math.min(plot, Math.max(a + 1, Math.floor(x(end(i)) - LEFT)));
      if (b < 0 || a > plot) continue;
      slots[a]++;
      slots[Math.ceil(b)]--;
    }
    let sum = 0, top = 1;
    for (let i = 0; i < slots.length; i++) { sum += slots[i]; slots[i] = sum; top = Math.max(top, sum); }
    c.fillStyle = ink("--area");
    for (let i = 0; i < plot; i++) { const hgt = (slots[i] / top) * 44; c.fillRect(LEFT + i, TOP - 6 - hgt, 1, hgt); }
    c.fillStyle = ink("--quiet");
    c.fillText(`${num(top)} at once`, 2, TOP - 40);
  }

  /** @param {MouseEvent} e */
  function under(e) {
    const spot = canvas.getBoundingClientRect();
    const [from, until] = range();
    const t = from + ((e.clientX - spot.left - LEFT) / (spot.width - LEFT)) * (until - from);
    const r = Math.floor((e.clientY - spot.top - TOP) / Number(canvas.dataset.row || 10));
    const slack = (until - from) / (spot.width - LEFT);
    for (let i = data.n - 1; i >= 0; i--) if (laid.slot[i] === r && data.start[i] - slack <= t && end(i) + slack >= t) return i;
    return -1;
  }

  /** @param {number} factor @param {number} [middle] */
  function zoom(factor, middle) {
    const [from, until] = range();
    const m = middle ?? (from + until) / 2;
    const [low, high] = all();
    const next = /** @type {[number, number]} */ ([Math.max(low - (high - low) * 0.02, m - (m - from) * factor), Math.min(high * 1.02, m + (until - m) * factor)]);
    if (next[1] - next[0] > 5) span = next;
    draw();
  }

  /** @param {number} share */
  function pan(share) {
    const [from, until] = range();
    const d = (until - from) * share;
    span = [from + d, until + d];
    draw();
  }

  let drag = 0, moved = false, down = false;
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const spot = canvas.getBoundingClientRect();
    const [from, until] = range();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 1000);
    else zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, from + ((e.clientX - spot.left - LEFT) / (spot.width - LEFT)) * (until - from));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { down = true; moved = false; drag = e.clientX; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", (e) => { down = false; if (!moved) { const i = under(e); if (i >= 0) place.go(`j/${data.job[i]}`); } });
  canvas.addEventListener("pointermove", (e) => {
    if (!data) return;
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
    const keys = { a: () => pan(-0.1), d: () => pan(0.1), w: () => zoom(1 / 1.3), s: () => zoom(1.3), ArrowRight: () => step(1), ArrowLeft: () => step(-1), Enter: () => { if (current >= 0) place.go(`j/${data.job[current]}`); } };
    if (keys[e.key]) { e.preventDefault(); e.stopPropagation(); keys[e.key](); }
  });

  /** @param {number} by */
  function step(by) {
    const at = laid.order.indexOf(current);
    current = laid.order[Math.max(0, Math.min(data.n - 1, at + by))] ?? -1;
    if (current >= 0) { const [from, until] = range(); if (data.start[current] < from || data.start[current] > until) span = [data.start[current] - (until - from) / 2, data.start[current] + (until - from) / 2]; hover(current, 200, TOP); }
    draw();
  }

  let asked = -1;
  /** @param {number} i @param {number} px @param {number} py */
  async function hover(i, px, py) {
    if (i < 0) { tip.hidden = true; asked = -1; return; }
    tip.style.left = `${Math.min(px + 12, box.clientWidth - 240)}px`;
    tip.style.top = `${py + 14}px`;
    tip.hidden = false;
    if (asked === i) return;
    asked = i;
    const family = families[(data.meta[i] >>> 4) & 0xfff];
    const said = [badge(STATES[data.meta[i] & 15]), h("p.quiet", null, `${dur((end(i) - data.start[i]) / 1000)} from ${clock(data.base + data.start[i])}, waited ${dur(data.wait[i] / 1000)}`)];
    put(tip, h("strong", null, family ? family.name : `job ${data.job[i]}`), said);
    const one = await get(`/jobs/${data.job[i]}`).catch(() => null);
    if (asked === i && one) put(tip, h("strong", null, one.name), said);
  }

  async function went() {
    const path = await get(`/workflows/${id}/critical_path`);
    const view = await get(`/workflows/${id}/families`);
    const cores = view.cpus;
    put(panel, h("h2", null, "Where the time went"),
      h("p", null, `Took ${dur(path.elapsed_seconds)}. It could not be faster than ${dur(path.seconds)} with any number of CPUs (${count(path.length, "job")} in a row)${cores ? `, nor than ${dur(Math.max(path.seconds, path.work_cpu_seconds / cores))} with ${count(cores, "CPU")}` : ""}. `,
        path.lost_seconds > 0.5 ? `${dur(path.lost_seconds)} went into attempts that failed. ` : "", `A job waited ${dur(path.waited_seconds)} on average.`),
      h("h3", null, "Critical path"), h("ol.path", null, path.jobs.slice(0, 30).map((/** @type {any} */ one) => h("li", null, badge(one.status), " ", place.link(`j/${one.job_id}`, one.name), h("span.quiet", null, ` ${dur(one.seconds)}`)))),
      path.length > 30 ? h("p.quiet", null, `and ${num(path.length - 30)} more`) : null);
  }

  const watcher = new ResizeObserver(draw);
  watcher.observe(box);
  place.leave(() => watcher.disconnect());
  if (!REPORT) place.leave(every(async () => { if (now) await load(); }, 5000));
  await load();
  await went();
}
