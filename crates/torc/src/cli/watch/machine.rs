//! What `watch` does next. No I/O and no clock: what happened and what was answered comes in as
//! events, what is to be told, asked and done goes out as effects.
//!
//! A look at the workflow asks one question at a time: [`Watcher::decide`] takes what this look has
//! learned so far and either needs one more answer or knows what to do.

use super::super::ai::AgentOutcome;
use super::super::drive::{Described, Detail, count};
use super::super::recap::Recap;
use crate::output::{escape, human, progress};
use std::time::Duration;
use tokio::time::Instant;
use torc_model::api::{EventView, StatusView};
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;
use torc_model::recovery::NodeShape;
use torc_model::status::JobStatus;
use torc_runner::{LeaveReason, Shutdown};

/// However much happens, the counts are asked for this often at most.
const REFRESH: Duration = Duration::from_millis(300);
/// Between two looks at Slurm, which answers for all allocations at once.
const LOOK_AT_SLURM: Duration = Duration::from_secs(15);

/// What does not change while a workflow is watched.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Its name for messages.
    pub title: String,
    /// Failures are recovered.
    pub recover: bool,
    /// Agents judge what waits for a verdict.
    pub ask_agents: bool,
    /// Rounds of recovery, and of verdicts.
    pub max_rounds: i64,
    /// Counts are told when they change.
    pub show_counts: bool,
    /// Starts and ends of jobs are told.
    pub is_verbose: bool,
    /// The workflow's nodes come from Slurm.
    pub is_for_slurm: bool,
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// In the workflow, and what was learned about it.
    Happened(Box<EventView>, Described),
    /// The time of [`Watcher::stale_at`] has come.
    LookDue,
    /// The time of [`SlurmLooks::look_at`] has come.
    SlurmDue,
    /// The user asks to stop.
    Interrupted,
    /// A question was answered.
    Answered(Answer),
    /// Our own runner has left: why, and whether it did anything; or why it failed.
    RunnerLeft(Result<(LeaveReason, bool), String>),
    /// Agents have judged, or could not.
    Judged(Result<AgentOutcome, String>),
    /// A look at Slurm is over; what it told.
    LookedAtSlurm(Vec<String>),
}

/// What is to be done.
#[derive(PartialEq, Debug)]
pub enum Effect {
    /// Tell this.
    Tell(String),
    /// Tell this, also to a user who wants quiet.
    TellFailure(String),
    /// Show these counts.
    Show(Box<StatusView>),
    /// Ask this; the answer comes as the next event.
    Ask(Question),
    /// Begin jobs that have not begun.
    Begin,
    /// Start a runner here.
    StartRunner,
    /// Stop it.
    StopRunner(Shutdown),
    /// Let the record and an agent judge what waits for a verdict.
    Judge,
    /// End what Slurm has ended, and ask for nodes if that is due.
    LookAtSlurm,
    /// The watch is over; true: the user stopped it.
    End(bool),
}

/// What a look asks.
#[derive(PartialEq, Debug)]
pub enum Question {
    /// How many jobs have which status?
    Status,
    /// What happened after this event? Each comes as an event of its own before the answer.
    Events(i64),
    /// What nodes does Slurm have?
    Shapes,
    /// Recover, one round; what nodes there are.
    Recover(Vec<NodeShape>),
    /// Was nothing of this workflow ever meant for Slurm?
    IsLocal,
    /// How many allocations are open?
    OpenAllocations,
    /// Which jobs wait for a verdict?
    Waiting,
}

/// The answers.
#[derive(Debug)]
pub enum Answer {
    /// To [`Question::Status`].
    Status(Box<StatusView>),
    /// To [`Question::Events`]: all of them have been told.
    CaughtUp,
    /// To [`Question::Shapes`]; an error is what Slurm said.
    Shapes(Result<Vec<NodeShape>, String>),
    /// To [`Question::Recover`].
    Recovered(Recovered),
    /// To [`Question::IsLocal`].
    IsLocal(bool),
    /// To [`Question::OpenAllocations`].
    OpenAllocations(i64),
    /// To [`Question::Waiting`]: some names, and whether there are more.
    Waiting(Vec<String>, bool),
}

