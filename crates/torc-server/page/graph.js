// The graph: families first, other groups, the jobs of one, the neighbourhood of a job. Places come from the server.
// @ts-check
import { problem } from "./act.js";
import { get, Lost, REPORT } from "./api.js";
import { button, download, h, put, toast } from "./dom.js";
import { behind, nodeBox, CELL, H, paint, paintCells, picture, spots, W } from "./draw.js";
import { badge, byStatus, count, dur, num, STATUSES, word } from "./format.js";

/** More nodes than this are painted on a canvas: the document stays small. */
const DRAWN = 150;
/** More families than this say nothing; their jobs are put together by how their names begin. */
const MANY = 300;
const GROUPS = [["family", "Families"], ["prefix", "By beginning of the name"], ["pattern", "By a pattern…"], ["job", "Every job"]];
const PATTERN = "^(.*)_\\d+$";

/** @typedef {import("./app.js").Place} Place */

/** @param {Place} place */
export async function graph(place) {
  const id = place.workflow;
  const { params } = place;
  const [focus, open, until] = [params.get("focus"), params.get("open"), params.get("to")];
  let group = params.get("group") || "family";
  const pattern = params.get("pattern") || PATTERN;
  const which = focus ? { focus, to: until, hops: params.get("hops") || 2 } : open ? { open, offset: params.get("offset") } : group === "family" ? {} : { group, pattern: group === "pattern" ? pattern : null };
  const bar = controls();
  const [title, says, tools, wrap, rest] = [h("h1", until ? "Between two jobs" : focus ? "Around one job" : "Graph"), h("span.quiet", { role: "status" }), h("span.push.row"), h("div.graphwrap", h("p.loading", "Laying it out…")), h("div")];
  put(place.main, h("div.row", title, says, bar, tools), wrap, rest);
  /** @type {any} */ let view;
  /** @type {any} */ let path;
  /** @type {any} */ let used;
  try {
    [view, path, used] = await Promise.all([get(`/workflows/${id}/graph`, which), get(`/workflows/${id}/critical_path`).catch(() => ({})), get(`/workflows/${id}/resources`).catch(() => ({ items: [] }))]);
    if (view.group === "family" && view.nodes.length > MANY && !params.has("group") && !REPORT) {
      group = "prefix";
      view = await get(`/workflows/${id}/graph`, { group });
    }
  } catch (error) {
    if (error instanceof Lost) throw error;
    put(wrap, problem(error));
    return;
  }
  if (open) put(title, await familyName(Number(open)));
  if (view.cells && view.cells.length) { cells(view, Number(open)); return; }

  const byFamily = view.group === "family";
  const times = new Map(used.items.map((/** @type {any} */ row) => [row.number, dur(row.seconds_median)]));
  if (byFamily) for (const one of view.nodes) one.seconds = times.get(one.id);
  const marks = { path: new Set((path.jobs || []).map((/** @type {any} */ one) => (byFamily ? one.family : view.group === "job" ? one.job_id : null))), blocked: behind(view) };
  if (until) marks.path = new Set(view.edges.length ? view.nodes.map((/** @type {any} */ one) => one.id) : []);
  const where = spots(view);
  const isLarge = view.nodes.length > DRAWN;
  const noun = view.group === "job" ? "job" : view.group === "family" ? "family" : "group";
  put(says, until && !view.edges.length ? "neither waits for the other" : `${count(view.nodes.length, noun)}${view.left_out ? `, ${num(view.left_out)} more left out` : ""}`);

  // Either an SVG that scrolls, or a canvas that stays in place before an empty space that scrolls.
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas.stay"));
  const svg = isLarge ? null : picture(view, where, marks);
  const shown = svg || h("div.graphspace", canvas);
  const box = h("div.graph", { tabindex: "0", role: "group", "aria-label": "Graph; the table below says the same" }, shown);
  const map = /** @type {HTMLCanvasElement} */ (h("canvas.minimap", { "aria-hidden": "true" }));
  put(wrap, box, map);
  let scale = 1;
  const draw = () => {
    if (isLarge) paint(canvas, box.clientWidth, box.clientHeight, view, where, marks, scale, box.scrollLeft / scale, box.scrollTop / scale);
    drawMap();
  };

  /** The whole graph in a corner, with what is seen of it. */
  function drawMap() {
    const isNeeded = where.width * scale > box.clientWidth + 2 || where.height * scale > box.clientHeight + 2;
    map.hidden = !isNeeded;
    if (!isNeeded) return;
    const small = Math.min(180 / where.width, 120 / where.height);
    const c = paint(map, where.width * small, where.height * small, view, where, marks, small, 0, 0);
    c.strokeStyle = getComputedStyle(box).getPropertyValue("--accent");
    c.lineWidth = 2 / small;
    c.strokeRect(box.scrollLeft / scale, box.scrollTop / scale, box.clientWidth / scale, box.clientHeight / scale);
  }

  /** @param {number} by @param {{x: number, y: number}} [at] the point that stays where it is */
  function zoom(by, at) {
    const { x, y } = at || { x: box.clientWidth / 2, y: box.clientHeight / 2 };
    const before = [(box.scrollLeft + x) / scale, (box.scrollTop + y) / scale];
    scale = Math.max(0.02, Math.min(3, scale * by));
    shown.style.width = `${where.width * scale}px`;
    shown.style.height = `${where.height * scale}px`;
    box.scrollLeft = before[0] * scale - x;
    box.scrollTop = before[1] * scale - y;
    draw();
  }
  const fit = () => zoom(Math.min(1, (box.clientWidth - 4) / where.width, (box.clientHeight - 4) / where.height) / scale);

  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  box.addEventListener("wheel", (e) => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); const spot = box.getBoundingClientRect(); zoom(e.deltaY > 0 ? 1 / 1.15 : 1.15, { x: e.clientX - spot.left, y: e.clientY - spot.top }); } }, { passive: false });
  box.addEventListener("keydown", (e) => {
    if (e.key === "+" || e.key === "-") { e.preventDefault(); zoom(e.key === "+" ? 1.25 : 0.8); }
    if (e.key === "Enter") to(/** @type {Element} */ (e.target).closest("[data-id]")?.getAttribute("data-id"));
  });
  let drag = /** @type {[number, number] | null} */ (null), moved = 0;
  box.addEventListener("pointerdown", (e) => { if (e.pointerType === "mouse") { drag = [e.clientX, e.clientY]; moved = 0; } });
  addEventListener("pointerup", up);
  box.addEventListener("pointermove", (e) => {
    if (!drag) return;
    moved += Math.abs(e.clientX - drag[0]) + Math.abs(e.clientY - drag[1]);
    box.scrollLeft -= e.clientX - drag[0];
    box.scrollTop -= e.clientY - drag[1];
    drag = [e.clientX, e.clientY];
  });
  function up() { drag = null; }
  box.addEventListener("click", (e) => {
    if (moved > 4) return;
    const element = /** @type {Element} */ (e.target).closest("[data-id]");
    if (!isLarge) return to(element?.getAttribute("data-id"));
    const spot = box.getBoundingClientRect();
    const [x, y] = [(box.scrollLeft + e.clientX - spot.left) / scale, (box.scrollTop + e.clientY - spot.top) / scale];
    const hit = [...where.at].find(([, at]) => x >= at.x && x <= at.x + W && y >= at.y && y <= at.y + H);
    if (hit) to(String(hit[0]));
  });
  const moveTo = (/** @type {PointerEvent} */ e) => {
    if (!e.buttons) return;
    const spot = map.getBoundingClientRect();
    box.scrollLeft = ((e.clientX - spot.left) / spot.width) * where.width * scale - box.clientWidth / 2;
    box.scrollTop = ((e.clientY - spot.top) / spot.height) * where.height * scale - box.clientHeight / 2;
  };
  map.addEventListener("pointerdown", (e) => { map.setPointerCapture(e.pointerId); moveTo(e); });
  map.addEventListener("pointermove", moveTo);
  const watcher = new ResizeObserver(draw);
  watcher.observe(box);
  place.leave(() => { watcher.disconnect(); removeEventListener("pointerup", up); });

  if (byFamily) place.pulse((frame) => {
    for (const [number, numbers] of frame.families) {
      const one = view.nodes[number];
      const counts = byStatus(numbers);
      if (!one || JSON.stringify(one.counts) === JSON.stringify(counts)) continue;
      one.counts = counts;
      const old = svg && svg.querySelector(`[data-id="${number}"]`);
      if (!old) continue;
      const now = nodeBox(one, where.at.get(number), marks);
      old.replaceChildren(...now.childNodes);
      for (const name of ["class", "aria-label"]) old.setAttribute(name, now.getAttribute(name) || "");
    }
  });

  const target = (/** @type {any} */ one) => (one.where && byFamily && !REPORT ? `w/${id}/graph?open=${one.id}` : one.where ? `w/${id}/jobs?where=${encodeURIComponent(one.where)}` : `j/${one.id}`);
  /** @param {string | null | undefined} name */
  function to(name) {
    const found = name && view.nodes.find((/** @type {any} */ one) => String(one.id) === name);
    if (found) place.go(target(found));
  }

  const tool = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ run) => button(text, run, { "aria-label": label, title: label });
  put(tools, tool("−", "Zoom out", () => zoom(0.8)), tool("+", "Zoom in", () => zoom(1.25)), tool("Fit", "Show all", fit), tool("Full", "Full window", () => wrap.requestFullscreen()),
    svg ? tool("SVG", "Save as SVG", () => download(`graph_wf${id}.svg`, asSvg(svg), "image/svg+xml")) : null,
    tool("DOT", "Save for Graphviz", () => download(`graph_wf${id}.dot`, dot(view), "text/vnd.graphviz")), tool("Mermaid", "Save for Mermaid", () => download(`graph_wf${id}.mmd`, mermaid(view), "text/plain")));
  put(rest, h("p.legend", h("span", h("span.key.k-failed"), "failed"), marks.blocked.size ? h("span", h("span.key.k-blocked"), "waits behind a failure") : null, marks.path.size ? h("span", h("span.key.k-path"), until ? "on a way between them" : "critical path") : null, h("span.quiet", byFamily && !REPORT ? "A family opens into its jobs." : "")), asTable());
  zoom(1);
  fit();
  if (scale < 0.3) zoom(0.3 / scale);
  box.scrollLeft = (where.width * scale - box.clientWidth) / 2;
  draw();

  function controls() {
    if (REPORT) return null;
    const home = `w/${id}/graph`;
    if (focus) {
      const wanted = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "ways to another job", "aria-label": "Ways to the job of this name", spellcheck: "false", onchange: async () => {
        const found = (await get("/jobs", { workflow_id: id, search: wanted.value.trim(), limit: 50 })).items;
        const other = found.find((/** @type {any} */ job) => job.name === wanted.value.trim()) || found[0];
        if (other) place.go(`${home}?focus=${focus}&to=${other.id}`);
        else toast(`No job is called ${wanted.value}`, true);
      } }));
      const hops = until ? null : h("select", { "aria-label": "Steps away", onchange: (/** @type {Event} */ e) => place.go(`${home}?focus=${focus}&hops=${/** @type {HTMLSelectElement} */ (e.target).value}`) }, [1, 2, 3, 4, 6, 10].map((n) => h("option", { value: n, selected: n === Number(which.hops) }, count(n, "step"))));
      return h("span.row", hops, wanted, until ? place.link(`${home}?focus=${focus}`, "around it") : null, place.link(home, "All families"));
    }
    if (open) return place.link(home, "All families");
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", value: pattern, "aria-label": "Pattern with one capture", hidden: group !== "pattern", spellcheck: "false", onchange: () => place.go(`${home}?group=pattern&pattern=${encodeURIComponent(input.value)}`) }));
    return h("span.row", h("select", { "aria-label": "A node is", onchange: (/** @type {Event} */ e) => place.go(`${home}?group=${/** @type {HTMLSelectElement} */ (e.target).value}`) },
      GROUPS.map(([value, text]) => h("option", { value, selected: value === group }, text))), input);
  }

  async function familyName(/** @type {number} */ number) {
    return (await get(`/workflows/${id}/families`)).families[number]?.name || "Graph";
  }

  /** The jobs of a large family as cells. @param {any} shownView @param {number} number */
  async function cells(shownView, number) {
    const offset = Number(params.get("offset") || 0);
    const all = shownView.cells;
    const total = shownView.left_out + all.length;
    const name = title.textContent || "";
    const field = /** @type {HTMLCanvasElement} */ (h("canvas", { tabindex: "0", role: "img", "aria-label": `The jobs of ${name} by status; the list says the same` }));
    const under = h("p.quiet", { "aria-live": "polite" }, "Each cell is a job. Arrow keys move, Enter opens it.");
    const page = (/** @type {number} */ from, /** @type {string} */ text) => place.link(`w/${id}/graph?open=${number}&offset=${from}`, text);
    put(says, `${num(offset + 1)} to ${num(offset + all.length)} of ${count(total, "job")}`);
    put(tools, offset ? page(Math.max(0, offset - 2000), "← before") : null, offset + all.length < total ? page(offset + all.length, "next →") : null, place.link(`w/${id}/jobs?where=${encodeURIComponent(`family:${name}`)}`, "As a list"));
    put(wrap, h("div.cellbox", field));
    put(rest, h("p.legend", [...new Set(all.map((/** @type {[number, number]} */ cell) => cell[1]))].map((code) => h("span", h("span.key", { class: "fill s-" + STATUSES[/** @type {number} */ (code)] }), word(STATUSES[/** @type {number} */ (code)])))), under);
    let current = -1, columns = 1;
    const paintAll = () => { columns = paintCells(field, all, wrap.clientWidth - 20, current); };
    const choose = async (/** @type {number} */ i) => {
      if (i < 0 || i >= all.length || i === current) return;
      current = i;
      paintAll();
      const job = await get(`/jobs/${all[i][0]}`).catch(() => null);
      if (job && i === current) put(under, badge(job.status), " ", place.link(`j/${job.id}`, job.name));
    };
    const hit = (/** @type {MouseEvent} */ e) => Math.floor(e.offsetY / CELL) * columns + Math.min(columns - 1, Math.floor(e.offsetX / CELL));
    field.addEventListener("pointermove", (e) => choose(hit(e)));
    field.addEventListener("click", (e) => { const cell = all[hit(e)]; if (cell) place.go(`j/${cell[0]}`); });
    field.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[e.key];
      if (step) { e.preventDefault(); choose(current < 0 ? 0 : current + step); }
      if (e.key === "Enter" && current >= 0) place.go(`j/${all[current][0]}`);
    });
    const resized = new ResizeObserver(paintAll);
    resized.observe(wrap);
    place.leave(() => resized.disconnect());
    paintAll();
  }

  function asTable() {
    const nodes = view.nodes.slice(0, 100);
    const byId = new Map(view.nodes.map((/** @type {any} */ one) => [one.id, one]));
    const list = (/** @type {any[]} */ ids) => ids.length ? [ids.slice(0, 6).map((one, i) => [i ? ", " : "", place.link(target(byId.get(one)), byId.get(one).name)]), ids.length > 6 ? ` and ${num(ids.length - 6)} more` : null] : "–";
    const details = /** @type {HTMLDetailsElement} */ (h("details", { ontoggle: () => { if (details.open) put(body, nodes.map(row)); } }, h("summary", "As a table"), h("div.scroll", h("table.grid", null,
      h("thead", h("tr", ["Name", "Jobs", "Depends on", "Needed by"].map((t) => h("th", { scope: "col" }, t)))))), view.nodes.length > nodes.length ? h("p.quiet", `and ${num(view.nodes.length - nodes.length)} more`) : null));
    const body = h("tbody");
    details.querySelector("table")?.appendChild(body);
    const row = (/** @type {any} */ one) => h("tr", null,
      h("th", { scope: "row" }, place.link(target(one), one.name)), h("td", one.where ? count(one.total, "job") : badge(Object.keys(one.counts)[0])),
      h("td", list(view.edges.filter((/** @type {any} */ e) => e.to === one.id).map((/** @type {any} */ e) => e.from))),
      h("td", list(view.edges.filter((/** @type {any} */ e) => e.from === one.id).map((/** @type {any} */ e) => e.to))));
    return details;
  }
}

/** With the colours inside, for other programs. @param {Element} svg */
function asSvg(svg) {
  const copy = /** @type {Element} */ (svg.cloneNode(true));
  const [from, into] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((el, i) => {
    const style = getComputedStyle(el);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family"]) into[i].setAttribute(name, style.getPropertyValue(name));
  });
  return new XMLSerializer().serializeToString(copy);
}

const quoted = JSON.stringify;

function dot(/** @type {any} */ view) {
  return `digraph workflow {\n  node [shape=box];\n${view.nodes.map((/** @type {any} */ n) => `  n${n.id} [label=${quoted(`${n.name} (${n.total})`)}];`).join("\n")}\n${view.edges.map((/** @type {any} */ e) => `  n${e.from} -> n${e.to} [label=${quoted(e.kind)}];`).join("\n")}\n}\n`;
}

function mermaid(/** @type {any} */ view) {
  return `flowchart TD\n${view.nodes.map((/** @type {any} */ n) => `  n${n.id}[${quoted(n.name)}]`).join("\n")}\n${view.edges.map((/** @type {any} */ e) => `  n${e.from} --> n${e.to}`).join("\n")}\n`;
}
