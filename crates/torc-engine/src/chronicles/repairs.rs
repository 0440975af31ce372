//! Rows back to the engine, what a restart makes of them, and rows that do not fit together.

use super::*;
use std::collections::HashMap;
use torc_model::api::RecoveryScript;
use torc_model::ids::{ActionId, AttemptId};
use torc_model::plan::OnScriptFailure;
use torc_model::status::{ActionState, Afterwards, AttemptState, Outcome, StatusReason, Trigger};

fn held(attempt: i64, runner: i64, state: AttemptState) -> Held {
    Held {
        attempt: AttemptId(attempt),
        runner: RunnerId(runner),
        token: format!("t{attempt}"),
        key: "k".into(),
        state,
        cancel_requested: false,
        claimed_at: 5,
        started_at: (state == AttemptState::Running).then_some(6),
    }
}

fn row(id: i64, status: JobStatus, parents: &[usize]) -> JobRow {
    let new = but(job(parents), |job| (job.id, job.position) = (JobId(id), id));
    JobRow {
        job: but(new, |job| job.class.uses = vec!["licence".into()]),
        status,
        tries: Tries { number: 1, ..Tries::none(1) },
        held_back: false,
        reason: None,
        afterwards: None,
    }
}

fn live(id: i64, job: i64, held: Option<Held>) -> LiveRow {
    LiveRow {
        id: AttemptId(id),
        job: JobId(job),
        number: 2,
        not_before: None,
        held,
        recovery: None,
    }
}

fn ended(id: i64, job: i64) -> EndedRow {
    EndedRow {
        id: AttemptId(id),
        job: JobId(job),
        number: 1,
        outcome: None,
        rule: None,
        script: None,
    }
}

fn rows(jobs: Vec<JobRow>, live: Vec<LiveRow>, ended: Vec<EndedRow>) -> Rows {
    Rows {
        id: WorkflowId(1),
        run: 3,
        canceled: false,
        settings: Settings::default(),
        handlers: vec![handler(&[Rule { match_all_exit_codes: true, ..Rule::default() }])],
        jobs,
        live,
        ended,
        actions: Vec::new(),
        typical_ms: Some(500),
        families: vec![FamilyTime { ms: 2_000, run: 2 }],
        ends: vec![(0, 4_000), (0, 4_000), (0, 4_000)],
    }
}

fn chronicle(flow: Workflow) -> Chronicle {
    Chronicle { flow, limits: Limits::new(), now: 1_000, text: String::new() }
}

fn script() -> RecoveryScript {
    RecoveryScript {
        script: "fix".into(),
        timeout_seconds: 9,
        on_failure: OnScriptFailure::Fail,
        failed_attempt_id: 1,
        return_code: 2,
    }
}

