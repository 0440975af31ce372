// Failures by cause: what happened, the evidence, and one click that helps.
// @ts-check
import { act, actionTitle, quarantine } from "./act.js";
import { ansiLines } from "./ansi.js";
import { canAct, get, post, REPORT } from "./api.js";
import { h, put, toast } from "./dom.js";
import { clock, count, kindTitle, num } from "./format.js";
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
    const now = JSON.stringify(groups.map((/** @type {any} */ g) => [g.where, g.jobs, g.waiting, g.blocked, g.sample]));
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
      h("p", helps(group) ? `Recovery: ${group.why}` : `Recovery leaves it: ${group.why}`),
      outlook(group),
      h("div.row.buttons", place.link(`j/${group.sample}?run=${group.sample_run}&attempt=${group.sample_attempt}&stream=stderr`, "Open the log"), group.blocked && !REPORT ? place.link(`w/${id}/graph?focus=${group.sample}&hops=4`, "What it blocks") : null,
        canAct() ? [h("button", { class: helps(group) ? "primary" : "", "data-key": "r", onclick: run(helps(group) ? "recover" : "retry") }, remedy(group)),
          (group.changes.length ? ["retry", "memory", "runtime"] : ["memory", "runtime"]).map((action) => h("button", { onclick: run(action) }, actionTitle(action, group.jobs))),
          group.waiting ? h("button", { onclick: run("fail") }, actionTitle("fail")) : null] : null));
  }
  place.leave(every(load, 4000));
  return load();
}
