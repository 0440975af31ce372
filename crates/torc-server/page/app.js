// The shell: signs in, finds the place of the address, shows it, and keeps watch.
// @ts-check
import { problem } from "./act.js";
import { BASE, canAct, contact, del, forget, get, Lost, REPORT, signIn } from "./api.js";
import { h, put, toast } from "./dom.js";
import { data, events, spec } from "./events.js";
import { failures } from "./failures.js";
import { BAD, clock, dur, kindTitle, num } from "./format.js";
import { graph } from "./graph.js";
import { job } from "./job.js";
import { jobs } from "./jobs.js";
import { help, keys, palette } from "./keys.js";
import { follow, togglePause, watch } from "./live.js";
import { nodes } from "./nodes.js";
import { overview } from "./overview.js";
import { resources } from "./resources.js";
import { timeline } from "./timeline.js";
import { workflows } from "./workflows.js";

/** What a place may use.
 * @typedef {{main: HTMLElement, workflow: number, job: number, name: string, params: URLSearchParams,
 *   go: (path: string) => void, replace: (path: string) => void, link: (path: string, ...children: any[]) => HTMLElement,
 *   pulse: (tell: (frame: import("./live.js").Frame) => void) => void, leave: (end: () => void) => void,
 *   again: () => void, inWorkflow: (id: number) => Promise<void>, focusFilter: () => void}} Place */

/** @type {Record<string, [string, (place: Place) => any]>} */
const PLACES = { "": ["Overview", overview], jobs: ["Jobs", jobs], failures: ["Failures", failures], graph: ["Graph", graph], timeline: ["Timeline", timeline], resources: ["Resources", resources], nodes: ["Nodes", nodes], events: ["Events", events], data: ["Data", data], spec: ["Spec", spec] };
const IN_REPORT = ["", "jobs", "failures", "graph", "timeline", "resources", "spec"];

/** @type {(() => void)[]} */ let ends = [];
/** @type {{id: number, name: string} | null} */ let known = null;
/** @type {Set<(frame: any) => void>} */ const listeners = new Set();
let watched = 0;
let stopWatching = () => {};
let focusFilter = () => {};
let turn = 0;

const main = h("main", { id: "main", tabindex: "-1" });
const nav = h("nav", { "aria-label": "Places" });
const crumb = h("div.crumb");
const lost = h("div.lost", { role: "status", hidden: true });
const live = h("div.sr", { "aria-live": "polite" });
/** Narrow windows show the first of the two. @param {string} short @param {string} more */
const words = (short, more) => [short, h("span.words", " " + more)];
const pauseButton = h("button.small", { onclick: () => put(pauseButton, words(togglePause() ? "Resume" : "Pause", "updates")) }, words("Pause", "updates"));

function path() {
  if (REPORT) return location.hash.slice(1) || `w/${REPORT.workflow}`;
  return location.pathname.slice(BASE.length) + location.search;
}

const href = (/** @type {string} */ to) => (REPORT ? "#" + to : BASE + to);

function go(/** @type {string} */ to) {
  if (REPORT) { location.hash = to; return; }
  history.pushState(null, "", href(to));
  show();
}

/** @param {string} to @param {...any} children */
function link(to, ...children) {
  return h("a", { href: href(to), onclick: (/** @type {MouseEvent} */ e) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault();
    go(to);
  } }, ...children);
}

async function inWorkflow(/** @type {number} */ id) {
  if (!known || known.id !== id) known = { id, name: (await get(`/workflows/${id}`)).name };
  if (watched !== id) {
    stopWatching();
    watched = id;
    let told = 0;
    stopWatching = watch(id, (frame) => {
      lastFrame = frame.at_ms;
      listeners.forEach((tell) => tell(frame));
      const [fresh] = frame.failures || [];
      if (fresh) toast(`New: ${num(fresh.jobs)} × ${kindTitle(fresh.kind)} in ${fresh.family}`, true);
      // One polite region, at most every ten seconds.
      if (Date.now() - told > 10000) {
        told = Date.now();
        const bad = BAD.reduce((sum, status) => sum + (frame.counts[{ failed: 6, terminated: 8, pending_failed: 10 }[status] || 0] || 0), 0);
        live.textContent = `${num(frame.counts[5] || 0)} done, ${num(frame.counts[4] || 0)} running, ${num(bad)} failed`;
        count.textContent = bad ? num(bad) : "";
      }
    }, (ok) => contacted(ok));
  }
  drawNav();
}

let lastFrame = 0;
function contacted(/** @type {any} */ ok) {
  if (ok) { lastFrame = Date.now(); lost.hidden = true; return; }
  lost.hidden = false;
  lastFrame ||= Date.now();
  lost.textContent = `The server does not answer. What you see is as of ${clock(lastFrame)} (${dur((Date.now() - lastFrame) / 1000)} ago); trying again…`;
}

/** Opens the place again as soon as the server answers. */
async function reopen(/** @type {any} */ mine) {
  while (mine === turn) {
    await new Promise((done) => setTimeout(done, 2000));
    if (mine === turn && await get("/ui_sessions/current").then(() => true, () => false)) return show();
  }
}

const count = h("span.count.bad");

