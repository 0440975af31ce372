//! What follows from each kind of end.

use super::*;
use torc_model::api::{RecoveryScript, ScriptResult};
use torc_model::attempt::Output;
use torc_model::plan::{Backoff, OnScriptFailure};
use torc_model::status::EndDetail;
use torc_model::units::Runtime;

/// A job with these rules ends again and again.
fn with_rules(settings: Settings, rules: &[Rule]) -> Chronicle {
    let tried = but(job(&[]), |job| {
        job.handler = (!rules.is_empty()).then_some(HandlerIx::new(0));
    });
    let handlers = if rules.is_empty() { Vec::new() } else { vec![handler(rules)] };
    let mut c = Chronicle::new(settings, handlers, vec![tried, job(&[0])]);
    c.initialize();
    c
}

fn report(c: &mut Chronicle, end: End) {
    c.now += 3_600_000;
    if c.take(1, 1) != [0] {
        return c.say("it does not run");
    }
    c.flow.started(ix(0), 5, c.now);
    c.flow.take_changes();
    let end = End { at: c.now, ..end };
    let told = c.flow.ended(ix(0), end, &mut c.limits);
    c.note(format!("{told:?}"));
}

#[test]
fn rules_give_retries_until_they_are_spent_and_say_so() {
    let code = |codes: &[i32], max_retries| Rule {
        exit_codes: codes.to_vec(),
        max_retries,
        ..Rule::default()
    };
    let backoff = Backoff { delay_seconds: 2.0, factor: 3.0, max_seconds: None, jitter: 0.25 };
    let rules = [
        Rule { backoff: Some(backoff), ..code(&[1], 3) },
        Rule {
            recovery_script: Some("fix".into()),
            script_timeout: Some(Runtime(30)),
            on_script_failure: OnScriptFailure::Fail,
            ..code(&[2], 9)
        },
        code(&[3], 0),
        Rule { stderr_matches: vec!["busy".into(), "late".into()], ..code(&[4], 2) },
        Rule {
            signals: vec!["SIGKILL".into()],
            recovery_script: Some("fix".into()),
            ..code(&[], 9)
        },
        Rule { causes: serde_json::from_str("[\"timeout\"]").expect("a cause"), ..code(&[], 1) },
    ];
    let mut c = with_rules(Settings::default(), &rules);
    let ends = |code: i64| end(Some(Cause::Exit), code, 0);
    report(&mut c, ends(1));
    report(&mut c, ends(1));
    report(&mut c, ends(1));
    c.text += "--- a script\n";
    let again = |first: End, second: Option<End>| {
        let mut c = with_rules(Settings::default(), &rules);
        c.text.clear();
        report(&mut c, first);
        if let Some(second) = second {
            report(&mut c, second);
        }
        c.text
    };
    let script = |return_code| ScriptResult {
        return_code,
        exec_seconds: 1.0,
        timed_out: false,
        stdout_path: None,
        stderr_path: None,
    };
    let blamed = |end: End, code| End {
        ending: Ending { detail: Some(EndDetail::RecoveryScript), ..end.ending.clone() },
        script: Some(script(code)),
        ..end
    };
    let tail = |end: End, text: &str| End {
        output: Output { stderr_tail: Some(text.into()), ..Output::default() },
        ..end
    };
    let signal = Ending {
        signal: Some(9),
        return_code: Some(137),
        cause: Some(Cause::Signal),
        ..Ending::default()
    };
    let signal = End { ending: signal, ..End::new(EndedBy::Runner, 0) };
    let cases = [
        ("script, then success", ends(2), Some(End { script: Some(script(0)), ..end(None, 0, 0) })),
        ("script, then lost before it ran", ends(2), Some(end(Some(Cause::Stopped), 143, 0))),
        ("script kept the command from running", ends(2), Some(blamed(ends(5), 5))),
        ("script failed with a code that a rule has", ends(2), Some(blamed(ends(2), 2))),
        ("never", ends(3), None),
        ("text", tail(ends(4), "it is busy"), Some(tail(ends(4), "too late"))),
        ("no text", ends(4), None),
        ("signal", signal.clone(), Some(signal)),
        ("timeout", end(Some(Cause::Timeout), 152, 0), None),
        ("nothing matches", ends(7), None),
        ("fatal step", End { steps: Some(serde_json::json!({"fatal": true})), ..ends(1) }, None),
        (
            "no fatal step",
            End { steps: Some(serde_json::json!({"fatal": false})), ..ends(1) },
            None,
        ),
        (
            "fatal step of a lost attempt",
            End { steps: Some(serde_json::json!({"fatal": true})), ..end(Some(Cause::Lost), 1, 0) },
            None,
        ),
        (
            "checkpoint",
            end(Some(Cause::Checkpoint), 75, 0),
            Some(end(Some(Cause::Preempted), 143, 0)),
        ),
        ("node", end(Some(Cause::NodeFail), 143, 0), Some(end(Some(Cause::Walltime), 143, 0))),
    ];
    for (name, first, second) in cases {
        c.text += &format!("--- {name}\n");
        c.text += &again(first, second);
    }
    c.is(include_str!("reports_rules.txt"));
}

