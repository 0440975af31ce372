//! What a new revision does to single jobs: those that are added, changed, accepted and run again.

use super::*;
use serde_json::{Value, json};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::status::{Afterwards, Cause, JobStatus, RunningJobs, StatusReason};

fn new(id: i64, parents: &[usize]) -> NewJob {
    but(job(parents), |job| (job.id, job.position) = (JobId(id), id))
}

/// A change that changes nothing.
fn changed(at: usize) -> ChangedJob {
    ChangedJob {
        index: ix(at),
        priority: 0,
        family: 0,
        class: Class { cpus: 1, nodes: 1, ..Class::default() },
        handler: None,
        cancel_on_failure: true,
        max_lost: 1,
        parents: None,
    }
}

fn change(c: &mut Chronicle, job: ChangedJob) {
    let revision = Revision { changed: vec![job], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
}

fn begun(jobs: Vec<NewJob>) -> Chronicle {
    let mut c = Chronicle::plain(jobs);
    c.flow.initialize(0);
    c
}

/// The data of the events of this kind.
fn told(flow: &mut Workflow, kind: EventKind) -> Vec<Value> {
    let changes = flow.take_changes().into_iter();
    let data = |change| match change {
        Change::Event { kind: of, data, .. } if of == kind => Some(data),
        _ => None,
    };
    changes.filter_map(data).collect()
}

#[test]
fn the_next_run_begins_when_more_runs_than_was_accepted_as_it_is() {
    for (added, again, accepted, run) in
        [(1, 0, 1, 1), (2, 0, 1, 2), (0, 1, 0, 2), (1, 1, 1, 2), (2, 0, 2, 1), (0, 0, 0, 1)]
    {
        let mut c = begun(vec![job(&[])]);
        c.finish();
        let jobs = (0..added).map(|nth| new(2 + nth, &[])).collect();
        let revision = Revision {
            added: jobs,
            again: vec![ix(0); again],
            accepted: (1..=accepted).map(ix).collect(),
            ..Revision::default()
        };
        c.flow.revise(revision, c.now).expect("it is over");
        assert_eq!(c.flow.run, run, "{added} added, {again} again, {accepted} accepted");
        assert_eq!(c.flow.is_complete(), run == 1);
    }
}

#[test]
fn an_accepted_job_counts_as_done_and_what_waits_for_it_goes_ahead() {
    let mut c = begun(vec![job(&[])]);
    c.flow.take_changes();
    let added = vec![new(2, &[]), new(3, &[1])];
    let accepted = vec![ix(1)];
    c.flow.revise(Revision { added, accepted, ..Revision::default() }, 0).expect("it is live");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Ready, Completed, Ready]);
    assert_eq!(c.flow.job(ix(1)).reason(), Some(StatusReason::Accepted));
}

#[test]
fn a_revision_tells_how_many_jobs_it_is_about_and_a_run_how_many_begin_with_it() {
    let mut c = begun(vec![job(&[]); 6]);
    c.finish();
    c.flow.take_changes();
    let revision = Revision {
        added: vec![new(7, &[]), new(8, &[]), new(9, &[]), new(10, &[]), new(11, &[])],
        changed: vec![changed(0), changed(1), changed(2)],
        removed: vec![ix(3)],
        again: vec![ix(4), ix(5)],
        ..Revision::default()
    };
    c.flow.revise(revision, c.now).expect("it is over");
    let changes = c.flow.take_changes();
    let data = |kind| {
        changes.iter().find_map(|change| match change {
            Change::Event { kind: of, data, .. } if *of == kind => Some(data.clone()),
            _ => None,
        })
    };
    let counts = json!({"added": 5, "changed": 3, "removed": 1, "again": 2, "accepted": 0});
    assert_eq!(data(EventKind::WorkflowRevised), Some(counts));
    assert_eq!(data(EventKind::WorkflowStarted), Some(json!({"run_id": 2, "jobs": 7})));
}

#[test]
fn a_workflow_that_is_being_canceled_takes_no_revision_until_its_jobs_have_ended() {
    let mut c = begun(vec![job(&[])]);
    assert_eq!(c.take(1, 1), [0]);
    c.flow.started(ix(0), 1, c.now);
    c.flow.cancel(c.now);
    let added = || Revision { added: vec![new(2, &[])], ..Revision::default() };
    let refused = c.flow.revise(added(), c.now).expect_err("a job runs");
    assert_eq!(refused.code, ErrorCode::BeingCanceled);
    assert_eq!(c.flow.jobs().count(), 1);
    c.end(0, Some(Cause::Canceled), 143);
    assert!(c.flow.revise(added(), c.now).is_ok());
}