/// What a round of recovery came to.
#[derive(Debug)]
pub enum Recovered {
    /// The server has decided.
    Done {
        /// Rounds of this run so far.
        rounds: i64,
        /// Jobs that run again.
        again: i64,
        /// Failures that stay.
        left: i64,
    },
    /// It was not done, for this reason.
    NotDone(String),
}

/// What the current look has learned.
struct Look {
    status: StatusView,
    is_caught_up: bool,
    is_local: Option<bool>,
    open_allocations: Option<i64>,
}

/// When Slurm is looked at: what it has ended, and what it is to be asked for.
pub struct SlurmLooks {
    /// When next; none: never.
    pub look_at: Option<Instant>,
    /// A look is under way.
    is_looking: bool,
}

/// A runner of our own.
#[derive(Default)]
struct LocalRunner {
    /// It runs.
    is_here: bool,
    /// It could do nothing for what is ready; another one could not either.
    is_useless: bool,
    /// A runner has left; told unless the workflow is complete.
    end: Option<String>,
}

/// Agents that judge failures.
#[derive(Default)]
struct AgentRounds {
    /// One is at work.
    are_asked: bool,
    /// How often they were asked.
    rounds: i64,
    /// Nothing new waits for a verdict since they were.
    is_judged: bool,
}

/// Watches one workflow.
pub struct Watcher {
    rules: Rules,
    /// What the end repeats.
    pub recap: Recap,
    /// When to look; none: nothing happened since the last look.
    pub stale_at: Option<Instant>,
    /// Looks at Slurm.
    pub slurm: SlurmLooks,
    look: Option<Look>,
    runner: LocalRunner,
    agents: AgentRounds,
    /// The newest event that has been told.
    last_event: i64,
    /// Recovery was tried and nothing has happened since.
    is_tried: bool,
    /// Jobs that had not begun were begun here; what still has not waits for something else.
    is_begun: bool,
    /// What was said last about being stuck.
    last_stuck: String,
    last_counts: String,
    interrupts: u32,
}

impl Watcher {
    /// Watches from the event after this one.
    pub fn new(rules: Rules, last_event: i64, now: Instant) -> Self {
        Self {
            recap: Recap::default(),
            stale_at: Some(now),
            slurm: SlurmLooks { look_at: rules.is_for_slurm.then_some(now), is_looking: false },
            rules,
            look: None,
            runner: LocalRunner::default(),
            agents: AgentRounds::default(),
            last_event,
            is_tried: false,
            is_begun: false,
            last_stuck: String::new(),
            last_counts: String::new(),
            interrupts: 0,
        }
    }

    /// What must be known of an event's job before [`Event::Happened`].
    pub fn detail(&self, event: &EventView) -> Detail {
        match event.kind {
            // It has been told already, by the other of the two ways.
            _ if event.id <= self.last_event => Detail::None,
            EventKind::JobPendingFailed
            | EventKind::JobRetried
            | EventKind::JobAdjusted
            | EventKind::JobClassified
            | EventKind::ClassificationHeld => Detail::Name,
            kind => Detail::of(kind, self.rules.is_verbose),
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Happened(event, about) => self.on_event(&event, about, now, out),
            Event::LookDue if !self.runner.is_here && self.interrupts > 0 => {
                out.push(Effect::End(true))
            }
            Event::LookDue => {
                self.stale_at = None;
                out.push(Effect::Ask(Question::Status));
            }
            Event::SlurmDue => {
                self.slurm.look_at = Some(now + LOOK_AT_SLURM);
                // One look at a time: it may take long when Slurm does not answer.
                if !std::mem::replace(&mut self.slurm.is_looking, true) {
                    out.push(Effect::LookAtSlurm);
                }
            }
            Event::Interrupted => self.on_interrupt(out),
            Event::Answered(answer) => self.on_answer(answer, now, out),
            Event::RunnerLeft(left) => self.on_runner_left(left, now, out),
            Event::Judged(done) => self.on_judged(done, now, out),
            Event::LookedAtSlurm(lines) => {
                self.slurm.is_looking = false;
                out.extend(lines.iter().map(|line| Effect::Tell(escape::line(line).into_owned())));
            }
        }
    }

