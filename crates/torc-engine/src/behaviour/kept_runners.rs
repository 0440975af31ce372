//! The runner that is kept for a job that fits nowhere yet.

use super::*;
use torc_model::status::JobStatus;

/// A job of so many CPUs and so many seconds.
fn sized(cpus: u32, seconds: u32, priority: i64) -> NewJob {
    but(job(&[]), |job| {
        (job.class.cpus, job.own_ms, job.priority) = (cpus, Some(seconds * 1_000), priority);
    })
}

/// A runner of four CPUs that runs a job of one CPU and `seconds` s, and is kept for a job of four
/// one second later. Then come these jobs.
fn kept(seconds: u32, more: Vec<NewJob>) -> Chronicle {
    let mut jobs = vec![sized(1, seconds, 9), sized(4, 30, 5)];
    jobs.extend(more);
    let mut c = Chronicle::plain(jobs);
    c.now = 0;
    c.flow.initialize(0);
    c.flow.hold(ix(1), true);
    (2..c.flow.len()).for_each(|at| c.flow.hold(ix(at), true));
    assert_eq!(c.claim(1, 4), [0]);
    (1..c.flow.len()).for_each(|at| c.flow.hold(ix(at), false));
    c.now = 1_000;
    c
}

#[test]
fn a_job_that_ends_just_when_the_kept_runner_is_free_may_start_and_a_longer_one_may_not() {
    for (seconds, given) in [(9, vec![2]), (10, Vec::new())] {
        let mut c = kept(10, vec![sized(1, seconds, 0)]);
        assert_eq!(c.claim(1, 4), given, "{seconds} s");
    }
}

#[test]
fn what_fills_the_gap_does_not_move_the_start_of_the_job_that_the_runner_is_kept_for() {
    let mut c = kept(10, vec![sized(1, 9, 0)]);
    assert_eq!(c.claim(1, 4), [2]);
    c.now = 10_000;
    for at in [0, 2] {
        c.end(at, None, 0);
    }
    assert_eq!(c.claim(1, 4), [1]);
    assert_eq!(c.flow.job(ix(1)).status(), JobStatus::Running);
}

#[test]
fn a_kept_runner_is_free_when_enough_of_what_it_runs_has_ended() {
    // One job of two CPUs ends at 10 s, one of one CPU at 20 s, and three CPUs are wanted.
    for (seconds, given) in [(9, vec![3]), (15, Vec::new())] {
        let jobs = vec![sized(2, 10, 9), sized(1, 20, 9), sized(3, 30, 5), sized(1, seconds, 0)];
        let mut c = Chronicle::plain(jobs);
        c.now = 0;
        c.flow.initialize(0);
        [2, 3].into_iter().for_each(|at| c.flow.hold(ix(at), true));
        assert_eq!(c.claim(1, 4).len(), 2);
        [2, 3].into_iter().for_each(|at| c.flow.hold(ix(at), false));
        c.now = 1_000;
        assert_eq!(c.claim(1, 4), given, "{seconds} s");
    }
}

#[test]
fn a_job_tells_when_the_runner_that_is_kept_for_it_is_free() {
    let mut c = kept(10, vec![sized(1, 60, 0)]);
    assert!(c.claim(1, 4).is_empty());
    let capacity = node(4);
    let claim = Claim {
        runner: RunnerId(1),
        key: "k",
        limit: 1,
        prefetch: 0,
        capacity: &capacity,
        time_left: None,
        scheduler: None,
        strict_scheduler: false,
        label: None,
        now: c.now,
        nonce: 0,
    };
    let runners = [RunnerFacts { claim, host: "a" }];
    let said = |now| c.flow.explain(ix(1), &runners, &Limits::new(), now).summary;
    assert!(said(9_000).contains("on a, reserved, about"), "{}", said(9_000));
    assert!(said(10_000).ends_with("on a, reserved"), "{}", said(10_000));
}

#[test]
fn a_runner_is_not_kept_for_a_job_that_is_held_back() {
    let mut c = kept(10, vec![sized(1, 60, 0)]);
    assert!(c.claim(1, 4).is_empty());
    assert_eq!(c.flow.keeps(RunnerId(1)), Some(ix(1)));
    c.flow.hold(ix(1), true);
    assert!(c.flow.take_released(), "its claim should look again");
    assert!(!c.flow.take_released(), "once");
    assert_eq!(c.claim(1, 4), [2]);
}

#[test]
fn a_runner_that_is_silent_for_two_minutes_is_not_kept() {
    for (silent, keeps) in [(119_999, Some(ix(1))), (120_000, None)] {
        let mut c = kept(10, vec![sized(1, 60, 0)]);
        assert!(c.claim(1, 4).is_empty());
        c.flow.release_kept(c.now + silent);
        assert_eq!(c.flow.keeps(RunnerId(1)), keeps, "after {silent} ms");
        // A clock that was set back does not make it silent.
        let mut c = kept(10, vec![sized(1, 60, 0)]);
        assert!(c.claim(1, 4).is_empty());
        c.flow.release_kept(-500_000);
        assert_eq!(c.flow.keeps(RunnerId(1)), Some(ix(1)));
    }
}

#[test]
fn a_job_that_runs_longer_than_expected_tells_no_time_at_which_the_runner_is_free() {
    let mut c = kept(10, vec![sized(1, 1, 0)]);
    c.now = 10_001;
    assert!(c.claim(1, 4).is_empty(), "nothing is known to end in time");
    let mut c = kept(10, vec![sized(1, 1, 0)]);
    c.now = 9_000;
    assert_eq!(c.claim(1, 4), [2], "it ends with the other one");
}

#[test]
fn of_two_runners_the_one_that_is_free_sooner_is_kept() {
    for (first, second, kept, start) in
        [(10, 20, 1, 0), (20, 10, 2, 0), (10, 10, 1, 0), (10, 20, 1, 900_000)]
    {
        let jobs = vec![sized(1, first, 9), sized(1, second, 8), sized(4, 30, 5), sized(1, 99, 0)];
        let mut c = Chronicle::plain(jobs);
        c.now = start;
        c.flow.initialize(0);
        [2, 3].into_iter().for_each(|at| c.flow.hold(ix(at), true));
        assert_eq!(c.claim(1, 1), [0]);
        assert_eq!(c.claim(2, 1), [1]);
        [2, 3].into_iter().for_each(|at| c.flow.hold(ix(at), false));
        // Both tell now that they have four CPUs.
        let free = 3 - kept;
        c.take(kept, 4);
        c.take(free, 4);
        assert_eq!(c.flow.keeps(RunnerId(kept)), Some(ix(2)));
        assert_eq!(c.flow.keeps(RunnerId(free)), None);
    }
}
