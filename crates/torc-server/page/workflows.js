// All workflows, and what needs you.
// @ts-check
import { canAct, get } from "./api.js";
import { h, put } from "./dom.js";
import { ago, bar, clock, count, dur, kindTitle, num, word } from "./format.js";
import { every } from "./live.js";

/** @typedef {import("./app.js").Place} Place */
/** An allocation that waits longer than this is worth a look. */
const STUCK = 15 * 60000;

/** @param {Place} place */
export function workflows(place) {
  const needs = h("section.needs", { "aria-label": "What needs you" });
  const list = h("div.cards", h("p.loading", "Loading…"));
  put(place.main, h("h1", "Workflows"), needs, list);
  async function load() {
    const page = await get("/workflows", { sort_by: "id", reverse_sort: true, limit: 50, is_archived: false });
    const shown = await Promise.all(page.items.slice(0, 30).map(async (/** @type {any} */ workflow) => ({
      workflow,
      families: await get(`/workflows/${workflow.id}/families`).catch(() => null),
    })));
    const wanting = await Promise.all(shown.filter(({ families }) => families && bad(families.counts)).slice(0, 8).map(async ({ workflow }) => ({
      workflow, groups: (await get(`/workflows/${workflow.id}/failures`).catch(() => ({ items: [] }))).items,
    })));
    // When they end: of the few newest ones that run.
    const busy = shown.filter(({ families }) => families && !families.is_complete && families.runners).slice(0, 5);
    /** @type {Map<number, any>} */ const ends = new Map(await Promise.all(busy.map(async ({ workflow }) => /** @type {[number, any]} */ ([workflow.id, await get(`/workflows/${workflow.id}/forecast`).catch(() => null)]))));
    put(needs, needsYou(place, wanting, shown));
    put(list, shown.length ? shown.map(({ workflow, families }) => card(place, workflow, families, ends.get(workflow.id))) : h("div.hello", null,
      h("h2", "Nothing here yet"),
      h("p", "Start a workflow in a terminal and it appears here by itself:"),
      h("pre", "torc run SPEC.yaml")),
      page.total_count > shown.length ? h("p.quiet", `and ${num(page.total_count - shown.length)} older`) : null);
  }
  place.leave(every(load, 3000));
  return load();
}

/** @param {Record<string, number>} counts */
function bad(counts) {
  return (counts.failed || 0) + (counts.terminated || 0) + (counts.pending_failed || 0);
}

/** @param {Place} place @param {any[]} wanting @param {any[]} shown */
function needsYou(place, wanting, shown) {
  const items = [];
  for (const { workflow, groups } of wanting) {
    for (const group of groups.slice(0, 2)) {
      items.push(h("li", { class: "edge" },
        place.link(`w/${workflow.id}/failures`, h("strong", `${num(group.jobs)} × ${kindTitle(group.kind)}`), ` in ${group.family} of ${workflow.name}`),
        group.blocked ? h("span.quiet", ` ${count(group.blocked, "job")} blocked`) : null));
    }
  }
  for (const { workflow, families } of shown) {
    if (!families) continue;
    const { queue, counts } = families;
    if (counts.pending_failed) items.push(h("li.edge", place.link(`w/${workflow.id}/failures`, `${count(counts.pending_failed, "verdict")} to give in ${workflow.name}`)));
    if (queue && families.at_ms - queue.since_ms > STUCK) items.push(h("li", place.link(`w/${workflow.id}/nodes`, `${count(queue.allocations, "allocation")} of ${workflow.name} in Slurm's queue`), h("span.quiet", ` since ${dur((families.at_ms - queue.since_ms) / 1000)}${queue.why ? `, ${queue.why}` : ""}`)));
    if (families.lost_contact_runners) {
      items.push(h("li", place.link(`w/${workflow.id}/nodes`, `${count(families.lost_contact_runners, "runner")} of ${workflow.name} out of contact`)));
    }
  }
  if (!items.length) return shown.length ? h("p.fine", "✓ Nothing needs you.") : null;
  return [h("h2", "Needs you"), h("ul.plainlist", items.slice(0, 6))];
}

/** @param {Place} place @param {any} workflow @param {any} families @param {any} forecast */
function card(place, workflow, families, forecast) {
  if (!families) return null;
  const { counts, total } = families;
  const running = (counts.running || 0) + (counts.pending || 0);
  const state = families.is_canceled ? "canceled" : families.is_complete ? (bad(counts) ? `done, ${num(bad(counts))} failed` : "done") : running ? "running" : "waiting";
  const end = families.is_complete ? families.last_end_ms : families.at_ms;
  return h("article.card", null,
    h("div.row", null,
      h("h2", place.link(`w/${workflow.id}`, workflow.name)),
      h("span.quiet", `#${workflow.id} · run ${workflow.run_id}`),
      h("span.push", state)),
    bar(counts, total),
    h("p.quiet", null,
      `${num(counts.completed || 0)} of ${count(total, "job")}`,
      running ? ` · ${num(running)} running` : "",
      counts.pending_failed ? ` · ${num(counts.pending_failed)} ${word("pending_failed")}` : "",
      families.cpus ? ` · ${num(families.busy_cpus)} of ${num(families.cpus)} CPUs busy` : "",
      families.started_ms ? ` · ${dur((end - families.started_ms) / 1000)}` : "",
      forecast && !forecast.is_again && forecast.seconds > 1 && forecast.unknown_jobs < forecast.jobs ? ` · ends about ${clock(families.at_ms + forecast.seconds * 1000)}` : "",
      ` · begun ${ago(families.started_ms || workflow.created_ms)}`,
      canAct() ? "" : " · look only"));
}
