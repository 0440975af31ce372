// Talks to the server, or to the data inside an offline report.
// @ts-check

const here = location.pathname;
const at = here.indexOf("/ui/");
/** Everything before `ui/`: a proxy may have put a prefix there. */
export const ROOT = at < 0 ? "/" : here.slice(0, at + 1);
/** Where the page itself is. */
export const BASE = ROOT + "ui/";
const API = ROOT + "torc-service/v1";
/** The data of an offline report, if this is one. @type {any} */
export const REPORT = /** @type {any} */ (globalThis).TORC_REPORT || null;

const KEY = "torc-session:" + ROOT;
/** @type {{token: string, scope: string, expires_ms: number, kept?: boolean} | null} */
let session = null;

/** A refusal of the server in its own words. */
export class Refused extends Error {
  constructor(/** @type {number} */ status, /** @type {any} */ body) {
    const said = body && body.error;
    super(said ? said.message : `the server answered ${status}`);
    this.status = status;
    this.hint = said && said.hint;
    this.code = said && said.code;
  }
}

/** The server cannot be reached. */
export class Lost extends Error {}

export function canAct() {
  return !REPORT && session !== null && session.scope === "act";
}

/** Finds the session: by the code of the link, in this tab, in another tab of this browser.
 * @returns {Promise<boolean>} */
export async function signIn() {
  if (REPORT) return true;
  const params = new URLSearchParams(location.hash.slice(1));
  const [code, kept] = [params.get("k"), params.has("r")];
  if (code) {
    // Gone from the address and the history before anything else happens.
    history.replaceState(null, "", location.pathname + location.search);
    const made = await ask("POST", "/ui_sessions", { code, remember: kept });
    keep({ token: made.token, scope: made.session.scope, expires_ms: made.session.expires_ms, kept });
  }
  const stored = sessionStorage.getItem(KEY) || localStorage.getItem(KEY);
  if (!session && stored) session = JSON.parse(stored);
  if (!session) session = await fromOtherTab();
  if (session) keep(session);
  shareWithTabs();
  return session !== null && session.expires_ms > Date.now();
}

function keep(/** @type {any} */ found) {
  session = found;
  (found.kept ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(found));
}

export function forget() {
  session = null;
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

const channel = typeof BroadcastChannel === "undefined" || REPORT ? null : new BroadcastChannel(KEY);

/** @returns {Promise<any>} */
function fromOtherTab() {
  return new Promise((resolve) => {
    if (!channel) return resolve(null);
    const timer = setTimeout(() => resolve(null), 400);
    channel.addEventListener("message", (event) => {
      if (event.data && event.data.session) { clearTimeout(timer); resolve(event.data.session); }
    });
    channel.postMessage({ ask: true });
  });
}

function shareWithTabs() {
  if (!channel) return;
  channel.addEventListener("message", (event) => {
    if (event.data && event.data.ask && session) channel.postMessage({ session });
  });
}

/** Told of each answer (`true`) and each time the server cannot be reached. @type {Set<(ok: boolean) => void>} */
export const contact = new Set();

/** @param {string} method @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
async function raw(method, path, body, signal) {
  /** @type {Record<string, string>} */ const headers = {};
  if (session) headers["X-Torc-Token"] = session.token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(API + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (signal && signal.aborted) throw error;
    contact.forEach((tell) => tell(false));
    throw new Lost("The server does not answer.");
  }
  contact.forEach((tell) => tell(true));
  if (!answer.ok) {
    const refused = new Refused(answer.status, await answer.json().catch(() => null));
    if (answer.status === 401 && refused.code !== "code_used") { forget(); location.reload(); }
    throw refused;
  }
  return answer;
}

/** @param {string} method @param {string} path @param {any} [body] */
async function ask(method, path, body) {
  return (await raw(method, path, body)).json();
}

/** @param {Record<string, any>} [params] */
function query(params) {
  const pairs = Object.entries(params || {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? "?" + new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])) : "";
}

/** The last answer about the families of a workflow: a place shows it at once and asks anew. @type {any} */
export let lately = null;

/** @param {string} path @param {Record<string, any>} [params] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, params, signal) {
  if (REPORT) return REPORT.get(path, params || {});
  const found = await (await raw("GET", path + query(params), undefined, signal)).json();
  if (!params && path.endsWith("/families")) lately = found;
  return found;
}

/** @param {string} path @returns {Promise<ArrayBuffer>} */
export async function buffer(path) {
  if (REPORT) return REPORT.buffer(path);
  return (await raw("GET", path)).arrayBuffer();
}

/** @param {string} path @param {any} body @returns {Promise<any>} */
export function post(path, body) {
  return ask("POST", path, body);
}

/** @param {string} path @returns {Promise<any>} */
export function del(path) {
  return ask("DELETE", path);
}

/** The answer of a stream. @param {string} path @param {AbortSignal} signal */
export function stream(path, signal) {
  return raw("GET", path, undefined, signal);
}
