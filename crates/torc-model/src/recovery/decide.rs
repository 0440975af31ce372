//! The decision about a failed job: what the rules say of its diagnosis, corrected by what happened
//! before to this job, to jobs like it, and to failures like this one.
//!
//! Everything that proposes or carries out a recovery asks here, so that all of them say the same.

use super::diagnosis::Diagnosis;
use super::kind::Kind;
use super::nature::Nature;
use super::record::{Learned, Level, Tried};
use super::remedy::{Action, Caps, Change, Current, Policy, Remedy};

/// Below this chance another try is a waste.
const HOPELESS: f64 = 0.2;

/// From this chance on a try is worth it although the rules know no remedy.
const PROVED: f64 = 0.6;

/// Fewer outcomes of the same or a near failure than this prove nothing.
const ENOUGH: f64 = 1.5;

/// Memory that ran out this often in a run, doubled each time, runs out for ever.
const MOST_RAISES: usize = 3;

/// An earlier attempt of the same job in the same run that failed.
#[derive(Clone, PartialEq, Debug)]
pub struct PastFailure {
    /// What makes it like others.
    pub fingerprint: String,
    /// What happened.
    pub kind: Kind,
    /// Memory it was given.
    pub memory_bytes: Option<i64>,
    /// How long it ran.
    pub exec_seconds: Option<f64>,
    /// Where it ran.
    pub host: Option<String>,
}

/// All that a decision rests on.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// What happened.
    pub diagnosis: &'a Diagnosis,
    /// The attempt that is decided about.
    pub last: &'a PastFailure,
    /// Those before it in this run, newest first.
    pub earlier: &'a [PastFailure],
    /// What the job has now.
    pub current: &'a Current,
    /// The most there is to give.
    pub caps: &'a Caps,
    /// How far recovery may go.
    pub policy: &'a Policy,
    /// What earlier outcomes teach.
    pub learned: &'a Learned,
}

/// What is done about a failed job, why, and what is to be expected of it.
#[derive(Clone, PartialEq, Debug)]
pub struct FailureCard {
    /// What is done.
    pub action: Action,
    /// What changes for its next attempts.
    pub changes: Vec<Change>,
    /// One sentence.
    pub why: String,
    /// The chance that the next attempt succeeds.
    pub chance: f64,
    /// How long it will run, at a guess: what it costs.
    pub cost_seconds: Option<f64>,
}

