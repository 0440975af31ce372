// The pulse of a workflow: one stream per browser, none while the page is hidden.
// @ts-check
import { REPORT, ROOT, stream } from "./api.js";

/** @typedef {{at_ms: number, run_id: number, is_complete: boolean, is_canceled: boolean, counts: number[], families: [number, number[]][], busy_cpus: number, cpus: number, runners: number, ended_last_minute: number, failures?: {kind: string, family: string, jobs: number}[], jobs?: [number, number, number][]}} Frame */

let paused = false;
/** Jobs whose states this tab wants to be told. @type {number[]} */
let wanted = [];
const me = Math.random();
let tellWanted = () => {};

/** Frames tell the states of these jobs from now on. @param {number[]} ids */
export function follow(ids) {
  if (ids.join() === wanted.join()) return;
  wanted = ids;
  tellWanted();
}
/** @type {Set<() => void>} */
const onPause = new Set();

/** Updates stop, and nothing else (WCAG 2.2.2). */
export function togglePause() {
  paused = !paused;
  onPause.forEach((tell) => tell());
  return paused;
}

/** Tells of every frame until the returned function is called.
 * The tab that has the lock reads the stream and hands the frames to the others: a browser has six
 * connections to a server, and seven tabs must work.
 * @param {number} id @param {(frame: Frame) => void} tell @param {(ok: boolean) => void} alive */
export function watch(id, tell, alive) {
  if (REPORT) return () => {};
  const name = `torc-pulse:${ROOT}:${id}`;
  const channel = new BroadcastChannel(name);
  /** What other tabs want to be told. @type {Map<number, number[]>} */ const others = new Map();
  const all = () => [...new Set([...wanted, ...[...others.values()].flat()])].slice(0, 200).join();
  channel.onmessage = ({ data }) => {
    if (data.asks) return tellWanted();
    if (data.me) { others.set(data.me, data.wanted); return again(); }
    alive(!data.lost);
    if (!paused && !data.lost) tell(data);
  };
  tellWanted = () => { channel.postMessage({ me, wanted }); again(); };
  let ended = false, asked = "", isLeading = false;
  let turn = new AbortController(), one = turn;

  /** The stream anew if other jobs are wanted than it tells of. */
  function again() {
    if (isLeading && all() !== asked) one.abort();
  }

  async function lead() {
    isLeading = true;
    channel.postMessage({ asks: 1 });
    try { await readAll(); } finally { isLeading = false; }
  }

  async function readAll() {
    while (!ended && !document.hidden && !paused) {
      one = new AbortController();
      asked = all();
      try {
        await read(id, asked, one.signal, (frame) => { alive(true); tell(frame); channel.postMessage(frame); });
      } catch (error) {
        if (turn.signal.aborted) return;
        if (one.signal.aborted) continue;
        alive(false);
        channel.postMessage({ lost: true });
      }
      await new Promise((done) => setTimeout(done, 2000));
    }
  }

  function compete() {
    turn.abort();
    one.abort();
    turn = new AbortController();
    if (ended || document.hidden || paused) return;
    const signal = turn.signal;
    if (navigator.locks) navigator.locks.request(name, { signal }, lead).catch(() => {});
    else lead();
  }
  document.addEventListener("visibilitychange", compete);
  onPause.add(compete);
  compete();
  return () => {
    ended = true;
    turn.abort();
    one.abort();
    tellWanted = () => {};
    onPause.delete(compete);
    document.removeEventListener("visibilitychange", compete);
    channel.close();
  };
}

/** @param {number} id @param {string} jobs @param {AbortSignal} signal @param {(frame: Frame) => void} tell */
async function read(id, jobs, signal, tell) {
  const answer = await stream(`/workflows/${id}/pulse${jobs ? "?jobs=" + jobs : ""}`, signal);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      text = text.slice(end + 2);
      if (data) tell(JSON.parse(data));
    }
  }
}

/** Calls `work` again and again while the page is seen; the next call waits for the one before.
 * @param {() => Promise<void>} work @param {number} ms */
export function every(work, ms) {
  let timer = 0;
  let ended = false;
  async function turn() {
    if (!document.hidden && !paused) await work().catch(() => {});
    if (!ended) timer = setTimeout(turn, ms);
  }
  timer = setTimeout(turn, ms);
  return () => { ended = true; clearTimeout(timer); };
}
