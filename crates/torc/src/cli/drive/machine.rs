//! What `run` shows and does while a workflow runs. No I/O and no clock: what happened comes in as
//! events, what is to be told, asked and done goes out as effects.

use super::jobs::{Described, named};
use crate::cli::recap::{self, Failure, Recap};
use crate::output::live::NAMED;
use crate::output::{escape, human};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use torc_model::api::{ErrorCode, EventView, JobView, WhyView};
use torc_model::ids::{AttemptId, JobId};
use torc_model::status::{Cause, JobStatus, Outcome};
use torc_runner::{RunnerNotice, Shutdown};

/// However much happens, the counts are asked for this often at most.
const REFRESH: Duration = Duration::from_millis(500);
/// A runner that has nothing to do for this long although jobs are ready says why, once.
const SILENCE: Duration = Duration::from_secs(5);
/// A server that ends hands over within this time.
const HAND_OVER: Duration = Duration::from_millis(1500);
/// How often a runner whose server is gone looks whether it is to serve itself.
const TAKE_OVER_AGAIN: Duration = Duration::from_secs(1);

/// What happens to a run.
#[derive(Debug)]
pub enum Event {
    /// In the runner of this process.
    Runner(RunnerNotice),
    /// On the server, and what was learned about it.
    Server(Box<EventView>, Described),
    /// The time of [`Follower::next_alarm`] has come.
    Due,
    /// The answer to [`Effect::AskWaiting`].
    Waiting(Option<Box<(JobView, WhyView)>>),
    /// The user asks to stop.
    Interrupted,
}

/// What is to be done.
#[derive(PartialEq, Debug)]
pub enum Effect {
    /// Tell this.
    Tell(String),
    /// Tell this, also to a user who wants quiet.
    TellFailure(String),
    /// Ask for the counts and show them; these jobs run longest here.
    Refresh(Vec<(String, std::time::Instant)>),
    /// Ask which job is ready and why no runner takes it, if nothing runs anywhere.
    AskWaiting,
    /// Serve the state in this process, if its server is gone.
    TakeOver,
    /// Stop the runner.
    Stop(Shutdown),
    /// The output of an attempt begins.
    OutputBegins {
        /// The attempt whose output begins.
        attempt: AttemptId,
        /// Its job.
        job: JobId,
        /// 1, 2, 3...
        number: i64,
        /// The name of the job.
        name: String,
    },
    /// The output of an attempt is complete.
    OutputEnds(AttemptId, JobId),
    /// The server has decided what follows from an end: true if the job is over.
    OutputJudged(AttemptId, bool),
}

/// What the user wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// Starts and ends of jobs are told.
    pub is_verbose: bool,
    /// A line names the jobs that run.
    pub is_live: bool,
    /// What jobs print is shown.
    pub shows_output: bool,
}

/// Follows one run.
pub struct Follower {
    wants: Wants,
    /// Ends that wait for the server's verdict.
    ends: HashMap<AttemptId, JobEnd>,
    /// What the end of the run repeats.
    pub recap: Recap,
    /// Something happened since the counts were asked for; when to ask again.
    stale_at: Option<Instant>,
    last_refresh: Instant,
    /// When to say what the jobs wait for, unless something happens before.
    silent_until: Option<Instant>,
    /// Attempts that run here, since when; empty where no line names them.
    active: HashMap<AttemptId, (String, std::time::Instant)>,
    /// How many run here.
    active_count: usize,
    /// The server does not answer: when to say so, and what the network said.
    lost: Option<(Instant, String)>,
    /// The server is gone: when to look whether it is to be served here.
    take_over_at: Option<Instant>,
    /// The server cannot write: its disk is full.
    is_full: bool,
    /// How often the user asked to stop.
    pub interrupts: u32,
}

/// An attempt that our runner has started.
struct JobStart {
    attempt: AttemptId,
    job_id: JobId,
    name: String,
    /// 1, 2, 3...
    attempt_id: i64,
}

/// An attempt that has ended.
struct JobEnd {
    job_id: JobId,
    name: String,
    attempt_id: i64,
    return_code: i64,
    cause: Cause,
    error: Option<String>,
    last_line: Option<String>,
    seconds: f64,
}

impl Follower {
    /// Of a run that another process makes.
    pub fn new(wants: Wants, now: Instant) -> Self {
        Self {
            wants,
            ends: HashMap::new(),
            recap: Recap::default(),
            stale_at: None,
            last_refresh: now,
            silent_until: None,
            active: HashMap::new(),
            active_count: 0,
            lost: None,
            take_over_at: None,
            is_full: false,
            interrupts: 0,
        }
    }

    /// Of a run with a runner in this process.
    pub fn with_runner(wants: Wants, now: Instant) -> Self {
        Self { silent_until: Some(now + SILENCE), ..Self::new(wants, now) }
    }

