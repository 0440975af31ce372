//! Chronicles: what the engine does and records, move by move, against the texts of an earlier engine.
//! The texts are made by the engine itself, and not all of them were read line by line: they tell that
//! something changed, not that it was right. A difference is a change of what the store writes and a
//! restart finds; if it is wanted, the text changes with it.

/// Says what was found out before: that may have changed the workflow.
macro_rules! say {
    ($chronicle:ident, $what:expr) => {{
        let what = $what;
        $chronicle.say(what)
    }};
}

mod actions;
mod claims;
mod forecasts;
mod maps;
mod order;
mod people;
mod repairs;
mod reports;
mod revisions;

use super::*;
use std::fmt::Display;
use torc_model::api::{Capacity, Evidence};
use torc_model::attempt::{Ending, Usage};
use torc_model::ids::{JobId, RunnerId, WorkflowId};
use torc_model::plan::{Rule, Settings};
use torc_model::status::{Cause, EndedBy, EvidenceSource, JobStatus};

pub(super) const fn ix(at: usize) -> JobIx {
    JobIx::new(at)
}

/// A job that waits for these.
pub(super) fn job(parents: &[usize]) -> NewJob {
    NewJob {
        id: JobId(0),
        priority: 0,
        position: 0,
        family: 0,
        own_ms: None,
        class: Class { cpus: 1, nodes: 1, ..Class::default() },
        handler: None,
        cancel_on_failure: true,
        max_lost: 1,
        parents: parents.iter().copied().map(JobIx::new).collect(),
    }
}

/// The same with something else.
pub(super) fn but(mut job: NewJob, change: impl FnOnce(&mut NewJob)) -> NewJob {
    change(&mut job);
    job
}

pub(super) fn handler(rules: &[Rule]) -> CompiledHandler {
    CompiledHandler::new("again", rules).expect("valid rules")
}

pub(super) fn node(cpus: i64) -> Capacity {
    Capacity { num_cpus: cpus, num_nodes: 1, memory_bytes: 1 << 40, ..Capacity::default() }
}

/// An end as a runner tells it.
pub(super) fn end(cause: Option<Cause>, code: i64, now: i64) -> End {
    let ending = Ending { return_code: Some(code), cause, ..Ending::default() };
    End { ending, ..End::new(EndedBy::Runner, now) }
}

/// A workflow, and what happened to it.
pub(super) struct Chronicle {
    pub(super) flow: Workflow,
    pub(super) limits: Limits,
    pub(super) now: i64,
    text: String,
}

impl Chronicle {
    pub(super) fn new(
        settings: Settings,
        handlers: Vec<CompiledHandler>,
        jobs: Vec<NewJob>,
    ) -> Self {
        let mut flow = Workflow::new(WorkflowId(1), settings, handlers);
        for (at, mut job) in jobs.into_iter().enumerate() {
            (job.id, job.position) = (JobId(at as i64 + 1), at as i64);
            flow.add_job(job);
        }
        flow.settle();
        flow.set_next_attempt(101);
        Self { flow, limits: Limits::new(), now: 1_000, text: String::new() }
    }

    pub(super) fn plain(jobs: Vec<NewJob>) -> Self {
        Self::new(Settings::default(), Vec::new(), jobs)
    }

    /// A line of its own.
    fn say(&mut self, what: impl Display) {
        self.text += &format!("{what}\n");
    }

    /// Writes down what a move changed, and where everything stands then.
    fn note(&mut self, what: impl Display) {
        self.say(format!("== {what}"));
        for change in self.flow.take_changes() {
            self.say(line(&change));
        }
        let states: Vec<String> = self.flow.indexes().map(|index| self.state(index)).collect();
        let flow = &self.flow;
        let signs = format!(
            "run {}{}{}",
            flow.run,
            if flow.canceled { " canceled" } else { "" },
            if flow.is_complete() { " complete" } else { "" }
        );
        self.say(format!("   {signs} | {}", states.join(" | ")));
    }

