-- Version 10: Slurm may say only after a runner has left why it had to.

-- Its jobs ran until its time was over, and none of them came to an end of its own.
ALTER TABLE scheduled_compute_node ADD COLUMN was_too_short INTEGER NOT NULL DEFAULT 0 CHECK (was_too_short IN (0, 1));
CREATE INDEX scheduled_compute_node_unexplained ON scheduled_compute_node (ended_ms)
    WHERE status = 'complete' AND state = 'LEFT' AND cause IS NOT NULL;

-- An ended attempt never changes, but for this: what was only known to have been stopped or lost with its runner gets its
-- cause, with the evidence.
DROP TRIGGER attempt_ended_is_frozen;
CREATE TRIGGER attempt_ended_is_frozen BEFORE UPDATE ON attempt
WHEN OLD.state IN ('completed', 'failed', 'canceled', 'terminated')
 AND NOT (
    OLD.cause IN ('stopped', 'lost') AND NEW.cause IN ('preempted', 'node_fail', 'walltime')
    AND (NEW.id, NEW.workflow_id, NEW.job_id, NEW.run_id, NEW.attempt_id, NEW.state, NEW.origin, NEW.retry_of, NEW.created_ms,
         NEW.not_before_ms, NEW.recovery, NEW.waits_for_node, NEW.compute_node_id, NEW.token, NEW.claim_key,
         NEW.cancel_requested, NEW.claimed_ms, NEW.started_ms, NEW.pid, NEW.memory_bytes, NEW.time_limit_seconds,
         NEW.ended_ms, NEW.return_code, NEW.signal, NEW.error, NEW.exec_seconds, NEW.cpu_seconds, NEW.peak_memory_bytes,
         NEW.avg_memory_bytes, NEW.peak_cpu_percent, NEW.avg_cpu_percent, NEW.stdout_path, NEW.stderr_path,
         NEW.stderr_tail, NEW.outcome, NEW.decision, NEW.rule, NEW.script, NEW.steps, NEW.step_events,
         NEW.stderr_tail_start)
     IS (OLD.id, OLD.workflow_id, OLD.job_id, OLD.run_id, OLD.attempt_id, OLD.state, OLD.origin, OLD.retry_of, OLD.created_ms,
         OLD.not_before_ms, OLD.recovery, OLD.waits_for_node, OLD.compute_node_id, OLD.token, OLD.claim_key,
         OLD.cancel_requested, OLD.claimed_ms, OLD.started_ms, OLD.pid, OLD.memory_bytes, OLD.time_limit_seconds,
         OLD.ended_ms, OLD.return_code, OLD.signal, OLD.error, OLD.exec_seconds, OLD.cpu_seconds, OLD.peak_memory_bytes,
         OLD.avg_memory_bytes, OLD.peak_cpu_percent, OLD.avg_cpu_percent, OLD.stdout_path, OLD.stderr_path,
         OLD.stderr_tail, OLD.outcome, OLD.decision, OLD.rule, OLD.script, OLD.steps, OLD.step_events,
         OLD.stderr_tail_start)
 )
BEGIN
    SELECT RAISE(ABORT, 'an ended attempt never changes');
END;
