// Keys: go anywhere, filter, help. Single keys can be switched off and are dead in text fields.
// @ts-check
import { dialog } from "./act.js";
import { get, REPORT } from "./api.js";
import { h, put } from "./dom.js";

/** @type {Record<string, string>} */
const PLACES = { o: "", j: "jobs", g: "graph", t: "timeline", f: "failures", r: "resources", n: "nodes", e: "events", d: "data", s: "spec" };
const HELP = [
  ["?", "this help"], ["/", "filter"], ["g then o j g t f r n e d s", "overview, jobs, graph, timeline, failures, resources, nodes, events, data, spec"], ["g then w", "all workflows"],
  ["Ctrl-K", "go to anything"], ["↑ ↓ j k, Enter", "move in a table, open"], ["x", "select a job"], ["r l w [ ]", "of a job: retry, log, why, earlier and later attempt"], ["A D W S", "move and zoom in the timeline"], ["Esc", "close"],
];
const OFF = "torc-keys-off";

/** @typedef {{go: (path: string) => void, workflow: () => number | null, focusFilter: () => void, signOut: (() => void) | null}} To */

/** @param {To} to */
export function keys(to) {
  let after = "";
  let timer = 0;
  document.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); return palette(to); }
    const target = /** @type {HTMLElement} */ (e.target);
    if (e.ctrlKey || e.metaKey || e.altKey || target.closest("input,select,textarea,dialog") || localStorage.getItem(OFF)) return;
    const id = to.workflow();
    if (after === "g") {
      after = "";
      if (e.key === "w" && !REPORT) to.go("");
      else if (id && e.key in PLACES) to.go(`w/${id}${PLACES[e.key] ? "/" + PLACES[e.key] : ""}`);
      else return;
      e.preventDefault();
    } else if (e.key === "g") {
      after = "g";
      clearTimeout(timer);
      timer = setTimeout(() => { after = ""; }, 1200);
    } else if (e.key === "/") { e.preventDefault(); to.focusFilter(); }
    else if (e.key === "?") help(to);
    else {
      // What a place has for this key: a button is pressed, anything else gets the focus.
      const own = e.key.length === 1 && /** @type {HTMLElement | null} */ (document.querySelector(`[data-key="${CSS.escape(e.key)}"]`));
      if (!own) return;
      e.preventDefault();
      if (own.tagName === "BUTTON") own.click();
      else { own.focus(); own.scrollIntoView({ block: "nearest" }); }
    }
  });
}

/** @param {To} to */
export function help(to) {
  dialog("Keys", (el) => [
    h("dl.facts", HELP.map(([key, what]) => [h("dt", h("kbd", key)), h("dd", what)])),
    h("label.inline", h("input", { type: "checkbox", checked: !localStorage.getItem(OFF), onchange: (/** @type {Event} */ e) => { if (/** @type {HTMLInputElement} */ (e.target).checked) localStorage.removeItem(OFF); else localStorage.setItem(OFF, "1"); } }), "single keys"),
    h("div.buttons", to.signOut && h("button", { onclick: to.signOut }, "Sign out"), h("button", { onclick: () => el.close() }, "Close")),
  ]);
}

/** @param {To} to */
export function palette(to) {
  dialog("Go to", (el) => {
    const list = h("ul.palette", { role: "listbox" });
    /** @type {[string, string][]} */ let shown = [];
    let current = 0;
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", placeholder: "a place, a workflow, a job", "aria-label": "Go to", oninput: find, onkeydown: (/** @type {KeyboardEvent} */ e) => {
      if (e.key === "ArrowDown") current = Math.min(shown.length - 1, current + 1);
      else if (e.key === "ArrowUp") current = Math.max(0, current - 1);
      else if (e.key === "Enter" && shown[current]) { el.close(); to.go(shown[current][1]); return; }
      else return;
      e.preventDefault();
      draw();
    } }));
    function draw() {
      put(list, shown.map(([text, path], i) => h("li", { role: "option", "aria-selected": String(i === current), onclick: () => { el.close(); to.go(path); } }, text)));
    }
    async function find() {
      const text = input.value.trim().toLowerCase();
      const id = to.workflow();
      const places = id ? Object.values(PLACES).map((name) => /** @type {[string, string]} */ ([name || "overview", `w/${id}${name ? "/" + name : ""}`])) : [];
      shown = places.filter(([name]) => name.includes(text));
      draw();
      const [workflows, jobs] = await Promise.all([
        get("/workflows", { search: text || undefined, limit: 5, sort_by: "id", reverse_sort: true }).catch(() => ({ items: [] })),
        id && text ? get("/jobs", { workflow_id: id, search: text, limit: 8 }).catch(() => ({ items: [] })) : { items: [] },
      ]);
      if (input.value.trim().toLowerCase() !== text) return;
      shown.push(...workflows.items.map((/** @type {any} */ w) => [`workflow ${w.name} (#${w.id})`, `w/${w.id}`]), ...jobs.items.map((/** @type {any} */ j) => [`job ${j.name}`, `j/${j.id}`]));
      current = 0;
      draw();
    }
    find();
    setTimeout(() => input.focus(), 0);
    return [input, list];
  });
}
