//! What must be true of the rows: each check lists what is not, one sentence per case.

/// Who can put it right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairedBy {
    /// Recovery, as at every start of a server.
    Recovery,
    /// A statement of the doctor.
    Statement(&'static str),
    /// Only a user can.
    None,
}

/// One check.
pub struct Check {
    /// What is promised.
    pub promise: &'static str,
    /// Lists the cases in which it does not hold.
    pub sql: &'static str,
    /// How to put it right.
    pub remedy: RepairedBy,
}

/// All but the newest of several attempts that cannot live beside each other end as lost.
const END_DOUBLES: &str = "
    UPDATE attempt SET state = 'failed', ended_ms = created_ms, ended_by = 'recovery', return_code = -128, cause = 'lost', outcome = 'Error',
        error = 'crash recovery: another attempt of the same job was alive'
    WHERE state IN ('queued', 'claimed', 'running') AND EXISTS (SELECT 1 FROM attempt b WHERE b.job_id = attempt.job_id
        AND b.id > attempt.id AND b.state IN ('queued', 'claimed', 'running'))";
const CUT_DANGLING: &str = "
    DELETE FROM job_depends_on WHERE NOT EXISTS (SELECT 1 FROM job WHERE id = job_id)
        OR NOT EXISTS (SELECT 1 FROM job WHERE id = depends_on_job_id)";
const COUNT_AGAIN: &str = "
    UPDATE workflow SET job_count = (SELECT count(*) FROM job WHERE workflow_id = workflow.id
            AND status_reason IS NOT 'removed' AND afterwards IS NOT 'remove'),
        is_complete = EXISTS (SELECT 1 FROM job WHERE workflow_id = workflow.id) AND NOT EXISTS
            (SELECT 1 FROM job WHERE workflow_id = workflow.id AND status IN (0, 1, 2, 3, 4, 10))";
const EXPIRE_DOUBLES: &str = "
    UPDATE reservation SET status = 'EXPIRED', ended_ms = reserved_ms WHERE status = 'ACTIVE' AND EXISTS
        (SELECT 1 FROM reservation b WHERE b.scope = reservation.scope AND b.status = 'ACTIVE' AND b.id > reservation.id)";
const CLOSE_ENDED: &str = "
    UPDATE attempt SET ended_ms = coalesce(started_ms, claimed_ms, created_ms), ended_by = coalesce(ended_by, 'recovery')
    WHERE ended_ms IS NULL AND state NOT IN ('queued', 'claimed', 'running')";

/// Recovery has queued whatever was still to be queued; about the rest there was nothing to decide.
const SETTLE_UNDECIDED: &str = "
    UPDATE attempt SET outcome = 'Error', decision = 'crash recovery: no decision had been made, and no retry was left'
    WHERE state = 'failed' AND outcome IS NULL
    AND (SELECT status FROM job WHERE id = job_id) = 6
    AND NOT EXISTS (SELECT 1 FROM attempt b WHERE b.job_id = attempt.job_id AND b.id > attempt.id)";

/// The statements of the doctor, in the order in which they must run.
pub const STATEMENTS: &[&str] = &[CUT_DANGLING, CLOSE_ENDED, END_DOUBLES, EXPIRE_DOUBLES];
/// The last statements: what follows from everything else.
pub const LAST: &[&str] = &[SETTLE_UNDECIDED, COUNT_AGAIN];

/// Whether the clock was set back by more than a minute between two events.
pub const CLOCK_WAS_SET_BACK: &str = "
    SELECT EXISTS (SELECT 1 FROM (SELECT timestamp_ms - lag(timestamp_ms) OVER (ORDER BY id) AS step FROM event) WHERE step < -60000)";