#[test]
fn a_changed_job_is_run_by_what_it_is_from_then_on() {
    let mut c = begun(vec![job(&[]), job(&[]), job(&[1])]);
    change(&mut c, ChangedJob { priority: 5, cancel_on_failure: false, ..changed(1) });
    assert_eq!(c.take(1, 1), [1], "it comes first now");
    c.end(1, Some(Cause::Exit), 1);
    let large = Class { cpus: 3, nodes: 1, ..Class::default() };
    change(&mut c, ChangedJob { class: large, max_lost: 0, ..changed(0) });
    assert!(c.take(1, 2).is_empty());
    assert_eq!(c.take(1, 3), [0]);
    c.lose(1);
    assert_eq!(c.flow.job(ix(0)).status(), JobStatus::Failed, "no loss is borne any more");
}

#[test]
fn a_job_that_no_longer_cares_runs_although_what_it_waits_for_fails() {
    let mut c = begun(vec![job(&[]), job(&[0])]);
    change(&mut c, ChangedJob { cancel_on_failure: false, ..changed(1) });
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, Some(Cause::Exit), 1);
    assert_eq!(c.take(1, 1), [1]);
}

#[test]
fn a_held_attempt_gives_back_what_it_took_when_its_job_needs_something_else_meanwhile() {
    let uses = |name: &str| Class {
        uses: vec![name.to_owned()],
        ..Class { cpus: 1, nodes: 1, ..Class::default() }
    };
    let mut c = begun(vec![but(job(&[]), |job| job.class = uses("old"))]);
    for name in ["old", "new"] {
        c.limits.insert(name.into(), LimitUse { max: 1, ..LimitUse::default() });
    }
    assert_eq!(c.take(1, 1), [0]);
    change(&mut c, ChangedJob { class: uses("new"), ..changed(0) });
    let used = |c: &Chronicle| (c.limits["old"].used, c.limits["new"].used);
    assert_eq!(used(&c), (1, 0));
    c.lose(1);
    assert_eq!(used(&c), (0, 0));
    assert_eq!(c.take(1, 1), [0]);
    assert_eq!(used(&c), (0, 1));
}

#[test]
fn a_ready_job_waits_for_new_parents_that_are_not_done() {
    let mut c = begun(vec![job(&[]), job(&[])]);
    change(&mut c, ChangedJob { parents: Some(vec![ix(0)]), ..changed(1) });
    assert_eq!(statuses(&c.flow), [JobStatus::Ready, JobStatus::Blocked]);
    assert_eq!(c.take(1, 9), [0]);
    c.end(0, None, 0);
    assert_eq!(c.take(1, 9), [1]);
}

#[test]
fn a_job_whose_new_parent_has_failed_is_canceled_with_what_waits_for_it() {
    let first = but(job(&[]), |job| job.priority = 1);
    let mut c = begun(vec![first, job(&[]), job(&[1])]);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, Some(Cause::Exit), 1);
    change(&mut c, ChangedJob { parents: Some(vec![ix(0)]), ..changed(1) });
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Failed, Canceled, Canceled]);
}

#[test]
fn a_blocked_job_that_no_longer_waits_is_ready() {
    let mut c = begun(vec![job(&[]), job(&[0]), job(&[1])]);
    change(&mut c, ChangedJob { parents: Some(Vec::new()), ..changed(1) });
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Ready, Ready, Blocked]);
}

#[test]
fn a_job_that_a_failure_canceled_runs_when_it_waits_for_another_one_instead() {
    let mut c = begun(vec![job(&[]), job(&[]), job(&[0]), job(&[2])]);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, Some(Cause::Exit), 1);
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Failed, Ready, Canceled, Canceled]);
    change(&mut c, ChangedJob { parents: Some(vec![ix(1)]), ..changed(2) });
    assert_eq!(statuses(&c.flow), [Failed, Ready, Blocked, Blocked]);
}

