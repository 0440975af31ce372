// The data of an offline report, as the page would get them from a server.
// @ts-check

async function unpack(/** @type {string} */ id) {
  const text = (document.getElementById(id)?.textContent || "").trim();
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

const STATUS_WORDS = ["uninitialized", "blocked", "ready", "pending", "running", "completed", "failed", "canceled", "terminated", "disabled", "pending_failed"];

/** A small reader of the filter language: names, families, statuses and causes.
 * @param {string} where @returns {(job: any) => boolean} */
function matcher(where) {
  const tests = (where.match(/(?:[^\s"]|"[^"]*")+/g) || []).map((term) => {
    const not = term.startsWith("-") && term.length > 1;
    const [, field, value] = /^([a-z_]+)[:=](.*)$/.exec(not ? term.slice(1) : term) || [];
    const list = (value || "").replaceAll('"', "").split(",");
    const word = (not ? term.slice(1) : term).replaceAll('"', "").toLowerCase();
    const holds = (/** @type {any} */ job) => {
      if (field === "status") return list.includes(job.status);
      if (field === "family") return list.includes(job.family);
      if (field === "cause") return list.includes(job.last.cause);
      if (field === "exit") return list.includes(String(job.return_code));
      if (field === "id") return list.includes(String(job.id));
      return job.name.toLowerCase().includes(word);
    };
    return (/** @type {any} */ job) => holds(job) !== not;
  });
  return (job) => tests.every((test) => test(job));
}

async function openReport() {
  const data = JSON.parse(new TextDecoder().decode(await unpack("torc-data")));
  const bars = await unpack("torc-timeline");
  const { columns } = data;
  const jobAt = (/** @type {number} */ i) => ({
    id: columns.id[i], name: columns.name[i], workflow_id: data.workflow, family: data.families[columns.family[i]], status: STATUS_WORDS[columns.status[i]],
    attempt_id: columns.attempt[i], return_code: columns.exit[i], command: "", num_cpus: 1, priority: 0, held: false,
    last: { started_ms: columns.start[i] ? data.base_ms + columns.start[i] : null, exec_seconds: columns.ms[i] === null ? null : columns.ms[i] / 1000, ended_ms: 1, peak_memory_bytes: columns.peak[i] === null ? null : columns.peak[i] * 1024, memory_bytes: columns.asked[i], hostname: data.hosts[columns.host[i]] || null, cause: data.causes[columns.cause[i]] || null, run_id: 1, attempt_id: columns.attempt[i] },
  });
  const place = new Map(columns.id.map((/** @type {number} */ id, /** @type {number} */ i) => [id, i]));
  /** @type {any} */ (globalThis).TORC_REPORT = {
    workflow: data.workflow,
    buffer: async () => bars.slice(0),
    get: async (/** @type {string} */ path, /** @type {any} */ params) => {
      if (path in data.answers) return data.answers[path];
      if (path === "/jobs") {
        const matches = matcher(params.where || "");
        const found = [];
        for (let i = 0; i < columns.id.length; i++) { const job = jobAt(i); if (matches(job)) found.push(job); }
        /** @type {Record<string, (job: any) => any>} */
        const keys = { name: (job) => job.name, status: (job) => STATUS_WORDS.indexOf(job.status), attempt_id: (job) => job.attempt_id, started: (job) => job.last.started_ms || 0, time: (job) => job.last.exec_seconds || 0, memory: (job) => job.last.peak_memory_bytes || 0 };
        const key = keys[params.sort_by];
        if (key) found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
        if (params.reverse_sort) found.reverse();
        const from = params.offset || 0;
        return { items: found.slice(from, from + (params.limit || 100)), total_count: found.length };
      }
      const one = /^\/jobs\/(\d+)(\/\w+)?$/.exec(path);
      if (one && place.has(Number(one[1]))) {
        const job = jobAt(/** @type {number} */ (place.get(Number(one[1]))));
        if (!one[2]) return job;
        const kept = data.tails[job.id];
        if (one[2] === "/attempts") return { items: job.last.started_ms ? [{ ...job.last, state: job.status }] : [] };
        if (one[2] === "/why") return { job, summary: kept ? kept.summary : `it is ${job.status}`, details: [], hints: [], attempt: null };
        if (one[2] === "/logs") return { text: kept ? kept.tail : "", offset: 0, next_offset: 1, size: 1 };
      }
      return { items: [], total_count: 0 };
    },
  };
}
