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
  const input = /** @type {HTMLInputElement} */ (h("input.filter", { type: "search", placeholder: "kind, job or text", "aria-label": "Filter events", oninput: draw }));
  /** @type {any[]} */ let rows = [];
  let after = 0;
  const looked = Number(localStorage.getItem("torc-looked:" + id) || 0);
  put(place.main, h("div.row", null, h("h1", null, "Events"), input), h("div.scroll", null, h("table.grid.eventlist", null, h("thead", null, h("tr", null, ["When", "What", "Job", "Details"].map((t) => h("th", { scope: "col" }, t)))), list)));
  place.focusFilter = () => input.focus();

  function draw() {
    const wanted = input.value.toLowerCase();
    const found = rows.filter((event) => !wanted || JSON.stringify(event).toLowerCase().includes(wanted)).slice(0, SHOWN);
    put(list, found.map((event) => h("tr", { class: event.id > looked && looked ? "new" : "" }, h("td.n", null, clock(event.timestamp_ms)), h("td", null, event.kind.replaceAll("_", " ")),
      h("td", null, event.job_id ? place.link(`j/${event.job_id}`, event.job_name || `job ${event.job_id}`) : "–"), h("td.quiet.clip", null, details(event.data)))),
      found.length ? null : h("tr", null, h("td.empty", { colspan: 4 }, "No events.")));
  }

  async function load() {
    const page = after ? await get(`/workflows/${id}/events`, { after, limit: 500 }) : await get(`/workflows/${id}/events`, { sort_by: "id", reverse_sort: true, limit: 500 });
    if (!page.items.length && after) return;
    rows = [...page.items.sort((a, b) => b.id - a.id), ...rows].slice(0, 2000);
    if (rows.length) { after = rows[0].id; localStorage.setItem("torc-looked:" + id, String(after)); }
    draw();
  }
  place.leave(every(load, 2000));
  return load();
}

function details(data) {
  const part = ([key, v]) => `${key.replaceAll("_", " ")} ${typeof v !== "object" ? v : Array.isArray(v) ? JSON.stringify(v) : Object.entries(v).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ")}`;
  return Object.entries(data || {}).filter(([key, v]) => v !== null && v !== "" && v !== false && !(key === "run_id" && v === 1)).map(part).join(" · ").slice(0, 300);
}

/** @param {Place} place */
export async function data(place) {
  const id = place.workflow;
  const [files, values] = await Promise.all([get("/files", { workflow_id: id, limit: 500 }), get("/user_data", { workflow_id: id, limit: 500 })]);
  put(place.main, h("h1", null, "Data"),
    h("h2", null, `Files (${num(files.total_count)})`), files.items.length ? grid(["Name", "Path", "Changed", "Size"], files.items.map((f) => [f.name, f.path, clock(f.mtime_ms), f.size === null || f.size === undefined ? "–" : bytes(f.size)])) : h("p.empty", null, "The spec names no files."),
    h("h2", null, `User data (${num(values.total_count)})`), values.items.length ? grid(["Name", "Value"], values.items.map((v) => [v.name, h("code", null, v.data === null || v.data === undefined ? "–" : JSON.stringify(v.data).slice(0, 400))])) : h("p.empty", null, "The spec names no user data."));
}

/** @param {Place} place */
export async function spec(place) {
  const id = place.workflow;
  const [workflow, text] = await Promise.all([get(`/workflows/${id}`), get(`/workflows/${id}/spec`)]);
  const json = JSON.stringify(text, null, 2);
  const button = h("button.small", { type: "button", onclick: () => copy(json, button) }, "Copy");
  const changes = (await get(`/workflows/${id}/adjustments`, { limit: 100 }).catch(() => ({ items: [] }))).items;
  /** @type {any[]} */ const revisions = REPORT ? [] : await get(`/workflows/${id}/revisions`).catch(() => []);
  const did = (counts) => Object.entries(counts.changes || {}).map(([what, n]) => `${num(n)} ${what.replaceAll("_", " ")}`).concat(counts.up_to_date ? `${num(counts.up_to_date)} up to date` : []).join(", ") || count(counts.total || 0, "job");
  put(place.main, h("div.row", null, h("h1", null, "Spec"), button, h("button.small", { type: "button", onclick: () => download(`${workflow.name}.json`, json, "application/json") }, "Download")),
    h("p.quiet", null, `created ${clock(workflow.created_ms)} by ${workflow.user}${workflow.directory ? ` in ${workflow.directory}` : ""}, run ${workflow.run_id}`),
    revisions.length > 1 ? [h("h2", null, "Revisions"), grid(["Revision", "When", "By", "Run", "What it did"], revisions.map((r) => [num(r.revision), clock(r.made_ms), r.made_by, num(r.run_id), did(r.counts)]))] : null,
    changes.length ? [h("h2", null, "Changed since"), grid(["Job", "What", "From", "To", "Why", "By"], changes.map((c) => [c.job_name, c.field, c.from === undefined || c.from === null ? "–" : c.field === "memory" ? bytes(c.from) : `${c.from} s`, c.field === "memory" ? bytes(c.to) : `${c.to} s`, c.why, c.by]))] : null,
    h("pre.spec", { tabindex: "0", role: "region", "aria-label": "Spec" }, json.length > 200000 ? json.slice(0, 200000) + "\n… (download it to see all)" : json));
}
