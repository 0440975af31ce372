//! Verdicts on failures.

use super::Audience;
use super::page::{self, Filter, List, Listed};
use rusqlite::Row;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::recovery::{
    ClassificationState, ClassificationView, RetryOutcome, StatedVerdict, Verdict, VerdictEnd,
};

/// A held verdict means something only while its job still waits because of that very failure.
macro_rules! still_waits {
    () => {
        "EXISTS (SELECT 1 FROM job j JOIN workflow w ON w.id = j.workflow_id WHERE j.id = c.job_id AND j.status = 10 \
         AND j.attempt_id = c.attempt_id AND w.run_id = c.run_id)"
    };
}

/// Which verdicts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassificationFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// On this job.
    pub job_id: Option<i64>,
    /// What became of them.
    pub state: Option<ClassificationState>,
}

impl Listed for ClassificationView {
    type Filter = ClassificationFilter;
    const LIST: List = List {
        rows: concat!(
            "SELECT c.*, j.name AS job_name, ",
            still_waits!(),
            " AS still_waits FROM classification c JOIN job j ON j.id = c.job_id"
        ),
        table: "classification c",
        key: "c.id",
        sorts: &[("id", "c.id"), ("job_id", "c.job_id")],
    };
    const WHAT: &'static str = "classification";

    fn conditions(filter: ClassificationFilter) -> Filter {
        let conditions = Filter::default()
            .with("c.workflow_id = ?", filter.workflow_id)
            .seen_by("c.workflow_id", &filter.audience)
            .with("c.job_id = ?", filter.job_id);
        match filter.state {
            None => conditions,
            Some(ClassificationState::Held) => {
                conditions.always("c.state = 'held'").always(concat!("", still_waits!()))
            }
            Some(ClassificationState::Superseded) => conditions.always(concat!(
                "(c.state = 'superseded' OR c.state = 'held' AND NOT ",
                still_waits!(),
                ")"
            )),
            Some(state @ (ClassificationState::Applied | ClassificationState::Rejected)) => {
                conditions.with("c.state = ?", Some(state.as_str().to_owned()))
            }
        }
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        let state = page::word(row, "state", ClassificationState::parse)?;
        let is_stale = state == ClassificationState::Held && !row.get::<_, bool>("still_waits")?;
        Ok(Self {
            id: row.get("id")?,
            workflow_id: page::id(row, "workflow_id", WorkflowId)?,
            job_id: page::id(row, "job_id", JobId)?,
            job_name: row.get("job_name")?,
            run_id: row.get("run_id")?,
            attempt_id: row.get("attempt_id")?,
            said: StatedVerdict {
                action: page::word(row, "action", Verdict::parse)?,
                by: row.get("made_by")?,
                agent: row.get("agent")?,
                reason: row.get("reason")?,
                confidence: row.get("confidence")?,
                evidence: page::json(row, "evidence")?.unwrap_or_default(),
                changes: page::json(row, "changes")?.unwrap_or_default(),
            },
            state: if is_stale { ClassificationState::Superseded } else { state },
            fingerprint: row.get("fingerprint")?,
            note: row.get("note")?,
            created_ms: row.get("created_ms")?,
            end: VerdictEnd {
                decided_by: row.get("decided_by")?,
                decided_ms: row.get("decided_ms")?,
                outcome: page::maybe_word(row, "outcome", RetryOutcome::parse)?,
                outcome_ms: row.get("outcome_ms")?,
            },
        })
    }
}
