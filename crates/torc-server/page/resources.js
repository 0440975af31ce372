// What was asked for against what was used, by family, with a correction at hand.
// @ts-check
import { act } from "./act.js";
import { buffer, canAct, get } from "./api.js";
import { crowds, decode, OPEN } from "./bars.js";
import { spark, strip } from "./charts.js";
import { h, put } from "./dom.js";
import { bytes, clock, count, dur, num, quote } from "./format.js";

/** Of the picture of the use over time. */
const POINTS = 240;

/** @param {import("./app.js").Place} place */
export async function resources(place) {
  const id = place.workflow;
  const [{ items: rows }, view, packed] = await Promise.all([get(`/workflows/${id}/resources`), get(`/workflows/${id}/families`), buffer(`/workflows/${id}/timeline?rows=runner`)]);
  const wasted = rows.reduce((/** @type {number[]} */ sum, /** @type {any} */ row) => [sum[0] + row.wasted_cpu_hours, sum[1] + row.wasted_gib_hours], [0, 0]);
  put(place.main, h("h1", "Resources"),
    rows.length ? h("p", `Asked for and not used in this run: ${wasted[0].toFixed(1)} CPU hours, ${wasted[1].toFixed(1)} GiB hours.`) : h("p.empty", "No attempt has succeeded in this run yet."),
    over(decode(packed), view),
    h("div.cards", rows.map((/** @type {any} */ row) => card(place, id, row))));
}

/** CPUs busy of those that were there, over the run. @param {import("./bars.js").Bars} data @param {any} view */
function over(data, view) {
  const now = Math.max(0, view.at_ms - data.base);
  const end = (/** @type {number} */ i) => (data.length[i] === OPEN ? now : data.start[i] + data.length[i]);
  let last = data.picture ? data.picture.last_ms : view.is_complete ? 0 : now;
  for (let i = 0; i < data.n; i++) last = Math.max(last, end(i));
  if (!data.n || !last) return null;
  const { busy, there } = crowds(data, POINTS, (t) => (t / last) * POINTS, end, (ms) => ms - data.base, last);
  const sum = (/** @type {Float64Array} */ all) => all.slice(0, POINTS).reduce((a, b) => a + b, 0);
  const used = Math.round((100 * sum(busy)) / Math.max(1, sum(there)));
  const says = `CPUs busy (area) of CPUs there (line), ${clock(data.base)} to ${clock(data.base + last)}: ${num(used)}% of what the runners and allocations offered`;
  return h("article.card", h("h2", "Use over time"), h("p.quiet", says), spark([...busy.slice(0, POINTS)], { label: says, over: [...there.slice(0, POINTS)] }));
}

/** @param {import("./app.js").Place} place @param {number} id @param {any} row */
function card(place, id, row) {
  const memory = row.dots.map((/** @type {[number, number]} */ dot) => dot[1]).filter(Boolean);
  const times = row.dots.map((/** @type {[number, number]} */ dot) => dot[0]);
  const enough = row.memory_proposed;
  const line = (/** @type {string} */ title, /** @type {Node} */ picture, /** @type {string} */ text) => h("div.stripline", h("span.quiet", title), picture, h("span.n", text));
  return h("article.card", null,
    h("div.row", h("h2", place.link(`w/${id}/jobs?where=${encodeURIComponent("family:" + quote(row.name))}`, row.name)), h("span.quiet", `${count(row.attempts, "attempt")} that succeeded`)),
    memory.length ? line("Peak memory", strip(memory, row.memory_asked, enough, `peak memory of ${row.name}`), `median ${bytes(row.memory_median)}, most ${bytes(row.memory_max)}${row.memory_asked ? `, asked ${bytes(row.memory_asked)}` : ""}`) : null,
    line("Time", strip(times, row.seconds_asked, null, `time of ${row.name}`), `median ${dur(row.seconds_median)}, longest ${dur(row.seconds_max)}${row.seconds_asked ? `, asked ${dur(row.seconds_asked)}` : ""}`),
    row.cpus_used !== null ? h("p.quiet", `CPUs: ${row.cpus_used.toFixed(1)} of ${num(row.cpus_asked)} used on average; ${row.wasted_cpu_hours.toFixed(2)} CPU hours not used`) : null,
    enough ? h("p", `${bytes(enough)} would have been enough for ${num(row.attempts)} of ${num(row.attempts)} (a fifth to spare). `,
      canAct() ? h("button.small", { onclick: () => act({ workflow: id, where: `family:${quote(row.name)} -status:completed`, action: "memory", value: `${Math.round(enough / 1048576)}m` }) }, `Ask for ${bytes(enough)} from now on`) : null) : null);
}
