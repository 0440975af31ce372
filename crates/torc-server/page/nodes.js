// Runners, and allocations with what they cost.
// @ts-check
import { ask, dialog, problem, quarantine } from "./act.js";
import { ansiLines } from "./ansi.js";
import { canAct, get, post } from "./api.js";
import { button, h, put } from "./dom.js";
import { ago, bar, bytes, clock, count, dur, num } from "./format.js";
import { every } from "./live.js";

/** @param {import("./app.js").Place} place */
export function nodes(place) {
  const id = place.workflow;
  const [runners, allocations] = [h("section", h("p.loading", "Loading…")), h("section")];
  put(place.main, h("h1", "Nodes"), runners, allocations);
  async function load() {
    const none = () => ({ items: [], total_count: 0 });
    const of = { workflow_id: id, sort_by: "id", reverse_sort: true, limit: 100 };
    const [there, gone, asked, uses, schedulers] = await Promise.all([
      get("/compute_nodes", { ...of, is_active: true }), get("/compute_nodes", { ...of, is_active: false, limit: 30 }),
      get("/scheduled_compute_nodes", of).catch(none), get(`/workflows/${id}/allocation_uses`).catch(none), get("/slurm_schedulers", { workflow_id: id, limit: 50 }).catch(none),
    ]);
    const rows = [...there.items, ...gone.items];
    const gpus = rows.some((r) => r.capacity.num_gpus);
    const titles = ["Host", "State", "Jobs", "CPUs busy", "Memory given", ...(gpus ? ["GPUs"] : []), "Time left", "Since", "Last seen", ""];
    put(runners, h("h2", "Runners"), rows.length ? [grid(titles, rows.map((r) => runner(r, gpus))), others(there), others(gone)] : h("p.empty", `No runner has worked for it yet. \`torc run ${id}\` starts one.`));
    /** @type {Map<number, any>} */ const used = new Map(uses.items.map((/** @type {any} */ one) => [one.allocation_id, one]));
    const paid = sum(uses.items, "paid_node_hours");
    put(allocations, asked.items.length || schedulers.items.length ? [
      h("div.row", h("h2", "Allocations in Slurm"), h("span.quiet", `${count(asked.total_count, "allocation")}${paid ? `; ${sum(uses.items, "useful_node_hours").toFixed(1)} of ${paid.toFixed(1)} node hours useful` : ""}`),
        canAct() && schedulers.items.length ? h("span.push", button("Ask for more…", () => more(schedulers.items))) : null),
      asked.items.length ? grid(["Slurm job", "State", "Why", "Start", "End", "Time left", "Node hours, useful / paid", ""], asked.items.map((/** @type {any} */ a) => allocation(a, used.get(a.id) || {}))) : null, others(asked),
    ] : null);
  }

  /** @param {any} r @param {boolean} gpus */
  function runner(r, gpus) {
    const { capacity, used } = r;
    const isHere = r.state !== "ended";
    /** What it has of something, with a bar of what its jobs hold. @param {string} key @param {(n: number) => string} said */
    const has = (key, said) => {
      const all = capacity[key] * (capacity.spreads ? capacity.num_nodes : 1);
      return isHere ? share(used[key], all, `${said(used[key])} of ${said(all)}`) : said(all);
    };
    return [r.hostname, r.state === "lost_contact" ? "⚠ out of contact" : r.state, num(r.held), has("num_cpus", num), has("memory_bytes", bytes), ...(gpus ? [has("num_gpus", num)] : []),
      r.stop_by_ms && isHere ? timeLeft(r.stop_by_ms, r.stop_by_ms - r.started_ms) : "–", clock(r.started_ms), isHere ? ago(r.last_seen_ms) : `left ${clock(r.ended_ms)}`,
      [r.quarantine ? `⚠ gets no work: ${r.quarantine} ` : r.end_reason || "", canAct() && isHere ? button(r.quarantine ? "Release" : "Quarantine", async () => { if (await quarantine(id, r.hostname, !!r.quarantine)) load(); }) : null]];
  }

  /** @param {any} a @param {any} use */
  function allocation(a, use) {
    const waits = a.status === "planned" || a.status === "pending";
    const start = a.started_ms ? clock(a.started_ms) : a.expected_start_ms ? `expected ${clock(a.expected_start_ms)}` : waits ? `waits for ${dur((Date.now() - (a.submitted_ms || a.created_ms)) / 1000)}` : "–";
    const left = a.ended_ms ? "–" : use.stop_by_ms ? timeLeft(use.stop_by_ms, use.walltime_seconds * 1000) : use.walltime_seconds ? `of ${dur(use.walltime_seconds)}` : "–";
    return [`${a.slurm_job_id || "not sent"}${use.nodes > 1 ? `, ${count(use.nodes, "node")}` : ""}`, h("span.badge", a.unneeded_since_ms && !a.ended_ms ? "given up" : a.state || a.status), a.why || "", start,
      a.ended_ms ? `${clock(a.ended_ms)} (${dur((a.ended_ms - (a.started_ms || a.created_ms)) / 1000)})` : "–", left,
      use.paid_node_hours ? share(use.useful_node_hours, use.paid_node_hours, `${use.useful_node_hours.toFixed(2)} / ${use.paid_node_hours.toFixed(2)}`) : "–",
      [a.slurm_job_id && (a.started_ms || a.ended_ms) ? [button("Output", () => output(a)), " "] : null,
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

/** A small bar with what it says beside it. @param {number} part @param {number} whole @param {string} said */
const share = (part, whole, said) => h("div.share", bar({ running: Math.max(0, part) }, whole || 1, said), h("span", { "aria-hidden": "true" }, said));

/** @param {number} until @param {number} whole milliseconds */
const timeLeft = (until, whole) => share(until - Date.now(), whole, dur(Math.max(0, until - Date.now()) / 1000));

/** Older ones that a table leaves out. @param {any} page */
const others = (page) => page.total_count > page.items.length && h("p.quiet", `and ${num(page.total_count - page.items.length)} older`);

/** @param {any[]} rows @param {string} key */
const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

/** A table of cells; on a phone each row is a card, and its cells say what they are. @param {string[]} head @param {any[][]} rows */
export function grid(head, rows) {
  return h("div.scroll", h("table.grid.fold", h("thead", h("tr", head.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", rows.map((row) => h("tr", row.map((cell, i) => h("td", { "data-title": head[i] }, cell)))))));
}
