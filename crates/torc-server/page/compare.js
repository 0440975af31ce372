// The outputs of two attempts, compared by the server: numbers, times and paths do not count.
// @ts-check
import { problem } from "./act.js";
import { ansi } from "./ansi.js";
import { get } from "./api.js";
import { add, h, put } from "./dom.js";
import { count } from "./format.js";

/** @param {any} job @param {any} earlier @param {any} later @param {string} stream @param {() => void} back */
export function compared(job, earlier, later, stream, back) {
  const lines = h("div.loglines.wrap", { role: "log", "aria-label": "Comparison" }, h("p.empty", "loading both"));
  const name = (/** @type {any} */ a) => `${a.run_id > 1 ? `run ${a.run_id}, ` : ""}attempt ${a.attempt_id}`;
  async function load(/** @type {number} */ offset) {
    try {
      const view = await get(`/jobs/${job.id}/logs/diff`, { stream, run_id: later.run_id, attempt_id: later.attempt_id, before_run_id: earlier.run_id, before_attempt_id: earlier.attempt_id, offset });
      if (!view.differ) return put(lines, h("p.empty", view.total_count ? "They differ in nothing but numbers, times and paths." : "Both wrote nothing here."));
      if (!offset) put(lines);
      add(lines, view.lines.map(row));
      const [end, left] = [offset + view.lines.length, view.total_count - offset - view.lines.length];
      if (left > 0) { const more = h("button.plain.earlier", { onclick: () => { more.remove(); load(end); } }, `↓ ${count(left, "more line")}`); add(lines, [more]); }
    } catch (error) {
      put(lines, problem(error));
    }
  }
  load(0);
  return h("section.log", { "aria-label": "Attempts compared" },
    h("div.logbar", h("strong", `${stream}: ${name(earlier)} (−) against ${name(later)} (+)`), h("span.push", h("button.small", { onclick: back }, "Back to the output"))),
    h("div.logbox", { tabindex: "0" }, lines));
}

/** @param {any} one */
function row(one) {
  if (one.kind === "equal") return h("div.line.quiet", `… ${count(one.lines, "equal line")}`);
  return h("div.line", { class: one.kind }, h("span.no", { gone: "−", new: "+" }[/** @type {string} */ (one.kind)] || " "), h("span.text", ansi(one.text)));
}
