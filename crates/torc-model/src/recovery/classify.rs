//! Decides what a verdict may do. The words of an agent end here: what comes out is one of a few
//! moves within limits.

use super::decide::FailureCard;
use super::diagnosis::Diagnosis;
use super::record::Record;
use super::remedy::{Caps, Change, Current};
use super::triage::Verdict;
use crate::status::Adjustable;
use crate::units::{Memory, Runtime};
use crate::words;

/// An agent may have a job tried again this often in a run; then a person decides.
pub const AGENT_RETRIES: i64 = 3;
/// One verdict may raise a limit to this many times what it was.
const LARGEST_RAISE: u64 = 4;

/// Who gives a verdict.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Author {
    /// A person: what they say is done.
    Person,
    /// An agent, which must be this sure.
    Agent {
        /// The workflow's threshold.
        threshold: f64,
    },
    /// The record of earlier verdicts.
    Memory,
}

/// A verdict as it was given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asked {
    /// The verdict that is asked for.
    pub action: Verdict,
    /// More memory.
    pub memory: Option<Memory>,
    /// More time.
    pub runtime: Option<Runtime>,
    /// How sure.
    pub confidence: Option<f64>,
}

/// How the job stands.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Standing {
    /// What its next attempt would get.
    pub current: Current,
    /// The most there is to give.
    pub caps: Caps,
    /// It was tried again after this very failure and failed the same way.
    pub is_repeated: bool,
    /// Retries in this run that an agent asked for.
    pub agent_retries: i64,
}

/// What is done about a verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruling {
    /// The move.
    pub action: Verdict,
    /// What changes for the next attempts.
    pub changes: Vec<Change>,
    /// It waits for a person instead of being done.
    pub is_held: bool,
    /// Why it is held, or why the move is another one than was asked for.
    pub note: Option<String>,
}

/// A verdict that needs neither a person nor an agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// The verdict.
    pub action: Verdict,
    /// One sentence.
    pub reason: String,
    /// How sure the diagnosis is, where it decided.
    pub confidence: Option<f64>,
    /// What changes for the next attempts.
    pub changes: Vec<Change>,
}

/// What is known about a failure without asking: what failed twice the same way is given up; else the
/// record decides, else the card, where its diagnosis is as sure as the workflow asks for.
pub fn known(
    standing: &Standing,
    record: Option<&Record>,
    card: Option<(&Diagnosis, &FailureCard)>,
    threshold: f64,
) -> Option<Known> {
    let alone = |action, reason| Known { action, reason, confidence: None, changes: Vec::new() };
    let found = if standing.is_repeated {
        let reason = "it was tried again after this failure and failed the same way";
        alone(Verdict::Fail, reason.to_owned())
    } else if let Some((action, reason)) = record.and_then(Record::verdict) {
        alone(action, reason)
    } else {
        let (diagnosis, card) = card.filter(|(diagnosis, _)| diagnosis.is_decided(threshold))?;
        let action = if card.action.is_retry() { Verdict::Retry } else { Verdict::Fail };
        Known {
            action,
            reason: format!("{}; {}", card.why, diagnosis.summary),
            confidence: Some(diagnosis.confidence),
            changes: card.changes.clone(),
        }
    };
    let is_tired = standing.agent_retries >= AGENT_RETRIES;
    (found.action == Verdict::Fail || !is_tired).then_some(found)
}

/// Checks a verdict. An error is a sentence about what is wrong with it.
pub fn rule(asked: &Asked, author: Author, standing: &Standing) -> Result<Ruling, String> {
    if let Some(confidence) = asked.confidence.filter(|c| !(0.0..=1.0).contains(c)) {
        return Err(format!("`confidence` must be between 0 and 1; it is {confidence}"));
    }
    if asked.action == Verdict::Fail && (asked.memory.is_some() || asked.runtime.is_some()) {
        return Err("`memory` and `runtime` go with `retry` only".into());
    }
    let changes = changes(asked, standing)?;
    let ruling = |action, changes, is_held, note| Ok(Ruling { action, changes, is_held, note });
    if author == Author::Person {
        return ruling(asked.action, changes, false, None);
    }
    if asked.action == Verdict::Retry && changes.is_empty() && standing.is_repeated {
        let note = "it was tried again after this failure and failed the same way: permanent, whatever its words say";
        return ruling(Verdict::Fail, Vec::new(), false, Some(note.to_owned()));
    }
    if asked.action == Verdict::Retry && standing.agent_retries >= AGENT_RETRIES {
        let note = format!(
            "agents had it tried again {} in this run already",
            words::count(standing.agent_retries, "time")
        );
        return ruling(asked.action, changes, true, Some(note));
    }
    if let (Author::Agent { threshold }, Some(confidence)) = (author, asked.confidence)
        && confidence < threshold
    {
        let note =
            format!("confidence {confidence} is below the workflow's threshold of {threshold}");
        return ruling(asked.action, changes, true, Some(note));
    }
    ruling(asked.action, changes, false, None)
}