/// Checks by recorded times, which prove nothing where the clock was set back.
pub const BY_CLOCK: &[Check] = &[
    // A retry is queued in the transaction that ends its predecessor.
    Check {
        promise: "no duplicate execution",
        sql: "SELECT 'by the recorded times, attempt ' || b.attempt_id || ' of job ' || a.job_id || ' (run ' || b.run_id ||
              ') began ' || (a.ended_ms - b.claimed_ms) || ' ms before the end of attempt ' || a.attempt_id || ' (run ' || a.run_id || ')'
              FROM attempt a JOIN attempt b ON b.job_id = a.job_id AND b.id > a.id
              WHERE a.claimed_ms IS NOT NULL AND b.claimed_ms < a.ended_ms AND b.claimed_ms >= b.created_ms",
        remedy: RepairedBy::None,
    },
    // What was given up as lost and then told of its end was alive until then.
    Check {
        promise: "no duplicate execution",
        sql: "SELECT 'attempt ' || a.attempt_id || ' of job ' || a.job_id || ' was given up, but ran for ' ||
              (e.data ->> 'ended_ms' - b.claimed_ms) || ' ms beside attempt ' || b.attempt_id || ', as its runner told later'
              FROM event e JOIN attempt a ON a.id = e.data ->> 'attempt'
              JOIN attempt b ON b.job_id = a.job_id AND b.id > a.id AND b.claimed_ms < e.data ->> 'ended_ms'
              WHERE e.kind = 'late_result'",
        remedy: RepairedBy::None,
    },
    // Only what was taken since the limit has its present value: a limit may be lowered at any time.
    Check {
        promise: "limits hold",
        sql: "WITH used AS (SELECT l.name, l.max, a.claimed_ms, a.ended_ms FROM named_limit l
                  JOIN job j ON EXISTS (SELECT 1 FROM json_each(j.extra, '$.uses') u WHERE u.value = l.name)
                  JOIN attempt a ON a.job_id = j.id WHERE a.claimed_ms > l.changed_ms),
              moves AS (SELECT name, max, claimed_ms AS at, 1 AS by FROM used
                  UNION ALL SELECT name, max, ended_ms, -1 FROM used WHERE ended_ms IS NOT NULL),
              counts AS (SELECT name, max, sum(by) OVER (PARTITION BY name ORDER BY at, by ROWS UNBOUNDED PRECEDING) AS used
                  FROM moves)
              SELECT 'limit `' || name || '` is ' || max || '; by the recorded times, ' || max(used) || ' attempts had it at once'
              FROM counts WHERE used > max GROUP BY name, max",
        remedy: RepairedBy::None,
    },
];

