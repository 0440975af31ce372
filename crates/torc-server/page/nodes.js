// Runners and allocations.
// @ts-check
import { quarantine } from "./act.js";
import { canAct, get } from "./api.js";
import { h, put } from "./dom.js";
import { ago, bytes, clock, count, dur, num } from "./format.js";
import { every } from "./live.js";

/** Slurm's reasons in plain words. @type {Record<string, string>} */
const REASONS = {
  Priority: "others are before it in the queue", Resources: "no nodes are free yet", QOSMaxCpuPerUserLimit: "you use as many CPUs as your QOS allows",
  AssocGrpCpuLimit: "your account uses as many CPUs as it may", AssocMaxJobsLimit: "your account runs as many jobs as it may", PartitionTimeLimit: "it asks for more time than the partition allows",
  PartitionNodeLimit: "it asks for more nodes than the partition has", ReqNodeNotAvail: "nodes it needs are down or reserved", BeginTime: "it may not begin yet", Dependency: "it waits for another job",
  QOSMaxJobsPerUserLimit: "you run as many jobs as your QOS allows", AssocGrpGRES: "your account uses as many GPUs as it may", JobHeldUser: "you hold it", JobHeldAdmin: "an administrator holds it", Licenses: "no licence is free",
};

/** @param {import("./app.js").Place} place */
export function nodes(place) {
  const id = place.workflow;
  const [runners, allocations] = [h("section"), h("section")];
  put(place.main, h("h1", null, "Nodes"), runners, allocations);
  async function load() {
    const [there, asked] = await Promise.all([
      get("/compute_nodes", { workflow_id: id, sort_by: "id", reverse_sort: true, limit: 200 }),
      get("/scheduled_compute_nodes", { workflow_id: id, limit: 200 }).catch(() => ({ items: [] })),
    ]);
    const rows = there.items.sort((a, b) => Number(a.state === "ended") - Number(b.state === "ended"));
    put(runners, h("h2", null, "Runners"), rows.length ? grid(["Host", "State", "Running", "CPUs", "Memory", "Since", "Last seen", ""],
      rows.map((r) => [r.hostname, r.state === "lost_contact" ? "⚠ out of contact" : r.state, num(r.held), num(r.capacity.num_cpus), bytes(r.capacity.memory_bytes), clock(r.started_ms), r.state === "ended" ? `left ${clock(r.ended_ms)}` : ago(r.last_seen_ms), [r.quarantine ? `⚠ gets no work: ${r.quarantine} ` : r.end_reason || "", canAct() && r.state !== "ended" ? h("button.small", { type: "button", onclick: async () => { if (await quarantine(id, r.hostname, !!r.quarantine)) load(); } }, r.quarantine ? "Release" : "Quarantine") : null]])) : h("p.empty", null, `No runner has worked for it yet. \`torc run ${id}\` starts one.`));
    put(allocations, asked.items.length ? [h("h2", null, "Allocations in Slurm"), grid(["Slurm job", "State", "Why", "Asked", "Started", "Ended"],
      asked.items.map((a) => [a.slurm_job_id || "–", a.state || a.status, a.reason ? [a.reason, REASONS[a.reason] ? h("span.quiet", null, ` – ${REASONS[a.reason]}`) : null] : "", clock(a.submitted_ms || a.created_ms), clock(a.started_ms), a.ended_ms ? `${clock(a.ended_ms)} (${dur((a.ended_ms - (a.started_ms || a.created_ms)) / 1000)})` : "–"])), h("p.quiet", null, count(asked.items.length, "allocation"))] : null);
  }
  place.leave(every(load, 5000));
  return load();
}

/** A table of cells. @param {string[]} head @param {any[][]} rows */
export function grid(head, rows) {
  return h("div.scroll", null, h("table.grid", null, h("thead", null, h("tr", null, head.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell)))))));
}