    fn on_interrupt(&mut self, out: &mut Vec<Effect>) {
        self.interrupts += 1;
        if !self.runner.is_here {
            return out.push(Effect::End(true));
        }
        let (words, level) = match self.interrupts {
            1 => ("stopping: running jobs go back into the queue", Shutdown::Stop),
            _ => ("killing running jobs", Shutdown::Kill),
        };
        out.push(Effect::Tell(words.into()));
        out.push(Effect::StopRunner(level));
    }

    fn on_event(
        &mut self,
        event: &EventView,
        about: Described,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        // It has been told already, by the other of the two ways.
        if event.id <= self.last_event {
            return;
        }
        self.last_event = event.id;
        self.stale_at.get_or_insert(now + REFRESH);
        if event.kind.is_of_jobs() || event.kind.is_of_runners() {
            self.is_tried = false;
        }
        self.agents.is_judged &= event.kind != EventKind::JobPendingFailed;
        self.is_begun &= event.kind != EventKind::WorkflowReset;
        if self.rules.is_for_slurm && event.kind == EventKind::AllocationEnded {
            // Others may be needed.
            let soon = now + REFRESH;
            self.slurm.look_at = Some(self.slurm.look_at.map_or(soon, |at| at.min(soon)));
        }
        if let (EventKind::JobRetried, Some(job)) = (event.kind, event.job_id) {
            self.recap.on_retry(job, about.name(), 0.0);
        }
        match event.kind {
            // The end of the workflow says it better: told only if that does not follow.
            EventKind::RunnerEnded => self.runner.end = told::line(event, &about),
            // This call did it and has told what.
            EventKind::WorkflowRecovered if self.rules.recover => {}
            EventKind::JobFailed | EventKind::JobTerminated => {
                out.extend(told::line(event, &about).map(Effect::TellFailure));
                if let (Some(job), Described::Failure { name, seconds, failure }) =
                    (event.job_id, about)
                {
                    self.recap.on_failure(job, &name, seconds, failure);
                }
            }
            EventKind::JobStarted | EventKind::JobCompleted if !self.rules.is_verbose => {}
            _ => out.extend(told::line(event, &about).map(Effect::Tell)),
        }
    }

    fn on_runner_left(
        &mut self,
        left: Result<(LeaveReason, bool), String>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        self.runner.is_here = false;
        self.stale_at = Some(now);
        match left {
            Ok((reason, did_something)) => {
                self.runner.is_useless = !did_something;
                if reason != LeaveReason::Complete {
                    out.push(Effect::Tell(format!("the local runner left: {reason}")));
                }
            }
            Err(error) => {
                self.runner.is_useless = true;
                out.push(Effect::Tell(format!("the local runner failed: {error}")));
            }
        }
    }

    fn on_judged(
        &mut self,
        done: Result<AgentOutcome, String>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        self.agents.are_asked = false;
        self.stale_at = Some(now);
        match done {
            Ok(judged) => {
                let lines = judged.lines.iter().map(|line| escape::line(line).into_owned());
                out.extend(lines.map(Effect::Tell));
                if judged.retried > 0 {
                    self.on_queued(now);
                }
            }
            // The jobs go on waiting; a person can still judge them.
            Err(error) => out.push(Effect::Tell(format!("no verdicts: {error}"))),
        }
    }

    /// Jobs were queued again.
    fn on_queued(&mut self, now: Instant) {
        self.runner.is_useless = false;
        self.slurm.look_at = self.rules.is_for_slurm.then_some(now);
        self.stale_at = Some(now);
    }

