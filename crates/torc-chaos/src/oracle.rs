//! Decides from outside: reads what the witnesses wrote, what the client was told and what the
//! webhooks said.

use crate::history::{ClientHistory, Created, Retries};
use crate::linear;
use crate::receiver::Delivery;
use crate::report::Report;
use crate::witness::{Line, PublishedFile, Records, WitnessWord};
use crate::workload::{BAD_ITEM, Expected, HANDLER, ITEMS, JobShape, STEPS};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use torc_model::api::AttemptView;
use torc_model::status::{AttemptState, Cause, Origin};

/// Judges a world. One that did not come to its end is judged only by what must hold at any time.
pub fn judge(
    records: &Records,
    published: &[PublishedFile],
    history: &ClientHistory,
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
        let is_start =
            |line: &&Line| matches!(line.word, WitnessWord::Start | WitnessWord::StepStart(_));
        report.starts += lines.iter().filter(is_start).count() as u64;
        report.scripts +=
            lines.iter().filter(|line| line.word == WitnessWord::ScriptEnd).count() as u64;
        one_at_a_time(key, lines, report);
    }
    let by_attempt = signed_and_stable(deliveries, report);
    for created in &history.workflows {
        let case = Case { created, records, published, deliveries: &by_attempt };
        case.parents_came_first(report);
        case.told_is_final(report);
        case.only_whole_files_were_published(report);
        case.steps_came_in_order(report);
        if ended {
            case.everything_ended_as_it_must(report);
            case.attempts_are_a_chain(report);
            case.what_counts_did_happen(report);
            case.all_items_were_reduced(report);
            case.scripts_ran_first(report);
            case.actions_were_executed(report);
            case.the_world_heard(report);
            case.answers_have_an_order(report);
            case.reservations_held(report);
        }
    }
    if ended {
        let known: BTreeSet<i64> = history.workflows.iter().map(|created| created.id).collect();
        for (workflow, job) in records.keys().filter(|(workflow, _)| !known.contains(workflow)) {
            report.violations.push(format!(
                "workflow {workflow}, job {job}: ran although no client was told of it"
            ));
        }
    }
}

/// Every attempt starts at most once, and never beside another one of its job or beside the limit.
fn one_at_a_time((workflow, job): &(i64, String), lines: &[Line], report: &mut Report) {
    let mut started = BTreeSet::new();
    for line in lines {
        let problem = match line.word {
            WitnessWord::Start if !started.insert((line.run, line.attempt)) => "started twice",
            WitnessWord::Overlap => "started while a process of the same job was alive",
            WitnessWord::Limit => "started while all places below the limit were taken",
            _ => continue,
        };
        report
            .violations
            .push(format!("workflow {workflow}, job {job}, attempt {}: {problem}", line.attempt));
    }
}

/// Workflow, job and attempt, and what was said about it: name of the event, id of the delivery,
/// `will_retry`, when.
type WebhookHistory = BTreeMap<(i64, i64, i64), Vec<(String, String, bool, i64)>>;

