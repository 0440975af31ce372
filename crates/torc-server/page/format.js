// Numbers, times and states in words.
// @ts-check
import { h } from "./dom.js";

/** Every status: its word, its sign, and where it stands in a bar. The order of the API's integers. */
export const STATUSES = ["uninitialized", "blocked", "ready", "pending", "running", "completed", "failed", "canceled", "terminated", "disabled", "pending_failed"];
const SIGNS = { uninitialized: "·", blocked: "⋯", ready: "○", pending: "◔", running: "▶", completed: "✓", failed: "✕", canceled: "⊘", terminated: "■", disabled: "–", pending_failed: "?" };
/** From done to not begun. */
export const BAR_ORDER = ["completed", "disabled", "running", "pending", "ready", "blocked", "uninitialized", "canceled", "terminated", "pending_failed", "failed"];
export const BAD = ["failed", "terminated", "pending_failed"];

/** @param {string} status */
export function word(status) {
  return status === "pending_failed" ? "needs a verdict" : status === "pending" ? "starting" : status;
}

/** A status as sign, word and colour. @param {string} status */
export function badge(status) {
  return h("span.badge", { class: "st-" + status }, h("span.sign", { "aria-hidden": "true" }, /** @type {any} */ (SIGNS)[status] || "·"), word(status));
}

/** @param {number} n */
export function num(n) {
  return Math.round(n).toLocaleString("en-US");
}

/** @param {number} n @param {string} noun */
export function count(n, noun) {
  return `${num(n)} ${n === 1 ? noun : noun.endsWith("y") ? noun.slice(0, -1) + "ies" : noun + "s"}`;
}

/** @param {number | null | undefined} seconds */
export function dur(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const [d, hh, m, sec] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d} d ${hh} h`;
  const then = (/** @type {number} */ n, /** @type {string} */ unit) => (n ? ` ${String(n).padStart(2, "0")} ${unit}` : "");
  return hh ? `${hh} h${then(m, "min")}` : `${m} min${then(sec, "s")}`;
}

/** @param {number | null | undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0, value = n;
  while (value >= 1024 && at < 4) { value /= 1024; at++; }
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

/** @param {number | null | undefined} ms */
export function clock(ms) {
  if (!ms) return "–";
  const d = new Date(ms), today = new Date();
  const time = d.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return d.toDateString() === today.toDateString() ? time : `${d.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

/** @param {number} ms */
export function ago(ms) {
  const seconds = (Date.now() - ms) / 1000;
  return seconds < 5 ? "now" : `${dur(seconds)} ago`;
}

/** A bar of all jobs by status; the numbers stand in `legend`. @param {Record<string, number>} counts @param {number} total @param {string} [label] */
export function bar(counts, total, label) {
  const parts = BAR_ORDER.filter((status) => counts[status]);
  const said = parts.map((status) => `${num(counts[status])} ${word(status)}`).join(", ");
  return h("div.bar", { role: "img", "aria-label": label || said || "no jobs", title: label || said },
    parts.map((status) => h("span", { class: "fill s-" + status, style: { "flex-grow": String(Math.max(counts[status] / total, 0.004)) } })));
}

/** The kinds of failures in plain words. @param {string} kind */
export function kindTitle(kind) {
  const titles = { oom: "Out of memory", gpu_oom: "Out of GPU memory", timeout: "Ran out of time", walltime: "The allocation's time was over", lost: "Lost with its runner", preempted: "Preempted", node_fail: "The node failed", missing_output: "An output file is missing", disk_full: "The disk is full", spawn_error: "Could not be started", canceled: "Canceled", stopped: "Stopped", exit: "Exited with an error", signal: "Killed by a signal", unknown: "Failed" };
  const text = /** @type {any} */ (titles)[kind] || kind.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What keeps a workflow from ending earlier. @type {Record<string, string>} */
export const LIMITS = { critical_path: "the longest chain of jobs", cpus: "CPUs", memory: "memory", gpus: "GPUs", queue: "Slurm's queue" };

/** Counts by status out of a frame's numbers. @param {number[]} numbers */
export function byStatus(numbers) {
  /** @type {Record<string, number>} */ const counts = {};
  numbers.forEach((n, code) => { if (n) counts[STATUSES[code]] = n; });
  return counts;
}

/** A value for the filter language. @param {string} text */
export function quote(text) {
  return /\s/.test(text) ? `"${text}"` : text;
}
