// Every action: first what it will do and the command that does the same, then one click.
// @ts-check
import { post } from "./api.js";
import { command, h, put, toast } from "./dom.js";
import { count, num } from "./format.js";

const TITLES = { retry: "Retry as they are", recover: "Recover", cancel: "Cancel", hold: "Hold", release: "Release", fail: "Fail for good", priority: "Change priority", memory: "Change memory", runtime: "Change time" };
/** @type {Record<string, [string, string]>} */
const VALUES = { priority: ["New priority", "10"], memory: ["Memory for the next attempts", "8g"], runtime: ["Time for the next attempts", "2h"] };

export function actionTitle(action, jobs = 2) {
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
    put(el, h("h2", null, title), content(el, (done) => { value = done; el.close(); }));
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
    const go = /** @type {HTMLButtonElement} */ (h("button.primary", { type: "button", disabled: true }, actionTitle(action)));
    const input = VALUES[action] && /** @type {HTMLInputElement} */ (h("input", { type: "text", value: request.value || VALUES[action][1], "aria-label": VALUES[action][0], oninput: preview }));
    const body = (dry) => ({ workflow_id: workflow, where, action, value: input ? input.value : undefined, dry_run: dry, by: "page" });
    let turn = 0;
    async function preview() {
      const mine = ++turn;
      go.disabled = true;
      try {
        const plan = await post("/jobs/act", body(true));
        if (mine !== turn) return;
        put(box, described(plan), h("p.quiet", null, "The same in a terminal:"), command(plan.command));
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
      ...(input ? [h("label", null, VALUES[action][0], input)] : []),
      box,
      h("div.buttons", null, h("button", { type: "button", onclick: () => el.close() }, "Leave it"), go),
    ];
  });
}

/** Keeps work from a machine, or lets it come again. */
export function quarantine(workflow, hostname, release, reason) {
  const title = release ? `Give ${hostname} work again` : `No work for ${hostname} for 10 minutes`;
  return dialog(title, (el, done) => {
    const box = h("div", { "aria-live": "polite" });
    const go = h("button.primary", { type: "button", onclick: async () => {
      try {
        await post(`/workflows/${workflow}/quarantine`, { hostname, release, reason: release ? undefined : reason });
        toast(release ? `${hostname} gets work again` : `${hostname} gets no work`);
        done(true);
      } catch (error) { put(box, problem(error)); }
    } }, title);
    return [h("p", null, release ? "Its runners are asked for work again." : "Jobs that run there go on; none is started. Other workflows are not touched."), h("p.quiet", null, "The same in a terminal:"), command(`torc runners quarantine ${hostname} ${workflow}${release ? " --release" : ""}`), box,
      h("div.buttons", null, h("button", { type: "button", onclick: () => el.close() }, "Leave it"), go)];
  });
}

function described(plan) {
  return h("div", null,
    h("p.big", null, `${num(plan.done)} of ${count(plan.matched, "job")}`),
    plan.notes.length ? h("ul", null, plan.notes.map((note) => h("li", null, note))) : null,
    plan.skipped.map((/** @type {[string, number]} */ [why, n]) => h("p.quiet", null, `${count(n, "job")} left as they are: ${why}`)),
    plan.names.length ? h("details", null, h("summary", null, "Which"), h("p.names", null, plan.names.join(", "), plan.done > plan.names.length ? ` and ${num(plan.done - plan.names.length)} more` : "")) : null);
}

export function problem(error) {
  return h("div.problem", { role: "alert" }, h("strong", null, error.message || String(error)), error.hint ? h("p", null, error.hint) : null);
}

/** Buttons for actions on what a filter finds. @param {number} workflow @param {() => string} where @param {string[]} actions @param {() => void} after */
export function actionButtons(workflow, where, actions, after) {
  return actions.map((action) => h("button", {
    type: "button",
    onclick: async () => { if (await act({ workflow, where: where(), action })) after(); },
  }, actionTitle(action)));
}
