-- Version 8: indexes that stay as they are while jobs move along.

-- Jobs of a workflow, in the order of their ids; those that somebody holds; those that people look for.
DROP INDEX job_by_status;
CREATE INDEX job_by_workflow ON job (workflow_id);
CREATE INDEX job_held ON job (workflow_id) WHERE status IN (3, 4);
CREATE INDEX job_bad ON job (workflow_id) WHERE status IN (6, 7, 8, 10);

-- At most one live attempt of a job. A job belongs to one workflow, so that the same index lists those of a workflow; its
-- condition names no column that changes before the end.
DROP INDEX attempt_one_live;
DROP INDEX attempt_live;
CREATE UNIQUE INDEX attempt_one_live ON attempt (workflow_id, job_id) WHERE ended_ms IS NULL;
