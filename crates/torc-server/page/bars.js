// Attempts as columns: read, put into rows, without pauses, summed up by pixel, saved.
// @ts-check
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
  return { n, base, job: column(0), start: column(1), length: column(2), wait: column(3), meta: column(4), runners: /** @type {any[]} */ (names.runners), cpus };
}

/** A row for each bar, so that none covers another: rows of a group stand together. @param {Bars} data @param {number} now @param {(i: number) => number} group */
export function rows(data, now, group) {
  const order = Uint32Array.from({ length: data.n }, (_, i) => i).sort((a, b) => data.start[a] - data.start[b]);
  /** @type {number[][]} */ const ends = [];
  const slot = new Uint32Array(data.n);
  for (const i of order) {
    const free = (ends[group(i)] ||= []);
    let at = 0;
    while (at < free.length && free[at] > data.start[i]) at++;
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
  const add = (/** @type {Float64Array} */ to, /** @type {number} */ from, /** @type {number} */ stop, /** @type {number} */ n) => {
    const a = Math.max(0, Math.min(wide - 1, Math.floor(x(from))));
    to[a] += n;
    to[Math.min(wide - 1, Math.max(a + 1, Math.floor(x(stop))))] -= n;
  };
  for (let i = 0; i < data.n; i++) {
    add(busy, data.start[i], end(i), data.cpus[(data.meta[i] >>> 4) & 0xfff] || 1);
    if (data.wait[i] > 1000) add(ready, data.start[i] - data.wait[i], data.start[i], 1);
  }
  for (const one of data.runners) if (one.started_ms) add(there, since(one.started_ms), one.ended_ms ? since(one.ended_ms) : until, one.cpus || 0);
  for (const all of [busy, there, ready]) for (let i = 1; i < wide; i++) all[i] += all[i - 1];
  return { busy, there, ready };
}

/** The attempts as a file. @param {string} kind @param {number} id @param {Bars} raw @param {number} now @param {any[]} families @param {Uint32Array} slot */
export function save(kind, id, raw, now, families, slot) {
  const out = [];
  for (let i = 0; i < raw.n; i++) {
    const [ms, of, runner, state] = [raw.length[i] === OPEN ? now - raw.start[i] : raw.length[i], families[(raw.meta[i] >>> 4) & 0xfff]?.name || "", raw.runners[raw.meta[i] >>> 16], STATES[raw.meta[i] & 15]];
    out.push(kind === "csv" ? [raw.job[i], JSON.stringify(of).replaceAll('\\"', '""'), runner.host, state, raw.base + raw.start[i], ms, raw.wait[i]].join(",") : { name: `${of} ${raw.job[i]}`, cat: of, ph: "X", ts: raw.start[i] * 1000, dur: ms * 1000, pid: raw.meta[i] >>> 16, tid: slot[i], args: { job: raw.job[i], state, node: runner.host } });
  }
  if (kind === "csv") download(`attempts_wf${id}.csv`, ["job,family,node,state,started_ms,ms,waited_ms", ...out].join("\n") + "\n", "text/csv");
  else download(`trace_wf${id}.json`, JSON.stringify({ traceEvents: out }), "application/json");
}
