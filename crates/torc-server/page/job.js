// One job: why it is where it is, its attempts, its log, its neighbours.
// @ts-check
import { act, actionTitle } from "./act.js";
import { canAct, get, REPORT } from "./api.js";
import { compared } from "./compare.js";
import { command, h, put } from "./dom.js";
import { badge, bytes, clock, dur, kindTitle, num, STATUSES } from "./format.js";
import { follow } from "./live.js";
import { log } from "./log.js";
import { grid } from "./nodes.js";

/** @typedef {import("./app.js").Place} Place */

/** @param {Place} place */
export async function job(place) {
  const id = place.job;
  const why = await get(`/jobs/${id}/why`);
  const one = why.job;
  await place.inWorkflow(one.workflow_id);
  const attempts = (await get(`/jobs/${id}/attempts`, { limit: 100 })).items;
  const begun = attempts.filter((/** @type {any} */ attempt) => attempt.started_ms);
  const asked = Number(place.params.get("attempt"));
  const shown = begun.find((/** @type {any} */ a) => a.attempt_id === asked && (!place.params.has("run") || a.run_id === Number(place.params.get("run")))) || begun[begun.length - 1];
  const before = begun[begun.indexOf(shown) - 1];
  const isCompared = before && place.params.has("compare") && !REPORT;
  const isFailed = shown && shown.cause;
  const stream = place.params.get("stream") || (isFailed ? "stderr" : "stdout");
  const at = place.params.has("at") ? Number(place.params.get("at")) : null;
  const address = (/** @type {any} */ a, /** @type {any} */ name) => `j/${id}?run=${a.run_id}&attempt=${a.attempt_id}&stream=${name}`;
  const reload = () => place.go(`j/${id}`);

  const actions = canAct() ? ["recover", "retry", "cancel", one.held ? "release" : "hold", "memory", "runtime"].filter((action) => fits(action, one.status)) : [];
  const around = h("div.place");
  const state = h("span", { role: "status" }, badge(one.status));
  // What is read stays as it is until it is asked for anew.
  place.pulse((frame) => {
    const [, status, attempt] = (frame.jobs || []).find(([job]) => job === id) || [];
    if (status !== undefined && (STATUSES[status] !== one.status || attempt !== one.attempt_id)) put(state, badge(STATUSES[status]), " ", h("button.small", { onclick: place.again }, "Show what changed"));
  });
  follow([id]);
  put(place.main,
    h("div.row", h("h1", one.name), state, one.held ? h("span.quiet", "held") : null,
      h("span.push.row", actions.map((action, i) => h("button.small", { "data-key": i ? null : "r", onclick: async () => { if (await act({ workflow: one.workflow_id, where: `id:${id}`, action })) reload(); } }, actionTitle(action, 1))))),
    h("div.two.wide-left", card(place, why), facts(place, one, shown)),
    attempts.length > 1 ? h("div.tabs", { role: "tablist", "aria-label": "Attempts" }, begun.map((/** @type {any} */ a, /** @type {number} */ i) => h("button.tab", { role: "tab", "aria-selected": String(a === shown), "data-key": { "-1": "[", 1: "]" }[i - begun.indexOf(shown)], onclick: () => place.go(address(a, stream)) },
      `${a.run_id > 1 ? `run ${a.run_id}, ` : ""}attempt ${a.attempt_id}`, h("span.quiet", ` ${a.cause || a.state} ${dur(a.exec_seconds)}`)))) : null,
    before && !REPORT && !isCompared ? h("div.row", h("button.small", { onclick: () => place.go(`${address(shown, stream)}&compare=1`) }, `Compare with attempt ${before.attempt_id}`)) : null,
    isCompared ? compared(one, before, shown, stream, () => place.go(address(shown, stream))) : shown ? log(place, one, {
      run_id: shown.run_id, attempt_id: shown.attempt_id, stream, at,
      running: !shown.ended_ms && !REPORT, hasScript: !!shown.recovery, to: (name) => place.go(address(shown, name)),
    }) : h("p.empty", "It has not started, so there is no output yet."),
    shown && shown.steps && shown.steps.rows.length ? h("section", h("h2", "Steps"), grid(["Step", "Kind", "Try", "Outcome", "Time"], shown.steps.rows.map(stepRow))) : null,
    around,
    h("details", h("summary", "Command"), h("pre", one.command || "(steps)")));
  // The log does not wait for them.
  put(around, ...await Promise.all([neighbours(place, one), files(one)]));
}

