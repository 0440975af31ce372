//! What people do to jobs.

use super::*;
use torc_model::ids::AttemptId;
use torc_model::plan::Backoff;
use torc_model::status::Origin;

#[test]
fn jobs_are_held_delayed_adjusted_and_sent_elsewhere() {
    let backoff = Backoff { delay_seconds: 5.0, factor: 1.0, max_seconds: None, jitter: 0.0 };
    let later = Rule {
        match_all_exit_codes: true,
        max_retries: 3,
        backoff: Some(backoff),
        ..Rule::default()
    };
    let jobs =
        vec![but(job(&[]), |job| job.handler = Some(HandlerIx::new(0))), job(&[]), job(&[1])];
    let mut c = Chronicle::new(Settings::default(), vec![handler(&[later])], jobs);
    c.initialize();
    for is_held in [true, true, false, false] {
        c.flow.hold(ix(1), is_held);
        c.note(format!("hold {is_held}"));
        if is_held {
            say!(c, format!("{:?}", c.take(9, 0)));
        }
    }
    c.flow.hold(ix(1), true);
    c.claim(1, 4);
    c.flow.hold(ix(1), false);
    c.flow.delay(ix(0), Some(5));
    c.flow.delay(ix(1), Some(5));
    c.note("neither waits for a time");
    c.end(0, Some(Cause::Exit), 1);
    say!(c, format!("{:?} {:?}", c.flow.next_due(), c.flow.waiting_groups(c.now)));
    c.flow.delay(ix(0), Some(c.now + 7));
    c.note("its time is another");
    say!(c, format!("{:?}", c.flow.next_due()));
    c.now += 6;
    c.flow.wake_delayed(c.now);
    say!(c, format!("{:?} {:?}", c.flow.has_ready(), c.flow.next_due()));
    c.now += 1;
    c.flow.wake_delayed(c.now);
    c.note("its time has come");
    c.flow.adjust(
        ix(2),
        Adjustment {
            memory: Some(7),
            runtime: Some(60),
            timeout: Some(90),
            cpus: Some(3),
            gpus: Some(2),
            priority: Some(9),
        },
    );
    c.note("adjusted");
    say!(c, format!("{:?} rank {}", c.flow.next_class_of(ix(2)), c.flow.rank(ix(2))));
    c.flow.adjust(ix(2), Adjustment::default());
    c.note("adjusted by nothing");
    say!(c, format!("{:?} rank {}", c.flow.next_class_of(ix(2)), c.flow.rank(ix(2))));
    c.flow.adjust(ix(1), Adjustment { priority: Some(5), ..Adjustment::default() });
    c.claim(1, 1);
    // What a runner has keeps what it was claimed with.
    c.flow.adjust(ix(1), Adjustment { cpus: Some(2), ..Adjustment::default() });
    c.flow.assign_scheduler(ix(1), 4);
    c.flow.assign_scheduler(ix(2), 5);
    c.note("sent elsewhere");
    say!(c, format!("{:?} {:?}", c.flow.class_of(ix(1)), c.flow.next_class_of(ix(1))));
    say!(c, format!("{:?}", c.flow.class_of(ix(2))));
    c.end(1, None, 0);
    say!(c, format!("{:?} {:?}", c.flow.class_of(ix(1)), c.flow.open_classes()));
    c.is(include_str!("people_adjust.txt"));
}

#[test]
fn retries_verdicts_and_refunds_follow_their_rules() {
    let settings = Settings { use_pending_failed: true, ..Settings::default() };
    let jobs = vec![job(&[]), job(&[0]), job(&[])];
    let mut c = Chronicle::new(settings, Vec::new(), jobs);
    say!(c, refused(c.flow.classify(ix(0), true, 0)));
    c.initialize();
    c.claim(1, 4);
    c.end(0, Some(Cause::Exit), 3);
    say!(c, refused(c.flow.may_retry(ix(0), 1, 3)));
    c.flow.classify(ix(0), true, c.now).expect("it waits for a verdict");
    c.note("again");
    c.claim(1, 4);
    c.end(0, Some(Cause::Exit), 3);
    c.flow.classify(ix(0), false, c.now).expect("it waits for a verdict");
    c.note("given up");
    for (run, max) in [(2, 9), (1, 2), (1, 1), (1, 3)] {
        say!(c, format!("run {run} max {max}: {}", refused(c.flow.may_retry(ix(0), run, max))));
    }
    say!(c, refused(c.flow.may_retry(ix(2), 1, 3)));
    say!(c, refused(c.flow.may_retry(ix(1), 1, 3)));
    c.flow.retry(ix(0), 1, 3, c.now).expect("it may");
    c.note("retried");
    c.claim(1, 4);
    c.end(0, Some(Cause::Exit), 3);
    // A machine was to blame: a loss, of which one is allowed.
    let attempt = c.flow.job(ix(0)).last().expect("it ended");
    let burnt = |id, rule| BurntAttempt { id, run: 1, number: 3, rule };
    say!(c, c.flow.refund(ix(0), &burnt(AttemptId(attempt.0 - 1), None), c.now));
    c.note("an earlier attempt is refunded");
    say!(c, c.flow.refund(ix(0), &burnt(attempt, Some(0)), c.now));
    c.note("the last attempt is refunded");
    c.claim(1, 4);
    c.end(0, Some(Cause::Exit), 3);
    let attempt = c.flow.job(ix(0)).last().expect("it ended");
    say!(c, c.flow.refund(ix(0), &burnt(attempt, None), c.now));
    c.note("no loss is left");
    c.end(2, Some(Cause::Timeout), 9);
    c.flow.again(ix(2), Origin::Recovered, c.now);
    c.note("recovered");
    c.flow.resume();
    c.note("it was not canceled");
    c.flow.cancel(c.now);
    c.note("canceled");
    say!(c, refused(c.flow.may_retry(ix(0), 1, 9)));
    c.flow.cancel(c.now);
    c.note("complete already");
    c.flow.resume();
    c.note("resumed");
    c.is(include_str!("people_retry.txt"));
}

