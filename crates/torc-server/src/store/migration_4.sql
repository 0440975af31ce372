-- Version 4: verdicts on failures that wait for one, and what became of them.

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
    template TEXT NOT NULL
) STRICT;
CREATE INDEX failure_by_job ON failure (job_id, run_id, fingerprint);

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

-- How retries of like failures ended. Outlives the workflows it was learned from.
CREATE TABLE failure_memory (
    fingerprint TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('again', 'more_memory', 'more_time')),
    family TEXT NOT NULL,
    tries INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed_same INTEGER NOT NULL,
    failed_other INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, action)
) STRICT, WITHOUT ROWID;
CREATE INDEX failure_memory_by_family ON failure_memory (family);
