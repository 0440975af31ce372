//! Memory against rows: which differences count.

use super::*;
use torc_model::status::{JobStatus, StatusReason};

/// Two jobs, one after the other, and the same as its rows would tell it.
fn pair() -> (Workflow, Workflow) {
    let mut flow = Chronicle::plain(vec![job(&[]), job(&[0])]).flow;
    flow.initialize(0);
    (flow.clone(), flow)
}

/// The same with other ranks.
fn ranked(mut flow: Workflow) -> Workflow {
    flow.restore_times(None, vec![FamilyTime { ms: 900_000, run: 0 }]);
    flow.settle();
    flow
}

fn set(flow: &mut Workflow, at: usize, status: JobStatus) {
    flow.jobs.set_status(ix(at), status, None);
}

#[test]
fn workflows_with_other_numbers_of_jobs_differ() {
    let (memory, mut rows) = pair();
    assert_eq!(memory.difference(&rows), None);
    rows.add_job(but(job(&[]), |job| job.id = JobId(9)));
    assert!(memory.difference(&rows).expect("one more").contains("number of jobs"));
}

#[test]
fn ranks_count_for_jobs_that_may_still_be_claimed_unless_they_are_left_out() {
    let (memory, rows) = pair();
    let rows = ranked(rows);
    assert!(memory.difference(&rows).expect("other ranks").contains("`rank` of job 1"));
    assert_eq!(memory.difference_besides_ranks(&rows), None);
    assert!(memory.difference_besides_ranks(&Chronicle::plain(vec![job(&[])]).flow).is_some());
}

#[test]
fn ranks_of_jobs_that_have_begun_or_whose_dependents_have_do_not_count() {
    for (first, second) in [
        (JobStatus::Completed, JobStatus::Completed),
        (JobStatus::Running, JobStatus::Completed),
        (JobStatus::Blocked, JobStatus::Completed),
        (JobStatus::Blocked, JobStatus::Running),
    ] {
        let (mut memory, mut rows) = pair();
        rows = ranked(rows);
        for flow in [&mut memory, &mut rows] {
            set(flow, 0, first);
            set(flow, 1, second);
            flow.jobs[ix(0)].unmet = 0;
        }
        assert_eq!(memory.difference(&rows), None, "{first} {second}");
    }
}

#[test]
fn the_number_of_attempts_counts_except_where_rows_cannot_tell_it() {
    let differs = |status, reason, numbers: (u32, u32), run| {
        let (mut memory, mut rows) = pair();
        for (flow, number) in [(&mut memory, numbers.0), (&mut rows, numbers.1)] {
            flow.jobs.set_status(ix(0), status, reason);
            flow.jobs[ix(0)].tries.number = number;
            flow.jobs[ix(0)].tries.run = run;
        }
        memory.difference(&rows).is_some_and(|text| text.contains("`attempt`"))
    };
    let (canceled, disabled) = (JobStatus::Canceled, JobStatus::Disabled);
    assert!(!differs(canceled, None, (1, 0), 1), "canceled while it waited for a verdict");
    assert!(differs(canceled, None, (2, 0), 1));
    assert!(differs(JobStatus::Failed, None, (1, 0), 1));
    let removed = Some(StatusReason::Removed);
    assert!(!differs(disabled, removed, (3, 1), 0), "removed in an earlier run");
    assert!(differs(disabled, removed, (3, 1), 1));
    assert!(differs(disabled, None, (3, 1), 0));
}
