// One workflow at a glance: how far, what needs you, which families.
// @ts-check
import { act } from "./act.js";
import { canAct, get, REPORT } from "./api.js";
import { spark } from "./charts.js";
import { h, put } from "./dom.js";
import { BAD, bar, byStatus, clock, count, dur, kindTitle, LIMITS, num, quote, word } from "./format.js";
import { every } from "./live.js";

/** @typedef {import("./app.js").Place} Place */
const MAX_FAMILIES = 12;

/** @param {Place} place */
export function overview(place) {
  const id = place.workflow;
  /** When it will end, if that is known. @type {any} */ let forecast = null;
  const [state, whole, needs, sparks, families, nodes] = [h("p.state", "loading…"), h("div"), h("section.needs"), h("section.sparks"), h("section"), h("section")];
  put(place.main, h("div.row", h("h1", place.name), state), whole, h("div.two", needs, sparks), families, nodes);
  /** @type {any} */ let view = null;
  /** @type {any[]} */ let used = [];
  let all = false;
  /** CPUs that are busy, as frames told. @type {number[]} */ const busy = [];

  function draw() {
    if (!view) return;
    put(state, stateText(view, forecast));
    const parts = Object.entries(view.counts).map(([status, n]) => place.link(`w/${id}/jobs?where=status:${status}`, h("span.key", { class: "fill s-" + status }), `${num(/** @type {number} */ (n))} ${word(status)}`));
    put(whole, bar(view.counts, view.total), h("p.legend", h("strong", count(view.total, "job")), parts));
    drawFamilies();
    const pace = view.pace;
    const perMinute = pace.ended.map((/** @type {number} */ n) => (n * 60000) / pace.slot_ms);
    put(sparks,
      figure("Ends per minute", num(perMinute.length > 1 ? perMinute[perMinute.length - 2] : perMinute[0] || 0), spark(perMinute, { label: "attempts that ended per minute, over the run" })),
      figure("Jobs running", num(view.counts.running || 0), spark(pace.running, { label: "jobs that ran, over the run" })),
      view.cpus ? figure("CPUs busy", `${num(view.busy_cpus)} of ${num(view.cpus)}`, spark(busy, { label: "CPUs busy since the page is open", max: view.cpus }))
        : figure("Failed ends", num(pace.failed.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0)), spark(pace.failed, { label: "attempts that failed, over the run", cls: "bad" })));
  }

  function drawFamilies() {
    const rows = all ? view.families : view.families.slice(0, MAX_FAMILIES);
    const facts = new Map(used.map((row) => [row.number, row]));
    const left = view.families.length - rows.length;
    put(families, h("h2", "Families"), h("div.scroll", h("table.families", null,
      h("thead", h("tr", ["Family", "Jobs", "", "Median time", "Memory used / asked", "Left"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", rows.map((/** @type {any} */ family) => {
        const fact = facts.get(family.number);
        const open = family.total - (family.counts.completed || 0) - (family.counts.disabled || 0);
        const failed = BAD.reduce((sum, status) => sum + (family.counts[status] || 0), 0);
        return h("tr", null,
          h("th", { scope: "row" }, place.link(`w/${id}/jobs?where=family:${quote(family.name)}`, family.name), failed ? h("span.count.bad", { title: "failed" }, `✕ ${num(failed)}`) : null),
          h("td.n", `${num(family.counts.completed || 0)} / ${num(family.total)}`),
          h("td.wide", bar(family.counts, family.total)),
          h("td.n", fact ? dur(fact.seconds_median) : "–"),
          h("td.n", fact && fact.memory_max ? `${Math.round(fact.memory_max / 1048576).toLocaleString("en-US")}${fact.memory_asked ? ` / ${Math.round(fact.memory_asked / 1048576).toLocaleString("en-US")}` : ""} MiB` : "–"),
          h("td.n", open && fact && view.cpus ? `≈ ${dur((open * fact.seconds_median * fact.cpus_asked) / view.cpus)}` : open ? num(open) : "✓"));
      })))), left ? h("button.plain", { onclick: () => { all = true; drawFamilies(); } }, `and ${num(left)} more`) : null);
  }

  async function load() {
    const [now, resources, failures, runners, end] = await Promise.all([
      get(`/workflows/${id}/families`), get(`/workflows/${id}/resources`), get(`/workflows/${id}/failures`),
      get("/compute_nodes", { workflow_id: id, is_active: true, limit: 20 }).catch(() => ({ items: [], total_count: 0 })),
      REPORT ? null : get(`/workflows/${id}/forecast`).catch(() => null),
    ]);
    view = now;
    forecast = end && !end.is_again && end.unknown_jobs < end.jobs ? end : null;
    used = resources.items;
    put(needs, h("h2", "What needs you"), needsYou(place, failures.items, load));
    const { queue } = now;
    put(nodes, runners.items.length || queue ? [h("h2", "Runners"), h("ul.plainlist", runners.items.slice(0, 8).map((/** @type {any} */ runner) => runnerLine(place, runner)),
      runners.total_count > 8 ? h("li.quiet", `and ${num(runners.total_count - 8)} more`) : null,
      queue ? h("li", place.link(`w/${id}/nodes`, `${count(queue.allocations, "allocation")} in Slurm's queue`), h("span.quiet", ` · since ${dur((now.at_ms - queue.since_ms) / 1000)} · ${queue.why || ""}`)) : null)] : null);
    draw();
  }

  place.pulse((frame) => {
    if (!view || frame.run_id !== view.run_id) return;
    view.counts = byStatus(frame.counts);
    for (const [number, counts] of frame.families) if (view.families[number]) view.families[number].counts = byStatus(counts);
    Object.assign(view, { is_complete: frame.is_complete, is_canceled: frame.is_canceled, busy_cpus: frame.busy_cpus, cpus: frame.cpus, at_ms: frame.at_ms });
    busy.push(frame.busy_cpus);
    if (busy.length > 240) busy.shift();
    draw();
  });
  place.leave(every(load, 5000));
  return load();
}

