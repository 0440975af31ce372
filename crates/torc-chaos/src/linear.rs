//! Every answer has its place in one order.
//!
//! The events of a workflow are the order of its committed changes. What a client was answered, one
//! answer after the other, must be the state after some of these events, each answer at the same
//! place as the one before or later; and never before an end that a webhook had told already. An
//! answer without such a place was never true, or came from a state that was taken back.

use crate::history::{Answer, Created, Heard};
use crate::workload::BAD_ITEM;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::status::JobStatus;

/// Job and attempt.
type Attempt = (String, i64);

/// What the events up to some place amount to.
#[derive(Clone, Default)]
struct State {
    /// How jobs have ended that have.
    ended: BTreeMap<String, JobStatus>,
    /// Attempts that have ended; true when completed.
    attempts: BTreeMap<Attempt, bool>,
}

/// Finds answers that no order explains. `told` are ends of attempts that a webhook told, and when
/// it arrived.
pub fn check(created: &Created, told: &[(Attempt, i64)]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut states = vec![State::default()];
    let mut told_by: BTreeMap<Attempt, usize> = BTreeMap::new();
    for event in &created.events {
        let mut next = states.last().cloned().unwrap_or_default();
        next.apply(event, created);
        if let Some((attempt, _)) = end(event) {
            told_by.entry(attempt).or_insert(states.len());
        }
        states.push(next);
    }
    let mut place = 0;
    for (number, answer) in created.answers.iter().enumerate() {
        for (attempt, _) in told.iter().filter(|(_, at)| *at < answer.asked) {
            match told_by.get(attempt) {
                Some(at) => place = place.max(*at),
                None => {
                    problems.push(format!("a webhook told the end of {attempt:?}, no event does"))
                }
            }
        }
        match (place..states.len()).find(|at| states[*at].explains(answer, created)) {
            Some(at) => place = at,
            None => {
                let nearest = states[place..].iter().map(|state| state.differs(answer, created));
                let why = nearest.min_by_key(Vec::len).unwrap_or_default();
                problems.push(format!(
                    "answer {number} has no place after event {place} of {}: {}",
                    states.len() - 1,
                    why.join(", ")
                ));
                break;
            }
        }
    }
    problems.sort();
    problems.dedup();
    problems
}

/// The end of an attempt that an event tells, and whether it completed.
fn end(event: &EventView) -> Option<(Attempt, bool)> {
    let is_end = matches!(
        event.kind,
        EventKind::JobCompleted
            | EventKind::JobFailed
            | EventKind::JobRetried
            | EventKind::JobTerminated
            | EventKind::JobPendingFailed
            | EventKind::JobCanceled
    );
    let number = event.data.get("attempt_id").and_then(serde_json::Value::as_i64)?;
    let is_told = |key: &str| event.data.get(key).is_some_and(|value| !value.is_null());
    // A retry that a person asked for names the attempt that it queued; nothing ended with it.
    let is_end = is_end && (event.kind != EventKind::JobRetried || is_told("cause"));
    let name = event.job_name.clone().filter(|_| is_end)?;
    Some(((name, number), event.kind == EventKind::JobCompleted))
}

impl State {
    fn apply(&mut self, event: &EventView, created: &Created) {
        if let Some((attempt, is_completed)) = end(event) {
            // A person retries an attempt that had ended before.
            self.attempts.entry(attempt).or_insert(is_completed);
        }
        let Some(name) = &event.job_name else { return };
        let status = match event.kind {
            EventKind::JobCompleted => JobStatus::Completed,
            EventKind::JobFailed => JobStatus::Failed,
            EventKind::JobCanceled => JobStatus::Canceled,
            EventKind::JobTerminated => JobStatus::Terminated,
            EventKind::JobPendingFailed => JobStatus::PendingFailed,
            EventKind::ItemDropped => {
                // What its map had canceled waits for the map again, as for an item that runs again.
                self.reopen_below(BAD_ITEM, created);
                JobStatus::Disabled
            }
            EventKind::JobRetried | EventKind::JobStarted => {
                self.ended.remove(name);
                self.reopen_below(name, created);
                return;
            }
            _ => return,
        };
        self.ended.insert(name.clone(), status);
    }

    /// What was canceled because of a job waits for it again when it runs again.
    fn reopen_below(&mut self, name: &str, created: &Created) {
        let is_below = |job: &&crate::workload::Expected| job.parents.iter().any(|p| p == name);
        for job in created.planned.jobs.iter().filter(is_below) {
            if self.ended.get(&job.name) == Some(&JobStatus::Canceled) {
                self.ended.remove(&job.name);
                self.reopen_below(&job.name, created);
            }
        }
    }

    fn explains(&self, answer: &Answer, created: &Created) -> bool {
        self.differs(answer, created).is_empty()
    }

