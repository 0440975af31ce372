-- Version 2: allocations in Slurm. A row is written before anything is sent, so that an allocation whose submission
-- was interrupted is looked for by its name instead of being sent twice.

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
    cause TEXT,
    created_ms INTEGER NOT NULL,
    submitted_ms INTEGER,
    started_ms INTEGER,
    ended_ms INTEGER,
    missing_since_ms INTEGER,
    CHECK ((ended_ms IS NULL) = (status <> 'complete')),
    CHECK (status <> 'submitting' OR (submitter IS NOT NULL AND submit_until_ms IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX scheduled_compute_node_name ON scheduled_compute_node (name, ifnull(array_task, -1));
CREATE INDEX scheduled_compute_node_by_workflow ON scheduled_compute_node (workflow_id, status);
CREATE INDEX scheduled_compute_node_by_key ON scheduled_compute_node (workflow_id, request_key);
