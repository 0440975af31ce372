-- The schema. States are the words of torc-model (text) except job.status, whose integers are part of the
-- contract with users. Times are milliseconds since 1970. Positions and ids only ever grow.
--
-- A list of three or more texts after IN is looked up in a table that SQLite builds anew for each statement;
-- comparisons joined by OR are not. That is why the table that is written for every job has the latter.

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
    -- The file that the spec was read from, where it was a file: two files of one name are two workflows.
    spec_path TEXT,
    -- Grows with every change of the spec that was applied.
    revision INTEGER NOT NULL DEFAULT 1,
    settings TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    create_key TEXT UNIQUE,
    run_id INTEGER NOT NULL DEFAULT 0,
    run_started_ms INTEGER,
    is_canceled INTEGER NOT NULL DEFAULT 0 CHECK (is_canceled IN (0, 1)),
    is_archived INTEGER NOT NULL DEFAULT 0 CHECK (is_archived IN (0, 1)),
    is_complete INTEGER NOT NULL DEFAULT 0 CHECK (is_complete IN (0, 1)),
    job_count INTEGER NOT NULL DEFAULT 0,
    -- What is assumed of the jobs about whose time nothing is known.
    typical_ms INTEGER
) STRICT;
CREATE INDEX workflow_by_name ON workflow (name);
CREATE INDEX workflow_by_user ON workflow (user);

-- Groups of users who share workflows.
CREATE TABLE access_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    description TEXT,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE access_group_member (
    group_id INTEGER NOT NULL REFERENCES access_group(id) ON DELETE CASCADE,
    user TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('member', 'admin')),
    PRIMARY KEY (group_id, user)
) STRICT, WITHOUT ROWID;
CREATE INDEX access_group_member_by_user ON access_group_member (user);