impl Case<'_> {
    /// What is best done about the failure.
    pub fn decide(&self) -> FailureCard {
        let mut current = *self.current;
        current.known_bytes = self.learned.needed_bytes.max(current.known_bytes);
        if let Some(seconds) = self.learned.needed_seconds {
            current.known_seconds = Some(current.known_seconds.unwrap_or(0.0).max(seconds));
        }
        let remedy = Remedy::choose(self.diagnosis, &current, self.caps, self.policy);
        let mut card = FailureCard {
            chance: self.chance(remedy.action),
            action: remedy.action,
            changes: remedy.changes,
            why: remedy.why,
            cost_seconds: None,
        };
        if let Some(why) = self.is_permanent(card.action) {
            card = FailureCard {
                action: Action::Skip,
                changes: Vec::new(),
                why,
                chance: 0.05,
                ..card
            };
        }
        self.by_record(&mut card);
        let factor = if card.action == Action::MoreTime { 2.0 } else { 1.0 };
        card.cost_seconds = self
            .last
            .exec_seconds
            .filter(|_| card.action.is_retry())
            .map(|seconds| seconds * factor);
        card
    }

    /// What history proves to be permanent, whatever the text says.
    fn is_permanent(&self, action: Action) -> Option<String> {
        match action {
            Action::MoreMemory => self.leak(),
            Action::Again if !self.policy.retry_unknown => {
                self.hung_before().or_else(|| self.equal_on_two_nodes())
            }
            Action::Again | Action::MoreTime | Action::Skip | Action::Impossible => None,
        }
    }

    /// It ran out of memory at two sizes, and with twice as much it lasted twice as long: its use
    /// grows and does not slow. Or it has run out too often.
    fn leak(&self) -> Option<String> {
        let ooms: Vec<&PastFailure> = std::iter::once(self.last)
            .chain(self.earlier)
            .take_while(|past| past.kind == Kind::Oom)
            .collect();
        if ooms.len() >= MOST_RAISES {
            return Some(format!(
                "it ran out of memory {} times in this run, each time with more: it may leak",
                ooms.len()
            ));
        }
        let [last, before, ..] = ooms.as_slice() else { return None };
        let memory = last.memory_bytes? as f64 / before.memory_bytes.filter(|b| *b > 0)? as f64;
        let time = last.exec_seconds? / before.exec_seconds.filter(|s| *s >= 1.0)?;
        (memory >= 1.8 && time >= memory * 0.85).then(|| {
            format!(
                "with {memory:.1} times the memory it lasted {time:.1} times as long and ran out again: its use \
                 grows without end"
            )
        })
    }

    /// A hang that waits for another program is tried again once: each try costs all of its time.
    fn hung_before(&self) -> Option<String> {
        let hangs = self.diagnosis.kind == Kind::Timeout;
        let before = self.earlier.first().is_some_and(|past| past.kind == Kind::Timeout);
        (hangs && before).then(|| "it reached its time limit twice in a row".to_owned())
    }

    /// The same failure on two nodes, after about the same time. What hangs on a third party that
    /// may be out of order for long is not meant.
    fn equal_on_two_nodes(&self) -> Option<String> {
        let depends_on_others = matches!(
            self.diagnosis.kind,
            Kind::Network
                | Kind::License
                | Kind::Lost
                | Kind::Preempted
                | Kind::NodeFail
                | Kind::Stopped
                | Kind::Checkpoint
                | Kind::Walltime
        );
        if depends_on_others {
            return None;
        }
        let like = |past: &&PastFailure| {
            let seconds = |p: &PastFailure| p.exec_seconds.unwrap_or(0.0);
            let (a, b) = (seconds(self.last), seconds(past));
            past.fingerprint == self.last.fingerprint
                && past.host.is_some()
                && past.host != self.last.host
                && (a - b).abs() <= 1.0 + 0.2 * a.max(b)
        };
        let other = self.earlier.iter().find(like)?;
        Some(format!(
            "it failed the same way on {} and on {}: permanent, whatever its words say",
            other.host.as_deref().unwrap_or("one node"),
            self.last.host.as_deref().unwrap_or("another")
        ))
    }

    /// What the outcomes of earlier retries say against the rules.
    fn by_record(&self, card: &mut FailureCard) {
        let known = |tried: Tried| {
            let (same, near) =
                (self.learned.at(Level::Same, tried), self.learned.at(Level::Family, tried));
            if same.tries >= ENOUGH { same } else { near }
        };
        if let Some(tried) = Tried::of(card.action) {
            let weights = known(tried);
            if weights.tries >= ENOUGH && card.chance < HOPELESS && !self.policy.retry_unknown {
                let why = format!(
                    "{} of about {:.0} earlier retries of such a failure succeeded",
                    match weights.succeeded.round() as i64 {
                        0 => "none".to_owned(),
                        some => some.to_string(),
                    },
                    weights.tries
                );
                card.action = Action::Skip;
                card.changes.clear();
                card.why = why;
            }
            return;
        }
        let may_again = card.action == Action::Skip && self.diagnosis.kind != Kind::Canceled;
        let weights = known(Tried::Again);
        let chance = self.chance(Action::Again);
        if may_again && weights.tries >= ENOUGH && chance >= PROVED {
            card.action = Action::Again;
            card.chance = chance;
            card.why = format!(
                "{:.0} of about {:.0} earlier retries of such a failure succeeded",
                weights.succeeded, weights.tries
            );
        }
    }

    /// The chance that an action helps: what the rules make believe, and what was learned.
    fn chance(&self, action: Action) -> f64 {
        let sure = self.diagnosis.confidence;
        let is_transient = self.diagnosis.nature == Nature::Transient;
        let prior = match action {
            Action::Again if is_transient => sure * 0.9,
            Action::Again => (1.0 - sure) * 0.5,
            Action::MoreMemory | Action::MoreTime => sure * 0.85,
            Action::Skip | Action::Impossible => return 0.0,
        };
        match Tried::of(action) {
            Some(tried) => self.learned.chance(tried, prior),
            None => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Counts;
    use super::super::{Facts, Observed, diagnose};
    use super::*;
    use crate::status::Cause;

    const GIB: i64 = 1 << 30;

    fn past(print: &str, kind: Kind, memory: i64, seconds: f64, host: &str) -> PastFailure {
        PastFailure {
            fingerprint: print.into(),
            kind,
            memory_bytes: Some(memory),
            exec_seconds: Some(seconds),
            host: Some(host.into()),
        }
    }

    fn failed(cause: Cause, stderr: &str) -> Diagnosis {
        let facts = Facts {
            cause: Some(cause),
            return_code: Some(1),
            stderr_tail: stderr,
            memory_bytes: Some(GIB),
            ..Facts::default()
        };
        diagnose(&facts).expect("a failure has a diagnosis")
    }

    fn decide(
        diagnosis: &Diagnosis,
        last: &PastFailure,
        earlier: &[PastFailure],
        learned: &Learned,
    ) -> FailureCard {
        let current =
            Current { memory_bytes: last.memory_bytes.map(|m| m as u64), ..Current::default() };
        Case {
            diagnosis,
            last,
            earlier,
            current: &current,
            caps: &Caps::default(),
            policy: &Policy::default(),
            learned,
        }
        .decide()
    }

    fn outcomes(tried: Tried, succeeded: i64, tries: i64) -> Learned {
        let mut learned = Learned::default();
        let counts = Counts { tries, succeeded, ..Counts::default() };
        for level in [Level::Site, Level::Workflow, Level::Family, Level::Same] {
            learned.add(level, tried, &counts, 0);
        }
        learned
    }

    #[test]
    fn memory_that_only_lasts_longer_is_a_leak() {
        let oom = failed(Cause::Oom, "");
        let now = past("a", Kind::Oom, 2 * GIB, 20.0, "n1");
        let slow = past("a", Kind::Oom, GIB, 10.0, "n1");
        let steep = past("a", Kind::Oom, GIB, 19.0, "n1");
        let learned = Learned::default();
        assert_eq!(decide(&oom, &now, &[], &learned).action, Action::MoreMemory);
        assert_eq!(
            decide(&oom, &now, std::slice::from_ref(&steep), &learned).action,
            Action::MoreMemory
        );
        let leak = decide(&oom, &now, &[slow], &learned);
        assert_eq!(leak.action, Action::Skip, "{}", leak.why);
        let often = decide(&oom, &now, &[steep.clone(), steep], &learned);
        assert_eq!(often.action, Action::Skip, "{}", often.why);
    }

    #[test]
    fn a_hang_that_waits_for_another_program_is_tried_again_once() {
        let still = Observed {
            silent_seconds: Some(60.0),
            recent_seconds: Some(5.0),
            recent_cpu_seconds: Some(0.0),
            recent_io_bytes: Some(0),
            recent_wakeups: Some(0),
            ..Observed::default()
        };
        let hung = |awaited_peer: Option<&str>| {
            let observed =
                Observed { awaited_peer: awaited_peer.map(str::to_owned), ..still.clone() };
            let facts = Facts {
                cause: Some(Cause::Timeout),
                exec_seconds: Some(60.0),
                observed: Some(&observed),
                ..Facts::default()
            };
            diagnose(&facts).expect("a failure has a diagnosis")
        };
        let last = past("h", Kind::Timeout, GIB, 60.0, "n1");
        let learned = Learned::default();
        let own = decide(&hung(None), &last, &[], &learned);
        assert_eq!(own.action, Action::Skip, "it waits for itself: {}", own.why);
        let peer = hung(Some("10.0.0.7:5432"));
        assert!(peer.summary.ends_with("waiting for an answer from 10.0.0.7:5432"));
        assert_eq!(decide(&peer, &last, &[], &learned).action, Action::Again);
        let twice = decide(&peer, &last, std::slice::from_ref(&last), &learned);
        assert_eq!(twice.action, Action::Skip, "{}", twice.why);
    }

    #[test]
    fn equal_failures_on_two_nodes_are_permanent_unless_others_are_at_fault() {
        let learned = Learned::default();
        let lock = failed(Cause::Exit, "cp: cannot create regular file './x': Text file busy\n");
        let (here, there) =
            (past("l", lock.kind, GIB, 3.0, "n1"), past("l", lock.kind, GIB, 3.1, "n2"));
        assert_eq!(decide(&lock, &here, &[], &learned).action, Action::Again);
        let twice = decide(&lock, &here, std::slice::from_ref(&there), &learned);
        assert_eq!(twice.action, Action::Skip, "{}", twice.why);
        let network =
            failed(Cause::Exit, "curl: (7) Failed to connect to host: Connection refused\n");
        let card = decide(&network, &here, &[there], &learned);
        assert_eq!(card.action, Action::Again, "an outage lasts: {}", card.why);
    }

    #[test]
    fn outcomes_overrule_the_words() {
        let last = past("x", Kind::Network, GIB, 1.0, "n1");
        let network =
            failed(Cause::Exit, "curl: (7) Failed to connect to host: Connection refused\n");
        let futile = outcomes(Tried::Again, 0, 3);
        assert_eq!(decide(&network, &last, &[], &futile).action, Action::Skip);
        let one = outcomes(Tried::Again, 0, 1);
        assert_eq!(decide(&network, &last, &[], &one).action, Action::Again, "one proves nothing");
        let bug = failed(Cause::Exit, "KeyError: 'x'\n");
        assert_eq!(decide(&bug, &last, &[], &Learned::default()).action, Action::Skip);
        let flaky = decide(&bug, &last, &[], &outcomes(Tried::Again, 4, 4));
        assert_eq!(flaky.action, Action::Again, "{}", flaky.why);
        assert!(flaky.chance > PROVED);
    }

    #[test]
    fn what_a_retry_needed_is_given_at_once_the_next_time() {
        let oom = failed(Cause::Oom, "");
        let last = past("a", Kind::Oom, GIB, 5.0, "n1");
        let mut learned = Learned::default();
        learned.needed_bytes = Some(5 * GIB as u64);
        let card = decide(&oom, &last, &[], &learned);
        let to = card.changes.first().map(|c| c.to).expect("more memory");
        assert!(to > 5 * GIB && to < 7 * GIB, "{to}");
    }
}