#[test]
fn jobs_are_canceled_disabled_enabled_and_reset() {
    let jobs = vec![
        job(&[]),
        job(&[0]),
        job(&[1]),
        job(&[]),
        but(job(&[3]), |job| job.cancel_on_failure = false),
    ];
    let mut c = Chronicle::plain(jobs);
    say!(c, refused(c.flow.enable(ix(0), 0)));
    c.initialize();
    c.flow.disable(ix(0), c.now).expect("it has not started");
    c.note("disabled");
    say!(c, refused(c.flow.disable(ix(0), c.now)));
    c.claim(1, 1);
    c.flow.enable(ix(0), c.now).map_or_else(|e| say!(c, e.message.clone()), |()| ());
    c.note("what runs stands in the way");
    c.flow.cancel_job(ix(1), c.now).expect("it runs");
    c.flow.cancel_job(ix(1), c.now).expect("it runs");
    c.note("it is told to stop");
    say!(c, format!("{:?} {:?}", c.flow.orders_for(RunnerId(1)), c.flow.orders_for(RunnerId(2))));
    c.end(1, Some(Cause::Signal), 143);
    say!(c, refused(c.flow.cancel_job(ix(1), c.now)));
    c.flow.cancel_job(ix(3), c.now).expect("it waits");
    c.note("canceled, and what bears it goes on");
    c.flow.enable(ix(0), c.now).expect("nothing runs");
    c.note("enabled while the run goes on");
    c.claim(1, 9);
    say!(c, refused(c.flow.plan_reset(&Seeds::All)));
    c.end(0, Some(Cause::Exit), 1);
    c.end(4, None, 0);
    for seeds in [
        Seeds::All,
        Seeds::FailedOnly,
        Seeds::Named(vec![ix(4)]),
        Seeds::Changed(vec![(ix(1), "a file changed".into())]),
    ] {
        let plan = c.flow.plan_reset(&seeds).expect("nothing runs");
        let plan: Vec<String> = plan.iter().map(|(i, why)| format!("{i} {why} {why:?}")).collect();
        say!(c, format!("{seeds:?}: {plan:?}"));
    }
    let plan = c.flow.plan_reset(&Seeds::FailedOnly).expect("nothing runs");
    c.flow.reset(&plan, c.now);
    c.note("reset");
    c.initialize();
    // While one runs, the run goes on, and others are reset beside it.
    c.claim(1, 1);
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(4)])).expect("it does not run");
    c.flow.reset(&plan, c.now);
    c.note("reset beside what runs");
    c.initialize();
    c.flow.cancel(c.now);
    c.note("canceled");
    c.end(0, Some(Cause::Signal), 143);
    let plan = c.flow.plan_reset(&Seeds::All).expect("nothing runs");
    c.flow.reset(&plan, c.now);
    c.note("reset after a cancellation");
    c.is(include_str!("people_reset.txt"));
}

#[test]
fn a_new_run_begins_at_attempt_1_for_what_waits_in_the_queue() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[]), job(&[1]), job(&[])]);
    c.initialize();
    c.claim(1, 1);
    c.lose(1);
    c.flow.disable(ix(3), c.now).expect("it waits");
    c.note("one is retried after a loss, one is disabled");
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(1)])).expect("nothing runs");
    c.flow.reset(&plan, c.now);
    c.note("the next run");
    c.is(include_str!("people_next_run.txt"));
}