fn changes(asked: &Asked, standing: &Standing) -> Result<Vec<Change>, String> {
    let Standing { current, caps, .. } = standing;
    let mut changes = Vec::new();
    if let Some(memory) = asked.memory {
        let base = current.memory_bytes.or(current.peak_memory_bytes);
        let to = raised("memory", memory.0, current.memory_bytes, base, caps.memory_bytes, |v| {
            Memory(v).to_string()
        })?;
        changes.extend(to.map(|to| Change::new(Adjustable::Memory, current.memory_bytes, to)));
    }
    if let Some(runtime) = asked.runtime {
        let (now, cap) = (current.runtime_seconds, caps.runtime_seconds);
        let to = raised("runtime", runtime.0, now, now.or(current.timeout_seconds), cap, |v| {
            Runtime(v).friendly()
        })?;
        changes.extend(to.map(|to| Change::new(Adjustable::Runtime, current.runtime_seconds, to)));
        // A `timeout` of its own would end it all the same.
        if let (Some(to), Some(timeout)) = (to, current.timeout_seconds.filter(|t| *t < runtime.0))
        {
            changes.push(Change::new(Adjustable::Timeout, Some(timeout), to));
        }
    }
    Ok(changes)
}

/// A value within its limits; `None` when it is what the job has already.
fn raised(
    field: &str,
    to: u64,
    now: Option<u64>,
    base: Option<u64>,
    cap: Option<u64>,
    written: impl Fn(u64) -> String,
) -> Result<Option<u64>, String> {
    if to == 0 {
        return Err(format!("`{field}` must be more than zero"));
    }
    if let Some(now) = now {
        if to < now {
            return Err(format!(
                "`{field}` is never lowered: {} is less than {}",
                written(to),
                written(now)
            ));
        }
        if to == now {
            return Ok(None);
        }
    }
    if let Some(cap) = cap.filter(|cap| to > *cap) {
        return Err(format!(
            "`{field}` of {} is more than there is: {}",
            written(to),
            written(cap)
        ));
    }
    match base.map(|base| base.saturating_mul(LARGEST_RAISE)) {
        Some(most) if to > most => {
            let message = format!(
                "`{field}` of {} is too much at once; at most {}",
                written(to),
                written(most)
            );
            Err(message)
        }
        None if cap.is_none() => Err(format!(
            "nothing tells how much `{field}` there is to give; set it with `torc jobs update`"
        )),
        Some(_) | None => Ok(Some(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;
    const AGENT: Author = Author::Agent { threshold: 0.8 };

    fn retry() -> Asked {
        Asked { action: Verdict::Retry, memory: None, runtime: None, confidence: None }
    }

    fn standing() -> Standing {
        Standing {
            current: Current {
                memory_bytes: Some(2 * GB),
                runtime_seconds: Some(600),
                timeout_seconds: None,
                peak_memory_bytes: None,
                ..Current::default()
            },
            caps: Caps { memory_bytes: Some(6 * GB), runtime_seconds: None },
            is_repeated: false,
            agent_retries: 0,
        }
    }

    #[test]
    fn an_unsure_agent_is_held_and_a_person_is_not() {
        let unsure = Asked { confidence: Some(0.79), ..retry() };
        assert!(rule(&unsure, AGENT, &standing()).unwrap().is_held);
        assert!(!rule(&unsure, Author::Person, &standing()).unwrap().is_held);
        let sure = Asked { confidence: Some(0.8), ..retry() };
        assert!(!rule(&sure, AGENT, &standing()).unwrap().is_held);
        assert!(!rule(&retry(), AGENT, &standing()).unwrap().is_held);
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(
                rule(&Asked { confidence: Some(wrong), ..retry() }, Author::Person, &standing())
                    .is_err()
            );
        }
    }

    #[test]
    fn limits_are_raised_within_bounds_and_never_lowered() {
        let memory = |gb: u64| Asked { memory: Some(Memory(gb * GB)), ..retry() };
        let ruling = rule(&memory(3), AGENT, &standing()).unwrap();
        assert_eq!(ruling.changes, [Change::new(Adjustable::Memory, Some(2 * GB), 3 * GB)]);
        assert!(rule(&memory(1), AGENT, &standing()).unwrap_err().contains("never lowered"));
        assert!(rule(&memory(7), AGENT, &standing()).unwrap_err().contains("more than there is"));
        assert!(rule(&memory(2), AGENT, &standing()).unwrap().changes.is_empty());
        let runtime = |seconds| Asked { runtime: Some(Runtime(seconds)), ..retry() };
        assert_eq!(rule(&runtime(1200), AGENT, &standing()).unwrap().changes.len(), 1);
        assert!(
            rule(&runtime(2401), Author::Person, &standing())
                .unwrap_err()
                .contains("too much at once")
        );
        let unknown = Standing::default();
        assert!(rule(&memory(1), AGENT, &unknown).unwrap_err().contains("nothing tells"));
        let fail = Asked { action: Verdict::Fail, ..memory(3) };
        assert!(rule(&fail, AGENT, &standing()).is_err());
    }

    #[test]
    fn what_failed_twice_the_same_way_is_permanent_whatever_an_agent_says() {
        let repeated = Standing { is_repeated: true, ..standing() };
        let sure = Asked { confidence: Some(1.0), ..retry() };
        let ruling = rule(&sure, AGENT, &repeated).unwrap();
        assert_eq!((ruling.action, ruling.is_held), (Verdict::Fail, false));
        assert_eq!(rule(&sure, Author::Person, &repeated).unwrap().action, Verdict::Retry);
        // More memory makes it another try.
        let more = Asked { memory: Some(Memory(3 * GB)), ..sure };
        assert_eq!(rule(&more, AGENT, &repeated).unwrap().action, Verdict::Retry);
    }

    #[test]
    fn an_agent_does_not_retry_for_ever() {
        let tired = Standing { agent_retries: AGENT_RETRIES, ..standing() };
        assert!(rule(&retry(), AGENT, &tired).unwrap().is_held);
        assert!(!rule(&Asked { action: Verdict::Fail, ..retry() }, AGENT, &tired).unwrap().is_held);
        assert!(!rule(&retry(), Author::Person, &tired).unwrap().is_held);
    }

    #[test]
    fn what_is_decided_without_asking_follows_the_repetition_the_record_and_the_diagnosis() {
        use super::super::record::Counts;
        let card = FailureCard {
            action: super::super::remedy::Action::Again,
            changes: Vec::new(),
            why: "w".into(),
            chance: 0.5,
            cost_seconds: None,
        };
        let diagnosis: Diagnosis = serde_json::from_value(serde_json::json!({
            "kind": "network", "nature": "transient", "confidence": 0.9, "summary": "s", "proof": [], "doubts": [],
        }))
        .expect("a diagnosis");
        let sure = Some((&diagnosis, &card));
        let again = |counts| Record { again: counts, ..Record::default() };
        let empty = Record::default();
        let hopeless = again(Counts { tries: 50, failed_same: 50, ..Counts::default() });
        let action = |standing: &Standing, record, card, threshold| {
            known(standing, record, card, threshold).map(|known| (known.action, known.confidence))
        };
        let once = Standing::default();
        assert_eq!(action(&once, None, None, 0.5), None);
        assert_eq!(action(&once, None, sure, 0.9), Some((Verdict::Retry, Some(0.9))));
        assert_eq!(action(&once, Some(&empty), sure, 0.91), None, "it is not as sure");
        let given_up = Some((Verdict::Fail, None));
        assert_eq!(action(&once, Some(&hopeless), sure, 0.5), given_up, "the record knows better");
        let tired = Standing { agent_retries: AGENT_RETRIES, ..once };
        assert_eq!(action(&tired, None, sure, 0.5), None, "a person decides");
        let repeated = Standing { is_repeated: true, ..tired };
        assert_eq!(action(&repeated, None, sure, 0.5), given_up);
    }
}