    fn on_answer(&mut self, answer: Answer, now: Instant, out: &mut Vec<Effect>) {
        match (answer, &mut self.look) {
            (Answer::Status(status), _) => self.begin_look(*status, out),
            (Answer::CaughtUp, Some(look)) => look.is_caught_up = true,
            (Answer::IsLocal(is_local), Some(look)) => look.is_local = Some(is_local),
            (Answer::OpenAllocations(open), Some(look)) => look.open_allocations = Some(open),
            (Answer::Shapes(Ok(shapes)), Some(_)) => {
                self.is_tried = true;
                return out.push(Effect::Ask(Question::Recover(shapes)));
            }
            (Answer::Shapes(Err(why)), Some(_)) => {
                let why = escape::line(&why).into_owned();
                self.stale_at = Some(now + LOOK_AT_SLURM);
                return self.end_stuck(
                    format!("recovery waits until Slurm tells what nodes it has: {why}"),
                    out,
                );
            }
            (Answer::Recovered(recovered), Some(_)) => {
                if self.on_recovered(recovered, out) {
                    self.look = None;
                    return self.on_queued(now);
                }
            }
            (Answer::Waiting(names, has_more), Some(look)) => {
                let waiting = count(&look.status, JobStatus::PendingFailed);
                let jobs = match waiting {
                    1 => "1 job waits".into(),
                    _ => format!("{} jobs wait", human::grouped(waiting)),
                };
                let more = if has_more { ", ..." } else { "" };
                let names = names.join(", ");
                return self.end_stuck(format!("{jobs} for a verdict: {names}{more}"), out);
            }
            (_, None) => return,
        }
        self.decide(now, out);
    }

    fn begin_look(&mut self, status: StatusView, out: &mut Vec<Effect>) {
        out.push(Effect::Show(Box::new(status.clone())));
        let end = self.runner.end.take().filter(|_| !status.is_complete && !self.runner.is_here);
        out.extend(end.map(Effect::Tell));
        if self.rules.show_counts {
            let counts = progress::counts(&status);
            if counts != self.last_counts {
                out.push(Effect::Tell(counts.clone()));
                self.last_counts = counts;
            }
        }
        self.look =
            Some(Look { status, is_caught_up: false, is_local: None, open_allocations: None });
    }

    /// Answers whether jobs were queued again.
    fn on_recovered(&mut self, recovered: Recovered, out: &mut Vec<Effect>) -> bool {
        let (text, is_queued) = match recovered {
            Recovered::Done { again: 0, left, .. } => {
                (format!("{} cannot be recovered", human::count(left, "failure")), false)
            }
            Recovered::Done { rounds, again, left } => {
                let (jobs, max) = (human::count(again, "job"), self.rules.max_rounds);
                let text = format!(
                    "recovery round {rounds} of {max}: {jobs} queued again, {left} left as they are"
                );
                (text, true)
            }
            Recovered::NotDone(why) => (why, false),
        };
        out.push(Effect::Tell(text));
        is_queued
    }

    /// The next question of the look, or what follows from its answers.
    fn decide(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(look) = &self.look else { return };
        let (status, rules) = (&look.status, &self.rules);
        let of = |which| count(status, which);
        let has =
            |statuses: [JobStatus; 3]| statuses.into_iter().any(|which| count(status, which) > 0);
        let is_bad = has([JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed]);
        let moves = has([JobStatus::Ready, JobStatus::Pending, JobStatus::Running]);
        // The stream may bring it later than the counts show it, and perhaps never if this is the
        // end.
        if !moves && !look.is_caught_up {
            return out.push(Effect::Ask(Question::Events(self.last_event)));
        }
        if is_bad && !moves && rules.recover && !self.is_tried && !status.is_canceled {
            // So that recovery gives no job more than a node has.
            self.is_tried |= !rules.is_for_slurm;
            return out.push(Effect::Ask(match rules.is_for_slurm {
                true => Question::Shapes,
                false => Question::Recover(Vec::new()),
            }));
        }
        if status.is_complete {
            return out.push(Effect::End(false));
        }
        if self.agents.are_asked {
            return self.look = None;
        }
        if !moves && !status.is_canceled {
            let waiting = of(JobStatus::PendingFailed);
            let may_ask =
                rules.ask_agents && !self.agents.is_judged && self.agents.rounds < rules.max_rounds;
            if waiting > 0 && may_ask {
                return self.judge(out);
            }
            let is_new = of(JobStatus::Uninitialized) > 0;
            if is_new && waiting == 0 && !self.is_begun {
                return self.begin(now, out);
            }
        }
        self.handle_stuck(out);
    }