fn signed_and_stable(deliveries: &[Delivery], report: &mut Report) -> WebhookHistory {
    let mut bodies: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
    let mut said = WebhookHistory::new();
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
    published: &'a [PublishedFile],
    deliveries: &'a WebhookHistory,
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
            let Some(start) =
                self.lines(&job.name).iter().find(|line| line.word == WitnessWord::Start)
            else {
                continue;
            };
            for parent in &job.parents {
                let is_first = self
                    .lines(parent)
                    .iter()
                    .any(|l| l.word == WitnessWord::End(0) && l.at <= start.at);
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

    /// What a client was told has completed does not run again.
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
            if let Some(again) =
                lines.iter().find(|line| line.word == WitnessWord::Start && line.at > at)
            {
                self.blame(
                    report,
                    &job,
                    format_args!(
                        "attempt {attempt} was told to be completed; {} ran",
                        again.attempt
                    ),
                );
                report.lost.acknowledged += run_time(lines, attempt);
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
            let asked = match job.name.as_str() {
                "broken" => self.created.retries,
                BAD_ITEM => self.created.item_retries,
                _ => Retries::default(),
            };
            let (least, most) = (asked.acknowledged, asked.acknowledged + asked.unknown);
            if manual < least || manual > most.min(1) || least > 1 {
                let text = format_args!(
                    "{manual} retries, {least} acknowledged, {} unknown",
                    asked.unknown
                );
                self.blame(report, &job.name, text);
            }
        }
    }

    /// What the program says of an attempt, its witness says too.
    fn what_counts_did_happen(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let lines = self.lines(&job.name);
            let is_end = |word: WitnessWord, code| match job.shape {
                JobShape::Steps { .. } => word == WitnessWord::StepEnd(STEPS, code),
                _ => word == WitnessWord::End(code),
            };
            // An attempt that resumes may find that its predecessor ended the last step, too.
            let resumes = job.shape == JobShape::Steps { resumes: true };
            let ended = |attempt: i64, code: i64| {
                let is_its = |l: &Line| l.attempt == attempt || resumes && l.attempt < attempt;
                lines.iter().any(|l| is_its(l) && is_end(l.word, code))
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
                    (AttemptState::Failed, Some(code @ (3 | 4 | 10))) if !ended(number, code) => {
                        self.blame(
                            report,
                            &job.name,
                            format_args!("attempt {number} did not end with {code}"),
                        );
                    }
                    _ if ended(number, 0) => report.lost.unacknowledged += run_time(lines, number),
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
                .filter(|line| matches!(line.word, WitnessWord::Start | WitnessWord::StepStart(_)))
                .filter(|line| !known.contains(&line.attempt))
            {
                self.blame(
                    report,
                    &job.name,
                    format_args!("attempt {} ran, but the server does not know it", line.attempt),
                );
            }
        }
    }

    /// A shell puts a file into place after its witness has written all of it; what was killed
    /// before that puts nothing into place.
    fn only_whole_files_were_published(&self, report: &mut Report) {
        for file in self.published.iter().filter(|file| file.key.0 == self.created.id) {
            let (job, attempt) = (&file.key.1, file.attempt);
            let has_ended = self
                .lines(job)
                .iter()
                .any(|l| l.attempt == attempt && l.word == WitnessWord::End(0));
            if !has_ended || !file.is_whole {
                let text = format_args!("attempt {attempt} was killed and put its file into place");
                self.blame(report, job, text);
            }
        }
        let publishing = |job: &&Expected| job.shape == JobShape::Publishing;
        for job in self.created.planned.jobs.iter().filter(publishing) {
            let completed = |a: &&AttemptView| a.state == AttemptState::Completed;
            for attempt in self.attempts(&job.name).filter(completed) {
                let is_its = |file: &&PublishedFile| {
                    file.key == (self.created.id, job.name.clone())
                        && file.attempt == attempt.attempt_id
                };
                if !self.published.iter().any(|file| is_its(&file)) {
                    let text = format_args!(
                        "attempt {} counts, but its file is not in its place",
                        attempt.attempt_id
                    );
                    self.blame(report, &job.name, text);
                }
            }
        }
    }

    /// A step runs after the steps before it ended well, in the same attempt, or in an earlier one
    /// where attempts resume. Handlers run after a try of their step. Nothing runs more often than
    /// the spec allows.
    fn steps_came_in_order(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let JobShape::Steps { resumes } = job.shape else { continue };
            let lines = self.lines(&job.name);
            for (at, line) in lines.iter().enumerate() {
                let WitnessWord::StepStart(step) = line.word else { continue };
                let before = &lines[..at];
                let counts = |l: &&Line| l.attempt == line.attempt || resumes;
                let succeeded = |step| {
                    let is_end = |l: &Line| l.word == WitnessWord::StepEnd(step, 0);
                    before.iter().filter(counts).any(is_end)
                };
                let tries = |step| {
                    let is_try = |l: &&Line| {
                        l.attempt == line.attempt && l.word == WitnessWord::StepStart(step)
                    };
                    before.iter().filter(is_try).count()
                };
                let problem = match step {
                    HANDLER if tries(2) == 0 => "its handler ran without a try of its step",
                    HANDLER if tries(HANDLER) > 0 => "its handler ran twice",
                    HANDLER => continue,
                    step if !(1..step).all(succeeded) => "a step ran before those before it",
                    step if tries(step) > usize::from(step == 2) => "a step ran too often",
                    _ => continue,
                };
                let text = format_args!("attempt {}, step {step}: {problem}", line.attempt);
                self.blame(report, &job.name, text);
            }
        }
    }

    /// The reduce that counts was told of every item of the map, and that all of them succeeded.
    fn all_items_were_reduced(&self, report: &mut Report) {
        let of = i64::try_from(ITEMS.len()).unwrap_or(i64::MAX);
        let reducing = |job: &&Expected| job.shape == JobShape::Reduce;
        for job in self.created.planned.jobs.iter().filter(reducing) {
            let counts = self.attempts(&job.name).find(|a| a.state == AttemptState::Completed);
            let Some(counts) = counts else { continue };
            let told = self.lines(&job.name).iter().rev().find_map(|line| match line.word {
                WitnessWord::Reduced(successful, total) if line.attempt == counts.attempt_id => {
                    Some((successful, total))
                }
                _ => None,
            });
            if told != Some((of, of)) {
                let text = format_args!("was told of {told:?} items, there are {of}");
                self.blame(report, &job.name, text);
            }
        }
        let is_item = |name: &str| name.starts_with("each/");
        let found = self.created.jobs.iter().filter(|job| is_item(&job.name)).count();
        // The one that was dropped is still shown.
        if found != ITEMS.len() + 1 {
            self.blame(report, "each", format_args!("has {found} items, not {of} and one dropped"));
        }
    }

    /// A failure whose rule has a script: the script has ended before the next attempt starts.
    fn scripts_ran_first(&self, report: &mut Report) {
        for job in &self.created.planned.jobs {
            let lines = self.lines(&job.name);
            for failed in self.attempts(&job.name).filter(|attempt| attempt.return_code == Some(10))
            {
                let number = failed.attempt_id;
                let next = lines
                    .iter()
                    .find(|line| line.word == WitnessWord::Start && line.attempt > number);
                let script = lines
                    .iter()
                    .find(|line| line.word == WitnessWord::ScriptEnd && line.attempt == number);
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
            let Some(done) = self.lines(name).iter().find(|line| line.word == WitnessWord::Action)
            else {
                self.blame(report, name, "was not executed");
                continue;
            };
            let firsts =
                self.created.planned.jobs.iter().filter(|job| job.name.starts_with("first"));
            let is_early = |job: &str| {
                !self.lines(job).iter().any(|l| l.word == WitnessWord::End(0) && l.at <= done.at)
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

    /// Every answer is the state after some of the committed changes.
    fn answers_have_an_order(&self, report: &mut Report) {
        let name_of = |id: i64| self.created.jobs.iter().find(|job| job.id.0 == id);
        let mut told = Vec::new();
        for ((workflow, job, attempt), said) in self.deliveries {
            let is_end = |event: &str| matches!(event, "job.run.completed" | "job.run.failed");
            let first = said.iter().filter(|(event, ..)| is_end(event)).map(|(.., at)| *at).min();
            if let (Some(at), Some(job)) = (first, name_of(*job))
                && *workflow == self.created.id
            {
                told.push(((job.name.clone(), *attempt), at));
            }
        }
        for problem in linear::check(self.created, &told) {
            self.blame(report, "(answers)", problem);
        }
        report.answers += self.created.answers.len() as u64;
    }

    /// Nothing was claimed while a reservation was held.
    fn reservations_held(&self, report: &mut Report) {
        for (from, to) in &self.created.reservations {
            let is_inside =
                |a: &&AttemptView| a.claimed_ms.is_some_and(|at| at > *from && at < *to);
            for attempt in self.created.attempts.iter().filter(is_inside) {
                let text =
                    format_args!("attempt {} was claimed under a reservation", attempt.attempt_id);
                self.blame(report, &attempt.job_name, text);
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
            // A map tells of its end when its items have ended.
            let is_map =
                |job: &Expected| job.shape == JobShape::Map && job.name == attempt.job_name;
            if self.created.planned.jobs.iter().any(is_map) {
                continue;
            }
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
    let of = |is: fn(WitnessWord) -> bool| {
        lines.iter().find(|line| line.attempt == attempt && is(line.word)).map(|line| line.at)
    };
    match (of(|word| word == WitnessWord::Start), of(|word| matches!(word, WitnessWord::End(_)))) {
        (Some(start), Some(end)) => Duration::from_micros(u64::try_from(end - start).unwrap_or(0)),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanRng;
    use crate::workload::{MAP, PlannedWorkflow};
    use serde_json::json;
    use torc_model::api::EventView;

    /// What the witnesses, the client and the webhooks say of a workflow that ended as it must.
    struct Forged {
        records: Records,
        published: Vec<PublishedFile>,
        history: ClientHistory,
        deliveries: Vec<Delivery>,
    }

    impl Forged {
        fn sound() -> Self {
            let planned = PlannedWorkflow::draw(&mut PlanRng::new(5), 1);
            let (mut records, mut published) = (Records::new(), Vec::new());
            let (mut jobs, mut attempts, mut deliveries) = (Vec::new(), Vec::new(), Vec::new());
            let mut events = Vec::new();
            let mut clock = 0;
            let mut line = |word, attempt| {
                clock += 1;
                Line { word, run: 1, attempt, pid: 1, at: clock }
            };
            // Parents first; `sum` and `last` come last in their groups already.
            for (index, job) in planned.jobs.iter().enumerate() {
                let id = index as i64 + 1;
                let (code, state) = match job.status {
                    "completed" => (0, "completed"),
                    _ => (3, "failed"),
                };
                let words = match job.shape {
                    _ if job.status == "canceled" => vec![],
                    JobShape::Steps { .. } => vec![
                        WitnessWord::StepStart(1),
                        WitnessWord::StepEnd(1, 0),
                        WitnessWord::StepStart(2),
                        WitnessWord::StepEnd(2, 5),
                        WitnessWord::StepStart(HANDLER),
                        WitnessWord::StepEnd(HANDLER, 0),
                        WitnessWord::StepStart(2),
                        WitnessWord::StepEnd(2, 0),
                        WitnessWord::StepStart(3),
                        WitnessWord::StepEnd(3, 0),
                    ],
                    JobShape::Reduce => {
                        vec![WitnessWord::Start, WitnessWord::Reduced(6, 6), WitnessWord::End(0)]
                    }
                    _ => vec![WitnessWord::Start, WitnessWord::End(code)],
                };
                let lines: Vec<Line> = words.into_iter().map(|word| line(word, 1)).collect();
                if job.shape == JobShape::Publishing {
                    let key = (1, job.name.clone());
                    published.push(PublishedFile { key, attempt: 1, is_whole: true });
                }
                jobs.push(json!({
                    "id": id, "workflow_id": 1, "name": job.name, "command": "", "status": job.status,
                    "attempt_id": 1, "priority": 0, "num_cpus": 1, "num_gpus": 0, "num_nodes": 1,
                    "cancel_on_blocking_job_failure": true, "held": false,
                }));
                if !lines.is_empty() {
                    attempts.push(attempt(id, &job.name, 1, state, code));
                    events.push(event(id, &job.name, state, code));
                    if job.shape != JobShape::Map {
                        deliveries.push(delivery(id, 1, state));
                    }
                    records.insert((1, job.name.clone()), lines);
                }
            }
            for action in ["action_begin", "action_firsts"] {
                records.insert((1, action.into()), vec![line(WitnessWord::Action, 0)]);
            }
            let created = Created {
                id: 1,
                planned,
                seen_completed: BTreeMap::new(),
                retries: Retries::default(),
                item_retries: Retries::default(),
                jobs: jobs.into_iter().map(|job| serde_json::from_value(job).unwrap()).collect(),
                attempts,
                events,
                answers: Vec::new(),
                reservations: vec![(10, 20)],
            };
            let history = ClientHistory { workflows: vec![created], ..ClientHistory::default() };
            Self { records, published, history, deliveries }
        }

        fn lines(&mut self, job: &str) -> &mut Vec<Line> {
            self.records.get_mut(&(1, job.to_owned())).unwrap()
        }

        fn publishing(&self) -> String {
            self.published[0].key.1.clone()
        }

        fn violations(&self) -> Vec<String> {
            let mut report = Report::default();
            judge(
                &self.records,
                &self.published,
                &self.history,
                &self.deliveries,
                true,
                &mut report,
            );
            report.violations
        }
    }

    fn attempt(job: i64, name: &str, number: i64, state: &str, code: i64) -> AttemptView {
        let id = job * 100 + number;
        let origin = if number == 1 { "initial" } else { "handler" };
        let retry_of = (number > 1).then_some(id - 1);
        serde_json::from_value(json!({
            "id": id, "workflow_id": 1, "job_id": job, "job_name": name, "run_id": 1,
            "attempt_id": number, "state": state, "origin": origin, "retry_of": retry_of,
            "created_ms": 0, "return_code": code, "evidence": [],
        }))
        .unwrap()
    }

    fn event(job: i64, name: &str, state: &str, code: i64) -> EventView {
        serde_json::from_value(json!({
            "id": job, "workflow_id": 1, "timestamp_ms": 0, "kind": format!("job_{state}"), "job_id": job,
            "job_name": name, "data": {"attempt_id": 1, "return_code": code},
        }))
        .unwrap()
    }

    fn delivery(job: i64, attempt: i64, state: &str) -> Delivery {
        let body = json!({
            "event": format!("job.run.{state}"), "workflow_id": 1, "job_id": job,
            "attempt_id": attempt, "will_retry": false,
        });
        Delivery { id: format!("{job}/{attempt}"), body, is_signed: true, at: 1_000_000 }
    }

    #[test]
    fn a_sound_journal_has_no_violations() {
        let forged = Forged::sound();
        assert_eq!(forged.violations(), [""; 0]);
        assert!(!forged.published.is_empty(), "choose a seed with a job that publishes");
    }

    #[test]
    fn an_attempt_that_resumes_after_the_last_step_did_happen() {
        let mut forged = Forged::sound();
        let created = &mut forged.history.workflows[0];
        let first = created.attempts.iter_mut().find(|a| a.job_name == "resuming").unwrap();
        let job = first.job_id.0;
        *first =
            AttemptView { return_code: Some(-128), ..attempt(job, "resuming", 1, "failed", 0) };
        created.attempts.push(attempt(job, "resuming", 2, "completed", 0));
        let of_job = |d: &Delivery| d.body["job_id"] == job;
        forged.deliveries.retain(|d| !of_job(d));
        let mut lost = delivery(job, 1, "failed");
        lost.body["will_retry"] = true.into();
        forged.deliveries.extend([lost, delivery(job, 2, "completed")]);
        assert_eq!(forged.violations(), [""; 0]);
    }

    #[test]
    fn every_kind_of_violation_is_found_in_a_forged_journal() {
        let line = |word, attempt, at| Line { word, run: 1, attempt, pid: 2, at };
        type Forgery<'a> = Box<dyn Fn(&mut Forged) + 'a>;
        let item = format!("{MAP}/beta");
        let cases: Vec<(&str, Forgery<'_>)> = vec![
            (
                "started while a process of the same job was alive",
                Box::new(|f| f.lines(&item).push(line(WitnessWord::Overlap, 1, 5))),
            ),
            (
                "started while all places below the limit were taken",
                Box::new(|f| f.lines("limited3").push(line(WitnessWord::Limit, 1, 5))),
            ),
            (
                "attempt 1: started twice",
                Box::new(|f| f.lines(&item).push(line(WitnessWord::Start, 1, 900_000))),
            ),
            (
                "attempt 2 ran, but the server does not know it",
                Box::new(|f| f.lines("first1").push(line(WitnessWord::Start, 2, 900_000))),
            ),
            (
                "was told to be completed; 2 ran",
                Box::new(|f| f.lines(&item).push(line(WitnessWord::Start, 2, 2_000_000))),
            ),
            (
                "attempt 1 counts, but did not happen",
                Box::new(|f| f.lines(&item).retain(|l| l.word != WitnessWord::End(0))),
            ),
            (
                "attempt 1 was killed and put its file into place",
                Box::new(|f| {
                    let job = f.publishing();
                    f.lines(&job).retain(|l| l.word != WitnessWord::End(0));
                }),
            ),
            (
                "attempt 1 was killed and put its file into place",
                Box::new(|f| f.published[0].is_whole = false),
            ),
            (
                "attempt 1 counts, but its file is not in its place",
                Box::new(|f| f.published.clear()),
            ),
            ("started before each/alpha had succeeded", Box::new(|f| f.lines("sum")[0].at = 1)),
            (
                "was told of Some((5, 6)) items, there are 6",
                Box::new(|f| f.lines("sum")[1].word = WitnessWord::Reduced(5, 6)),
            ),
            (
                "each/beta: was lost",
                Box::new(|f| f.history.workflows[0].jobs.retain(|job| job.name != item)),
            ),
            (
                "each: has 6 items, not 6 and one dropped",
                Box::new(|f| f.history.workflows[0].jobs.retain(|job| job.name != item)),
            ),
            (
                "step 3: a step ran before those before it",
                Box::new(|f| f.lines("stepwise").retain(|l| l.word != WitnessWord::StepEnd(2, 0))),
            ),
            (
                "resuming: attempt 1 counts, but did not happen",
                Box::new(|f| f.lines("resuming").retain(|l| l.word != WitnessWord::StepEnd(3, 0))),
            ),
            (
                "step 1: a step ran too often",
                Box::new(|f| f.lines("resuming").push(line(WitnessWord::StepStart(1), 1, 900_000))),
            ),
            (
                "its handler ran twice",
                Box::new(|f| {
                    f.lines("stepwise").push(line(WitnessWord::StepStart(HANDLER), 1, 900_000))
                }),
            ),
            (
                "its handler ran without a try of its step",
                Box::new(|f| {
                    f.lines("stepwise").push(line(WitnessWord::StepStart(HANDLER), 2, 900_000))
                }),
            ),
            (
                "each/bad: ended as failed, not completed",
                Box::new(|f| {
                    let jobs = &mut f.history.workflows[0].jobs;
                    let bad = jobs.iter_mut().find(|job| job.name == BAD_ITEM).unwrap();
                    bad.status = torc_model::status::JobStatus::Failed;
                }),
            ),
            (
                "each/dead: ended as failed, not disabled",
                Box::new(|f| {
                    let jobs = &mut f.history.workflows[0].jobs;
                    let bad = jobs.iter_mut().find(|job| job.name == "each/dead").unwrap();
                    bad.status = torc_model::status::JobStatus::Failed;
                }),
            ),
            (
                "each/bad: 0 retries, 1 acknowledged, 0 unknown",
                Box::new(|f| f.history.workflows[0].item_retries.acknowledged = 1),
            ),
            (
                "attempt 3 is number 2",
                Box::new(|f| {
                    let of = f.history.workflows[0].attempts.iter();
                    let job = of.clone().find(|a| a.job_name == item).unwrap().job_id.0;
                    let extra = attempt(job, &item, 3, "failed", 137);
                    f.history.workflows[0].attempts.push(extra);
                }),
            ),
            (
                "0 webhooks of its end (job.run.completed)",
                Box::new(|f| drop(f.deliveries.remove(0))),
            ),
            (
                "was claimed under a reservation",
                Box::new(|f| f.history.workflows[0].attempts[0].claimed_ms = Some(15)),
            ),
            (
                "has no place after event",
                Box::new(|f| {
                    let heard = crate::history::Heard::Ends(Vec::new());
                    let answer = crate::history::Answer { asked: 2_000_000, heard };
                    f.history.workflows[0].answers.push(answer);
                }),
            ),
            ("the signature is wrong", Box::new(|f| f.deliveries[0].is_signed = false)),
            (
                "workflow 9, job x: ran although no client was told of it",
                Box::new(|f| {
                    f.records.insert((9, "x".into()), vec![line(WitnessWord::Start, 1, 1)]);
                }),
            ),
        ];
        for (expected, forge) in cases {
            let mut forged = Forged::sound();
            forge(&mut forged);
            let found = forged.violations();
            assert!(found.iter().any(|text| text.contains(expected)), "{expected}: {found:#?}");
        }
    }
}
