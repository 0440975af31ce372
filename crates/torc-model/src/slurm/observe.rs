//! From answers to a verdict about one allocation.

use super::state::{AllocationEnding, AllocationPhase, Verdict};
use super::{sacct, squeue};

/// An allocation must be missing for this long, seen by at least two looks, before it counts as
/// gone.
pub const VANISHED_AFTER_MS: i64 = 5_000;

/// What we know of an allocation ourselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// `123` or `123_4`; `None` when the submission's answer was lost.
    pub slurm_job_id: Option<String>,
    /// Its unique name.
    pub name: String,
    /// Its place in an array, when it was submitted as one.
    pub array_task: Option<i64>,
    /// Since when looks have not found it, ms since 1970.
    pub missing_since_ms: Option<i64>,
    /// A runner in it has reported.
    pub has_started: bool,
}

/// What one look at Slurm brought about one allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// Where it stands.
    pub verdict: Verdict,
    /// The id that Slurm knows it by, if it was found.
    pub slurm_job_id: Option<String>,
    /// It was not found; the caller keeps the first time this happened.
    pub is_missing: bool,
    /// It waits again, and accounting tells how it ended before.
    pub before: Option<AllocationEnding>,
    /// It waits, and this is when Slurm plans to start it, as Slurm prints it: in the time zone of
    /// the machine that asked.
    pub start: Option<String>,
}

impl Look {
    /// It could not be looked at.
    pub fn unknown(why: &str) -> Self {
        let verdict = Verdict::Unknown { why: why.to_owned() };
        Self { verdict, slurm_job_id: None, is_missing: false, before: None, start: None }
    }
}

/// Judges one allocation. Ids alone prove nothing: Slurm gives them away again after it lost its
/// state.
pub fn observe(
    known: &Known,
    queue: &squeue::Answer,
    accounting: Option<&sacct::Answer>,
    now_ms: i64,
) -> Look {
    let rows = match queue {
        squeue::Answer::Rows(rows) => rows,
        squeue::Answer::Unreachable(why) => {
            return Look::unknown(why);
        }
    };
    let is_it = |row: &&squeue::Row| {
        row.is_of(&known.name)
            && match &known.slurm_job_id {
                Some(id) => row.id == *id,
                None => task_of(&row.id) == known.array_task,
            }
    };
    if let Some(row) = rows.iter().find(is_it) {
        let verdict = row.verdict();
        let before = match (&verdict, accounting) {
            (
                Verdict::Alive { phase: AllocationPhase::Waiting, .. },
                Some(sacct::Answer::Records(records)),
            ) => sacct::last_life(records, &row.id, &known.name),
            _ => None,
        };
        let waits = matches!(verdict, Verdict::Alive { phase: AllocationPhase::Waiting, .. });
        let is_planned = waits && row.start.starts_with(|c: char| c.is_ascii_digit());
        return Look {
            verdict,
            slurm_job_id: Some(row.id.clone()),
            is_missing: false,
            before,
            start: is_planned.then(|| row.start.clone()),
        };
    }
    // Tasks of an array that was canceled before they started have no line of their own: the
    // array's speaks for them.
    let is_its_array = |row: &&squeue::Row| {
        let array =
            known.slurm_job_id.as_deref().and_then(|id| id.split_once('_')).map(|(array, _)| array);
        row.is_of(&known.name)
            && Some(row.id.as_str()) == array
            && matches!(row.verdict(), Verdict::Ended(_))
    };
    if let Some(row) = rows.iter().find(is_its_array) {
        return Look {
            verdict: row.verdict(),
            slurm_job_id: None,
            is_missing: false,
            before: None,
            start: None,
        };
    }
    let missing =
        |verdict| Look { verdict, slurm_job_id: None, is_missing: true, before: None, start: None };
    if let (Some(id), Some(sacct::Answer::Records(records))) = (&known.slurm_job_id, accounting)
        && let Some(record) = sacct::newest(records, id, &known.name)
        && let Verdict::Ended(ending) = record.verdict()
    {
        return missing(Verdict::Ended(ending));
    }
    match known.missing_since_ms {
        Some(since) if now_ms.saturating_sub(since) >= VANISHED_AFTER_MS => {
            missing(Verdict::Ended(AllocationEnding::vanished()))
        }
        _ => missing(Verdict::Unknown {
            why: "not in Slurm's queue; a second look will tell".into(),
        }),
    }
}

/// The task number in `123_4`.
fn task_of(id: &str) -> Option<i64> {
    id.split_once('_').and_then(|(_, task)| task.parse().ok())
}