#[test]
fn what_is_stored_is_what_comes_back() {
    use JobStatus::*;
    let jobs = vec![
        row(1, Completed, &[]),
        row(2, Ready, &[0]),
        JobRow { held_back: true, ..row(3, Ready, &[]) },
        JobRow { afterwards: Some(Afterwards::RunAgain), ..row(4, Running, &[]) },
        row(5, Pending, &[]),
        row(6, Blocked, &[3, 4]),
        JobRow { reason: Some(StatusReason::CanceledByUser), ..row(7, Canceled, &[]) },
        JobRow {
            tries: Tries { number: 1, refunds: 1, ..Tries::none(3) },
            ..row(8, Blocked, &[3])
        },
        row(9, Failed, &[]),
        JobRow { reason: Some(StatusReason::Removed), ..row(10, Disabled, &[]) },
        row(11, Ready, &[]),
    ];
    let live = vec![
        live(21, 2, None),
        LiveRow { recovery: Some(script()), ..live(22, 3, None) },
        live(23, 4, Some(held(23, 7, AttemptState::Running))),
        live(24, 5, Some(held(24, 8, AttemptState::Claimed))),
        LiveRow { not_before: Some(2_000), ..live(25, 11, None) },
        live(26, 99, None),
    ];
    let ended = vec![
        EndedRow { outcome: Some(Outcome::Retried), rule: Some(0), ..ended(11, 2) },
        EndedRow { script: Some(Box::new(script())), ..ended(12, 9) },
        EndedRow { script: Some(Box::new(script())), ..ended(13, 3) },
        EndedRow { outcome: Some(Outcome::Error), rule: Some(0), ..ended(14, 4) },
        ended(15, 99),
    ];
    let action = NewAction {
        id: ActionId(1),
        trigger: Trigger::OnJobsComplete,
        jobs: vec![ix(0), ix(3)],
        persistent: false,
        is_recovery: false,
        schedules_nodes: false,
        state: ActionState::Waiting,
        by: None,
    };
    let rows = Rows { actions: vec![action], ..rows(jobs, live, ended) };
    let flow = rows.clone().restore();
    let mut c = chronicle(flow);
    c.note("restored");
    for index in c.flow.indexes() {
        let job = c.flow.job(index);
        let told = format!(
            "{index}: {:?} last {:?} live {:?} unmet {} reason {:?} uses {} estimate {:?} rank {}",
            job.tries,
            job.last(),
            job.live(),
            job.unmet(),
            job.reason(),
            c.flow.handlers.uses(index, 0),
            c.flow.estimate(index),
            c.flow.rank(index)
        );
        say!(c, told);
    }
    say!(c, format!("{:?}", c.flow.ready.queue));
    say!(
        c,
        format!("{:?} {:?} {}", c.flow.next_due(), c.flow.runners_with_work(), c.flow.held_count())
    );
    say!(c, format!("{:?} {:?}", c.flow.family_quantile(0, 0.5), c.flow.family_quantile(1, 0.5)));
    say!(c, format!("{:?} {:?}", c.flow.find(JobId(4)), c.flow.find_live(AttemptId(24))));
    let mut limits =
        Limits::from([("licence".to_owned(), LimitUse { max: 9, used: 1, paused: false })]);
    c.flow.count_limits(&mut limits);
    say!(c, format!("{limits:?} {} {}", c.flow.uses_of("licence"), c.flow.uses_of("other")));
    c.flow.discount_limits(&mut limits);
    say!(c, format!("{limits:?} {}", c.flow.open_classes().len()));
    say!(c, format!("{:?}", c.flow.difference(&rows.clone().restore())));
    // Each kind of row that says otherwise is noticed.
    type Change = fn(&mut Rows);
    let others: [(&str, Change); 13] = [
        ("run", |rows| rows.run = 4),
        ("canceled", |rows| rows.canceled = true),
        ("status", |rows| (rows.jobs[6].status, rows.jobs[8].status) = (Failed, Canceled)),
        ("held back", |rows| rows.jobs[1].held_back = true),
        ("priority", |rows| rows.jobs[1].job.priority = 5),
        ("class", |rows| rows.jobs[1].job.class.cpus = 5),
        ("lost", |rows| rows.jobs[1].tries.lost = 1),
        ("refunds", |rows| rows.jobs[1].tries.refunds = 1),
        ("before", |rows| rows.jobs[6].tries.before = 1),
        ("rule", |rows| rows.ended[0].outcome = None),
        ("attempt", |rows| rows.live[0].number = 3),
        ("reason", |rows| rows.jobs[6].reason = None),
        ("action", |rows| rows.actions[0].state = ActionState::Executed),
    ];
    for (name, change) in others {
        let mut other = rows.clone();
        change(&mut other);
        let difference = c.flow.difference(&other.restore()).expect(name);
        say!(c, format!("{name}: {}", difference.lines().next().unwrap_or_default()));
    }
    c.is(include_str!("restored.txt"));
}

