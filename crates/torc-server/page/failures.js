// Failures by cause: what happened, the evidence, and one click that helps.
// @ts-check
import { act, actionTitle, dialog, quarantine } from "./act.js";
import { ansiLines } from "./ansi.js";
import { canAct, get, post, REPORT } from "./api.js";
import { spark } from "./charts.js";
import { command, h, put, toast } from "./dom.js";
import { bytes, clock, count, dur, kindTitle, num } from "./format.js";
import { evidence, outlook } from "./job.js";
import { every } from "./live.js";
import { helps, remedy } from "./overview.js";

/** @param {import("./app.js").Place} place */
export function failures(place) {
  const id = place.workflow;
  const [list, verdicts] = [h("div.cards"), h("div.cards")];
  put(place.main, h("h1", "Failures"), verdicts, list);
  let shown = "", told = "";
  async function load() {
    const [{ items: groups }, { items: held }] = await Promise.all([get(`/workflows/${id}/failures`), REPORT ? { items: [] } : get("/classifications", { workflow_id: id, state: "held", limit: 20 }).catch(() => ({ items: [] }))]);
    const waiting = held.map((/** @type {any} */ one) => one.id).join();
    if (waiting !== told) { told = waiting; put(verdicts, held.map(verdict)); }
    const now = JSON.stringify(groups.map((/** @type {any} */ g) => [g.where, g.jobs, g.waiting, g.blocked, g.sample, g.retries]));
    if (now === shown) return;
    shown = now;
    put(list, groups.length ? groups.map((/** @type {any} */ group) => card(group)) : h("p.fine", "✓ No job has failed."));
  }

  /** What an agent proposes and a person decides. */
  function verdict(/** @type {any} */ one) {
    const decide = (/** @type {any} */ what) => async () => {
      try { await post(`/classifications/${one.id}/${what}`, { by: "page" }); toast(`${one.action} of ${one.job_name}: ${what}ed`); } catch (error) { toast(String(/** @type {any} */ (error).message), true); }
      told = shown = "?";
      load();
    };
    return h("article.card", h("div.row", h("h2", `${one.agent || one.by} proposes: ${one.action.replaceAll("_", " ")} `, place.link(`j/${one.job_id}`, one.job_name)), one.confidence === null || one.confidence === undefined ? null : h("span.push.quiet", `${Math.round(one.confidence * 100)}% confidence`)),
      one.reason ? h("p.say", one.reason) : null, one.evidence.length ? h("ul", one.evidence.slice(0, 5).map((/** @type {string} */ text) => h("li", h("code", text)))) : null, one.note ? h("p.quiet", one.note) : null,
      canAct() ? h("div.row", h("button.primary", { onclick: decide("accept") }, "Accept"), h("button", { onclick: decide("reject") }, "Reject"), h("code.quiet", `torc jobs classify --accept ${one.id}`)) : null);
  }

  function card(/** @type {any} */ group) {
    const run = (/** @type {string} */ action) => async () => { if (await act({ workflow: id, where: group.where, action })) { shown = ""; load(); } };
    const most = group.nodes[0];
    const oneNode = most && group.jobs > 3 && most[1] / group.jobs > 0.8 && group.nodes.length > 1;
    const curve = h("div");
    memory(group, curve);
    return h("article.card.failure", null,
      h("div.row", h("h2", `${num(group.jobs)} × ${kindTitle(group.kind)}`), h("span", "in ", place.link(`w/${id}/jobs?where=${encodeURIComponent(group.where)}`, group.family)),
        h("span.push.quiet", `${Math.round(group.confidence * 100)}% confidence`)),
      h("p.say", group.summary),
      evidence(place, group.proof, group.sample, { run_id: group.sample_run, attempt_id: group.sample_attempt }),
      h("p.quiet", null,
        group.blocked ? `${count(group.blocked, "job")} canceled behind them · ` : "",
        group.waiting ? `${num(group.waiting)} wait for a verdict · ` : "",
        group.nodes.length ? `on ${group.nodes.map((/** @type {[string, number]} */ [host, n]) => `${host} (${num(n)})`).join(", ")} · ` : "",
        group.first_ms ? `${clock(group.first_ms)}${group.last_ms !== group.first_ms ? " – " + clock(group.last_ms) : ""}` : ""),
      oneNode ? h("p.warn", `⚠ ${num(most[1])} of ${num(group.jobs)} on ${most[0]}: the node may be to blame `, canAct() ? h("button.small", { onclick: () => quarantine(id, most[0], false, `${group.kind}: ${most[1]} of ${group.jobs}`) }, `Quarantine ${most[0]}`) : null) : null,
      group.tail ? h("details", h("summary", `Last lines of ${group.sample_name}`), h("pre.tail", { tabindex: "0", role: "region", "aria-label": "Last lines" }, ansiLines(group.tail))) : null,
      curve,
      done(group) ? h("p", `Done so far: ${done(group)}`) : null,
      h("p", helps(group) ? `Recovery: ${group.why}` : `Recovery leaves it: ${group.why}`),
      outlook(group),
      h("div.row.buttons", place.link(`j/${group.sample}?run=${group.sample_run}&attempt=${group.sample_attempt}&stream=stderr`, "Open the log"), group.blocked && !REPORT ? place.link(`w/${id}/graph?focus=${group.sample}&hops=4`, "What it blocks") : null,
        canAct() ? [h("button", { class: helps(group) ? "primary" : "", "data-key": "r", onclick: run(helps(group) ? "recover" : "retry") }, remedy(group)),
          (group.changes.length ? ["retry", "memory", "runtime"] : ["memory", "runtime"]).map((action) => h("button", { onclick: run(action) }, actionTitle(action, group.jobs))),
          group.waiting ? h("button", { onclick: run("fail") }, actionTitle("fail")) : null] : null,
        REPORT ? null : h("button", { onclick: () => handOver(id, group) }, "Hand to an agent…")));
  }
  place.pulse((frame) => { if (frame.failures) load(); });
  place.leave(every(load, 4000));
  return load();
}