    /// What of an answer is not so here.
    fn differs(&self, answer: &Answer, created: &Created) -> Vec<String> {
        // A map has ended when its items have, which its own attempt does not tell.
        let is_map = |name: &str| {
            let is_it = |job: &crate::workload::Expected| job.name == name && job.shape.is_map();
            created.planned.jobs.iter().any(is_it)
        };
        match &answer.heard {
            Heard::Jobs(jobs) => {
                let told = jobs.iter().filter(|(name, _)| !is_map(name));
                let told =
                    told.map(|(name, status)| (name, Some(*status).filter(|s| s.is_final())));
                let wrong = told.filter(|(name, told)| self.ended.get(*name) != told.as_ref());
                wrong
                    .map(|(name, told)| {
                        format!("{name} is {:?}, told {told:?}", self.ended.get(name))
                    })
                    .collect()
            }
            Heard::Ends(ends) => {
                let told: BTreeSet<(&Attempt, bool)> =
                    ends.iter().map(|(attempt, done)| (attempt, *done)).collect();
                let here: BTreeSet<(&Attempt, bool)> =
                    self.attempts.iter().map(|(attempt, done)| (attempt, *done)).collect();
                let wrong = here.symmetric_difference(&told).filter(|((name, _), _)| !is_map(name));
                wrong
                    .map(|end| {
                        format!(
                            "{end:?} {}",
                            if told.contains(end) { "is not so" } else { "not told" }
                        )
                    })
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Retries;
    use crate::plan::PlanRng;
    use crate::workload::PlannedWorkflow;
    use serde_json::json;

    fn event(id: i64, kind: &str, job: &str, attempt: i64, code: Option<i64>) -> EventView {
        serde_json::from_value(json!({
            "id": id, "workflow_id": 1, "timestamp_ms": id, "kind": kind, "job_id": 1, "job_name": job,
            "data": {"attempt_id": attempt, "return_code": code, "cause": code.map(|_| "exit")},
        }))
        .unwrap()
    }

    fn jobs(asked: i64, jobs: &[(&str, JobStatus)]) -> Answer {
        let heard =
            Heard::Jobs(jobs.iter().map(|(name, status)| ((*name).into(), *status)).collect());
        Answer { asked, heard }
    }

    fn ends(asked: i64, ends: &[(&str, i64, bool)]) -> Answer {
        let heard = ends.iter().map(|(name, number, done)| (((*name).into(), *number), *done));
        Answer { asked, heard: Heard::Ends(heard.collect()) }
    }

    fn created(answers: Vec<Answer>) -> Created {
        Created {
            id: 1,
            planned: PlannedWorkflow::draw(&mut PlanRng::new(5), 1),
            seen_completed: BTreeMap::new(),
            retries: Retries::default(),
            item_retries: Retries::default(),
            jobs: Vec::new(),
            attempts: Vec::new(),
            events: vec![
                event(1, "job_started", "a", 1, None),
                event(2, "job_retried", "a", 1, Some(10)),
                event(3, "job_started", "a", 2, None),
                event(4, "job_completed", "b", 1, Some(0)),
                event(5, "job_completed", "a", 2, Some(0)),
            ],
            answers,
            reservations: Vec::new(),
        }
    }

    use JobStatus::{Completed, Ready, Running};

    #[test]
    fn answers_in_the_order_of_the_events_are_explained() {
        let sound = created(vec![
            jobs(10, &[("a", Ready), ("b", Ready)]),
            ends(20, &[("a", 1, false)]),
            jobs(30, &[("a", Running), ("b", Completed)]),
            ends(40, &[("a", 1, false), ("b", 1, true), ("a", 2, true)]),
            jobs(50, &[("a", Completed), ("b", Completed)]),
        ]);
        assert_eq!(check(&sound, &[(("b".into(), 1), 25)]), [""; 0]);
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let both = [("a", Completed), ("b", Completed)];
        type Case = (&'static str, Vec<Answer>, Vec<(Attempt, i64)>);
        let cases: [Case; 5] = [
            (
                "taken back",
                vec![jobs(1, &both), jobs(2, &[("a", Running), ("b", Completed)])],
                vec![],
            ),
            ("never so", vec![jobs(1, &[("a", Completed), ("b", Ready)])], vec![]),
            ("an end that no event tells", vec![ends(1, &[("c", 1, true)])], vec![]),
            ("an end left out", vec![ends(1, &[("b", 1, true)])], vec![]),
            (
                "told before",
                vec![jobs(9, &[("a", Running), ("b", Ready)])],
                vec![(("b".into(), 1), 5)],
            ),
        ];
        for (name, answers, told) in cases {
            assert_eq!(check(&created(answers), &told).len(), 1, "{name}");
        }
    }
}
