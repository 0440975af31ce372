//! Which runner gets what, and why a job waits.

use super::*;
use torc_model::api::Capacity;
use torc_model::status::DispatchOrder;

fn ask(runner: i64, capacity: &Capacity, now: i64) -> Claim<'_> {
    Claim {
        runner: RunnerId(runner),
        key: "k",
        limit: 100,
        prefetch: 0,
        capacity,
        time_left: None,
        scheduler: None,
        strict_scheduler: false,
        label: None,
        now,
        nonce: 7,
    }
}

fn get(c: &mut Chronicle, claim: &Claim<'_>) -> Vec<usize> {
    let given = c.flow.claim(claim, &mut c.limits);
    given.into_iter().map(|claimed| claimed.index.at()).collect()
}

fn class(job: NewJob, change: impl FnOnce(&mut Class)) -> NewJob {
    but(job, |job| change(&mut job.class))
}

#[test]
fn a_runner_gets_what_its_label_time_scheduler_and_limits_allow() {
    let jobs = || {
        vec![
            class(job(&[]), |c| c.label = Some("big".into())),
            class(job(&[]), |c| c.runtime = Some(60)),
            class(job(&[]), |c| c.scheduler = Some(1)),
            class(job(&[]), |c| c.scheduler = Some(2)),
            class(job(&[]), |c| c.uses = vec!["licence".into()]),
            class(job(&[]), |c| c.uses = vec!["licence".into()]),
            class(job(&[]), |c| c.uses = vec!["paused".into()]),
            class(job(&[]), |c| c.uses = vec!["unknown".into()]),
            class(job(&[]), |c| c.label = Some("big,fast".into())),
        ]
    };
    let capacity = node(100);
    let plain = ask(1, &capacity, 1_000);
    let cases = [
        ("plain", plain.clone()),
        ("label", Claim { label: Some("big"), ..plain.clone() }),
        ("labels", Claim { label: Some("fast,big"), ..plain.clone() }),
        ("59 s", Claim { time_left: Some(59), ..plain.clone() }),
        ("60 s", Claim { time_left: Some(60), ..plain.clone() }),
        ("scheduler", Claim { scheduler: Some(1), ..plain.clone() }),
        ("strict", Claim { scheduler: Some(1), strict_scheduler: true, ..plain.clone() }),
        ("strict without", Claim { strict_scheduler: true, ..plain.clone() }),
        ("two", Claim { limit: 2, ..plain.clone() }),
        ("none", Claim { limit: 0, ..plain }),
    ];
    let mut c = Chronicle::plain(Vec::new());
    for (name, claim) in cases {
        let mut one = Chronicle::plain(jobs());
        for (limit, max, paused) in [("licence", 1, false), ("paused", 5, true)] {
            one.limits.insert(limit.into(), LimitUse { max, used: 0, paused });
        }
        one.flow.initialize(0);
        let given = get(&mut one, &claim);
        say!(c, format!("{name}: {given:?} {:?}", one.limits));
    }
    let mut one = Chronicle::plain(vec![class(job(&[]), |c| c.memory = Some(9))]);
    one.flow.initialize(0);
    one.flow.take_changes();
    let given = one.flow.claim(&ask(1, &capacity, 5), &mut one.limits);
    say!(c, format!("{given:?}"));
    let told: Vec<String> = one.flow.take_changes().iter().map(line).collect();
    say!(c, format!("{told:?}"));
    c.is(include_str!("claims.txt"));
}

#[test]
fn some_are_kept_for_later_but_not_those_that_take_a_limit() {
    let limited = |job: NewJob| class(job, |c| c.uses = vec!["licence".into()]);
    let mut c =
        Chronicle::plain(vec![job(&[]), limited(job(&[])), job(&[]), job(&[]), job(&[]), job(&[])]);
    c.flow.initialize(0);
    let capacity = node(1);
    let claim = Claim { prefetch: 2, ..ask(1, &capacity, 0) };
    assert_eq!(get(&mut c, &claim), [0, 2, 3], "one to run and two for later");
    assert_eq!(get(&mut c, &claim), [0usize; 0], "three are claimed and not started");
    c.flow.started(ix(0), 1, 0);
    c.flow.started(ix(2), 1, 0);
    assert_eq!(get(&mut c, &claim), [4], "one is claimed and not started");
    let few = Claim { limit: 0, ..claim };
    c.flow.started(ix(3), 1, 0);
    assert_eq!(get(&mut c, &few), [0usize; 0]);
}