CREATE TABLE workflow_access_group (
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    group_id INTEGER NOT NULL REFERENCES access_group(id) ON DELETE CASCADE,
    PRIMARY KEY (workflow_id, group_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workflow_access_group_by_group ON workflow_access_group (group_id);
-- Those at work. Columns behind a long spec are read through all of it; an index has them at hand.
CREATE INDEX workflow_active ON workflow (id) WHERE run_id > 0 AND is_complete = 0 AND is_archived = 0;

-- What was applied to a workflow, by whom and when; the first is its creation.
CREATE TABLE revision (
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    -- The run that it began or that was under way.
    run_id INTEGER NOT NULL,
    -- JSON of api::PlanCounts.
    counts TEXT NOT NULL,
    PRIMARY KEY (workflow_id, number)
) STRICT, WITHOUT ROWID;

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
    status_reason TEXT
        CHECK (status_reason = 'dependency_failed' OR status_reason = 'waits_for_items'
            OR status_reason = 'too_many_items_failed' OR status_reason = 'given_up' OR status_reason = 'item_gone'
            OR status_reason = 'dropped' OR status_reason = 'canceled_by_user' OR status_reason = 'disabled_by_user'
            OR status_reason = 'classified_permanent' OR status_reason = 'removed' OR status_reason = 'accepted'),
    attempt_id INTEGER NOT NULL DEFAULT 1,
    -- The run of that attempt: jobs that have succeeded are left alone by later runs.
    attempt_run INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL,
    resource_requirements_id INTEGER REFERENCES resource_requirements(id),
    failure_handler_id INTEGER REFERENCES failure_handler(id) ON DELETE SET NULL,
    scheduler_id INTEGER REFERENCES slurm_scheduler(id) ON DELETE SET NULL,
    cancel_on_blocking_job_failure INTEGER NOT NULL DEFAULT 1 CHECK (cancel_on_blocking_job_failure IN (0, 1)),
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    -- What becomes of it when its running attempt has ended, where a new revision changed or removed it meanwhile.
    afterwards TEXT CHECK (afterwards IN ('run_again', 'remove')),
    -- The job that added it while the workflow ran; NULL: the spec has it, or a map found it.
    added_by INTEGER,
    -- The job's own values after a recovery; they win over resource_requirements and are never lower.
    memory_bytes INTEGER,
    runtime_seconds INTEGER,
    -- The job's own values by hand; they win over resource_requirements.
    num_cpus INTEGER CHECK (num_cpus > 0),
    num_gpus INTEGER CHECK (num_gpus >= 0),
    -- Retries that did not count against the user's rules (losses, stops, checkpoints), in this run.
    lost_retries INTEGER NOT NULL DEFAULT 0,
    refunds INTEGER NOT NULL DEFAULT 0,
    -- The first so many attempts of this run were before the job started over: nothing of them counts.
    attempts_before INTEGER NOT NULL DEFAULT 0,
    -- JSON of plan::JobExtra; NULL when all is default.
    extra TEXT,
    -- A map that has found its items; an item that no longer exists.
    is_expanded INTEGER NOT NULL DEFAULT 0 CHECK (is_expanded IN (0, 1)),
    is_gone INTEGER NOT NULL DEFAULT 0 CHECK (is_gone IN (0, 1)),
    -- The user data it reads and that no job writes, as it was when the job was last opened; NULL: it reads none.
    input_hash TEXT,
    -- Number of its family.
    family INTEGER NOT NULL DEFAULT 0,
    -- How long its own earlier attempts took that succeeded.
    estimate_ms INTEGER,
    UNIQUE (workflow_id, name)
) STRICT;

-- The entries of the spec that jobs came from; numbers begin with 0.
CREATE TABLE family (
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- How long its jobs take, and the run in which that was measured; -1: an earlier workflow.
    estimate_ms INTEGER,
    estimate_run INTEGER,
    PRIMARY KEY (workflow_id, number)
) STRICT, WITHOUT ROWID;

-- Jobs of a workflow, in the order of their ids; those that a runner holds; those that people look for.
CREATE INDEX job_by_workflow ON job (workflow_id);
CREATE INDEX job_held ON job (workflow_id) WHERE status IN (3, 4);
CREATE INDEX job_bad ON job (workflow_id) WHERE status >= 6 AND status <> 9;

-- What running jobs have added: a repeat with the same key is answered from here.
CREATE TABLE addition (
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    lineage TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    -- Of the piece and everything else that was asked for.
    hash TEXT NOT NULL,
    job_ids TEXT NOT NULL,
    new_jobs INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    PRIMARY KEY (job_id, run_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX addition_by_lineage ON addition (workflow_id, run_id, lineage);

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
    -- Bytes that a job must write at least.
    min_size INTEGER NOT NULL DEFAULT 0 CHECK (min_size >= 0),
    mtime_ms INTEGER,
    size INTEGER,
    -- What a file that no job writes contained, where the workflow compares contents.
    hash TEXT,
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

-- What a job reads and writes; item_id is in file or user_data.
CREATE TABLE job_item (
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('input_file', 'output_file', 'input_user_data', 'output_user_data')),
    item_id INTEGER NOT NULL,
    PRIMARY KEY (job_id, kind, item_id)
) STRICT, WITHOUT ROWID;

-- Runners that serve every workflow that their token may see. They hold no job themselves: for each workflow they start a
-- runner of its own, a row of compute_node.
CREATE TABLE pool_runner (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    register_key TEXT NOT NULL UNIQUE,
    -- Whose token it has; NULL: that of the server's owner.
    user TEXT,
    hostname TEXT NOT NULL,
    pid INTEGER NOT NULL,
    capacity TEXT NOT NULL,
    label TEXT,
    started_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    end_reason TEXT,
    ordered TEXT CHECK (ordered IN ('drain', 'remove')),
    CHECK ((ended_ms IS NULL) = (end_reason IS NULL))
) STRICT;

CREATE INDEX pool_runner_live ON pool_runner (id) WHERE ended_ms IS NULL;

-- How much of the pools an owner of workflows gets beside others; 1 for those that are not here.
CREATE TABLE user_share (
    user TEXT PRIMARY KEY,
    weight REAL NOT NULL CHECK (weight > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE compute_node (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    register_key TEXT NOT NULL UNIQUE,
    hostname TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_start INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('local', 'slurm', 'recovery')),
    -- What the batch system knows it by.
    allocation_id INTEGER,
    scheduler_config_id INTEGER,
    slurm_job_id TEXT,
    node INTEGER,
    node_name TEXT,
    restarts INTEGER,
    label TEXT,
    capacity TEXT NOT NULL,
    output_dir TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    last_seen_ms INTEGER NOT NULL,
    stop_by_ms INTEGER,
    -- What it was promised: it is given up after so much silence; NULL: never by silence.
    disown_seconds INTEGER,
    ended_ms INTEGER,
    end_reason TEXT,
    -- Why, and until when, the runner gets no work although it is there.
    quarantine TEXT,
    quarantine_until_ms INTEGER,
    -- What a person asked of it.
    ordered TEXT CHECK (ordered IN ('drain', 'remove')),
    -- The pool runner that started it: all of its runners share one capacity.
    pool_runner_id INTEGER REFERENCES pool_runner(id),
    CHECK ((ended_ms IS NULL) = (end_reason IS NULL))
) STRICT;
CREATE INDEX compute_node_by_workflow ON compute_node (workflow_id, ended_ms);
CREATE INDEX compute_node_live ON compute_node (kind) WHERE ended_ms IS NULL;
CREATE INDEX compute_node_of_pool ON compute_node (pool_runner_id) WHERE ended_ms IS NULL AND pool_runner_id IS NOT NULL;

CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    state TEXT NOT NULL
        CHECK (state = 'queued' OR state = 'claimed' OR state = 'running' OR state = 'completed' OR state = 'failed'
            OR state = 'canceled' OR state = 'terminated'),
    origin TEXT NOT NULL
        CHECK (origin = 'initial' OR origin = 'handler' OR origin = 'lost' OR origin = 'classified'
            OR origin = 'manual' OR origin = 'recovered' OR origin = 'auto' OR origin = 'requeued'
            OR origin = 'revised'),
    retry_of INTEGER REFERENCES attempt(id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    not_before_ms INTEGER,
    recovery TEXT,
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
    ended_by TEXT
        CHECK (ended_by = 'runner' OR ended_by = 'recovery' OR ended_by = 'unstarted' OR ended_by = 'dropped'),
    return_code INTEGER,
    signal INTEGER,
    cause TEXT
        CHECK (cause IS NULL OR cause = 'exit' OR cause = 'signal' OR cause = 'oom' OR cause = 'timeout'
            OR cause = 'missing_output'
            OR cause = 'spawn_error' OR cause = 'lost' OR cause = 'preempted' OR cause = 'node_fail'
            OR cause = 'walltime' OR cause = 'canceled' OR cause = 'stopped' OR cause = 'checkpoint'),
    -- What exactly failed or stopped it, where the cause leaves that open: a word of EndDetail.
    detail TEXT
        CHECK (detail IS NULL OR detail = 'recovery_script' OR detail = 'told_to_stop' OR detail = 'job_timeout'
            OR detail = 'enforced_runtime' OR detail = 'step_exit' OR detail = 'step_signal'
            OR detail = 'step_timeout' OR detail = 'step_spawn' OR detail = 'step_agent' OR detail = 'step_expect'
            OR detail = 'step_validation' OR detail = 'step_capture' OR detail = 'step_variable'
            OR detail = 'step_walltime' OR detail = 'start_not_found' OR detail = 'start_denied'
            OR detail = 'start_disk_full' OR detail = 'start_quota' OR detail = 'start_limit'
            OR detail = 'start_file_system'),
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
    outcome TEXT
        CHECK (outcome IS NULL OR outcome = 'Retried' OR outcome = 'NoHandler' OR outcome = 'NoMatchingRule'
            OR outcome = 'MaxRetriesExceeded' OR outcome = 'Error'),
    decision TEXT,
    rule INTEGER,
    script TEXT,
    steps TEXT,
    -- How many events of its steps its runner has told while it ran; the report at the end has them all again.
    step_events INTEGER NOT NULL DEFAULT 0,
    -- Where the kept end of standard error begins in its file, so that evidence can name its place.
    stderr_tail_start INTEGER,
    -- What its runner saw of a failure beside that, as JSON: parts of its streams, and whether it was at work.
    observed TEXT,
    UNIQUE (job_id, run_id, attempt_id),
    CHECK ((ended_ms IS NULL) = (state = 'queued' OR state = 'claimed' OR state = 'running')),
    CHECK ((ended_ms IS NULL) = (ended_by IS NULL)),
    CHECK (state NOT IN ('claimed', 'running') OR (token IS NOT NULL AND compute_node_id IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX attempt_one_retry ON attempt (retry_of) WHERE retry_of IS NOT NULL;

-- Results in the order in which they ended, their number, and the end of the last one. With the job, the last end of
-- every job is found without reading the attempts themselves.
CREATE INDEX attempt_ended ON attempt (workflow_id, ended_ms, id, job_id) WHERE ended_ms IS NOT NULL;

-- Attempts with steps that were recovered or ignored; the others, by far the most, are not in it.
CREATE INDEX attempt_mended ON attempt (workflow_id, run_id)
WHERE steps ->> 'recovered' > 0 OR steps ->> 'ignored' > 0;

-- At most one live attempt of a job. A job belongs to one workflow, so that the same index lists those of a workflow;
-- its condition names no column that changes before the end.
CREATE UNIQUE INDEX attempt_one_live ON attempt (workflow_id, job_id) WHERE ended_ms IS NULL;

-- An attempt never goes back, and an ended one never changes, but for this: what was only known to have been stopped
-- or lost with its runner gets its cause, with the evidence. A trigger that names the columns it guards need not
-- compare rows.
CREATE TRIGGER attempt_guard BEFORE UPDATE OF
    id, workflow_id, job_id, run_id, attempt_id, state, origin, retry_of, created_ms, not_before_ms,
    recovery, compute_node_id, token, claim_key, cancel_requested, claimed_ms, started_ms,
    pid, memory_bytes, time_limit_seconds, ended_ms, ended_by, return_code, signal, detail, error, exec_seconds, cpu_seconds,
    peak_memory_bytes, avg_memory_bytes, peak_cpu_percent, avg_cpu_percent, stdout_path, stderr_path,
    stderr_tail, outcome, decision, rule, script, steps, step_events, stderr_tail_start, observed
ON attempt
WHEN OLD.ended_ms IS NOT NULL
  OR NEW.state = 'queued' AND OLD.state <> 'queued'
  OR NEW.state = 'claimed' AND OLD.state = 'running'
BEGIN
    SELECT CASE
        WHEN OLD.ended_ms IS NULL THEN RAISE(ABORT, 'an attempt never goes back')
        ELSE RAISE(ABORT, 'an ended attempt never changes')
    END;
END;

CREATE TRIGGER attempt_cause_guard BEFORE UPDATE OF cause, evidence ON attempt
WHEN OLD.ended_ms IS NOT NULL
 AND NOT (
    (OLD.cause IS 'stopped' OR OLD.cause IS 'lost')
    AND (NEW.cause IS 'preempted' OR NEW.cause IS 'node_fail' OR NEW.cause IS 'walltime')
 )
BEGIN
    SELECT RAISE(ABORT, 'an ended attempt never changes');
END;

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

-- Sessions of the page. Only hashes of their tokens are kept.
CREATE TABLE ui_session (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL CHECK (scope IN ('read', 'act')),
    label TEXT,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    -- The person's token it was made with, whose walls are its own; NULL: the owner's.
    token_id INTEGER REFERENCES token(id) ON DELETE CASCADE
) STRICT;

-- Tokens of people. Only hashes of their secrets are kept.
CREATE TABLE token (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('read', 'operate', 'admin')),
    name TEXT,
    hash TEXT NOT NULL UNIQUE,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    last_used_ms INTEGER,
    -- Good for this workflow only, or for those of this group; NULL: for all that its user may see.
    workflow_id INTEGER REFERENCES workflow(id) ON DELETE CASCADE,
    access_group_id INTEGER REFERENCES access_group(id) ON DELETE CASCADE,
    CHECK (workflow_id IS NULL OR access_group_id IS NULL),
    CHECK (role <> 'admin' OR (workflow_id IS NULL AND access_group_id IS NULL))
) STRICT;

-- Who changed what: one row per request of a person, in the transaction of the change.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    user TEXT NOT NULL,
    -- Not a reference: a token that is gone was used all the same.
    token_id INTEGER,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    request_id TEXT NOT NULL
) STRICT;

-- Named limits that jobs take one unit of (`uses`), over all workflows and runners.
CREATE TABLE named_limit (
    name TEXT PRIMARY KEY,
    max INTEGER NOT NULL CHECK (max >= 0),
    -- Since when it has this value: what was taken before says nothing about it.
    changed_ms INTEGER NOT NULL DEFAULT 0
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
    -- A program, or how a person is told.
    kind TEXT NOT NULL DEFAULT 'webhook'
        CHECK (kind IN ('webhook', 'slack', 'teams', 'ntfy', 'mail', 'command')),
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
    -- What a message to a person is about: there is one per group of events.
    group_key TEXT,
    UNIQUE (webhook_id, event_id),
    UNIQUE (webhook_id, group_key),
    CHECK ((next_try_ms IS NULL) = (state <> 'pending'))
) STRICT;
CREATE INDEX webhook_delivery_due ON webhook_delivery (next_try_ms) WHERE state = 'pending';
CREATE INDEX webhook_delivery_dead ON webhook_delivery (id) WHERE state = 'dead';

-- Allocations in Slurm. A row is written before anything is sent, so that an allocation whose submission was
-- interrupted is looked for by its name instead of being sent twice.
CREATE TABLE scheduled_compute_node (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    scheduler_id INTEGER NOT NULL REFERENCES slurm_scheduler(id) ON DELETE CASCADE,
    -- The request that made it; a repeat of the request finds it again.
    request_key TEXT NOT NULL,
    -- The job's name in Slurm. Allocations that are sent as one array share it and differ in array_task.
    name TEXT NOT NULL,
    array_task INTEGER,
    action_id INTEGER,
    start_one_worker_per_node INTEGER NOT NULL DEFAULT 0 CHECK (start_one_worker_per_node IN (0, 1)),
    max_parallel_jobs INTEGER,
    status TEXT NOT NULL CHECK (status IN ('planned', 'submitting', 'pending', 'active', 'complete')),
    -- Who is sending it, and until when nobody else may.
    submitter TEXT,
    submit_until_ms INTEGER,
    slurm_job_id TEXT,
    state TEXT,
    reason TEXT,
    cause TEXT
        CHECK (cause IS NULL OR cause = 'exit' OR cause = 'signal' OR cause = 'oom' OR cause = 'timeout'
            OR cause = 'missing_output'
            OR cause = 'spawn_error' OR cause = 'lost' OR cause = 'preempted' OR cause = 'node_fail'
            OR cause = 'walltime' OR cause = 'canceled' OR cause = 'stopped' OR cause = 'checkpoint'),
    created_ms INTEGER NOT NULL,
    submitted_ms INTEGER,
    -- When Slurm plans to start it, as far as it has said, while it waits.
    expected_start_ms INTEGER,
    started_ms INTEGER,
    ended_ms INTEGER,
    ended_as TEXT CHECK (ended_as IN ('reported', 'vanished', 'left', 'refused', 'not_sent')),
    missing_since_ms INTEGER,
    -- Since when nothing needs it; while it waits in Slurm, it is taken back.
    unneeded_since_ms INTEGER,
    -- Its jobs ran until its time was over, and none of them came to an end of its own.
    was_too_short INTEGER NOT NULL DEFAULT 0 CHECK (was_too_short IN (0, 1)),
    -- How often the batch system had started it again before its present life, where it told.
    restarts INTEGER,
    -- Grows with everything that makes an earlier look at the batch system meaningless.
    moves INTEGER NOT NULL DEFAULT 0,
    CHECK ((ended_ms IS NULL) = (status <> 'complete')),
    CHECK ((ended_as IS NULL) = (status <> 'complete')),
    CHECK (status <> 'submitting' OR (submitter IS NOT NULL AND submit_until_ms IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX scheduled_compute_node_name ON scheduled_compute_node (name, ifnull(array_task, -1));
CREATE INDEX scheduled_compute_node_by_workflow ON scheduled_compute_node (workflow_id, status);
CREATE INDEX scheduled_compute_node_live ON scheduled_compute_node (status) WHERE status <> 'complete';
CREATE INDEX scheduled_compute_node_by_key ON scheduled_compute_node (workflow_id, request_key);
CREATE INDEX scheduled_compute_node_unexplained ON scheduled_compute_node (ended_ms)
    WHERE status = 'complete' AND ended_as = 'left' AND cause IS NOT NULL;

-- Each change of a job's own memory or time, with its reason. Bytes or seconds; from_value is NULL without a limit.
CREATE TABLE adjustment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('memory', 'runtime', 'timeout', 'num_cpus', 'num_gpus')),
    from_value INTEGER,
    to_value INTEGER NOT NULL,
    why TEXT NOT NULL,
    made_by TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX adjustment_by_workflow ON adjustment (workflow_id, id);
CREATE INDEX adjustment_by_job ON adjustment (job_id, id);

-- Automatic rounds of recovery, so that their number is kept whichever program counts them.
CREATE TABLE recovery_round (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX recovery_round_by_workflow ON recovery_round (workflow_id, run_id);

-- What makes failures alike, of each attempt that ended in `pending_failed`.
CREATE TABLE failure (
    attempt INTEGER PRIMARY KEY REFERENCES attempt(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    family TEXT NOT NULL,
    kind TEXT NOT NULL,
    program TEXT NOT NULL,
    exception TEXT,
    template TEXT NOT NULL,
    -- What failures of many jobs have in common: the rule that decided, else the kind.
    cause TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX failure_by_job ON failure (job_id, run_id, fingerprint);

-- Verdicts on failures that wait for one, and what became of them.
CREATE TABLE classification (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('retry', 'fail')),
    state TEXT NOT NULL CHECK (state IN ('applied', 'held', 'rejected', 'superseded')),
    made_by TEXT NOT NULL,
    agent TEXT,
    reason TEXT,
    confidence REAL,
    evidence TEXT NOT NULL,
    -- JSON list of what changes for the next attempts: field, from, to.
    changes TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    family TEXT NOT NULL,
    note TEXT,
    created_ms INTEGER NOT NULL,
    decided_by TEXT,
    decided_ms INTEGER,
    -- The attempt whose retry tells how it went: the one that failed, or a later one that was merely lost.
    follows INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('succeeded', 'failed_same', 'failed_other', 'canceled')),
    outcome_ms INTEGER,
    CHECK ((decided_ms IS NULL) = (state = 'held')),
    CHECK ((outcome IS NULL) = (outcome_ms IS NULL))
) STRICT;
CREATE INDEX classification_by_workflow ON classification (workflow_id, id);
CREATE INDEX classification_by_job ON classification (job_id, id);
CREATE INDEX classification_open ON classification (id) WHERE action = 'retry' AND state = 'applied' AND outcome IS NULL;

-- Attempts that turned out not to be their job's fault after a rule had retried them: they do not count as its uses.
CREATE TABLE refunded_attempt (
    attempt_id INTEGER PRIMARY KEY REFERENCES attempt(id) ON DELETE CASCADE
) STRICT;

-- Retries that a recovery asked for, and how they went: what the budgets count and outcomes are learned from.
CREATE TABLE remedy (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    -- Number of the attempt that failed.
    attempt_id INTEGER NOT NULL,
    -- The attempt whose retry tells how it went: the one that failed, or a later one that was merely lost.
    follows INTEGER NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('again', 'more_memory', 'more_time')),
    made_by TEXT NOT NULL CHECK (made_by IN ('auto', 'recover', 'person')),
    cause TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    -- Its retry waits for another one of the same cause.
    waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1)),
    created_ms INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('succeeded', 'failed_same', 'failed_other', 'canceled')),
    outcome_ms INTEGER,
    CHECK ((outcome IS NULL) = (outcome_ms IS NULL))
) STRICT;
CREATE INDEX remedy_by_run ON remedy (workflow_id, run_id, made_by);
CREATE INDEX remedy_open ON remedy (id) WHERE outcome IS NULL;

-- Failures about which something was learned. Outlives the workflows it was learned from.
CREATE TABLE failure_print (
    fingerprint TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    cause TEXT NOT NULL,
    kind TEXT NOT NULL,
    program TEXT NOT NULL,
    exception TEXT,
    template TEXT NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX failure_print_by_family ON failure_print (family);
CREATE INDEX failure_print_by_cause ON failure_print (cause);

-- How retries of like failures ended, by day, so that old ones stop deciding.
CREATE TABLE failure_memory (
    fingerprint TEXT NOT NULL REFERENCES failure_print(fingerprint) ON DELETE CASCADE,
    action TEXT NOT NULL CHECK (action IN ('again', 'more_memory', 'more_time')),
    -- Days since 1970 (UTC).
    day INTEGER NOT NULL,
    -- Name of the workflow that it was learned in.
    workflow TEXT NOT NULL,
    tries INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed_same INTEGER NOT NULL,
    failed_other INTEGER NOT NULL,
    -- The most that one which succeeded needed.
    needed_bytes INTEGER,
    needed_seconds REAL,
    PRIMARY KEY (fingerprint, action, day, workflow)
) STRICT, WITHOUT ROWID;

-- Events are read by workflow and in order, and so they lie: one tree instead of three. Their numbers come from the
-- writer.
CREATE TABLE event (
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    id INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    job_id INTEGER,
    data TEXT NOT NULL,
    PRIMARY KEY (workflow_id, id)
) STRICT, WITHOUT ROWID;
