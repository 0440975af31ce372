// Runners, and allocations with what they cost.
// @ts-check
import { ask, dialog, problem, quarantine } from "./act.js";
import { ansiLines } from "./ansi.js";
import { canAct, get, post } from "./api.js";
import { button, h, put } from "./dom.js";
import { ago, bytes, clock, count, dur, num } from "./format.js";
import { every } from "./live.js";

/** @param {import("./app.js").Place} place */
export function nodes(place) {
  const id = place.workflow;
  const [runners, allocations] = [h("section"), h("section")];
  put(place.main, h("h1", "Nodes"), runners, allocations);
  async function load() {
    const none = () => ({ items: [] });
    const [there, asked, uses, schedulers] = await Promise.all([
      get("/compute_nodes", { workflow_id: id, sort_by: "id", reverse_sort: true, limit: 200 }),
      get("/scheduled_compute_nodes", { workflow_id: id, sort_by: "id", reverse_sort: true, limit: 200 }).catch(none),
      get(`/workflows/${id}/allocation_uses`).catch(none), get("/slurm_schedulers", { workflow_id: id, limit: 50 }).catch(none),
    ]);
    const rows = there.items.sort((/** @type {any} */ a, /** @type {any} */ b) => Number(a.state === "ended") - Number(b.state === "ended"));
    put(runners, h("h2", "Runners"), rows.length ? grid(["Host", "State", "Running", "CPUs", "Memory", "Since", "Last seen", "Time left", ""], rows.map(runner)) : h("p.empty", `No runner has worked for it yet. \`torc run ${id}\` starts one.`));
    /** @type {Map<number, any>} */ const used = new Map(uses.items.map((/** @type {any} */ one) => [one.allocation_id, one]));
    const paid = sum(uses.items, "paid_node_hours");
    put(allocations, asked.items.length || schedulers.items.length ? [
      h("div.row", h("h2", "Allocations in Slurm"), h("span.quiet", `${count(asked.items.length, "allocation")}${paid ? `; ${sum(uses.items, "useful_node_hours").toFixed(1)} of ${paid.toFixed(1)} node hours useful` : ""}`),
        canAct() && schedulers.items.length ? h("span.push", button("Ask for more…", () => more(schedulers.items))) : null),
      asked.items.length ? grid(["Slurm job", "State", "Why", "Start", "End", "Time left", "Node hours, useful / paid", ""], asked.items.map((/** @type {any} */ a) => allocation(a, used.get(a.id) || {}))) : null,
    ] : null);
  }

  /** @param {any} r */
  function runner(r) {
    const left = r.stop_by_ms && r.state !== "ended" ? dur((r.stop_by_ms - Date.now()) / 1000) : "–";
    return [r.hostname, r.state === "lost_contact" ? "⚠ out of contact" : r.state, num(r.held), num(r.capacity.num_cpus), bytes(r.capacity.memory_bytes), clock(r.started_ms), r.state === "ended" ? `left ${clock(r.ended_ms)}` : ago(r.last_seen_ms), left,
      [r.quarantine ? `⚠ gets no work: ${r.quarantine} ` : r.end_reason || "", canAct() && r.state !== "ended" ? button(r.quarantine ? "Release" : "Quarantine", async () => { if (await quarantine(id, r.hostname, !!r.quarantine)) load(); }) : null]];
  }

  /** @param {any} a @param {any} use */
  function allocation(a, use) {
    const waits = a.status === "planned" || a.status === "pending";
    const start = a.started_ms ? clock(a.started_ms) : a.expected_start_ms ? `expected ${clock(a.expected_start_ms)}` : waits ? `waits for ${dur((Date.now() - (a.submitted_ms || a.created_ms)) / 1000)}` : "–";
    const left = a.ended_ms ? "–" : use.stop_by_ms ? dur((use.stop_by_ms - Date.now()) / 1000) : use.walltime_seconds ? `of ${dur(use.walltime_seconds)}` : "–";
    return [`${a.slurm_job_id || "not sent"}${use.nodes > 1 ? `, ${count(use.nodes, "node")}` : ""}`, h("span.badge", a.unneeded_since_ms && !a.ended_ms ? "given up" : a.state || a.status), a.why || "", start,
      a.ended_ms ? `${clock(a.ended_ms)} (${dur((a.ended_ms - (a.started_ms || a.created_ms)) / 1000)})` : "–", left,
      use.paid_node_hours ? `${use.useful_node_hours.toFixed(2)} / ${use.paid_node_hours.toFixed(2)}` : "–",
      [a.slurm_job_id && (a.started_ms || a.ended_ms) ? button("Output", () => output(a)) : null, " ",
        canAct() && waits && !a.unneeded_since_ms ? button("Cancel", async () => { if (await giveUp(a)) load(); }) : null]];
  }

  /** @param {any} a */
  const giveUp = (a) => ask(`Give up allocation ${a.slurm_job_id || a.id}`, {
    says: "It waits; what reaches Slurm takes it back. Jobs that need nodes wait for another one.",
    command: () => `torc slurm allocations ${id} --cancel ${a.id}`, run: () => post(`/scheduled_compute_nodes/${a.id}/cancel`, {}), told: "It is given up",
  });

  /** @param {any[]} schedulers */
  async function more(schedulers) {
    const which = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Scheduler" }, schedulers.map((one) => h("option", { value: one.name }, `${one.name}: ${count(one.nodes || 1, "node")} for ${one.walltime}`))));
    const many = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: "1", max: "1000", value: "1", "aria-label": "Allocations" }));
    // A second click asks for the same ones, not for more.
    const key = `page ${Date.now()} ${Math.random()}`;
    const done = await ask("Ask Slurm for nodes", {
      says: "So many allocations of this scheduler are put into Slurm's queue.", fields: [h("label", "Scheduler", which), h("label", "Allocations", many)],
      command: () => `torc slurm schedule-nodes ${id} --scheduler ${which.value} -n ${many.value}`,
      run: () => post("/scheduled_compute_nodes", { workflow_id: id, scheduler: which.value, count: Number(many.value), key }), told: "Asked for",
    });
    if (done) load();
  }

  place.leave(every(load, 5000));
  return load();
}

/** What the batch job of an allocation wrote last. @param {any} a */
function output(a) {
  const box = h("div");
  for (const stream of ["stderr", "stdout"]) {
    const lines = h("pre.tail", { tabindex: "0", role: "region", "aria-label": stream }, "…");
    box.append(h("h3", stream), lines);
    get(`/scheduled_compute_nodes/${a.id}/output`, { stream, offset: -16384, limit: 16384 }).then((piece) => put(lines, ansiLines(piece.text))).catch((error) => put(lines, problem(error)));
  }
  dialog(`Output of batch job ${a.slurm_job_id}`, (el) => [box, h("div.buttons", h("button", { onclick: () => el.close() }, "Close"))]);
}

/** @param {any[]} rows @param {string} key */
const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

/** A table of cells. @param {string[]} head @param {any[][]} rows */
export function grid(head, rows) {
  return h("div.scroll", h("table.grid", h("thead", h("tr", head.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell)))))));
}
