// Events as they happen, data, and the spec.
// @ts-check
import { get, REPORT } from "./api.js";
import { copy, download, h, put } from "./dom.js";
import { bytes, clock, count, num } from "./format.js";
import { every } from "./live.js";
import { grid } from "./nodes.js";

/** @typedef {import("./app.js").Place} Place */
const SHOWN = 200;

/** @param {Place} place */
export function events(place) {
  const id = place.workflow;
  const list = h("tbody");
  const input = /** @type {HTMLInputElement} */ (h("input.filter", { type: "search", placeholder: "kind, job, text or regular expression", "aria-label": "Filter events", value: place.params.get("q") || "", oninput: () => { place.replace(`w/${id}/events?q=${encodeURIComponent(input.value)}`); draw(); } }));
  /** @type {any[]} */ let rows = [];
  let after = 0;
  const looked = Number(localStorage.getItem("torc-looked:" + id) || 0);
  put(place.main, h("div.row", h("h1", "Events"), input), h("div.scroll", h("table.grid.eventlist", h("thead", h("tr", ["When", "What", "Job", "Details"].map((t) => h("th", { scope: "col" }, t)))), list)));
  place.focusFilter = () => input.focus();

  function draw() {
    const found = rows.filter(matcher(input.value)).slice(0, SHOWN);
    const fresh = looked ? found.filter((event) => event.id > looked).length : 0;
    const row = (/** @type {any} */ event) => h("tr", { class: event.id > looked && looked ? "new" : "" }, h("td.n", clock(event.timestamp_ms)), h("td", event.kind.replaceAll("_", " ")),
      h("td", event.job_id ? place.link(`j/${event.job_id}`, event.job_name || `job ${event.job_id}`) : "–"), h("td.quiet.clip", details(event.data)));
    put(list, found.slice(0, fresh).map(row), fresh ? h("tr.mark", h("td", { colspan: 4 }, `↑ ${count(fresh, "event")} since you last looked`)) : null, found.slice(fresh).map(row),
      found.length ? null : h("tr", h("td.empty", { colspan: 4 }, "No events.")));
  }

  async function load() {
    const page = after ? await get(`/workflows/${id}/events`, { after, limit: 500 }) : await get(`/workflows/${id}/events`, { sort_by: "id", reverse_sort: true, limit: 500 });
    if (!page.items.length && after) return;
    rows = [...page.items.sort((/** @type {any} */ a, /** @type {any} */ b) => b.id - a.id), ...rows].slice(0, 2000);
    if (rows.length) { after = rows[0].id; localStorage.setItem("torc-looked:" + id, String(after)); }
    draw();
  }
  place.leave(every(load, 2000));
  return load();
}

/** A text, or a regular expression where it is one. @param {string} text @returns {(event: any) => boolean} */
function matcher(text) {
  /** @type {RegExp} */ let wanted;
  try { wanted = new RegExp(text, "i"); } catch { wanted = new RegExp(text.replace(/[^\w\s]/g, "\\$&"), "i"); }
  return (event) => wanted.test(`${event.kind} ${event.kind.replaceAll("_", " ")} ${event.job_name || ""} ${details(event.data)}`);
}

/** @param {any} data */
function details(data) {
  const part = (/** @type {[string, any]} */ [key, v]) => `${key.replaceAll("_", " ")} ${typeof v !== "object" ? v : Array.isArray(v) ? JSON.stringify(v) : Object.entries(v).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ")}`;
  return Object.entries(data || {}).filter(([key, v]) => v !== null && v !== "" && v !== false && !(key === "run_id" && v === 1)).map(part).join(" · ").slice(0, 300);
}

/** @type {Record<string, string>} */
const FILE_STATES = { there: "✓ there", missing: "✕ missing", changed: "⚠ changed since", awaited: "not written yet", unknown: "cannot be seen from the server" };

/** @param {Place} place */
export async function data(place) {
  const id = place.workflow;
  const [files, values] = await Promise.all([get("/files", { workflow_id: id, limit: 500, look: true }), get("/user_data", { workflow_id: id, limit: 500 })]);
  put(place.main, h("h1", "Data"),
    h("h2", `Files (${num(files.total_count)})`), files.items.length ? grid(["Name", "Path", "State", "Changed", "Size"], files.items.map((/** @type {any} */ f) => [f.name, f.path, FILE_STATES[f.now.state] || f.now.state, h("span.badge", clock(f.now.mtime_ms)), h("span.badge", bytes(f.now.size))])) : h("p.empty", "The spec names no files."),
    h("h2", `User data (${num(values.total_count)})`), values.items.length ? grid(["Name", "Value"], values.items.map((/** @type {any} */ v) => [v.name, h("code", v.data === null || v.data === undefined ? "–" : JSON.stringify(v.data).slice(0, 400))])) : h("p.empty", "The spec names no user data."));
}

/** @param {Place} place */
export async function spec(place) {
  const id = place.workflow;
  const [workflow, text] = await Promise.all([get(`/workflows/${id}`), get(`/workflows/${id}/spec`)]);
  const json = JSON.stringify(text, null, 2);
  const button = h("button.small", { onclick: () => copy(json, button) }, "Copy");
  const changes = (await get(`/workflows/${id}/adjustments`, { limit: 100 }).catch(() => ({ items: [] }))).items;
  /** @type {any[]} */ const revisions = REPORT ? [] : await get(`/workflows/${id}/revisions`).catch(() => []);
  const did = (/** @type {any} */ counts) => Object.entries(counts.changes || {}).map(([what, n]) => `${num(n)} ${what.replaceAll("_", " ")}`).concat(counts.up_to_date ? `${num(counts.up_to_date)} up to date` : []).join(", ") || count(counts.total || 0, "job");
  put(place.main, h("div.row", h("h1", "Spec"), button, h("button.small", { onclick: () => download(`${workflow.name}.json`, json, "application/json") }, "Download")),
    h("p.quiet", `created ${clock(workflow.created_ms)} by ${workflow.user}${workflow.directory ? ` in ${workflow.directory}` : ""}, run ${workflow.run_id}`),
    revisions.length > 1 ? [h("h2", "Revisions"), grid(["Revision", "When", "By", "Run", "What it did"], revisions.map((r) => [num(r.revision), clock(r.made_ms), r.made_by, num(r.run_id), did(r.counts)]))] : null,
    changes.length ? [h("h2", "Changed since"), grid(["Job", "What", "From", "To", "Why", "By"], changes.map((/** @type {any} */ c) => [c.job_name, c.field, c.from === undefined || c.from === null ? "–" : c.field === "memory" ? bytes(c.from) : `${c.from} s`, c.field === "memory" ? bytes(c.to) : `${c.to} s`, c.why, c.by]))] : null,
    h("pre.spec", { tabindex: "0", role: "region", "aria-label": "Spec" }, json.length > 200000 ? json.slice(0, 200000) + "\n… (download it to see all)" : json));
}