#[test]
fn ends_without_a_rule_are_judged_by_cause_and_settings() {
    let judged = |judged| End { judged: Some(judged), ..end(Some(Cause::Exit), 1, 0) };
    let again = Judged::Again { not_before: Some(99_000_000), text: "the node was bad".into() };
    let pending = Settings { use_pending_failed: true, ..Settings::default() };
    let cases = [
        ("exit", Settings::default(), end(Some(Cause::Exit), 1, 0)),
        ("timeout", Settings::default(), end(Some(Cause::Timeout), 1, 0)),
        ("verdict", pending.clone(), end(Some(Cause::Exit), 1, 0)),
        ("verdict on a timeout", pending, end(Some(Cause::Timeout), 1, 0)),
        ("judged", Settings::default(), judged(again)),
        ("left", Settings::default(), judged(Judged::Leave("it is a bug".into()))),
        ("canceled", Settings::default(), end(Some(Cause::Canceled), 143, 0)),
        ("success", Settings::default(), end(None, 0, 0)),
    ];
    let mut all = String::new();
    for (name, settings, end) in cases {
        let mut c = with_rules(settings, &[]);
        c.text.clear();
        report(&mut c, end);
        all += &format!("--- {name}\n{}", c.text);
    }
    let mut c = with_rules(Settings::default(), &[]);
    for _ in 0..2 {
        c.claim(1, 1);
        c.lose(1);
    }
    c.text = all + &c.text;
    c.is(include_str!("reports_causes.txt"));
}

#[test]
fn only_the_holder_speaks_for_an_attempt_and_what_never_began_goes_back() {
    let limited = |job: &mut NewJob| job.class.uses = vec!["licence".into()];
    let jobs = vec![but(job(&[]), limited), job(&[]), job(&[])];
    let mut c = Chronicle::plain(jobs);
    c.limits.insert("licence".into(), LimitUse { max: 1, used: 0, paused: false });
    c.initialize();
    say!(c, format!("{:?}", c.take(1, 3)));
    c.note("claimed");
    let attempt = c.flow.job(ix(0)).live().expect("it was claimed");
    let token = c.flow.job(ix(0)).held().expect("it is held").token.clone();
    for (runner, token) in [(1, token.as_str()), (2, token.as_str()), (1, "x")] {
        say!(c, format!("{:?}", c.flow.may_report(attempt, RunnerId(runner), token)));
    }
    say!(c, format!("{:?}", c.flow.claimed_before(RunnerId(1), c.now - 1)));
    say!(c, format!("{:?}", c.flow.claimed_before(RunnerId(1), c.now)));
    c.flow.started(ix(1), 7, c.now);
    c.flow.started(ix(1), 8, c.now + 1);
    c.note("started twice");
    say!(c, format!("{:?}", c.flow.claimed_before(RunnerId(1), c.now)));
    say!(c, format!("{:?}", c.limits));
    say!(c, format!("{:?} {}", c.flow.runners_with_work(), c.flow.held_count()));
    c.flow.never_began(RunnerId(2), attempt, "no", &mut c.limits, c.now);
    let second = c.flow.job(ix(1)).live().expect("it runs");
    c.flow.never_began(RunnerId(1), second, "it runs", &mut c.limits, c.now);
    c.note("nothing went back");
    c.flow.leave_unstarted(RunnerId(1), &mut c.limits, c.now);
    c.note("the runner leaves");
    say!(c, format!("{:?}", c.limits));
    say!(c, format!("{:?}", c.flow.may_report(attempt, RunnerId(1), &token)));
    c.is(include_str!("reports_holder.txt"));
}

#[test]
fn a_retry_prefers_another_machine_for_ten_seconds() {
    let again = Rule { match_all_exit_codes: true, max_retries: 5, ..Rule::default() };
    let tried = but(job(&[]), |job| job.handler = Some(HandlerIx::new(0)));
    for has_other in [true, false] {
        let mut c = Chronicle::new(
            Settings::default(),
            vec![handler(std::slice::from_ref(&again))],
            vec![tried.clone(), job(&[])],
        );
        c.initialize();
        assert_eq!(c.take(1, 1), [0]);
        if has_other {
            assert_eq!(c.take(2, 1), [1]);
        }
        c.end(0, Some(Cause::Exit), 1);
        let capacity = node(1);
        let asks = |neighbours: &[RunnerId], now: i64| {
            let claim = Claim {
                runner: RunnerId(3),
                key: "k",
                limit: 1,
                prefetch: 0,
                capacity: &capacity,
                time_left: None,
                scheduler: None,
                strict_scheduler: false,
                label: None,
                now,
                nonce: 1,
            };
            let mut flow = c.flow.clone();
            let given = flow.claim_beside(&claim, neighbours, &mut c.limits.clone());
            given.iter().any(|claimed| claimed.index == ix(0))
        };
        let (until, bad) = (c.now + 10_000, [RunnerId(1)]);
        assert_eq!(asks(&bad, until - 1), !has_other);
        assert!(asks(&bad, until) && asks(&[RunnerId(2)], c.now) && asks(&[], c.now));
        assert_eq!(c.flow.next_due(), has_other.then_some(until));
    }
}

#[test]
fn a_script_that_waits_is_not_forgotten_by_a_restart() {
    let script = RecoveryScript {
        script: "fix".into(),
        timeout_seconds: 30,
        on_failure: OnScriptFailure::Fail,
        failed_attempt_id: 1,
        return_code: 2,
    };
    let rule = Rule {
        exit_codes: vec![2],
        recovery_script: Some("fix".into()),
        script_timeout: Some(Runtime(30)),
        on_script_failure: OnScriptFailure::Fail,
        ..Rule::default()
    };
    let mut c = with_rules(Settings::default(), &[rule]);
    c.flow.take_changes();
    report(&mut c, end(Some(Cause::Exit), 2, 0));
    assert_eq!(c.flow.job(ix(0)).rare.script, Some(script.clone()));
    // Lost before it ran: the next attempt needs it too.
    c.claim(1, 1);
    c.lose(1);
    assert_eq!(c.flow.job(ix(0)).rare.script, Some(script));
}