function fits(/** @type {string} */ action, /** @type {string} */ status) {
  const bad = ["failed", "terminated", "pending_failed"].includes(status);
  const isFinal = ["completed", "failed", "canceled", "terminated", "disabled"].includes(status);
  if (action === "retry") return bad && status !== "pending_failed";
  if (action === "recover") return bad;
  if (action === "cancel" || action === "hold" || action === "release") return !isFinal;
  return status !== "completed";
}

/** @param {Place} place @param {any} why */
function card(place, why) {
  const found = why.diagnosis;
  const attempt = why.attempt;
  return h("section.card", { "aria-label": "Why", tabindex: "-1", "data-key": "w" },
    h("p.big.say", why.summary),
    found && found.summary && !why.summary.includes(found.summary) ? h("p.say", found.summary) : null,
    found ? h("p.quiet", `${kindTitle(found.kind)}, ${Math.round(found.confidence * 100)}% confidence`) : null,
    found ? evidence(place, found.proof, why.job.id, attempt) : null,
    why.remedy ? h("p", `Recovery: ${why.remedy.reason}`) : null,
    why.remedy ? outlook(why.remedy) : null,
    why.details.length ? h("ul", why.details.map((/** @type {number} */ line) => h("li", line))) : null,
    why.adjustments && why.adjustments.length ? h("ul", why.adjustments.map((/** @type {any} */ a) => h("li.quiet", `${a.field} raised to ${a.field === "memory" ? bytes(a.to) : dur(a.to)}: ${a.why}`))) : null,
    why.hints.map((/** @type {any} */ hint) => h("p.quiet", hint)));
}

/** The chance of the next attempt, and how earlier retries of such a failure ended. @param {any} decision */
export function outlook(decision) {
  const { chance, record = {} } = decision;
  /** @type {[string, any][]} */
  const tried = [["as it was", record.again], ["with more memory", record.more_memory], ["with more time", record.more_time], ["near ones", record.near], ["long ago", record.older]];
  const before = tried.filter(([, counts]) => counts && counts.tries).map(([how, counts]) => `${how} ${num(counts.succeeded)} of ${num(counts.tries)}`);
  return h("div.outlook", null,
    chance > 0 ? h("p", h("meter", { min: "0", max: "1", value: String(chance), "aria-label": "Chance that the next attempt succeeds" }), ` ${Math.round(chance * 100)}% chance that the next attempt succeeds`) : null,
    h("p.quiet", before.length ? `Tried again before, succeeded: ${before.join(", ")}` : "Such a failure was not tried again before."));
}

/** What decided, strongest first; text opens the log at its bytes. @param {Place} place @param {any[]} proof @param {number} id @param {any} attempt */
export function evidence(place, proof, id, attempt) {
  return h("ul.evidence", proof.slice(0, 5).map((one) => h("li", h("span.source", one.source),
    attempt && (one.start !== undefined || one.stdout) ? place.link(`j/${id}?run=${attempt.run_id}&attempt=${attempt.attempt_id}&stream=${one.stdout ? "stdout" : "stderr"}&at=${one.stdout ? one.stdout.start : one.start}`, h("code", one.text)) : one.text)));
}

