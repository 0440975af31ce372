//! Decides from outside: reads what the witnesses wrote, what the client was told and what the
//! webhooks said.

use crate::history::{Created, History};
use crate::receiver::Delivery;
use crate::report::Report;
use crate::witness::{Line, Records, Word};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use torc_model::api::AttemptView;
use torc_model::status::{AttemptState, Cause, Origin};

/// Judges a world. One that did not come to its end is judged only by what must hold at any time.
pub fn judge(
    records: &Records,
    history: &History,
    deliveries: &[Delivery],
    ended: bool,
    report: &mut Report,
) {
    report.workflows += history.workflows.len() as u64;
    report.unanswered += history.unanswered;
    report.deliveries += deliveries.len() as u64;
    report
        .violations
        .extend(history.wrong.iter().map(|wrong| format!("a request got a wrong answer: {wrong}")));
    for (key, lines) in records {
        report.starts += lines.iter().filter(|line| line.word == Word::Start).count() as u64;
        report.scripts += lines.iter().filter(|line| line.word == Word::ScriptEnd).count() as u64;
        one_at_a_time(key, lines, report);
    }
    let by_attempt = signed_and_stable(deliveries, report);
    for created in &history.workflows {
        let case = Case { created, records, deliveries: &by_attempt };
        case.parents_came_first(report);
        case.told_is_final(report);
        if ended {
            case.everything_ended_as_it_must(report);
            case.attempts_are_a_chain(report);
            case.what_counts_did_happen(report);
            case.scripts_ran_first(report);
            case.actions_were_executed(report);
            case.the_world_heard(report);
        }
    }
    if ended {
        let known: BTreeSet<i64> = history.workflows.iter().map(|created| created.id).collect();
        for (workflow, job) in records.keys().filter(|(workflow, _)| !known.contains(workflow)) {
            report.violations.push(format!(
                "workflow {workflow}, job {job}: ran although nobody was told of it"
            ));
        }
    }
}

/// Every attempt starts at most once, and never beside another one of its job or beside the limit.
fn one_at_a_time((workflow, job): &(i64, String), lines: &[Line], report: &mut Report) {
    let mut started = BTreeSet::new();
    for line in lines {
        let problem = match line.word {
            Word::Start if !started.insert((line.run, line.attempt)) => "started twice",
            Word::Overlap => "started while a process of the same job was alive",
            Word::Limit => "started while the limit was in use",
            _ => continue,
        };
        report
            .violations
            .push(format!("workflow {workflow}, job {job}, attempt {}: {problem}", line.attempt));
    }
}

/// Workflow, job and attempt, and what was said about it: name of the event, id of the delivery,
/// `will_retry`, when.
type Said = BTreeMap<(i64, i64, i64), Vec<(String, String, bool, i64)>>;

fn signed_and_stable(deliveries: &[Delivery], report: &mut Report) -> Said {
    let mut bodies: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
    let mut said = Said::new();
    for delivery in deliveries {
        if !delivery.is_signed {
            report.violations.push(format!("webhook {}: the signature is wrong", delivery.id));
        }
        let first = *bodies.entry(&delivery.id).or_insert(&delivery.body);
        if first != &delivery.body {
            report.violations.push(format!("webhook {}: two bodies for one id", delivery.id));
        }
        let number = |name: &str| delivery.body.get(name).and_then(serde_json::Value::as_i64);
        if let (Some(workflow), Some(job), Some(attempt)) =
            (number("workflow_id"), number("job_id"), number("attempt_id"))
        {
            let event = delivery.body["event"].as_str().unwrap_or_default().to_owned();
            let will_retry = delivery.body["will_retry"].as_bool().unwrap_or(false);
            said.entry((workflow, job, attempt)).or_default().push((
                event,
                delivery.id.clone(),
                will_retry,
                delivery.at,
            ));
        }
    }
    said
}

struct Case<'a> {
    created: &'a Created,
    records: &'a Records,
    deliveries: &'a Said,
}