    fn state(&self, index: JobIx) -> String {
        let job = self.flow.job(index);
        let tries = job.tries;
        let mut text = format!("{} {}#{}", job.id, job.status(), tries.number);
        let counts = [("lost", tries.lost), ("refunds", tries.refunds), ("unmet", job.unmet)];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            text += &format!(" {name} {count}");
        }
        let signs = [
            (job.held_back, "held back".to_owned()),
            (job.has_script(), "script".to_owned()),
            (job.not_before.is_some(), format!("not before {:?}", job.not_before)),
            (job.afterwards().is_some(), format!("then {:?}", job.afterwards())),
            (job.held().is_some_and(|held| held.cancel_requested), "stops".to_owned()),
        ];
        for (_, sign) in signs.iter().filter(|(is, _)| *is) {
            text += &format!(" {sign}");
        }
        text
    }

    /// Lets a runner with so many CPUs claim, and start what it gets.
    pub(super) fn claim(&mut self, runner: i64, cpus: i64) -> Vec<usize> {
        let given = self.take(runner, cpus);
        for at in &given {
            self.flow.started(ix(*at), 70 + *at as i64, self.now);
        }
        self.note(format!("runner {runner} gets {given:?}"));
        given
    }

    /// Lets a runner claim.
    pub(super) fn take(&mut self, runner: i64, cpus: i64) -> Vec<usize> {
        let capacity = node(cpus);
        let claim = Claim {
            runner: RunnerId(runner),
            key: "k",
            limit: 100,
            prefetch: 0,
            capacity: &capacity,
            time_left: None,
            scheduler: None,
            strict_scheduler: false,
            label: None,
            now: self.now,
            nonce: 7,
        };
        let claimed = self.flow.claim(&claim, &mut self.limits);
        claimed.into_iter().map(|claimed| claimed.index.at()).collect()
    }

    /// An attempt ends.
    pub(super) fn end(&mut self, at: usize, cause: Option<Cause>, code: i64) {
        self.now += 10;
        let told = self.flow.ended(ix(at), end(cause, code, self.now), &mut self.limits);
        self.note(format!("job {} ends with {cause:?}, {code}: {told:?}", at + 1));
    }

    /// Attempts end well, after so many seconds.
    pub(super) fn succeed(&mut self, at: usize, seconds: f64) {
        self.now += 10;
        let usage = Usage { exec_seconds: Some(seconds), ..Usage::default() };
        let end = End { usage, ..end(None, 0, self.now) };
        self.flow.ended(ix(at), end, &mut self.limits);
        self.note(format!("job {} succeeds", at + 1));
    }

    pub(super) fn lose(&mut self, runner: i64) {
        self.now += 10;
        let evidence = Evidence { source: EvidenceSource::Node, text: "it is gone".into() };
        let lost = Lost { cause: Cause::Lost, evidence };
        let count = self.flow.runner_lost(RunnerId(runner), &lost, &mut self.limits, self.now);
        self.note(format!("runner {runner} is lost with {count}"));
    }

    pub(super) fn initialize(&mut self) {
        let count = self.flow.initialize(self.now);
        self.note(format!("{count} are initialized"));
    }

    /// Lets everything run that can, until all is over.
    pub(super) fn finish(&mut self) {
        while !self.flow.is_complete() {
            self.take(1, 100);
            let held: Vec<JobIx> =
                self.flow.indexes().filter(|i| self.flow.job(*i).held().is_some()).collect();
            assert!(!held.is_empty(), "nothing can go on");
            for index in held {
                self.flow.ended(index, end(None, 0, self.now), &mut self.limits);
            }
        }
        self.note("all is over");
    }

    /// The chronicle is the one that is kept.
    fn is(self, expected: &str) {
        let lines = || self.text.lines().zip(expected.lines()).enumerate();
        let first = lines().find(|(_, (is, should))| !is_same(is, should));
        if first.is_some() || self.text.lines().count() != expected.lines().count() {
            panic!("the chronicle differs at {first:?}; it is\n<<<\n{}>>>", self.text);
        }
    }
}

/// A line is as it should be. Where noise stands for a sentence (`TORC_SCRAMBLED_MESSAGES`), what
/// is around it is.
fn is_same(is: &str, should: &str) -> bool {
    let noise = torc_model::words::label("");
    if noise.is_empty() {
        return is == should;
    }
    let parts: Vec<&str> = is.split(noise).collect();
    let [begin, between @ .., end] = &parts[..] else { return is == should };
    let Some(mut rest) = should.strip_prefix(begin) else { return false };
    for part in between {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(end)
}

/// What a request that was refused says.
fn refused<T>(result: Result<T, Refused>) -> String {
    match result {
        Ok(_) => "granted".into(),
        Err(refused) => format!("{:?}: {} ({:?})", refused.code, refused.message, refused.hint),
    }
}

/// One change in a line.
fn line(change: &Change) -> String {
    match change {
        Change::Job { id, status, reason, tries, own_ms } => {
            let Tries { number, run, lost, refunds, before } = tries;
            let before = if *before > 0 { format!(" before {before}") } else { String::new() };
            let reason = reason.map_or(String::new(), |reason| format!(" ({})", reason.as_str()));
            let own = own_ms.map_or(String::new(), |ms| format!(" own {ms}"));
            format!(
                "job {id} {status}{reason} #{number} run {run} lost {lost} refunds {refunds}{before}{own}"
            )
        }
        Change::AttemptEnded(id, end) => {
            let (ending, decision) = (&end.ending, &end.decision);
            format!(
                "attempt {id} ended {:?} by {:?} at {}: {:?} {:?} {:?} -> {:?} {:?} {:?}",
                end.state.map(|state| state.as_str()),
                end.by,
                end.at,
                ending.return_code,
                ending.cause,
                ending.error,
                decision.outcome,
                decision.rule,
                decision.text
            )
        }
        Change::Event { kind, job, data } => {
            format!("event {kind:?} {:?} {data}", job.map(|job| job.0))
        }
        other => format!("{other:?}"),
    }
}

/// Every status, in the order of the jobs.
pub(super) fn statuses(flow: &Workflow) -> Vec<JobStatus> {
    flow.jobs().map(|job| job.status()).collect()
}
