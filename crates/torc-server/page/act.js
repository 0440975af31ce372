// Every action: first what it will do and the command that does the same, then one click.
// @ts-check
import { post } from "./api.js";
import { command, h, put, toast } from "./dom.js";
import { count, num } from "./format.js";

const TITLES = { retry: "Retry as they are", recover: "Recover", cancel: "Cancel", hold: "Hold", release: "Release", fail: "Fail for good", priority: "Change priority", memory: "Change memory", runtime: "Change time" };
/** @type {Record<string, [string, string]>} */
const VALUES = { priority: ["New priority", "10"], memory: ["Memory for the next attempts", "8g"], runtime: ["Time for the next attempts", "2h"] };

export function actionTitle(/** @type {string} */ action, jobs = 2) {
  if (action === "retry" && jobs === 1) return "Retry as it is";
  return /** @type {any} */ (TITLES)[action] || action;
}

/** Opens a dialog; resolves when it is closed, with what was done or null.
 * @param {string} title @param {(dialog: HTMLDialogElement, done: (value: any) => void) => Node[]} content */
export function dialog(title, content) {
  return new Promise((resolve) => {
    const el = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": title }));
    /** @type {any} */ let value = null;
    el.addEventListener("close", () => { el.remove(); resolve(value); });
    put(el, h("h2", title), content(el, (done) => { value = done; el.close(); }));
    document.body.appendChild(el);
    el.showModal();
  });
}

/** Shows what an action will do and does it when told so.
 * @param {{workflow: number, where: string, action: string, value?: string}} request */
export function act(request) {
  const { workflow, where, action } = request;
  return dialog(actionTitle(action), (el, done) => {
    const box = h("div", { "aria-live": "polite" });
    const go = /** @type {HTMLButtonElement} */ (h("button.primary", { disabled: true }, actionTitle(action)));
    const input = VALUES[action] && /** @type {HTMLInputElement} */ (h("input", { type: "text", value: request.value || VALUES[action][1], "aria-label": VALUES[action][0], oninput: preview }));
    const body = (/** @type {any} */ dry) => ({ workflow_id: workflow, where, action, value: input ? input.value : undefined, dry_run: dry, by: "page" });
    let turn = 0;
    async function preview() {
      const mine = ++turn;
      go.disabled = true;
      try {
        const plan = await post("/jobs/act", body(true));
        if (mine !== turn) return;
        put(box, described(plan), h("p.quiet", "The same in a terminal:"), command(plan.command));
        go.textContent = `${actionTitle(action)}: ${count(plan.done, "job")}`;
        go.disabled = plan.done === 0;
        if (document.activeElement === document.body || document.activeElement === el) go.focus();
      } catch (error) {
        if (mine === turn) put(box, problem(error));
      }
    }
    go.addEventListener("click", async () => {
      go.disabled = true;
      try {
        const result = await post("/jobs/act", body(false));
        toast(`${actionTitle(action)}: done with ${count(result.done, "job")}`);
        done(result);
      } catch (error) {
        put(box, problem(error));
      }
    });
    preview();
    return [
      ...(input ? [h("label", VALUES[action][0], input)] : []),
      box,
      closing(el, go),
    ];
  });
}

/** Says what a click will do and the command that does the same, then does it.
 * @param {string} title
 * @param {{says: string, fields?: Node[], command: () => string, run: () => Promise<any>, told: string}} what */
export function ask(title, what) {
  return dialog(title, (el, done) => {
    const [box, same] = [h("div", { "aria-live": "polite" }), h("div")];
    const tell = () => put(same, command(what.command()));
    const go = h("button.primary", { onclick: async () => {
      try {
        await what.run();
        toast(what.told);
        done(true);
      } catch (error) { put(box, problem(error)); }
    } }, title);
    (what.fields || []).forEach((field) => field.addEventListener("input", tell));
    tell();
    return [h("p", what.says), ...(what.fields || []), h("p.quiet", "The same in a terminal:"), same, box, closing(el, go)];
  });
}

/** Keeps work from a machine, or lets it come again. @param {number} workflow @param {string} hostname @param {boolean} release @param {string} [reason] */
export function quarantine(workflow, hostname, release, reason) {
  return ask(release ? `Give ${hostname} work again` : `No work for ${hostname} for 10 minutes`, {
    says: release ? "Its runners are asked for work again." : "Jobs that run there go on; none is started. Other workflows are not touched.",
    command: () => `torc runners quarantine ${hostname} ${workflow}${release ? " --release" : ""}`,
    run: () => post(`/workflows/${workflow}/quarantine`, { hostname, release, reason: release ? undefined : reason }),
    told: release ? `${hostname} gets work again` : `${hostname} gets no work`,
  });
}

/** @param {HTMLDialogElement} el @param {Node} go */
const closing = (el, go) => h("div.buttons", h("button", { onclick: () => el.close() }, "Leave it"), go);

function described(/** @type {any} */ plan) {
  return h("div", null,
    h("p.big", `${num(plan.done)} of ${count(plan.matched, "job")}`),
    plan.notes.length ? h("ul", plan.notes.map((/** @type {any} */ note) => h("li", note))) : null,
    plan.skipped.map((/** @type {[string, number]} */ [why, n]) => h("p.quiet", `${count(n, "job")} left as they are: ${why}`)),
    plan.names.length ? h("details", h("summary", "Which"), h("p.names", plan.names.join(", "), plan.done > plan.names.length ? ` and ${num(plan.done - plan.names.length)} more` : "")) : null);
}

export function problem(/** @type {any} */ error) {
  return h("div.problem", { role: "alert" }, h("strong", error.message || String(error)), error.hint ? h("p", error.hint) : null);
}
