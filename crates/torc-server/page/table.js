// A table of any length: fixed rows, few of them in the document, windows fetched as they are seen.
// Rows may stand in groups that open and close.
// @ts-check
import { add, h, put } from "./dom.js";

const ROW = 28;
const WINDOW = 100;
const SPARE = 8;
/** Windows that are kept; each line that is seen may be of another one. */
const MOST = 90;

/** @typedef {{key: string, title: string, cls?: string, sort?: string, cell: (row: any) => any}} Column */
/** Rows that stand together below a head; `at` is the line of the head. A table without groups is one without a head.
 * @typedef {{name: string, total: number, open: boolean, at: number, head: any}} Group */

export class Table {
  /** @param {{columns: Column[], groups?: () => Promise<Group[]>, load: (offset: number, limit: number, sort: string, reverse: boolean, group: string) => Promise<{items: any[], total_count: number}>, open: (row: any) => void, label: string, order?: string, onOrder?: () => void, selected?: Set<number>, onSelect?: () => void, empty?: string}} options */
  constructor(options) {
    this.options = options;
    this.total = 0;
    /** @type {Group[]} */ this.groups = [];
    /** Groups that a person has opened or closed. @type {Map<string, boolean>} */ this.opened = new Map();
    const [, reverse, sort] = /** @type {RegExpExecArray} */ (/^(-?)(.*)/.exec(options.order || "id"));
    this.sort = sort;
    this.reverse = !!reverse;
    /** By group and first row. @type {Map<string, any[]>} */ this.windows = new Map();
    /** Those that are as of the last reload. @type {Set<string>} */ this.fresh = new Set();
    /** @type {Set<string>} */ this.asked = new Set();
    this.current = 0;
    this.version = 0;
    this.drawn = "";
    this.head = h("div.tr.thead", { role: "row" });
    this.space = h("div.tspace", { role: "presentation" });
    this.body = h("div.tbody", { tabindex: "0", role: "rowgroup", onscroll: () => this.draw(), onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e) }, this.space);
    this.note = h("p.empty", { hidden: true });
    this.inner = h("div.tinner", { role: "table", "aria-label": options.label }, h("div", { role: "rowgroup" }, this.head), this.body);
    this.el = h("div.table", this.inner, this.note);
    this.drawHead();
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  drawHead() {
    const { columns, selected } = this.options;
    put(this.head, selected && h("span.td.check", { role: "columnheader" }, h("span.sr", "Selected")),
      columns.map((column) => {
        const on = column.sort && this.sort === column.sort;
        const button = column.sort
          ? h("button.plain", { onclick: () => this.order(/** @type {string} */ (column.sort)) }, column.title, on && (this.reverse ? " ▾" : " ▴"))
          : column.title;
        return h("span.td", { class: column.cls || "", role: "columnheader", "aria-sort": on ? (this.reverse ? "descending" : "ascending") : null }, button);
      }));
  }

  order(/** @type {string} */ sort) {
    this.reverse = this.sort === sort ? !this.reverse : false;
    this.sort = sort;
    this.drawHead();
    this.options.onOrder?.();
    this.reload(true);
  }

  /** Everything anew; the place stays unless `top`. @param {boolean} [top] */
  async reload(top) {
    const version = ++this.version;
    const { groups, load } = this.options;
    const found = groups ? await groups() : [];
    /** @type {[string, any[]][]} */ const known = [];
    if (!found.length) {
      const first = top ? 0 : Math.floor(this.body.scrollTop / ROW / WINDOW) * WINDOW;
      const page = await load(first, WINDOW, this.sort, this.reverse, "");
      known.push([":" + first, page.items]);
      found.push({ name: "", total: page.total_count, open: true, at: -1, head: null });
    }
    if (version !== this.version) return;
    if (top) this.body.scrollTop = 0;
    for (const group of found) group.open = this.opened.get(group.name) ?? group.open;
    this.groups = found;
    // Rows stay until there are newer ones.
    if (top) this.windows.clear();
    this.fresh.clear();
    for (const [key, rows] of known) { this.windows.set(key, rows); this.fresh.add(key); }
    this.asked.clear();
    this.lay();
  }

  /** Lines of the groups, as they are open or closed. */
  lay() {
    let at = this.groups.length && this.groups[0].head ? 0 : -1;
    for (const group of this.groups) { group.at = at; at += 1 + (group.open ? group.total : 0); }
    this.total = at;
    this.space.style.height = `${this.total * ROW}px`;
    this.inner.setAttribute("aria-rowcount", String(this.total + 1));
    this.note.hidden = this.total > 0;
    this.note.textContent = this.options.empty || "Nothing here.";
    this.drawn = "";
    this.draw();
  }