/** @param {string} title @param {string} value @param {Node} picture */
function figure(title, value, picture) {
  return h("figure", h("figcaption", h("span.quiet", title), h("strong", value)), picture);
}

function stateText(/** @type {any} */ view, /** @type {any} */ forecast) {
  const { counts } = view;
  const failed = BAD.reduce((sum, status) => sum + (counts[status] || 0), 0);
  const elapsed = view.started_ms ? ((view.is_complete ? view.last_end_ms || view.at_ms : view.at_ms) - view.started_ms) / 1000 : 0;
  const asOf = REPORT ? `as of ${clock(view.at_ms)}, ` : "";
  const run = `${asOf}run ${view.run_id}, `;
  if (view.is_canceled) return `${run}canceled after ${dur(elapsed)}`;
  if (view.is_complete) return `${run}done in ${dur(elapsed)}${failed ? `, ${num(failed)} failed` : ", every job succeeded"}`;
  if (!view.started_ms) return "not started";
  const running = (counts.running || 0) + (counts.pending || 0);
  const { queue } = view;
  if (!running && queue) return `${run}${dur(elapsed)}, waits for Slurm since ${dur((view.at_ms - queue.since_ms) / 1000)}${queue.why ? ` (${queue.why})` : ""}${queue.expected_start_ms ? `, expected to start ${clock(queue.expected_start_ms)}` : ""}`;
  if (!running && !view.runners) return `${run}${dur(elapsed)}, waits for a runner: \`torc run ${view.workflow_id}\` starts one`;
  const at = (/** @type {number} */ seconds) => clock(view.at_ms + seconds * 1000);
  return `${run}${dur(elapsed)} so far${forecast && forecast.seconds > 1 ? `, ends about ${at(forecast.seconds)} (${at(forecast.low_seconds)} to ${at(forecast.high_seconds)}), limited by ${LIMITS[forecast.limited_by] || forecast.limited_by}` : ""}`;
}

/** @param {Place} place @param {any[]} groups @param {() => void} after */
export function needsYou(place, groups, after) {
  if (!groups.length) return h("p.fine", "✓ Nothing needs you.");
  return h("ul.plainlist", groups.slice(0, 5).map((group) => h("li", { class: "edge" },
    h("div", place.link(`w/${place.workflow}/failures`, h("strong", `${num(group.jobs)} × ${kindTitle(group.kind)}`), ` in ${group.family}`),
      group.blocked ? h("span.quiet", ` · ${count(group.blocked, "job")} blocked`) : null),
    h("p.quiet.clip.say", group.summary),
    canAct() ? h("button.small", { onclick: async () => { if (await act({ workflow: place.workflow, where: group.where, action: helps(group) ? "recover" : "retry" })) after(); } }, remedy(group)) : null)),
    groups.length > 5 ? h("li", place.link(`w/${place.workflow}/failures`, `and ${num(groups.length - 5)} more`)) : null);
}

/** What recovery would do, on a button. @param {any} group */
export function remedy(group) {
  const change = group.changes[0];
  const unit = change && (change.field === "memory" ? `${Math.round(change.to / 1048576).toLocaleString("en-US")} MiB` : dur(change.to));
  return change ? `More ${change.field === "memory" ? "memory" : "time"}: ${unit}, retry ${num(group.jobs)}` : `Retry ${num(group.jobs)}${helps(group) ? "" : group.jobs === 1 ? " as it is" : " as they are"}`;
}

/** Whether recovery would try again. */
export function helps(/** @type {any} */ group) {
  return ["more_memory", "more_time", "again"].includes(group.action);
}

/** @param {Place} place @param {any} runner */
function runnerLine(place, runner) {
  const stop = runner.stop_by_ms && (runner.stop_by_ms - Date.now()) / 1000;
  return h("li", place.link(`w/${place.workflow}/nodes`, runner.hostname), ` ${runner.state === "lost_contact" ? "⚠ out of contact" : runner.state}`,
    h("span.quiet", ` · ${num(runner.held)} running · ${num(runner.capacity.num_cpus)} CPUs${stop ? ` · ${dur(stop)} left` : ""}${runner.quarantine ? " · gets no work: " + runner.quarantine : ""}`));
}
