-- Version 3: recovery. What it changed for jobs, its automatic rounds, and runners that get no more work.

-- Each change of a job's own memory or time, with its reason. Bytes or seconds; from_value is NULL without a limit.
CREATE TABLE adjustment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('memory', 'runtime', 'timeout')),
    from_value INTEGER,
    to_value INTEGER NOT NULL,
    why TEXT NOT NULL,
    made_by TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX adjustment_by_workflow ON adjustment (workflow_id, id);
CREATE INDEX adjustment_by_job ON adjustment (job_id, id);

-- Automatic rounds of recovery, so that their number is kept whoever counts them.
CREATE TABLE recovery_round (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow(id) ON DELETE CASCADE,
    run_id INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX recovery_round_by_workflow ON recovery_round (workflow_id, run_id);

-- Why a runner gets no more work although it is there.
ALTER TABLE compute_node ADD COLUMN quarantine TEXT;
