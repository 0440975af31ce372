// Failures by cause: what happened, the evidence, and one click that helps.
// @ts-check
import { act, actionTitle, quarantine } from "./act.js";
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
  put(place.main, h("h1", null, "Failures"), verdicts, list);
  let shown = "", told = "";
  async function load() {
    const [{ items: groups }, { items: held }] = await Promise.all([get(`/workflows/${id}/failures`), REPORT ? { items: [] } : get("/classifications", { workflow_id: id, state: "held", limit: 20 }).catch(() => ({ items: [] }))]);
    const waiting = held.map((one) => one.id).join();
    if (waiting !== told) { told = waiting; put(verdicts, held.map(verdict)); }
    const now = JSON.stringify(groups.map((g) => [g.where, g.jobs, g.waiting, g.blocked, g.sample]));
    if (now === shown) return;
    shown = now;
    put(list, groups.length ? groups.map((group) => card(group)) : h("p.fine", null, "✓ No job has failed."));
  }

  /** What an agent proposes and a person decides. */
  function verdict(one) {
    const decide = (what) => async () => {
      try { await post(`/classifications/${one.id}/${what}`, { by: "page" }); toast(`${one.action} of ${one.job_name}: ${what}ed`); } catch (error) { toast(String(/** @type {any} */ (error).message), true); }
      told = shown = "?";
      load();
    };
    return h("article.card", null, h("div.row", null, h("h2", null, `${one.agent || one.by} proposes: ${one.action.replaceAll("_", " ")} `, place.link(`j/${one.job_id}`, one.job_name)), one.confidence === null || one.confidence === undefined ? null : h("span.push.quiet", null, `${Math.round(one.confidence * 100)}% confidence`)),
      one.reason ? h("p.say", null, one.reason) : null, one.evidence.length ? h("ul", null, one.evidence.slice(0, 5).map((text) => h("li", null, h("code", null, text)))) : null, one.note ? h("p.quiet", null, one.note) : null,
      canAct() ? h("div.row", null, h("button.primary", { type: "button", onclick: decide("accept") }, "Accept"), h("button", { type: "button", onclick: decide("reject") }, "Reject"), h("code.quiet", null, `torc jobs classify --accept ${one.id}`)) : null);
  }

  function card(group) {
    const run = (action) => async () => { if (await act({ workflow: id, where: group.where, action })) { shown = ""; load(); } };
    const most = group.nodes[0];
    const oneNode = most && group.jobs > 3 && most[1] / group.jobs > 0.8 && group.nodes.length > 1;
    return h("article.card.failure", null,
      h("div.row", null, h("h2", null, `${num(group.jobs)} × ${kindTitle(group.kind)}`), h("span", null, "in ", place.link(`w/${id}/jobs?where=${encodeURIComponent(group.where)}`, group.family)),
        h("span.push.quiet", null, `${Math.round(group.confidence * 100)}% confidence`)),
      h("p.say", null, group.summary),
      evidence(place, group.proof, group.sample, { run_id: group.sample_run, attempt_id: group.sample_attempt }),
      h("p.quiet", null,
        group.blocked ? `${count(group.blocked, "job")} canceled behind them · ` : "",
        group.waiting ? `${num(group.waiting)} wait for a verdict · ` : "",
        group.nodes.length ? `on ${group.nodes.map((/** @type {[string, number]} */ [host, n]) => `${host} (${num(n)})`).join(", ")} · ` : "",
        group.first_ms ? `${clock(group.first_ms)}${group.last_ms !== group.first_ms ? " – " + clock(group.last_ms) : ""}` : ""),
      oneNode ? h("p.warn", null, `⚠ ${num(most[1])} of ${num(group.jobs)} on ${most[0]}: the node may be to blame `, canAct() ? h("button.small", { type: "button", onclick: () => quarantine(id, most[0], false, `${group.kind}: ${most[1]} of ${group.jobs}`) }, `Quarantine ${most[0]}`) : null) : null,
      group.tail ? h("details", null, h("summary", null, `Last lines of ${group.sample_name}`), h("pre.tail", { tabindex: "0", role: "region", "aria-label": "Last lines" }, group.tail)) : null,
      h("p", null, helps(group) ? `Recovery: ${group.why}` : `Recovery leaves it: ${group.why}`),
      outlook(group),
      h("div.row.buttons", null, place.link(`j/${group.sample}?run=${group.sample_run}&attempt=${group.sample_attempt}&stream=stderr`, "Open the log"),
        canAct() ? [h("button", { type: "button", class: helps(group) ? "primary" : "", "data-key": "r", onclick: run(helps(group) ? "recover" : "retry") }, remedy(group)),
          (group.changes.length ? ["retry", "memory", "runtime"] : ["memory", "runtime"]).map((action) => h("button", { type: "button", onclick: run(action) }, actionTitle(action, group.jobs))),
          group.waiting ? h("button", { type: "button", onclick: run("fail") }, actionTitle("fail")) : null] : null));
  }
  place.leave(every(load, 4000));
  return load();
}