  /** Opens or closes a group. @param {Group} group */
  toggle(group) {
    group.open = !group.open;
    this.opened.set(group.name, group.open);
    this.lay();
  }

  async fetchWindow(/** @type {string} */ group, /** @type {number} */ start) {
    const key = `${group}:${start}`;
    if (this.asked.has(key)) return;
    this.asked.add(key);
    const version = this.version;
    const page = await this.options.load(start, WINDOW, this.sort, this.reverse, group);
    if (version !== this.version) return;
    this.windows.set(key, page.items);
    this.fresh.add(key);
    const [oldest] = this.windows.keys();
    if (this.windows.size > MOST) { this.windows.delete(oldest); this.fresh.delete(oldest); }
    this.asked.delete(key);
    const of = this.groups.find((one) => one.name === group);
    // Counts leave out what a newer spec no longer has, and rows come and go.
    if (of && of.total !== page.total_count) { of.total = page.total_count; this.lay(); }
    this.drawn = "";
    this.draw();
  }

  /** The group of a line. @param {number} line */
  group(line) {
    let [low, high] = [0, this.groups.length - 1];
    while (low < high) { const middle = (low + high + 1) >> 1; if (this.groups[middle].at <= line) low = middle; else high = middle - 1; }
    return this.groups[low];
  }

  /** What stands in a line: a row, a group, or null while it is fetched. @param {number} line */
  row(line) {
    const group = this.group(line);
    if (!group || line === group.at) return group;
    const index = line - group.at - 1;
    const start = Math.floor(index / WINDOW) * WINDOW;
    const key = `${group.name}:${start}`;
    if (!this.fresh.has(key)) this.fetchWindow(group.name, start);
    return (this.windows.get(key) || [])[index - start] || null;
  }

  /** @param {any} row */
  open(row) {
    if (row && row.head) this.toggle(row); else if (row) this.options.open(row);
  }

  draw() {
    const from = Math.max(0, Math.floor(this.body.scrollTop / ROW) - SPARE);
    const until = Math.min(this.total, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW) + SPARE, from + 80);
    const key = `${from}-${until}-${this.current}-${this.version}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = [];
    for (let index = from; index < until; index++) rows.push(this.drawRow(index, this.row(index)));
    put(this.space, rows);
  }

  drawRow(/** @type {number} */ index, /** @type {any} */ row) {
    const { columns, selected } = this.options;
    const el = h("div.tr", {
      role: "row", "aria-rowindex": String(index + 2), class: index === this.current ? "current" : "",
      style: { top: `${index * ROW}px` },
      onclick: (/** @type {MouseEvent} */ e) => {
        this.current = index;
        if (/** @type {HTMLElement} */ (e.target).closest("a,button,input")) return;
        this.open(row);
      },
    });
    if (row && row.head) { add(el, [h("span.td.group", { role: "cell" }, h("button.plain", { "aria-expanded": String(row.open), onclick: () => this.toggle(row) }, row.open ? "▾ " : "▸ ", row.name), row.head)]); return el; }
    if (!row) { add(el, [h("span.td.wait", { role: "cell" }, "…")]); return el; }
    if (selected) {
      add(el, [h("span.td.check", { role: "cell" }, h("input", {
        type: "checkbox", "aria-label": `Select ${row.name}`, checked: selected.has(row.id),
        onchange: () => this.select(row),
      }))]);
    }
    add(el, columns.map((column) => h("span.td", { class: column.cls || "", role: "cell" }, column.cell(row))));
    return el;
  }

  select(/** @type {any} */ row) {
    const { selected, onSelect } = this.options;
    if (!selected || !row || row.head) return;
    if (!selected.delete(row.id)) selected.add(row.id);
    if (onSelect) onSelect();
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 1);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (e.key in steps) {
      this.current = Math.max(0, Math.min(this.total - 1, this.current + steps[e.key]));
      const top = this.current * ROW;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      if (top + ROW > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + ROW - this.body.clientHeight;
      this.draw();
    } else if (e.key === "Enter") {
      this.open(this.row(this.current));
    } else if (e.key === "x" && this.options.selected) {
      this.select(this.row(this.current));
      this.drawn = "";
      this.draw();
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
