-- Version 1. States are the words of torc-model (text) except job.status, whose integers are part of the
-- contract with users. Times are milliseconds since 1970. Positions and ids only ever grow.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    description TEXT,
    project TEXT,
    metadata TEXT,
    directory TEXT,
    settings TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    create_key TEXT UNIQUE,
    run_id INTEGER NOT NULL DEFAULT 0,
    run_started_ms INTEGER,
    is_canceled INTEGER NOT NULL DEFAULT 0 CHECK (is_canceled IN (0, 1)),
    is_archived INTEGER NOT NULL DEFAULT 0 CHECK (is_archived IN (0, 1)),
    is_complete INTEGER NOT NULL DEFAULT 0 CHECK (is_complete IN (0, 1)),
    job_count INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE resource_requirements (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    num_cpus INTEGER NOT NULL CHECK (num_cpus >= 1),
    num_gpus INTEGER NOT NULL CHECK (num_gpus >= 0),
    num_nodes INTEGER NOT NULL CHECK (num_nodes >= 1),
    memory_bytes INTEGER CHECK (memory_bytes >= 0),
    runtime_seconds INTEGER CHECK (runtime_seconds >= 0),
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE failure_handler (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    rules TEXT NOT NULL,
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE slurm_scheduler (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    command TEXT NOT NULL,
    invocation_script TEXT,
    steps TEXT,
    status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 10),
    status_reason TEXT,
    attempt_id INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL,
    resource_requirements_id INTEGER REFERENCES resource_requirements(id),
    failure_handler_id INTEGER REFERENCES failure_handler(id) ON DELETE SET NULL,
    scheduler_id INTEGER REFERENCES slurm_scheduler(id) ON DELETE SET NULL,
    cancel_on_blocking_job_failure INTEGER NOT NULL DEFAULT 1 CHECK (cancel_on_blocking_job_failure IN (0, 1)),
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    -- The job's own values after a recovery; they win over resource_requirements and are never lower.
    memory_bytes INTEGER,
    runtime_seconds INTEGER,
    -- Retries that did not count against the user's rules (losses, stops, checkpoints), in this run.
    lost_retries INTEGER NOT NULL DEFAULT 0,
    refunds INTEGER NOT NULL DEFAULT 0,
    -- JSON of plan::JobExtra; NULL when all is default.
    extra TEXT,
    -- What the last completed attempt was made from; reinitialize compares it.
    input_hash TEXT,
    UNIQUE (workflow_id, name)
) STRICT;
CREATE INDEX job_by_status ON job (workflow_id, status);

CREATE TABLE job_depends_on (
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL,
    depends_on_job_id INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, job_id, depends_on_job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE file (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    mtime_ms INTEGER,
    size INTEGER,
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE user_data (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    data TEXT,
    is_ephemeral INTEGER NOT NULL DEFAULT 0 CHECK (is_ephemeral IN (0, 1)),
    UNIQUE (workflow_id, name)
) STRICT;

-- kind: 'input_file', 'output_file', 'input_user_data', 'output_user_data'; item_id is in file or user_data.
CREATE TABLE job_item (
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('input_file', 'output_file', 'input_user_data', 'output_user_data')),
    item_id INTEGER NOT NULL,
    PRIMARY KEY (job_id, kind, item_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE compute_node (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    register_key TEXT NOT NULL UNIQUE,
    hostname TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_start INTEGER NOT NULL,
    kind TEXT NOT NULL,
    scheduler TEXT,
    label TEXT,
    capacity TEXT NOT NULL,
    output_dir TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    stop_by_ms INTEGER,
    ended_ms INTEGER,
    end_reason TEXT,
    CHECK ((ended_ms IS NULL) = (end_reason IS NULL))
) STRICT;
CREATE INDEX compute_node_by_workflow ON compute_node (workflow_id, ended_ms);

CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'claimed', 'running', 'completed', 'failed', 'canceled', 'terminated')),
    origin TEXT NOT NULL,
    retry_of INTEGER REFERENCES attempt(id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    not_before_ms INTEGER,
    recovery TEXT,
    -- The runner that may still have the predecessor's process; nobody claims this attempt until it is gone.
    waits_for_node INTEGER,
    compute_node_id INTEGER REFERENCES compute_node(id),
    token TEXT,
    claim_key TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    claimed_ms INTEGER,
    started_ms INTEGER,
    pid INTEGER,
    memory_bytes INTEGER,
    time_limit_seconds INTEGER,
    ended_ms INTEGER,
    return_code INTEGER,
    signal INTEGER,
    cause TEXT,
    error TEXT,
    evidence TEXT,
    exec_seconds REAL,
    cpu_seconds REAL,
    peak_memory_bytes INTEGER,
    avg_memory_bytes INTEGER,
    peak_cpu_percent REAL,
    avg_cpu_percent REAL,
    stdout_path TEXT,
    stderr_path TEXT,
    stderr_tail TEXT,
    outcome TEXT,
    decision TEXT,
    rule INTEGER,
    script TEXT,
    steps TEXT,
    UNIQUE (job_id, run_id, attempt_id),
    CHECK ((ended_ms IS NULL) = (state IN ('queued', 'claimed', 'running'))),
    CHECK (state NOT IN ('claimed', 'running') OR (token IS NOT NULL AND compute_node_id IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX attempt_one_live ON attempt (job_id) WHERE state IN ('queued', 'claimed', 'running');
CREATE UNIQUE INDEX attempt_one_retry ON attempt (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX attempt_live ON attempt (workflow_id) WHERE state IN ('queued', 'claimed', 'running');
-- Results in the order in which they ended, their number, and the end of the last one.
CREATE INDEX attempt_ended ON attempt (workflow_id, ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TRIGGER attempt_ended_is_frozen BEFORE UPDATE ON attempt
WHEN OLD.state IN ('completed', 'failed', 'canceled', 'terminated')
BEGIN
    SELECT RAISE(ABORT, 'an ended attempt never changes');
END;

CREATE TRIGGER attempt_one_way BEFORE UPDATE OF state ON attempt
WHEN NEW.state = 'queued' AND OLD.state <> 'queued'
  OR NEW.state = 'claimed' AND OLD.state NOT IN ('queued', 'claimed')
BEGIN
    SELECT RAISE(ABORT, 'an attempt never goes back');
END;

CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    timestamp_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    job_id INTEGER,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_workflow ON event (workflow_id, id);

CREATE TABLE workflow_action (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    trigger_type TEXT NOT NULL,
    what TEXT NOT NULL,
    job_ids TEXT NOT NULL,
    persistent INTEGER NOT NULL CHECK (persistent IN (0, 1)),
    is_recovery INTEGER NOT NULL DEFAULT 0 CHECK (is_recovery IN (0, 1)),
    state TEXT NOT NULL CHECK (state IN ('waiting', 'triggered', 'claimed', 'executed', 'failed')),
    executed_by INTEGER,
    executed_ms INTEGER,
    error TEXT
) STRICT;
CREATE INDEX workflow_action_by_workflow ON workflow_action (workflow_id);

CREATE TABLE token (
    hash TEXT PRIMARY KEY,
    workflow_id INTEGER REFERENCES workflow(id) ON DELETE CASCADE,
    scope TEXT NOT NULL CHECK (scope IN ('all', 'workflow')),
    created_ms INTEGER NOT NULL,
    note TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Named limits that jobs take one unit of (`uses`), over all workflows and runners.
CREATE TABLE named_limit (
    name TEXT PRIMARY KEY,
    max INTEGER NOT NULL CHECK (max >= 0)
) STRICT, WITHOUT ROWID;

-- A reservation pauses claims in its scope: 'all', 'workflow:ID' or 'limit:NAME'. It never touches the queue.
CREATE TABLE reservation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    reserved_by TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    reserved_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
    CHECK ((ended_ms IS NULL) = (status = 'ACTIVE'))
) STRICT;
CREATE UNIQUE INDEX reservation_one_active ON reservation (scope) WHERE status = 'ACTIVE';

CREATE TABLE webhook (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    events TEXT NOT NULL,
    workflow_id INTEGER REFERENCES workflow(id) ON DELETE CASCADE,
    allow_private INTEGER NOT NULL CHECK (allow_private IN (0, 1)),
    created_ms INTEGER NOT NULL
) STRICT;

-- The outbox: written with the event it tells of, emptied by the courier.
CREATE TABLE webhook_delivery (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook_id INTEGER NOT NULL REFERENCES webhook(id) ON DELETE CASCADE,
    event_id INTEGER NOT NULL,
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    tries INTEGER NOT NULL DEFAULT 0,
    next_try_ms INTEGER,
    last_error TEXT,
    created_ms INTEGER NOT NULL,
    delivered_ms INTEGER,
    UNIQUE (webhook_id, event_id),
    CHECK ((next_try_ms IS NULL) = (state <> 'pending'))
) STRICT;
CREATE INDEX webhook_delivery_due ON webhook_delivery (next_try_ms) WHERE state = 'pending';