#[test]
fn rows_that_do_not_fit_together_are_repaired_once() {
    use JobStatus::*;
    let mut jobs = vec![
        row(1, Pending, &[]),    // no attempt, and none that ended
        row(2, Running, &[]),    // its attempt is queued
        row(3, Running, &[]),    // its attempt has completed
        row(4, Running, &[]),    // its attempt has failed, undecided
        row(5, Ready, &[]),      // nothing is queued
        row(6, Ready, &[]),      // nothing is queued, and one has ended
        row(7, Completed, &[]),  // has an attempt
        row(8, Failed, &[]),     // has an attempt that a runner holds
        row(9, Blocked, &[6]),   // what it waits for is done
        row(10, Blocked, &[10]), // what it waits for has ended badly
        row(11, Canceled, &[]),
        row(12, Blocked, &[10]),
        row(13, Running, &[]),   // its attempt was canceled
        row(14, Running, &[]),   // fits
        row(15, Ready, &[]),     // fits
        row(16, Blocked, &[13]), // fits
        row(17, Failed, &[]),    // failed, undecided, and a rule has a retry
        row(18, Failed, &[]),    // failed and decided
    ];
    jobs[11].job.cancel_on_failure = false;
    for at in [3, 16, 17] {
        jobs[at].job.handler = Some(HandlerIx::new(0));
    }
    let live = vec![
        live(21, 2, None),
        live(22, 7, None),
        live(23, 8, Some(held(23, 7, AttemptState::Running))),
        live(24, 14, Some(held(24, 7, AttemptState::Running))),
        live(25, 15, None),
    ];
    let last = |id: i64, state, decided, cause| LastEnd {
        id: AttemptId(id),
        state,
        end: end(cause, 1, 0),
        decided,
    };
    let ends = HashMap::from([
        (ix(2), last(11, AttemptState::Completed, true, None)),
        (ix(3), last(12, AttemptState::Failed, false, None)),
        (ix(5), last(13, AttemptState::Failed, true, Some(Cause::Exit))),
        (ix(12), last(14, AttemptState::Canceled, true, None)),
        (ix(16), last(15, AttemptState::Failed, false, Some(Cause::Exit))),
        (ix(17), last(16, AttemptState::Failed, true, Some(Cause::Exit))),
    ]);
    let mut c = chronicle(rows(jobs, live, Vec::new()).restore());
    c.flow.set_next_attempt(101);
    c.limits.insert("licence".into(), LimitUse { max: 9, used: 0, paused: false });
    c.flow.count_limits(&mut c.limits);
    let done = c.flow.repair(&ends, RunnerId(0), &mut c.limits, c.now);
    c.note(format!("repaired {done:?}"));
    assert_eq!(c.limits["licence"].used, c.flow.uses_of("licence"), "as a restart would count");
    let done = c.flow.repair(&HashMap::new(), RunnerId(0), &mut c.limits, c.now);
    c.note(format!("repaired again {done:?}"));
    c.is(include_str!("repaired.txt"));
}

#[test]
fn a_failure_that_was_decided_after_a_crash_opens_what_it_had_canceled() {
    use JobStatus::*;
    let failed = row(1, Failed, &[]);
    let canceled =
        JobRow { reason: Some(StatusReason::DependencyFailed), ..row(2, Canceled, &[0]) };
    let mut jobs = vec![failed, canceled];
    jobs[0].job.handler = Some(HandlerIx::new(0));
    let mut c = chronicle(rows(jobs, Vec::new(), vec![ended(11, 1)]).restore());
    c.flow.set_next_attempt(101);
    let last = LastEnd {
        id: AttemptId(11),
        state: AttemptState::Failed,
        end: end(Some(Cause::Exit), 1, 0),
        decided: false,
    };
    let done = c.flow.repair(&HashMap::from([(ix(0), last)]), RunnerId(0), &mut c.limits, c.now);
    c.note(format!("{done:?}"));
    assert_eq!(statuses(&c.flow), [Ready, Blocked]);
    c.is(include_str!("repaired_failure.txt"));
}