/// Every other check.
pub const CHECKS: &[Check] = &[
    Check {
        promise: "no lost job",
        sql: "SELECT 'job ' || id || ' (' || name || ') is ready, but nothing is queued for it' FROM job j WHERE status = 2
              AND NOT EXISTS (SELECT 1 FROM attempt WHERE job_id = j.id AND state = 'queued')",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "no lost job",
        sql: "SELECT 'job ' || id || ' (' || name || ') is pending or running, but has no such attempt' FROM job j
              WHERE status IN (3, 4)
              AND NOT EXISTS (SELECT 1 FROM attempt WHERE job_id = j.id AND state IN ('claimed', 'running'))",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "no lost job",
        sql: "SELECT 'job ' || j.id || ' (' || j.name || ') is blocked, but all its dependencies have completed' FROM job j
              JOIN workflow w ON w.id = j.workflow_id
              WHERE j.status = 1 AND NOT j.is_expanded AND NOT w.is_canceled
              AND EXISTS (SELECT 1 FROM job_depends_on d WHERE d.workflow_id = j.workflow_id AND d.job_id = j.id)
              AND NOT EXISTS (SELECT 1 FROM job_depends_on d JOIN job p ON p.id = d.depends_on_job_id
                  WHERE d.workflow_id = j.workflow_id AND d.job_id = j.id AND p.status NOT IN (5, 9))",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "no lost job",
        sql: "SELECT 'job ' || job_id || ' depends on job ' || depends_on_job_id || ', and one of them is not there'
              FROM job_depends_on d WHERE NOT EXISTS (SELECT 1 FROM job WHERE id = d.job_id)
              OR NOT EXISTS (SELECT 1 FROM job WHERE id = d.depends_on_job_id)",
        remedy: RepairedBy::Statement(CUT_DANGLING),
    },
    Check {
        promise: "no ghost",
        sql: "SELECT 'attempt ' || a.id || ' of job ' || a.job_id || ' is ' || a.state || ' on runner ' ||
              coalesce(a.compute_node_id, '(none)') || ', which has ended' FROM attempt a
              LEFT JOIN compute_node c ON c.id = a.compute_node_id
              WHERE a.state IN ('claimed', 'running') AND (c.id IS NULL OR c.ended_ms IS NOT NULL)",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "no duplicate execution",
        sql: "SELECT 'job ' || job_id || ' has ' || count(*) || ' live attempts' FROM attempt
              WHERE state IN ('queued', 'claimed', 'running') GROUP BY job_id HAVING count(*) > 1",
        remedy: RepairedBy::Statement(END_DOUBLES),
    },
    Check {
        promise: "no duplicate execution",
        sql: "SELECT 'attempt ' || a.id || ' is ' || a.state || ', but its job ' || j.id || ' has status ' || j.status
              FROM attempt a JOIN job j ON j.id = a.job_id
              WHERE a.state IN ('queued', 'claimed', 'running') AND j.status NOT IN (2, 3, 4)",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "no duplicate execution",
        sql: "SELECT 'job ' || job_id || ' has attempt ' || attempt_id || ' of run ' || run_id || ' ' || count(*) || ' times'
              FROM attempt GROUP BY job_id, run_id, attempt_id HAVING count(*) > 1",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "no lost retry",
        sql: "SELECT 'job ' || j.id || ' (' || j.name || ') failed, and it was not decided what follows' FROM job j
              JOIN attempt a ON a.job_id = j.id WHERE j.status = 6 AND a.state = 'failed' AND a.outcome IS NULL
              AND NOT EXISTS (SELECT 1 FROM attempt b WHERE b.job_id = j.id AND b.id > a.id)",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "one retry of an attempt",
        sql: "SELECT 'attempt ' || retry_of || ' was retried ' || count(*) || ' times' FROM attempt
              WHERE retry_of IS NOT NULL GROUP BY retry_of HAVING count(*) > 1",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "attempts are numbered without a gap",
        sql: "SELECT 'job ' || job_id || ' has ' || count(*) || ' attempts in run ' || run_id || ', numbered ' ||
              min(attempt_id) || ' to ' || max(attempt_id)
              FROM attempt GROUP BY job_id, run_id HAVING min(attempt_id) <> 1 OR max(attempt_id) <> count(*)",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "an ended attempt has an end",
        sql: "SELECT 'attempt ' || id || ' is ' || state || ' and its end is ' || coalesce(ended_ms, 'missing') FROM attempt
              WHERE (ended_ms IS NULL) <> (state IN ('queued', 'claimed', 'running'))",
        remedy: RepairedBy::Statement(CLOSE_ENDED),
    },
    Check {
        promise: "fencing",
        sql: "SELECT 'attempt ' || id || ' is ' || state || ' without a token or a runner' FROM attempt
              WHERE state IN ('claimed', 'running') AND (token IS NULL OR compute_node_id IS NULL)",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "acknowledged is final",
        sql: "SELECT 'job ' || j.id || ' (' || j.name || ') has status ' || j.status || ', but attempt ' || a.attempt_id ||
              ' of this run completed' FROM job j JOIN workflow w ON w.id = j.workflow_id
              JOIN attempt a ON a.job_id = j.id AND a.run_id = w.run_id
              WHERE a.state = 'completed' AND j.status IN (3, 4, 6, 8, 10)
              -- The attempt of a map only finds its items; they are why it fails.
              AND NOT (j.status = 6 AND j.status_reason IS 'too_many_items_failed')
              AND NOT EXISTS (SELECT 1 FROM attempt b WHERE b.job_id = j.id AND b.id > a.id)",
        remedy: RepairedBy::Recovery,
    },
    Check {
        promise: "a child starts after its parents",
        sql: "SELECT 'attempt ' || a.id || ' of job ' || a.job_id || ' is ' || a.state || ', but job ' || p.id ||
              ', which it depends on, has not ended' FROM attempt a
              JOIN job_depends_on d ON d.workflow_id = a.workflow_id AND d.job_id = a.job_id
              JOIN job p ON p.id = d.depends_on_job_id
              WHERE a.state IN ('claimed', 'running') AND p.status IN (0, 1, 2, 3, 4, 10)",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "budgets hold",
        sql: "SELECT 'job ' || id || ' (' || name || ') was tried again after ' || lost_retries || ' losses; allowed are ' ||
              coalesce(extra ->> 'max_lost_retries', 3) FROM job
              WHERE lost_retries > coalesce(extra ->> 'max_lost_retries', 3)",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "one reservation per scope",
        sql: "SELECT 'scope `' || scope || '` has ' || count(*) || ' active reservations' FROM reservation
              WHERE status = 'ACTIVE' GROUP BY scope HAVING count(*) > 1",
        remedy: RepairedBy::Statement(EXPIRE_DOUBLES),
    },
    Check {
        promise: "an ended attempt has its event",
        sql: "SELECT 'attempt ' || a.attempt_id || ' of job ' || a.job_id || ' in run ' || a.run_id || ' is ' || a.state ||
              ', but no event tells of it' FROM attempt a LEFT JOIN
              (SELECT DISTINCT job_id, data ->> 'run_id' AS run, data ->> 'attempt_id' AS number
               FROM event WHERE job_id IS NOT NULL AND kind IN ('job_completed', 'job_failed', 'job_terminated', 'job_retried',
                   'job_pending_failed', 'job_canceled', 'items_expanded')) e
              ON e.job_id = a.job_id AND e.run = a.run_id AND e.number = a.attempt_id
              WHERE a.state IN ('completed', 'failed', 'terminated') AND e.job_id IS NULL",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "an event has its webhooks",
        sql: "SELECT 'event ' || e.id || ' (' || e.kind || ') has no delivery for webhook ' || w.id FROM webhook w
              JOIN event e ON (w.workflow_id IS NULL OR w.workflow_id = e.workflow_id) AND e.timestamp_ms > w.created_ms
              JOIN (SELECT 'job_completed' AS kind, 'job.run.completed' AS name UNION ALL SELECT 'job_failed', 'job.run.failed'
                    UNION ALL SELECT 'job_terminated', 'job.run.failed'
                    UNION ALL SELECT 'workflow_completed', 'workflow.completed') n ON n.kind = e.kind
              WHERE w.kind = 'webhook' AND (w.events = '[]' OR instr(w.events, '\"' || n.name || '\"'))
              AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.event_id = e.id)",
        remedy: RepairedBy::None,
    },
    Check {
        promise: "a workflow is complete when all its jobs have ended",
        sql: "SELECT 'workflow ' || id || ' says ' || iif(is_complete, 'complete', 'not complete') || ', its jobs do not'
              FROM workflow w WHERE job_count > 0 AND is_complete = EXISTS
                  (SELECT 1 FROM job WHERE workflow_id = w.id AND status IN (0, 1, 2, 3, 4, 10))",
        remedy: RepairedBy::Statement(COUNT_AGAIN),
    },
    Check {
        promise: "a workflow knows its jobs",
        sql: "SELECT 'workflow ' || id || ' says ' || job_count || ' jobs, there are ' ||
              (SELECT count(*) FROM job WHERE workflow_id = w.id AND status_reason IS NOT 'removed'
                  AND afterwards IS NOT 'remove') FROM workflow w
              WHERE job_count <> (SELECT count(*) FROM job WHERE workflow_id = w.id AND status_reason IS NOT 'removed'
                  AND afterwards IS NOT 'remove')",
        remedy: RepairedBy::Statement(COUNT_AGAIN),
    },
];