#[test]
fn a_running_job_that_runs_again_with_a_parent_that_failed_is_canceled_when_it_has_ended() {
    let mut c = begun(vec![job(&[]), job(&[]), job(&[1])]);
    assert_eq!(c.take(1, 2).len(), 2);
    c.end(0, Some(Cause::Exit), 1);
    let job = ChangedJob { parents: Some(vec![ix(0)]), ..changed(1) };
    let revision = Revision { changed: vec![job], again: vec![ix(1)], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.end(1, None, 0);
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Failed, Canceled, Canceled]);
}

#[test]
fn a_job_that_a_person_canceled_stays_so_whatever_it_waits_for() {
    let mut c = begun(vec![job(&[]), job(&[0])]);
    c.flow.cancel_job(ix(1), 0).expect("it has not ended");
    change(&mut c, ChangedJob { parents: Some(Vec::new()), ..changed(1) });
    assert_eq!(c.flow.job(ix(1)).status(), JobStatus::Canceled);
}

#[test]
fn a_workflow_that_has_not_begun_is_changed_and_waits() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0])]);
    change(&mut c, ChangedJob { parents: Some(Vec::new()), ..changed(1) });
    assert_eq!(statuses(&c.flow), [JobStatus::Uninitialized; 2]);
    c.flow.initialize(0);
    assert_eq!(statuses(&c.flow), [JobStatus::Ready; 2]);
}

#[test]
fn a_running_job_is_stopped_once_and_runs_again_or_goes_when_it_has_ended() {
    for (is_removed, after) in [(false, JobStatus::Ready), (true, JobStatus::Disabled)] {
        let mut c = begun(vec![job(&[]), job(&[0])]);
        assert_eq!(c.take(1, 1), [0]);
        c.flow.started(ix(0), 1, c.now);
        c.flow.take_changes();
        let revision = || {
            let (removed, again) =
                if is_removed { (vec![ix(0)], vec![]) } else { (vec![], vec![ix(0)]) };
            Revision { removed, again, running: RunningJobs::Stop, ..Revision::default() }
        };
        let noted = |c: &mut Chronicle| {
            c.flow.revise(revision(), c.now).expect("it is live");
            let changes = c.flow.take_changes();
            let stops = changes.iter().filter(|c| matches!(c, Change::AttemptCancelRequested(_)));
            let notes = changes.iter().filter(|c| matches!(c, Change::JobAfterwards(..)));
            (stops.count(), notes.count())
        };
        assert_eq!(noted(&mut c), (1, 1));
        assert_eq!(noted(&mut c), (0, 0), "it was said before");
        let then = if is_removed { Afterwards::Remove } else { Afterwards::RunAgain };
        assert_eq!(c.flow.job(ix(0)).afterwards(), Some(then));
        c.end(0, Some(Cause::Canceled), 143);
        assert_eq!(c.flow.job(ix(0)).status(), after);
        assert_eq!(c.flow.job(ix(0)).afterwards(), None);
    }
}

#[test]
fn a_running_job_that_may_finish_is_not_stopped() {
    let mut c = begun(vec![job(&[])]);
    assert_eq!(c.take(1, 1), [0]);
    c.flow.take_changes();
    let running = RunningJobs::Finish;
    let revision = Revision { removed: vec![ix(0)], running, ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    assert!(!c.flow.job(ix(0)).held().is_some_and(|held| held.cancel_requested));
    c.end(0, None, 0);
    assert_eq!(c.flow.job(ix(0)).status(), JobStatus::Disabled);
}

#[test]
fn a_removed_job_waits_for_nothing_and_its_queued_attempt_is_dropped() {
    let mut c = begun(vec![job(&[]), job(&[0])]);
    let removed = vec![ix(0)];
    c.flow.revise(Revision { removed, ..Revision::default() }, 0).expect("it is live");
    assert_eq!(c.flow.job(ix(0)).reason(), Some(StatusReason::Removed));
    assert_eq!(c.take(1, 9), [1]);
}

#[test]
fn what_runs_again_runs_before_what_waits_for_it() {
    let mut c = begun(vec![job(&[]), job(&[0]), job(&[])]);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, None, 0);
    assert_eq!(statuses(&c.flow)[1], JobStatus::Ready);
    c.flow.take_changes();
    let again = Revision { again: vec![ix(0)], ..Revision::default() };
    c.flow.revise(again, c.now).expect("it is live");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Ready, Blocked, Ready]);
    assert_eq!(
        told(&mut c.flow, EventKind::WorkflowStarted),
        Vec::<Value>::new(),
        "the run goes on"
    );
}
