// Below the timeline: where the time went, and what other machines would change.
// @ts-check
import { problem } from "./act.js";
import { get } from "./api.js";
import { command, h, put } from "./dom.js";
import { BAD, badge, clock, count, dur, LIMITS, num } from "./format.js";

/** @typedef {import("./app.js").Place} Place */

/** @param {Place} place @param {HTMLElement} panel */
export async function timeSpent(place, panel) {
  const id = place.workflow;
  const [path, view] = await Promise.all([get(`/workflows/${id}/critical_path`), get(`/workflows/${id}/families`)]);
  const there = path.there_cpu_seconds;
  const rest = Math.max(0, there - path.work_cpu_seconds - path.lost_cpu_seconds - path.idle_end_cpu_seconds);
  /** @type {[string, number, string][]} */
  const parts = [["work that succeeded", path.work_cpu_seconds, "completed"], ["lost in failed attempts", path.lost_cpu_seconds, "failed"], ["free: jobs waited for others, or did not fit", rest, "blocked"], ["free at the end: no job was left to start", path.idle_end_cpu_seconds, "uninitialized"]];
  const shown = parts.filter(([, seconds]) => seconds > 0);
  const cores = view.cpus;
  put(panel, h("h2", "Where the time went"),
    h("p", `Took ${dur(path.elapsed_seconds)}. It could not be faster than ${dur(path.seconds)} with any number of CPUs (${count(path.length, "job")} in a row)${cores ? `, nor than ${dur(Math.max(path.seconds, path.work_cpu_seconds / cores))} with ${count(cores, "CPU")}` : ""}. `,
      path.no_runner_seconds > 1 ? `It waited ${dur(path.no_runner_seconds)} for ${view.queue ? "Slurm" : "its first runner"}. ` : "", `A job that was ready waited ${dur(path.waited_seconds)} for CPUs on average.`),
    there > 0 ? [h("div.bar", { role: "img", "aria-label": "CPU time of the runners" }, shown.map(([, seconds, cls]) => h("span", { class: "fill s-" + cls, style: { "flex-grow": String(seconds / there) } }))),
      h("p.legend", shown.map(([what, seconds, cls]) => h("span", h("span.key", { class: "fill s-" + cls }), `${Math.round((seconds / there) * 100)}% ${what} (${dur(seconds)} of CPUs)`)))] : null,
    h("h3", "Critical path"), h("ol.path", path.jobs.slice(0, 30).map((/** @type {any} */ one) => h("li", badge(one.status), " ", place.link(`j/${one.job_id}`, one.name), h("span.quiet", ` ${dur(one.seconds)}${one.gap_seconds > 0.05 ? `, began ${dur(one.gap_seconds)} after the one before` : ""}`)))),
    path.length > 30 ? h("p.quiet", `and ${num(path.length - 30)} more`) : null);
}

/** Other machines, and failures tried again, as the server's simulation sees them.
 * @param {Place} place @param {HTMLElement} section @param {(end: any) => void} show gets what is predicted, or null */
export async function whatIf(place, section, show) {
  const id = place.workflow;
  const [view, schedulers] = await Promise.all([get(`/workflows/${id}/families`), get("/slurm_schedulers", { workflow_id: id, limit: 1 }).catch(() => ({ items: [] }))]);
  const failed = BAD.reduce((sum, status) => sum + (view.counts[status] || 0), 0);
  const nodes = Math.max(1, view.runners), cores = Math.max(1, Math.round((view.cpus || navigator.hardwareConcurrency || 4) / nodes));
  const says = h("div", { role: "status" });
  const slider = (/** @type {string} */ name, /** @type {number} */ max, /** @type {number} */ value, /** @type {(n: number) => string} */ text) => {
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: "0", max: String(max), value: String(value), "aria-label": name, oninput: moved }));
    const shown = h("output", text(value));
    input.addEventListener("input", () => { shown.textContent = text(Number(input.value)); });
    return { input, el: h("label.inline.slider", name, input, shown) };
  };
  /** Sliders go by doubling: a laptop and a cluster are equally far. @param {number} n */
  const size = (n) => Math.round(2 ** (n / 2));
  const step = (/** @type {number} */ n) => Math.round(2 * Math.log2(Math.max(1, n)));
  const one = slider("Nodes", 20, step(nodes), (n) => num(size(n)));
  const two = slider("CPUs of each", 16, step(cores), (n) => num(size(n)));
  const three = slider("Memory of each", 22, 0, (n) => (n ? `${num(size(n))} GiB` : "as much as jobs want"));
  const again = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", onchange: moved }));
  let timer = 0, turn = 0;
  function moved() {
    clearTimeout(timer);
    timer = setTimeout(predict, 200);
  }
  async function predict() {
    const mine = ++turn;
    const [n, c, gib] = [size(Number(one.input.value)), size(Number(two.input.value)), Number(three.input.value)];
    const asked = { nodes: n, cores: c, memory_bytes: gib ? size(gib) * 2 ** 30 : undefined, recover: again.checked || undefined };
    try {
      const [end, before] = await Promise.all([get(`/workflows/${id}/forecast`, asked), get(`/workflows/${id}/forecast`)]);
      if (mine !== turn) return;
      const isKnown = end.unknown_jobs < end.jobs;
      const sooner = before.is_again === end.is_again && !asked.recover ? before.seconds - end.seconds : 0;
      const at = (/** @type {number} */ seconds) => (end.is_again ? dur(seconds) : clock(Date.now() + seconds * 1000));
      const flags = ` --nodes ${n} --cores ${c}${gib ? ` --memory ${size(gib)}g` : ""}${again.checked ? " --recover" : ""}`;
      show(isKnown && end.jobs && !end.is_again ? end : null);
      put(says, h("p.big", !end.jobs ? "Nothing is left to run." : !isKnown ? "Nothing is known of the time of its jobs yet." : `${end.is_again ? "All of it once more would take" : "It would end about"} ${at(end.seconds)} (${at(end.low_seconds)} to ${at(end.high_seconds)}), limited by ${LIMITS[end.limited_by] || end.limited_by}${Math.abs(sooner) > 1 ? `: ${dur(Math.abs(sooner))} ${sooner > 0 ? "sooner" : "later"} than now` : ""}.`),
        end.stuck_jobs ? h("p.warn", `⚠ ${count(end.stuck_jobs, "job")} would not run: too large for these machines, or waiting for you.`) : null,
        command(`torc predict ${id}${flags}`), schedulers.items.length && n > nodes ? command(`torc slurm schedule-nodes ${id} --scheduler ${schedulers.items[0].name} -n ${n - nodes}`) : null);
    } catch (error) { if (mine === turn) put(says, problem(error)); }
  }
  put(section, h("h2", "What if"), h("div.row", one.el, two.el, three.el, failed ? h("label.inline", again, `recover ${failed === 1 ? "what" : `the ${num(failed)} that`} failed now`) : null), says, h("p.quiet", "Move a slider: the server runs the rest in simulated time, with what it has learned of each job."));
}
