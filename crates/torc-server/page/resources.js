// What was asked for against what was used, by family, with a correction at hand.
// @ts-check
import { act } from "./act.js";
import { canAct, get } from "./api.js";
import { strip } from "./charts.js";
import { h, put } from "./dom.js";
import { bytes, count, dur, num, quote } from "./format.js";

/** @param {import("./app.js").Place} place */
export async function resources(place) {
  const id = place.workflow;
  const rows = (await get(`/workflows/${id}/resources`)).items;
  const wasted = rows.reduce((/** @type {number[]} */ sum, /** @type {any} */ row) => [sum[0] + row.wasted_cpu_hours, sum[1] + row.wasted_gib_hours], [0, 0]);
  put(place.main, h("h1", "Resources"),
    rows.length ? h("p", `Asked for and not used in this run: ${wasted[0].toFixed(1)} CPU hours, ${wasted[1].toFixed(1)} GiB hours.`) : h("p.empty", "No attempt has succeeded in this run yet."),
    h("div.cards", rows.map((/** @type {any} */ row) => card(place, id, row))));
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