/** The memory of the sample over time against its limit, where its runner kept samples. @param {any} group @param {Element} box */
async function memory(group, box) {
  if (REPORT) return;
  const view = await get(`/jobs/${group.sample}/samples`, { run_id: group.sample_run, attempt_id: group.sample_attempt }).catch(() => null);
  if (!view || view.points.length < 2) return;
  const [seen, limit] = [view.points.map((/** @type {number[]} */ p) => p[1]), view.memory_limit_bytes];
  const said = `Memory of ${group.sample_name}: most ${bytes(Math.max(...seen))}${limit ? ` of ${bytes(limit)}` : ""} in ${dur(view.points[view.points.length - 1][0] / 1000)}`;
  put(box, h("figure", h("figcaption.quiet", said), spark(seen, { label: said, max: limit || 0 })));
}

/** What was tried, in words. @param {any} group */
function done({ retries, raised, jobs }) {
  const amount = (/** @type {string} */ field, /** @type {number} */ n) => (field === "memory" ? bytes(n) : field === "runtime" || field === "timeout" ? dur(n) : num(n));
  return [retries ? `tried again ${count(retries, "time")}` : "",
    ...raised.map((/** @type {any} */ r) => `${r.field.replace("num_", "")} raised ${r.from === null ? "" : `from ${amount(r.field, r.from)} `}to ${amount(r.field, r.to)}${jobs > 1 ? ` for ${count(r.jobs, "job")}` : ""}`)].filter(Boolean).join(", ");
}

/** How an agent gets it: by itself for what waits for a verdict, or with a person who watches. @param {number} id @param {any} group */
function handOver(id, group) {
  const task = `With Torc's tools, find out why job ${group.sample} of workflow ${id} failed, and ${group.jobs > 1 ? `${num(group.jobs - 1)} more like it (torc jobs list ${id} --where '${group.where}')` : "what would mend it"}. Read its log and its why card. Tell me the cause and what you propose; change nothing without asking me.`;
  return dialog("Hand to an agent", (el) => [
    ...(group.waiting ? [h("p", `It judges the ${count(group.waiting, "failure")} that wait for a verdict; you decide what it is not sure of.`), command(`torc recover ${id} --ai-recovery`)] : []),
    h("p", "An agent of yours looks with you: tell it of Torc once, then give it the task."), command("torc mcp config claude"), command(task),
    h("div.buttons", h("button", { onclick: () => el.close() }, "Close"))]);
}