/// A requeued allocation waits again: nothing of its earlier life runs any more.
pub fn has_no_process(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Ended(_) => true,
        Verdict::Alive { phase, .. } => *phase == AllocationPhase::Waiting,
        Verdict::Unknown { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Cause;

    fn known(id: &str, name: &str) -> Known {
        Known {
            slurm_job_id: Some(id.into()),
            name: name.into(),
            array_task: None,
            missing_since_ms: None,
            has_started: false,
        }
    }

    fn rows(text: &str) -> squeue::Answer {
        squeue::read(Some(0), text, "")
    }

    #[test]
    fn an_unreachable_controller_is_unknown() {
        let look = observe(&known("5", "a"), &squeue::read(None, "", ""), None, 0);
        assert!(matches!(look.verdict, Verdict::Unknown { .. }) && !look.is_missing);
    }

    #[test]
    fn missing_once_is_unknown_and_missing_for_a_while_is_gone() {
        let empty = rows("");
        let mut allocation = known("5", "a");
        let first = observe(&allocation, &empty, None, 1_000);
        assert!(first.is_missing && matches!(first.verdict, Verdict::Unknown { .. }));
        allocation.missing_since_ms = Some(1_000);
        assert!(matches!(
            observe(&allocation, &empty, None, 2_000).verdict,
            Verdict::Unknown { .. }
        ));
        assert_eq!(
            observe(&allocation, &empty, None, 6_000).verdict,
            Verdict::Ended(AllocationEnding::vanished())
        );
    }

    #[test]
    fn a_reused_id_is_not_ours() {
        let other = rows("5|RUNNING|n1|x|y|z|other|None\n");
        assert!(observe(&known("5", "a"), &other, None, 0).is_missing);
    }

    #[test]
    fn a_lost_submission_is_found_by_name_and_task() {
        let queue = rows("7_0|PENDING||x|y|z|torc|Resources\n7_1|RUNNING|n1|x|y|z|torc|None\n");
        let mut allocation = known("", "torc");
        allocation.slurm_job_id = None;
        allocation.array_task = Some(1);
        let look = observe(&allocation, &queue, None, 0);
        assert_eq!(look.slurm_job_id.as_deref(), Some("7_1"));
        assert!(matches!(look.verdict, Verdict::Alive { phase: AllocationPhase::Running, .. }));
    }

    #[test]
    fn a_canceled_array_speaks_for_its_tasks() {
        // As 22.05 shows it, with `-r`, when all tasks were canceled before they started.
        let queue = rows("13|CANCELLED||x|y|z|torc|Resources\n");
        let look = observe(&known("13_2", "torc"), &queue, None, 0);
        assert!(matches!(look.verdict, Verdict::Ended(_)) && !look.is_missing, "{look:?}");
        assert!(observe(&known("13_2", "other"), &queue, None, 0).is_missing);
        assert!(observe(&known("14_2", "torc"), &queue, None, 0).is_missing);
    }

    #[test]
    fn a_planned_start_is_told_of_what_waits_only() {
        let start = |state: &str, start: &str| {
            let queue = rows(&format!("5|{state}||x|y|{start}|a|Priority\n"));
            observe(&known("5", "a"), &queue, None, 0).start
        };
        let time = "2026-11-15T19:00:00";
        assert_eq!(start("PENDING", time).as_deref(), Some(time));
        assert_eq!(start("PENDING", "N/A"), None);
        assert_eq!(start("RUNNING", time), None, "that is when it began");
    }

    #[test]
    fn accounting_tells_how_a_requeued_allocation_ended_before() {
        let queue = rows("5|PENDING||x|y|2026-11-15T19:00:00|a|BeginTime\n");
        let ask = |lives: &str| {
            let text = format!("JobID|JobName|Partition|State|End\n{lives}");
            observe(&known("5", "a"), &queue, Some(&sacct::read(Some(0), &text, "")), 0)
                .before
                .map(|e| e.state)
        };
        let (first, second) = (
            "5|a|main|PREEMPTED|2026-11-15T18:34:51\n",
            "5|a|main|NODE_FAIL|2026-11-15T18:40:00\n",
        );
        let (runs, waits) = ("5|a|main|RUNNING|Unknown\n", "5|a|main|PENDING|Unknown\n");
        assert_eq!(
            ask(&format!("{first}5.batch|batch||CANCELLED|2026-11-15T18:34:52\n{waits}"))
                .as_deref(),
            Some("PREEMPTED")
        );
        assert_eq!(ask(&format!("{first}{second}{waits}")).as_deref(), Some("NODE_FAIL"));
        // Accounting is late: what it knows is about an earlier life.
        assert_eq!(ask(&format!("{first}{runs}")), None);
        assert_eq!(ask("5|a|main|REQUEUED|2026-11-15T18:34:51\n5|a|main|PENDING|Unknown\n"), None);
        assert_eq!(
            ask("5|other|main|PREEMPTED|2026-11-15T18:34:51\n5|a|main|PENDING|Unknown\n"),
            None
        );
    }

    #[test]
    fn accounting_counts_only_when_it_is_settled() {
        let early = "JobID|JobName|Partition|State|End\n5|allocation||FAILED|2026-11-15T18:30:32\n";
        let late = "JobID|JobName|Partition|State|End\n5|a|main|NODE_FAIL|2026-11-15T18:30:32\n";
        let ask = |text: &str| {
            observe(&known("5", "a"), &rows(""), Some(&sacct::read(Some(0), text, "")), 0).verdict
        };
        assert!(matches!(ask(early), Verdict::Unknown { .. }));
        assert!(matches!(ask(late), Verdict::Ended(e) if e.cause == Cause::NodeFail));
    }
}