#[test]
fn why_a_job_waits_is_told_by_what_decides() {
    let jobs = vec![
        job(&[]),
        job(&[0]),
        job(&[0, 1]),
        class(job(&[]), |c| c.cpus = 4),
        class(job(&[]), |c| c.memory = Some(1 << 41)),
        class(job(&[]), |c| c.label = Some("big".into())),
        class(job(&[]), |c| c.uses = vec!["shut".into()]),
        class(job(&[]), |c| c.uses = vec!["full".into()]),
        job(&[]),
        but(job(&[]), |job| job.priority = -9),
    ];
    let mut c = Chronicle::plain(jobs);
    for (name, max, used) in [("shut", 0, 0), ("full", 1, 1)] {
        c.limits.insert(name.into(), LimitUse { max, used, paused: false });
    }
    let explain = |c: &mut Chronicle, runners: &[RunnerFacts<'_>]| {
        for index in c.flow.indexes() {
            let said = c.flow.explain(index, runners, &c.limits, c.now);
            say!(
                c,
                format!(
                    "{index}: {} {:?} of {} {:?}",
                    said.summary, said.because_of, said.because_of_count, said.hints
                )
            );
        }
        say!(c, format!("{:?}", c.flow.waiting_groups(c.now)));
    };
    explain(&mut c, &[]);
    c.initialize();
    say!(c, "-- without runners");
    explain(&mut c, &[]);
    let capacity = node(4);
    let claim = ask(1, &capacity, c.now);
    let facts = [RunnerFacts { claim: claim.clone(), host: "n1" }];
    say!(c, "-- with an empty one");
    explain(&mut c, &facts);
    c.flow.hold(ix(8), true);
    let given = get(&mut c, &Claim { limit: 3, ..claim.clone() });
    say!(c, format!("-- it got {given:?}"));
    c.flow.started(ix(0), 1, c.now);
    explain(&mut c, &facts);
    c.flow.cancel_job(ix(0), c.now).expect("it runs");
    say!(c, c.flow.explain(ix(0), &facts, &c.limits, c.now).summary);
    c.flow.ended(ix(0), end(Some(Cause::Signal), 143, c.now), &mut c.limits);
    c.flow.disable(ix(7), c.now).expect("it waits");
    say!(c, "-- after a cancellation");
    explain(&mut c, &facts);
    say!(c, format!("{:?} {:?}", c.flow.lacking(ix(3), &node(3)), c.flow.lacking(ix(3), &node(4))));
    for cpus in [0, 1, 4] {
        let capacity = node(cpus);
        say!(
            c,
            format!(
                "{cpus}: {} {} {}",
                c.flow.never_fits(&capacity),
                c.flow.has_ready_for(&capacity, None),
                c.flow.has_ready_for(&capacity, Some("big"))
            )
        );
    }
    say!(c, format!("{:?} {:?}", c.flow.label_of(ix(5)), c.flow.label_of(ix(4))));
    c.is(include_str!("explained.txt"));
}

/// A wide job waits for a runner that narrow ones keep busy.
#[test]
fn a_runner_is_kept_for_what_fits_nowhere_and_told_so() {
    let narrow = |own_ms: Option<u32>| but(job(&[]), |job| job.own_ms = own_ms);
    let wide =
        but(class(job(&[]), |c| c.cpus = 4), |job| (job.priority, job.own_ms) = (5, Some(1_000)));
    let settings = Settings { order: DispatchOrder::Submission, ..Settings::default() };
    let jobs = vec![
        narrow(Some(10_000)),
        narrow(Some(20_000)),
        wide.clone(),
        narrow(Some(5_000)),
        narrow(Some(15_000)),
        narrow(None),
        but(wide, |job| job.priority = 4),
    ];
    let mut c = Chronicle::new(settings, Vec::new(), jobs);
    c.flow.hold(ix(2), true);
    c.flow.hold(ix(6), true);
    c.flow.initialize(0);
    let (big, small) = (node(4), node(1));
    let mut log = String::new();
    let mut step = |c: &mut Chronicle, what: &str, claim: &Claim<'_>| {
        let given = get(c, claim);
        for at in &given {
            c.flow.started(ix(*at), 1, claim.now);
        }
        let kept: Vec<_> =
            c.flow.indexes().filter_map(|i| Some((i.at(), c.flow.kept_for(i)?))).collect();
        let why: Vec<String> = [2, 6, 4]
            .map(|at| {
                let facts = [RunnerFacts { claim: claim.clone(), host: "n1" }];
                c.flow.explain(ix(at), &facts, &c.limits, claim.now).summary
            })
            .to_vec();
        log += &format!(
            "{what}: {given:?} kept {kept:?} {why:?} released {}\n",
            c.flow.take_released()
        );
    };
    step(&mut c, "two narrow ones", &Claim { limit: 2, ..ask(1, &big, 0) });
    c.flow.hold(ix(2), false);
    c.flow.hold(ix(6), false);
    step(&mut c, "the wide one came", &ask(1, &big, 1_000));
    step(&mut c, "a small runner asks", &ask(2, &small, 1_000));
    step(&mut c, "later", &ask(1, &big, 6_000));
    c.flow.ended(ix(0), end(None, 0, 10_000), &mut c.limits);
    step(&mut c, "one has ended", &ask(1, &big, 10_000));
    c.flow.hold(ix(2), true);
    step(&mut c, "it is held back", &ask(1, &big, 10_000));
    c.flow.hold(ix(2), false);
    step(&mut c, "and let go", &ask(1, &big, 10_000));
    c.flow.adjust(ix(6), Adjustment { priority: Some(9), ..Adjustment::default() });
    step(&mut c, "the other one goes first", &ask(1, &big, 10_000));
    step(&mut c, "the big one is silent", &ask(2, &small, 130_001));
    c.text = log;
    c.is(include_str!("kept.txt"));
}
