// All jobs by family: one filter, one table, and actions on what is selected or on all that match.
// @ts-check
import { act, actionTitle, problem } from "./act.js";
import { canAct, get, lately, REPORT } from "./api.js";
import { button, download, h, put } from "./dom.js";
import { BAD, badge, bar, byStatus, bytes, clock, count, dur, num, quote, word } from "./format.js";
import { Table } from "./table.js";

/** @typedef {import("./app.js").Place} Place */
/** Up to so many jobs, families are open. */
const SMALL = 100;
const ACTIONS = ["recover", "retry", "cancel", "hold", "release", "priority", "memory", "runtime", "fail"];

/** @param {Place} place */
export async function jobs(place) {
  const id = place.workflow;
  let where = place.params.get("where") || "";
  /** @type {Set<number>} */ const selected = new Set((place.params.get("selected") || "").split(",").map(Number).filter(Boolean));
  const input = /** @type {HTMLInputElement} */ (h("input.filter", { id: "filter", type: "search", value: where, placeholder: "train status:failed cause:oom time>1h mem>90% name~_7$", "aria-label": "Filter", spellcheck: "false", autocomplete: "off", oninput: typed }));
  const [chips, message, actions, total] = [h("div.chips"), h("div"), h("div.actionbar"), h("span.quiet", { role: "status" })];
  let noted = selected.size;
  let isFlat = REPORT || place.params.has("flat");

  const table = new Table({
    label: "Jobs",
    empty: "No job matches this filter.",
    selected: canAct() ? selected : undefined,
    order: place.params.get("sort") || "id",
    onOrder: address,
    onSelect: drawBar,
    open: (job) => place.go(`j/${job.id}`),
    columns: [
      { key: "name", title: "Name", cls: "name", sort: "name", cell: (job) => place.link(`j/${job.id}`, job.name) },
      { key: "status", title: "Status", cls: "status", sort: "status", cell: (job) => [badge(job.status), job.held || job.status_reason ? h("span.quiet", " ", job.held ? "held" : job.status_reason.replaceAll("_", " ")) : null] },
      { key: "family", title: "Family", cls: "fam", cell: (job) => job.family },
      { key: "attempt", title: "Try", cls: "n small", sort: "attempt_id", cell: (job) => num(job.attempt_id) },
      { key: "started", title: "Started", cls: "n started", sort: "started", cell: (job) => clock(job.last && job.last.started_ms) },
      { key: "time", title: "Time", cls: "n time", sort: "time", cell: (job) => (job.last ? dur(job.last.exec_seconds ?? (job.last.started_ms && !job.last.ended_ms ? (Date.now() - job.last.started_ms) / 1000 : null)) : "–") },
      { key: "cpu", title: "CPUs", cls: "n small", cell: (job) => (job.last && job.last.cpu_seconds && job.last.exec_seconds ? (job.last.cpu_seconds / job.last.exec_seconds).toFixed(1) : "–") },
      { key: "mem", title: "Memory / asked", cls: "n mem", sort: "memory", cell: (job) => (job.last && job.last.peak_memory_bytes ? `${bytes(job.last.peak_memory_bytes)}${job.last.memory_bytes ? " / " + bytes(job.last.memory_bytes) : ""}` : "–") },
      { key: "node", title: "Node", cls: "node", cell: (job) => (job.last && job.last.hostname) || "–" },
      { key: "exit", title: "Exit", cls: "n small", cell: (job) => (job.last && job.last.cause && job.last.cause !== "exit" ? job.last.cause : job.return_code ?? "–") },
    ],
    groups: async () => {
      if (isFlat) return [];
      const asked = where;
      const view = await get(`/workflows/${id}/families`, { where });
      tellTotal(asked, view.total);
      const found = view.families.filter((/** @type {any} */ family) => family.total);
      const head = (/** @type {any} */ family) => [h("span.quiet", count(family.total, "job")), bar(family.counts, family.total), button("only these", () => filter(`${where} family:${quote(family.name)}`.trim()))];
      // One family needs no head, and a few jobs need no opening.
      return found.length < 2 ? [] : found.map((/** @type {any} */ family) => ({ name: family.name, total: family.total, open: view.total <= SMALL, at: 0, head: head(family) }));
    },
    load: async (offset, limit, sort, reverse, family) => {
      const asked = where;
      const page = await get("/jobs", { workflow_id: id, where: family ? `${where} family:${quote(family)}` : where, offset, limit, sort_by: sort, reverse_sort: reverse || undefined, include_last: true });
      if (!family) tellTotal(asked, page.total_count);
      return page;
    },
  });

  /** An answer that comes after the one to a newer filter says nothing. @param {string} asked @param {number} n */
  function tellTotal(asked, n) {
    if (asked === where) total.textContent = count(n, "job");
  }

  let timer = 0;
  function typed() {
    clearTimeout(timer);
    timer = setTimeout(() => filter(input.value.trim()), 50);
  }

  async function filter(/** @type {string} */ text) {
    where = text;
    if (input.value.trim() !== text) input.value = text;
    selected.clear();
    address();
    await reload(true);
  }

  function address() {
    const order = table.reverse ? "-" + table.sort : table.sort;
    place.replace(`w/${id}/jobs?where=${encodeURIComponent(where)}${isFlat ? "&flat=1" : ""}${order === "id" ? "" : "&sort=" + order}${selected.size ? "&selected=" + [...selected].slice(0, 200) : ""}`);
  }

  /** @param {boolean} [top] */
  async function reload(top) {
    try {
      await table.reload(top);
      put(message);
    } catch (error) {
      put(message, problem(error));
    }
    drawBar();
  }

  function drawBar() {
    if (selected.size !== noted) { noted = selected.size; address(); }
    const all = selected.size === 0;
    const chosen = () => (all ? where : `id:${[...selected].join(",")}`);
    put(actions, total,
      canAct() && table.total ? [
        h("span.quiet", all ? "All that match:" : `${count(selected.size, "job")} selected:`),
        ACTIONS.slice(0, 5).map((action) => h("button.small", { onclick: () => run(action, chosen()) }, actionTitle(action))),
        h("select", { "aria-label": "More actions", onchange: (/** @type {Event} */ e) => { const box = /** @type {HTMLSelectElement} */ (e.target); const action = box.value; box.value = ""; if (action) run(action, chosen()); } },
          h("option", { value: "" }, "More…"), ACTIONS.slice(5).map((action) => h("option", { value: action }, actionTitle(action)))),
        all ? null : h("button.plain", { onclick: () => { selected.clear(); reload(); } }, "Clear"),
      ] : null,
      REPORT ? null : h("label.inline", h("input", { type: "checkbox", checked: !isFlat, onchange: (/** @type {Event} */ e) => { isFlat = !/** @type {HTMLInputElement} */ (e.target).checked; address(); reload(true); } }), "by family"),
      h("span.push", button("CSV", () => save("csv")), " ", button("JSON", () => save("json"))));
  }

  async function run(/** @type {string} */ action, /** @type {any} */ filterText) {
    if (await act({ workflow: id, where: filterText, action })) { selected.clear(); reload(); }
  }

  async function save(/** @type {string} */ kind) {
    const rows = [];
    for (let offset = 0; ; offset += 1000) {
      const asked = where;
      const page = await get("/jobs", { workflow_id: id, where, offset, limit: 1000, include_last: true });
      rows.push(...page.items);
      if (!page.items.length || rows.length >= page.total_count) break;
    }
    if (kind === "json") return download(`jobs_wf${id}.json`, JSON.stringify(rows, null, 1), "application/json");
    const cells = (/** @type {any} */ job) => [job.id, job.name, job.family, job.status, job.attempt_id, job.last?.started_ms, job.last?.exec_seconds, job.last?.peak_memory_bytes, job.last?.memory_bytes, job.last?.hostname, job.return_code, job.last?.cause];
    // A cell that begins like a formula would be one in a spreadsheet.
    const cell = (/** @type {any} */ v) => { const text = String(v ?? ""); return `"${(/^[=+\-@\t]/.test(text) && isNaN(Number(text)) ? "'" : "") + text.replaceAll('"', '""')}"`; };
    const head = "id,name,family,status,attempt,started_ms,seconds,peak_memory_bytes,memory_bytes,node,exit,cause";
    download(`jobs_wf${id}.csv`, [head, ...rows.map((row) => cells(row).map(cell).join(","))].join("\n") + "\n", "text/csv");
  }

  put(place.main, h("div.row", h("h1.sr", `Jobs of ${place.name}`), input), chips, message, actions, table.el);
  place.focusFilter = () => input.focus();
  // Rows wait for the counts only where these decide which rows are shown and nothing is known of them.
  const asked = get(`/workflows/${id}/families`);
  asked.catch(() => {});
  /** @type {any} */ let view = lately && lately.workflow_id === id ? lately : place.params.has("where") ? null : await asked;
  if (!where && !place.params.has("where") && !REPORT && BAD.some((status) => view.counts[status])) {
    // What failed is what people come for; the rest is one click away.
    where = "-status:completed";
    input.value = where;
  }
  const chip = (/** @type {string} */ text, /** @type {string} */ label, /** @type {string} */ cls) => h("button.chip", { class: cls, onclick: () => filter(text) }, label);
  function drawChips() {
    if (!view || chips.contains(document.activeElement)) return;
    put(chips, chip("", `all ${num(view.total)}`, ""),
      Object.entries(view.counts).map(([status, n]) => chip(`status:${status}`, `${num(/** @type {number} */ (n))} ${word(status)}`, "tint s-" + status)),
      view.families.length > 1 ? h("select", { "aria-label": "Family", onchange: (/** @type {Event} */ e) => { const value = /** @type {HTMLSelectElement} */ (e.target).value; if (value) filter(`family:${quote(value)}`); } },
        h("option", { value: "" }, "Family…"), view.families.map((/** @type {any} */ family) => h("option", { value: family.name }, `${family.name} (${num(family.total)})`))) : null);
  }
  drawChips();
  let seen = "";
  place.pulse((frame) => {
    const now = frame.counts.join();
    if (now === seen) return;
    if (seen && selected.size === 0 && table.body.scrollTop < 600) reload();
    seen = now;
    if (view) view.counts = byStatus(frame.counts);
    drawChips();
  });
  await reload(true);
  view = await asked;
  drawChips();
}