    /// When [`Event::Due`] is wanted.
    pub fn next_alarm(&self) -> Option<Instant> {
        let lost = self.lost.as_ref().map(|(at, _)| *at);
        [self.stale_at, self.silent_until, lost, self.take_over_at].into_iter().flatten().min()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Runner(event) => {
                self.silent_until = self.silent_until.map(|_| now + SILENCE);
                self.make_stale(now);
                self.on_runner_event(event, now, out);
            }
            Event::Server(event, described) => {
                self.make_stale(now);
                self.on_server_event(&event, described, out);
            }
            Event::Due => self.on_due(now, out),
            Event::Waiting(waiting) => self.on_waiting(waiting, out),
            Event::Interrupted => self.on_interrupt(out),
        }
    }

    fn make_stale(&mut self, now: Instant) {
        self.stale_at.get_or_insert_with(|| (self.last_refresh + REFRESH).max(now));
    }

    fn on_due(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        // Again and again: the server that answered first may be gone before the runner has noticed
        // it.
        if is_due(self.take_over_at) {
            self.take_over_at = Some(now + TAKE_OVER_AGAIN);
            out.push(Effect::TakeOver);
        }
        if is_due(self.stale_at) {
            self.stale_at = None;
            self.last_refresh = now;
            let mut longest: Vec<_> = self.active.values().collect();
            longest.sort_unstable_by_key(|(_, since)| *since);
            out.push(Effect::Refresh(longest.into_iter().take(NAMED).cloned().collect()));
        }
        if is_due(self.lost.as_ref().map(|(at, _)| *at)) {
            self.tell_lost(out);
        }
        if is_due(self.silent_until) {
            self.silent_until = Some(now + SILENCE);
            if self.active_count == 0 {
                out.push(Effect::AskWaiting);
            }
        }
    }

    /// Says why a ready job is not taken: without a word that looks like a program that hangs.
    fn on_waiting(&mut self, waiting: Option<Box<(JobView, WhyView)>>, out: &mut Vec<Effect>) {
        let Some(waiting) = waiting else { return };
        let (job, why) = *waiting;
        let (name, summary) = (escape::line(&job.name), escape::line(&why.summary));
        out.push(Effect::Tell(format!("waiting: {name}: {summary}")));
        let hints = why.hints.iter().map(|hint| format!("hint: {}", escape::line(hint)));
        out.extend(hints.map(Effect::Tell));
        self.silent_until = None;
    }

    fn on_interrupt(&mut self, out: &mut Vec<Effect>) {
        self.interrupts += 1;
        let (level, words) = match self.interrupts {
            1 => (
                Shutdown::Stop,
                "stopping: running jobs are asked to end and go back into the queue; Ctrl-C again kills them",
            ),
            _ => (Shutdown::Kill, "killing running jobs"),
        };
        out.push(Effect::Tell(words.into()));
        out.push(Effect::Stop(level));
    }

    fn on_server_event(&mut self, event: &EventView, about: Described, out: &mut Vec<Effect>) {
        let Some(job) = event.job_id else { return };
        match about {
            Described::Failure { name, seconds, failure } => {
                out.push(Effect::TellFailure(recap::told("failed", &failure)));
                self.recap.on_failure(job, &name, seconds, failure);
            }
            about => out.extend(about.begin_or_end(event).map(Effect::Tell)),
        }
    }

    fn on_runner_event(&mut self, event: RunnerNotice, now: Instant, out: &mut Vec<Effect>) {
        match event {
            RunnerNotice::Started { attempt, job_id, job_name, attempt_id } => {
                let start = JobStart { attempt, job_id, name: job_name, attempt_id };
                self.on_start(start, now, out);
            }
            RunnerNotice::Ended {
                attempt,
                job_id,
                job_name: name,
                attempt_id,
                return_code,
                cause,
                error,
                last_line,
                seconds,
            } => {
                self.active_count = self.active_count.saturating_sub(1);
                self.active.remove(&attempt);
                if let Some(cause) = cause {
                    let end = JobEnd {
                        job_id,
                        name,
                        attempt_id,
                        return_code,
                        cause,
                        error,
                        last_line,
                        seconds,
                    };
                    self.ends.insert(attempt, end);
                } else {
                    if self.wants.is_verbose {
                        let (job, time) =
                            (named(&name, job_id, attempt_id), human::seconds(seconds));
                        out.push(Effect::Tell(format!("finished: {job} after {time}")));
                    }
                    self.recap.on_success(job_id, &name, attempt_id, seconds);
                }
                if self.wants.shows_output {
                    out.push(Effect::OutputEnds(attempt, job_id));
                }
            }
            RunnerNotice::Judged { attempt, outcome, job_status, .. } => {
                if self.wants.shows_output {
                    let is_over = job_status.is_none_or(JobStatus::is_final);
                    out.push(Effect::OutputJudged(attempt, is_over));
                }
                if let Some(end) = self.ends.remove(&attempt) {
                    self.tell_bad_end(end, outcome, job_status, out);
                }
            }
            RunnerNotice::ActionEnded { action, return_code, error } if return_code != 0 => {
                let error =
                    error.map(|error| format!(": {}", escape::line(&error))).unwrap_or_default();
                out.push(Effect::TellFailure(format!(
                    "action {action} failed with code {return_code}{error}"
                )));
            }
            RunnerNotice::ServerLost { message, code } => self.on_lost(message, code, now, out),
            RunnerNotice::ServerBack => {
                self.take_over_at = None;
                if std::mem::take(&mut self.is_full) {
                    out.push(Effect::Tell("there is room on the disk again".into()));
                } else if self.lost.take().is_none() {
                    out.push(Effect::Tell("the server answers again".into()));
                }
            }
            RunnerNotice::Warning { message } => {
                out.push(Effect::TellFailure(format!("warning: {}", escape::line(&message))));
            }
            RunnerNotice::Registered { .. }
            | RunnerNotice::ActionStarted { .. }
            | RunnerNotice::ActionEnded { .. }
            | RunnerNotice::Leaving { .. } => {}
        }
    }

    /// Another process may take the server's place in a moment, as when one of two `torc run` ends:
    /// that is nothing to be told.
    fn on_lost(
        &mut self,
        message: String,
        code: Option<ErrorCode>,
        now: Instant,
        out: &mut Vec<Effect>,
    ) {
        self.take_over_at = Some(now);
        if code == Some(ErrorCode::OutOfSpace) {
            self.is_full = true;
            let text = "the disk of the server's database is full; jobs go on, and their results wait for room";
            out.push(Effect::TellFailure(text.into()));
            return;
        }
        self.lost = Some((now + HAND_OVER, message));
        if self.wants.is_verbose {
            self.tell_lost(out);
        }
    }

    fn tell_lost(&mut self, out: &mut Vec<Effect>) {
        let Some((_, message)) = self.lost.take() else { return };
        // A refusal may have its advice on a line of its own.
        let message = message.replace("\nhint: ", "; ");
        out.push(Effect::Tell(format!(
            "the server does not answer; jobs go on and their results are kept ({}); if it is gone, `torc server run` \
             where it was brings it back",
            escape::line(&message)
        )));
    }

    fn on_start(&mut self, start: JobStart, now: Instant, out: &mut Vec<Effect>) {
        let JobStart { attempt, job_id: job, name, attempt_id: number } = start;
        self.active_count += 1;
        if self.wants.is_verbose {
            out.push(Effect::Tell(format!("started: {}", named(&name, job, number))));
        }
        if self.wants.shows_output {
            out.push(Effect::OutputBegins { attempt, job, number, name: name.clone() });
        }
        if self.wants.is_live {
            self.active.insert(attempt, (name, now.into_std()));
        }
    }

    fn tell_bad_end(
        &mut self,
        end: JobEnd,
        outcome: Option<Outcome>,
        status: Option<JobStatus>,
        out: &mut Vec<Effect>,
    ) {
        // What we stopped ourselves is told in one sentence, not per job.
        if end.cause.is_stop() {
            return;
        }
        let attempt = match (end.attempt_id, outcome) {
            (1, _) => String::new(),
            (number, Some(Outcome::MaxRetriesExceeded)) => format!(", attempt {number} (the last)"),
            (number, _) => format!(", attempt {number}"),
        };
        let error = match &end.error {
            Some(error) => escape::line(error).into_owned(),
            None => format!("{}, code {}", end.cause, end.return_code),
        };
        let time = human::seconds(end.seconds);
        let name = escape::line(&end.name);
        let failure = Failure {
            text: format!("{name} (job {}){attempt} after {time}: {error}", end.job_id),
            // Where output is shown, the line stands above already.
            last_line: end.last_line.filter(|_| !self.wants.shows_output),
        };
        let told = |word| recap::told(word, &failure);
        match status {
            Some(JobStatus::Ready | JobStatus::Blocked) => {
                out.push(Effect::Tell(told("retrying")));
                self.recap.on_retry(end.job_id, &end.name, end.seconds);
            }
            Some(JobStatus::Canceled) => out.push(Effect::TellFailure(told("canceled"))),
            Some(JobStatus::PendingFailed) => {
                out.push(Effect::TellFailure(told("needs a verdict")));
            }
            Some(_) | None => {
                out.push(Effect::TellFailure(told("failed")));
                self.recap.on_failure(end.job_id, &end.name, end.seconds, failure);
            }
        }
    }
}

#[cfg(test)]
mod tests;