    fn judge(&mut self, out: &mut Vec<Effect>) {
        (self.agents.is_judged, self.agents.are_asked, self.look) = (true, true, None);
        self.agents.rounds += 1;
        let (round, max) = (self.agents.rounds, self.rules.max_rounds);
        out.push(Effect::Tell(format!("asking for verdicts, round {round} of {max} at most")));
        out.push(Effect::Judge);
    }

    /// Jobs that no runner has begun, and nothing that they could wait for: begins them if they are
    /// to run here, else says who does.
    fn begin(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(look) = &self.look else { return };
        match look.is_local {
            None if self.rules.recover => return out.push(Effect::Ask(Question::IsLocal)),
            Some(true) => {
                (self.is_begun, self.stale_at, self.look) = (true, Some(now), None);
                return out.push(Effect::Begin);
            }
            None | Some(false) => {}
        }
        let Rules { workflow: id, title, is_for_slurm, .. } = &self.rules;
        let how = if *is_for_slurm { "submit" } else { "run" };
        let text = match look.status.run_id {
            0 => format!("{title} has not been started; `torc {how} {id}` starts it"),
            _ => format!(
                "jobs of {title} were reset and have not been started again; `torc {how} {id}` starts them"
            ),
        };
        self.end_stuck(text, out);
    }

    /// Nothing moves by itself: says why, and starts a runner here when that helps after a
    /// recovery.
    fn handle_stuck(&mut self, out: &mut Vec<Effect>) {
        let Some(look) = &self.look else { return };
        let is_ready = count(&look.status, JobStatus::Ready) > 0;
        if look.status.active_runners > 0 || self.runner.is_here || !is_ready {
            return match count(&look.status, JobStatus::PendingFailed) {
                0 => self.look = None,
                _ => out.push(Effect::Ask(Question::Waiting)),
            };
        }
        let Rules { workflow: id, title, recover, is_for_slurm, .. } = &self.rules;
        if *recover && !self.runner.is_useless {
            match look.is_local {
                None => return out.push(Effect::Ask(Question::IsLocal)),
                Some(true) => {
                    (self.runner.is_here, self.look) = (true, None);
                    out.push(Effect::Tell("no runner is active: starting one here".into()));
                    return out.push(Effect::StartRunner);
                }
                Some(false) => {}
            }
        }
        let how = match (is_for_slurm, look.open_allocations) {
            (false, _) => format!("resume with `torc run {id}`"),
            (true, None) => return out.push(Effect::Ask(Question::OpenAllocations)),
            (true, Some(0)) => format!(
                "`torc slurm regenerate {id} --submit` asks for nodes, `--auto-schedule` does it here"
            ),
            (true, Some(open)) => format!("{} on the way", human::count(open, "allocation")),
        };
        self.end_stuck(format!("no runner is active for {title}; {how}"), out);
    }

    /// Ends the look with a line that is told once.
    fn end_stuck(&mut self, line: String, out: &mut Vec<Effect>) {
        self.look = None;
        if line != self.last_stuck {
            out.push(Effect::Tell(line.clone()));
            self.last_stuck = line;
        }
    }
}

mod told;

#[cfg(test)]
mod tests;
