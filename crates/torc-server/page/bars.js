// Attempts as columns: read, put into rows, without pauses, summed up by pixel, saved.
// @ts-check
import { buffer } from "./api.js";
import { download } from "./dom.js";

export const STATES = ["queued", "claimed", "running", "completed", "failed", "canceled", "terminated"];
/** The length of an attempt that runs. */
export const OPEN = 0xffffffff;

/** @typedef {ReturnType<typeof decode>} Bars */

/** Reads the server's columns. @param {ArrayBuffer} bytes */
export function decode(bytes) {
  const view = new DataView(bytes);
  const n = view.getUint32(4, true);
  const base = Number(view.getBigInt64(8, true));
  const column = (/** @type {number} */ c) => new Uint32Array(bytes, 24 + c * n * 4, n);
  const names = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 24 + n * 20, view.getUint32(20, true))));
  /** @type {number[]} */ const cpus = [];
  for (const [number, each] of names.family_cpus || []) cpus[number] = each;
  /** Bars that stand for several attempts. @type {Set<number>} */ const several = new Set();
  const wait = column(3);
  if (names.picture) wait.forEach((ms, i) => { if (ms === OPEN) { several.add(i); wait[i] = 0; } });
  return { n, base, several, picture: names.picture, after: names.after, more: view.getUint32(16, true) & 1, job: column(0), start: column(1), length: column(2), wait, meta: column(4), runners: /** @type {any[]} */ (names.runners), cpus };
}

/** A row for each bar, so that none covers another: rows of a group stand together. A runner starts the next job a few milliseconds before it
 * has noted the end of the one before; that is no second slot. @param {Bars} data @param {number} now @param {(i: number) => number} group */
export function rows(data, now, group) {
  const order = Uint32Array.from({ length: data.n }, (_, i) => i).sort((a, b) => data.start[a] - data.start[b]);
  /** @type {number[][]} */ const ends = [];
  const slot = new Uint32Array(data.n);
  for (const i of order) {
    const free = (ends[group(i)] ||= []);
    const late = data.start[i] + Math.min(50, data.length[i] / 20);
    let at = 0;
    while (at < free.length && free[at] > late) at++;
    free[at] = data.length[i] === OPEN ? now : data.start[i] + data.length[i];
    slot[i] = at;
  }
  /** @type {number[]} */ const first = [];
  let total = 0;
  for (let g = 0; g < ends.length; g++) { first[g] = total; total += ends[g] ? ends[g].length : 0; }
  for (let i = 0; i < data.n; i++) slot[i] += first[group(i)];
  return { slot, first, total, order };
}

/** Times without the long pauses in which nothing ran: there, and back. @param {Bars} data @param {Uint32Array} order @param {number} now */
export function squeezed(data, order, now) {
  /** Ends of the pauses, and all that was taken out up to there. @type {[number, number][]} */ const cuts = [];
  const last = order.length ? Math.max(now, data.start[order[order.length - 1]]) : 1;
  const [long, short] = [last / 40, last / 200];
  let busy = 0, out = 0;
  for (const i of order) {
    if (data.start[i] - busy > long) { out += data.start[i] - busy - short; cuts.push([data.start[i], out]); }
    busy = Math.max(busy, data.length[i] === OPEN ? now : data.start[i] + data.length[i]);
  }
  return {
    cuts,
    there: (/** @type {number} */ t) => { let less = 0; for (const [at, sum] of cuts) if (t >= at) less = sum; return Math.max(0, t - less); },
    back: (/** @type {number} */ t) => { let more = 0; for (const [at, sum] of cuts) if (t >= at - sum) more = sum; return t + more; },
  };
}

/** CPUs busy, CPUs there, and jobs that were ready, by pixel of a strip. @param {Bars} data @param {number} plot @param {(t: number) => number} x pixel of a time @param {(i: number) => number} end @param {(ms: number) => number} since time of a clock @param {number} until now */
export function crowds(data, plot, x, end, since, until) {
  const wide = Math.ceil(plot) + 2;
  const [busy, there, ready] = [new Float64Array(wide), new Float64Array(wide), new Float64Array(wide)];
  /** @type {Map<Float64Array, Float64Array>} */ const parts = new Map([busy, there, ready].map((all) => [all, new Float64Array(wide)]));
  // What covers a part of a pixel counts for that part.
  const add = (/** @type {Float64Array} */ to, /** @type {number} */ from, /** @type {number} */ stop, /** @type {number} */ n) => {
    const part = /** @type {Float64Array} */ (parts.get(to));
    const [a, b] = [from, stop].map((t) => Math.max(0, Math.min(wide - 1.01, x(t))));
    const [i, j] = [Math.floor(a), Math.floor(b)];
    if (i === j) { part[i] += (b - a) * n; return; }
    part[i] += (i + 1 - a) * n;
    part[j] += (b - j) * n;
    to[i + 1] += n;
    to[j] -= n;
  };
  const { picture } = data;
  for (let i = 0; i < data.n && !picture; i++) {
    add(busy, data.start[i], end(i), data.cpus[(data.meta[i] >>> 4) & 0xfff] || 1);
    if (data.wait[i] > 1000) add(ready, data.start[i] - data.wait[i], data.start[i], 1);
  }
  for (const one of data.runners) if (one.started_ms) add(there, since(one.started_ms), one.ended_ms ? since(one.ended_ms) : until, one.cpus || 0);
  for (const [all, part] of parts) {
    for (let i = 1; i < wide; i++) all[i] += all[i - 1];
    for (let i = 0; i < wide; i++) all[i] += part[i];
  }
  for (let i = 0; i < plot && picture; i++) {
    const at = Math.floor((i / plot) * picture.busy.length);
    [busy[i], ready[i]] = [picture.busy[at], picture.ready[at]];
  }
  return { busy, there, ready };
}

/** All attempts one by one. @param {number} id @returns {Promise<Bars[]>} */
async function all(id) {
  const parts = [];
  for (let after = 0; ;) {
    const part = decode(await buffer(`/workflows/${id}/timeline?after=${after}`));
    parts.push(part);
    if (!part.more) return parts;
    after = part.after;
  }
}

/** The attempts as a file. @param {string} kind @param {number} id @param {Bars} shown @param {number} now @param {any[]} families */
export async function save(kind, id, shown, now, families) {
  const out = [];
  for (const raw of shown.picture ? await all(id) : [shown]) {
    const { slot } = rows(raw, now, (i) => raw.meta[i] >>> 16);
    for (let i = 0; i < raw.n; i++) {
      const [ms, of, runner, state] = [raw.length[i] === OPEN ? now - raw.start[i] : raw.length[i], families[(raw.meta[i] >>> 4) & 0xfff]?.name || "", raw.runners[raw.meta[i] >>> 16], STATES[raw.meta[i] & 15]];
      out.push(kind === "csv" ? [raw.job[i], JSON.stringify(of).replaceAll('\\"', '""'), runner.host, state, raw.base + raw.start[i], ms, raw.wait[i]].join(",") : { name: `${of} ${raw.job[i]}`, cat: of, ph: "X", ts: (raw.base - shown.base + raw.start[i]) * 1000, dur: ms * 1000, pid: raw.meta[i] >>> 16, tid: slot[i], args: { job: raw.job[i], state, node: runner.host } });
    }
  }
  if (kind === "csv") download(`attempts_wf${id}.csv`, ["job,family,node,state,started_ms,ms,waited_ms", ...out].join("\n") + "\n", "text/csv");
  else download(`trace_wf${id}.json`, JSON.stringify({ traceEvents: out }), "application/json");
}