function drawNav() {
  const parts = path().split("?")[0].split("/");
  const here = parts[0] === "w" ? parts[2] || "" : parts[0] === "j" ? "jobs" : null;
  if (!known) { put(nav); put(crumb); return; }
  const { id, name } = known;
  put(crumb, REPORT ? null : h("span.words", link("", "Workflows"), " / "), link(`w/${id}`, name));
  put(nav, Object.entries(PLACES).filter(([key]) => !REPORT || IN_REPORT.includes(key)).map(([key, [title]]) => {
    const one = link(`w/${id}${key ? "/" + key : ""}`, title, key === "failures" ? count : null);
    if (here === key) one.setAttribute("aria-current", "page");
    return one;
  }));
  const current = /** @type {HTMLElement | null} */ (nav.querySelector("[aria-current]"));
  if (current) nav.scrollLeft = current.offsetLeft - 60;
}

async function show() {
  const mine = ++turn;
  ends.forEach((end) => end());
  ends = [];
  listeners.clear();
  follow([]);
  focusFilter = () => {};
  const [address, search] = path().split("?");
  const parts = address.split("/").filter(Boolean);
  /** @type {Place} */
  const place = {
    main: h("div.place"), workflow: 0, job: 0, name: "", params: new URLSearchParams(search || ""), go, link, inWorkflow, again: show,
    replace: (to) => { if (!REPORT && mine === turn) history.replaceState(null, "", href(to)); },
    pulse: (tell) => { listeners.add(tell); },
    leave: (end) => { if (mine === turn) ends.push(end); else end(); },
    get focusFilter() { return focusFilter; },
    set focusFilter(focus) { focusFilter = focus; },
  };
  put(main, h("p.loading", "Loading…"));
  try {
    let title = "Workflows";
    let work;
    if (parts[0] === "w" && Number(parts[1]) && (parts[2] || "") in PLACES) {
      place.workflow = Number(parts[1]);
      await inWorkflow(place.workflow);
      place.name = known ? known.name : "";
      const [name, draw] = PLACES[parts[2] || ""];
      title = `${name} · ${place.name}`;
      work = draw;
    } else if (parts[0] === "j" && Number(parts[1])) {
      place.job = Number(parts[1]);
      title = `Job ${parts[1]}`;
      work = job;
    } else if (!parts.length) {
      known = null;
      stopWatching();
      watched = 0;
      work = workflows;
    } else throw new Error("There is nothing at this address.");
    if (mine !== turn) return;
    document.title = `${title} · Torc`;
    put(main, place.main);
    drawNav();
    const drawn = work(place);
    if (!place.main.firstChild) put(place.main, h("p.loading", "Loading…"));
    await drawn;
    if (mine === turn && document.activeElement === document.body) main.focus({ preventScroll: true });
  } catch (error) {
    if (mine !== turn) return;
    const isLost = error instanceof Lost;
    drawNav();
    put(main, problem(isLost ? { message: error.message, hint: "This place opens by itself as soon as it does." } : error), h("p", h("button", { onclick: show }, "Try again")));
    if (isLost) reopen(mine);
  }
}

function theme() {
  const order = ["", "light", "dark"];
  const now = localStorage.getItem("torc-theme") || "";
  const next = order[(order.indexOf(now) + 1) % 3];
  localStorage.setItem("torc-theme", next);
  dress();
}

function dress() {
  const now = (REPORT ? "" : localStorage.getItem("torc-theme")) || "";
  document.documentElement.dataset.theme = now;
  const [sign, name] = { light: ["☀", "Light"], dark: ["☾", "Dark"] }[now] || ["◐", "System"];
  put(themeButton, words(sign, name));
  themeButton.setAttribute("aria-label", `Theme: ${name}`);
}
const themeButton = h("button.small", { onclick: theme });

async function signOut() {
  await del("/ui_sessions/current").catch(() => {});
  forget();
  location.reload();
}

async function begin() {
  dress();
  // Browsers ask for it again at each address, and it is relative to the first one.
  const icon = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
  if (icon) icon.href = icon.href;
  const header = h("header", h("a.skip", { href: "#main", onclick: (/** @type {Event} */ e) => { e.preventDefault(); main.focus(); } }, "Skip to content"),
    REPORT ? h("span.brand", "Torc") : h("span.brand", link("", "Torc")), crumb,
    h("span.push.row", REPORT ? null : [h("button.small", { onclick: () => palette(to) }, "Go to… ", h("kbd.words", "Ctrl K")), pauseButton, themeButton,
      h("button.small.words", { onclick: signOut }, "Sign out")], h("button.small", { onclick: () => help(to), "aria-label": "Keys" }, "?")));
  const to = { go, signOut: REPORT ? null : signOut, workflow: () => (known ? known.id : null), focusFilter: () => focusFilter() };
  contact.add(contacted);
  let signedIn = false;
  /** @type {any} */ let why = null;
  try { signedIn = await signIn(); } catch (error) { why = error; }
  if (!signedIn) {
    put(document.body, h("main.signin", h("h1", "Torc"), why ? problem(why) : h("p", "This page needs a link. In a terminal on the machine of the server, in the directory of your workflows, run"), h("pre", "torc ui"), h("p.quiet", "The link is good once. Other tabs of this browser share its session.")));
    return;
  }
  put(document.body, header, nav, lost, main, live);
  document.body.classList.toggle("readonly", !canAct());
  keys(to);
  addEventListener(REPORT ? "hashchange" : "popstate", show);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  await show();
}

begin();