/** @param {Place} place @param {any} one @param {any} a */
function facts(place, one, a) {
  /** @type {[string, any][]} */
  const rows = [
    ["Family", place.link(`w/${one.workflow_id}/jobs?where=family:${encodeURIComponent(/\s/.test(one.family) ? `"${one.family}"` : one.family)}`, one.family)],
    ["Asks for", `${num(one.num_cpus)} CPU${one.num_cpus === 1 ? "" : "s"}${one.num_gpus ? `, ${num(one.num_gpus)} GPUs` : ""}${one.memory ? `, ${one.memory}` : ""}${one.runtime ? `, ${one.runtime.replace(/^P(.*?)T/, "$1 ").trim().toLowerCase()}` : ""}`],
    ["Priority", num(one.priority)],
    ["Expected", one.estimate_seconds === undefined ? "–" : `${dur(one.estimate_seconds)} (${one.estimate_source.replace("_", ", ")})`],
  ];
  if (a) {
    rows.push(["Started", clock(a.started_ms)], ["Time", dur(a.exec_seconds ?? (a.ended_ms ? null : (Date.now() - a.started_ms) / 1000))],
      ["CPU time", dur(a.cpu_seconds)], ["Peak memory", `${bytes(a.peak_memory_bytes)}${a.memory_bytes ? ` of ${bytes(a.memory_bytes)}` : ""}`],
      ["Node", a.hostname || "–"], ["Exit", a.signal ? `signal ${a.signal}` : String(a.return_code ?? "–")]);
  }
  return h("dl.facts", rows.map(([key, value]) => [h("dt", key), h("dd", value)]));
}

/** One try of a step. @param {any} row */
function stepRow(row) {
  const error = row.error_kind ? `${row.error_kind}${row.exit_code === undefined ? "" : ` ${row.exit_code}`}${row.error ? `: ${row.error.split("\n").pop().slice(0, 160)}` : ""}` : "";
  return ["\u2003".repeat(row.path.split(".").length - 1) + (row.name || row.path), row.kind, num(row["try"]), [row.error_kind ? "✕ " : "✓ ", row.outcome.replaceAll("_", " "), error && row.error_kind ? h("span.quiet", ` ${error}`) : null], dur((row.ended_ms - row.started_ms) / 1000)];
}

/** What it reads and writes. @param {any} one */
async function files(one) {
  if (REPORT) return null;
  const of = async (/** @type {string} */ how) => (await get("/files", { workflow_id: one.workflow_id, [how]: one.id, limit: 50 }).catch(() => ({ items: [] }))).items;
  const [reads, writes] = await Promise.all([of("needed_by_job_id"), of("produced_by_job_id")]);
  if (!reads.length && !writes.length) return null;
  const row = (/** @type {string} */ how) => (/** @type {any} */ f) => [how, f.name, f.path, f.mtime_ms ? clock(f.mtime_ms) : "not seen yet"];
  return h("section", h("h2", "Files"), grid(["", "Name", "Path", "Changed"], [...reads.map(row("reads")), ...writes.map(row("writes"))]));
}

/** @param {Place} place @param {any} one */
async function neighbours(place, one) {
  if (REPORT) return null;
  const graph = await get(`/workflows/${one.workflow_id}/graph`, { focus: one.id, hops: 1 }).catch(() => null);
  if (!graph) return null;
  const names = new Map(graph.nodes.map((/** @type {any} */ node) => [node.id, node]));
  const list = (/** @type {string} */ title, /** @type {number[]} */ ids) => ids.length ? h("div", h("h3", `${title} (${num(ids.length)})`), h("ul.plainlist", ids.slice(0, 12).map((id) => h("li", badge(Object.keys(names.get(id).counts)[0]), " ", place.link(`j/${id}`, names.get(id).name))), ids.length > 12 ? h("li.quiet", `and ${num(ids.length - 12)} more`) : null)) : null;
  const before = graph.edges.filter((/** @type {any} */ e) => e.to === one.id).map((/** @type {any} */ e) => e.from);
  const behind = graph.edges.filter((/** @type {any} */ e) => e.from === one.id).map((/** @type {any} */ e) => e.to);
  if (!before.length && !behind.length) return null;
  return h("section", h("div.row", h("h2", "Neighbours"), place.link(`w/${one.workflow_id}/graph?focus=${one.id}`, "in the graph")), h("div.two", list("Depends on", before), list("Needed by", behind)), h("details", h("summary", "The same in a terminal"), command(`torc why ${one.id}`)));
}