impl Case<'_> {
    fn lines(&self, job: &str) -> &[Line] {
        self.records.get(&(self.created.id, job.to_owned())).map_or(&[], Vec::as_slice)
    }

    fn attempts<'b>(&'b self, job: &'b str) -> impl Iterator<Item = &'b AttemptView> {
        self.created.attempts.iter().filter(move |attempt| attempt.job_name == job)
    }

    fn blame(&self, report: &mut Report, job: &str, problem: impl std::fmt::Display) {
        report.violations.push(format!("workflow {}, job {job}: {problem}", self.created.id));
    }

    fn parents_came_first(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let Some(start) = self.lines(&job.name).iter().find(|line| line.word == Word::Start)
            else {
                continue;
            };
            for parent in &job.parents {
                let is_first =
                    self.lines(parent).iter().any(|l| l.word == Word::End(0) && l.at <= start.at);
                if !is_first {
                    self.blame(
                        report,
                        &job.name,
                        format_args!("started before {parent} had succeeded"),
                    );
                }
            }
        }
    }

    /// What somebody was told has completed does not run again.
    fn told_is_final(&self, report: &mut Report) {
        let mut told: BTreeMap<(String, i64), i64> = self.created.seen_completed.clone();
        for ((workflow, job, attempt), said) in self.deliveries {
            let Some(name) = self
                .created
                .jobs
                .iter()
                .find(|view| view.id.0 == *job)
                .map(|view| view.name.clone())
            else {
                continue;
            };
            for (.., at) in said
                .iter()
                .filter(|(event, ..)| *workflow == self.created.id && event == "job.run.completed")
            {
                let first = told.entry((name.clone(), *attempt)).or_insert(*at);
                *first = (*first).min(*at);
            }
        }
        for ((job, attempt), at) in told {
            let lines = self.lines(&job);
            if let Some(again) = lines.iter().find(|line| line.word == Word::Start && line.at > at)
            {
                self.blame(
                    report,
                    &job,
                    format_args!(
                        "attempt {attempt} was told to be completed; {} ran",
                        again.attempt
                    ),
                );
                report.acknowledged_work_lost += run_time(lines, attempt);
            }
        }
    }

    fn everything_ended_as_it_must(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            match self.created.jobs.iter().find(|view| view.name == job.name) {
                Some(view) if view.status.as_str() == job.status => {}
                Some(view) => self.blame(
                    report,
                    &job.name,
                    format_args!("ended as {}, not {}", view.status, job.status),
                ),
                None => self.blame(report, &job.name, "was lost"),
            }
        }
    }

    fn attempts_are_a_chain(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let mut retried = BTreeSet::new();
            let mut manual = 0;
            for (index, attempt) in self.attempts(&job.name).enumerate() {
                if attempt.attempt_id != index as i64 + 1 {
                    self.blame(
                        report,
                        &job.name,
                        format_args!("attempt {} is number {}", attempt.attempt_id, index + 1),
                    );
                }
                if attempt.retry_of.is_some_and(|of| !retried.insert(of)) {
                    self.blame(
                        report,
                        &job.name,
                        format_args!("attempt {} repeats a retry", attempt.attempt_id),
                    );
                }
                manual += u64::from(attempt.origin == Origin::Manual);
                if attempt.cause == Some(Cause::Lost) {
                    report.lost_attempts += 1;
                }
            }
            let created = self.created;
            let (least, most) = match job.name.as_str() {
                "broken" => (
                    created.retries_acknowledged,
                    created.retries_acknowledged + created.retries_unknown,
                ),
                _ => (0, 0),
            };
            if manual < least || manual > most.min(1) || least > 1 {
                let text = format_args!(
                    "{manual} retries, {least} acknowledged, {} unknown",
                    created.retries_unknown
                );
                self.blame(report, &job.name, text);
            }
        }
    }

    /// What the program says of an attempt, its witness says too.
    fn what_counts_did_happen(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let lines = self.lines(&job.name);
            let ended = |attempt: i64, code: i64| {
                lines.iter().any(|l| l.attempt == attempt && l.word == Word::End(code))
            };
            let mut completed = 0;
            for attempt in self.attempts(&job.name) {
                let number = attempt.attempt_id;
                match (attempt.state, attempt.return_code) {
                    (AttemptState::Completed, _) => {
                        completed += 1;
                        if !ended(number, 0) {
                            self.blame(
                                report,
                                &job.name,
                                format_args!("attempt {number} counts, but did not happen"),
                            );
                        }
                    }
                    (AttemptState::Failed, Some(code @ (3 | 10))) if !ended(number, code) => {
                        self.blame(
                            report,
                            &job.name,
                            format_args!("attempt {number} did not end with {code}"),
                        );
                    }
                    _ if ended(number, 0) => {
                        report.unacknowledged_work_lost += run_time(lines, number)
                    }
                    _ => {}
                }
            }
            if completed > 1 {
                self.blame(report, &job.name, format_args!("completed {completed} times"));
            }
            let known: BTreeSet<i64> =
                self.attempts(&job.name).map(|attempt| attempt.attempt_id).collect();
            for line in lines
                .iter()
                .filter(|line| line.word == Word::Start && !known.contains(&line.attempt))
            {
                self.blame(
                    report,
                    &job.name,
                    format_args!("attempt {} ran, but nobody knows it", line.attempt),
                );
            }
        }
    }

    /// A failure whose rule has a script: the script has ended before the next attempt starts.
    fn scripts_ran_first(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let lines = self.lines(&job.name);
            for failed in self.attempts(&job.name).filter(|attempt| attempt.return_code == Some(10))
            {
                let number = failed.attempt_id;
                let next =
                    lines.iter().find(|line| line.word == Word::Start && line.attempt > number);
                let script = lines
                    .iter()
                    .find(|line| line.word == Word::ScriptEnd && line.attempt == number);
                let Some(next) = next else { continue };
                if script.is_none_or(|script| script.at > next.at) {
                    self.blame(
                        report,
                        &job.name,
                        format_args!("attempt {} ran before the script of {number}", next.attempt),
                    );
                }
            }
        }
    }

    /// Every action was executed, and not before its jobs had ended.
    fn actions_were_executed(&self, report: &mut Report) {
        for name in ["action_begin", "action_firsts"] {
            let Some(done) = self.lines(name).iter().find(|line| line.word == Word::Action) else {
                self.blame(report, name, "was not executed");
                continue;
            };
            let firsts =
                self.created.planned.jobs.iter().filter(|job| job.name.starts_with("first"));
            let is_early = |job: &str| {
                !self.lines(job).iter().any(|l| l.word == Word::End(0) && l.at <= done.at)
            };
            for job in firsts.filter(|job| name == "action_firsts" && is_early(&job.name)) {
                self.blame(
                    report,
                    name,
                    format_args!("was executed before {} had ended", job.name),
                );
            }
        }
    }

    /// Every end of an attempt was told, each under one id, and truly.
    fn the_world_heard(&self, report: &mut Report) {
        for attempt in &self.created.attempts {
            let event = match attempt.state {
                AttemptState::Completed => "job.run.completed",
                AttemptState::Failed | AttemptState::Terminated => "job.run.failed",
                // What never ran was not an attempt that ended.
                _ => continue,
            };
            let key = (self.created.id, attempt.job_id.0, attempt.attempt_id);
            let said = self.deliveries.get(&key).map_or(&[] as &[_], Vec::as_slice);
            let ids: BTreeSet<&str> = said
                .iter()
                .filter(|(name, ..)| name == event)
                .map(|(_, id, ..)| id.as_str())
                .collect();
            if ids.len() != 1 {
                let text = format_args!(
                    "attempt {}: {} webhooks of its end ({event})",
                    attempt.attempt_id,
                    ids.len()
                );
                self.blame(report, &attempt.job_name, text);
            }
            let next =
                self.attempts(&attempt.job_name).find(|next| next.retry_of == Some(attempt.id));
            let retried = next.is_some_and(|next| next.origin != Origin::Manual);
            if said.iter().any(|(name, _, will_retry, _)| name == event && *will_retry != retried) {
                let text =
                    format_args!("attempt {}: `will_retry` was not true", attempt.attempt_id);
                self.blame(report, &attempt.job_name, text);
            }
        }
    }
}

fn run_time(lines: &[Line], attempt: i64) -> Duration {
    let of = |is: fn(Word) -> bool| {
        lines.iter().find(|line| line.attempt == attempt && is(line.word)).map(|line| line.at)
    };
    match (of(|word| word == Word::Start), of(|word| matches!(word, Word::End(_)))) {
        (Some(start), Some(end)) => Duration::from_micros(u64::try_from(end - start).unwrap_or(0)),
        _ => Duration::ZERO,
    }
}
