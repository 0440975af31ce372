//! Verdicts on jobs that wait for one, and what is remembered of what came of them, around the rules
//! for verdicts and the lessons of retries that the store uses too.

use crate::sabotage::Sabotage;
use crate::server::{Broken, Server, workflow_id};
use crate::tables::{VerdictRow, Write};
use crate::wire::Answer;
use torc_engine::commands::ClassifyJob;
use torc_engine::{AwaitedRetry, JobIx, Lesson, On, RetryEnd};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::JobId;
use torc_model::recovery::{
    Asked, Author, ClassificationState, Record, RetryOutcome, Standing, Verdict, known, rule,
};
use torc_model::status::JobStatus;

/// Agents must be this sure.
const THRESHOLD: f64 = 0.5;

impl Server {
    /// Retries that verdicts asked for and that have not told yet how they went.
    pub(crate) fn load_verdicts(&mut self) {
        self.judged.clear();
        for (row, verdict) in self.working.verdicts.iter().enumerate() {
            let is_open = verdict.is_retry && verdict.outcome.is_none();
            if is_open && verdict.state == ClassificationState::Applied {
                self.judged.insert(verdict.job, row);
            }
        }
    }

    /// How a job that waits for a verdict stands, and the verdict as it would be written.
    fn waiting(&self, flow: usize, index: JobIx) -> Option<(Standing, VerdictRow)> {
        let job = self.flow(flow).job(index);
        if job.status() != JobStatus::PendingFailed {
            return None;
        }
        let ended = self.working.last_ended(job.id())?;
        let fingerprint = ended.fingerprint();
        let is_like = |a: &&crate::tables::AttemptRow| {
            a.job == ended.job && a.run == ended.run && a.fingerprint() == fingerprint
        };
        let of_agent = |v: &&VerdictRow| {
            let is_retry = v.is_retry && v.is_agents && v.state == ClassificationState::Applied;
            v.job == ended.job && v.awaited.run == ended.run && is_retry
        };
        let agent_retries = self.working.verdicts.iter().filter(of_agent).count() as i64;
        let is_repeated = self.working.attempts.iter().filter(is_like).count() > 1;
        let standing = Standing { is_repeated, agent_retries, ..Standing::default() };
        let row = VerdictRow {
            flow,
            job: ended.job,
            failed: ended.id,
            awaited: AwaitedRetry { follows: ended.id, run: ended.run, fingerprint },
            is_retry: false,
            is_agents: false,
            state: ClassificationState::Applied,
            outcome: None,
        };
        Some((standing, row))
    }

    /// A person or an agent says what shall become of a job.
    pub(crate) fn verdict(
        &mut self,
        flow: usize,
        index: JobIx,
        retry: bool,
        confidence: Option<f64>,
        now: i64,
    ) -> Result<Answer, Broken> {
        let author = match confidence {
            Some(_) => Author::Agent { threshold: THRESHOLD },
            None => Author::Person,
        };
        self.give(flow, index, retry, (author, confidence), now)
    }

    fn give(
        &mut self,
        flow: usize,
        index: JobIx,
        retry: bool,
        (author, confidence): (Author, Option<f64>),
        now: i64,
    ) -> Result<Answer, Broken> {
        let Some((standing, row)) = self.waiting(flow, index) else {
            return Ok(Answer::Refused(ErrorCode::NotClassified));
        };
        let action = if retry { Verdict::Retry } else { Verdict::Fail };
        let asked = Asked { action, memory: None, runtime: None, confidence };
        let Ok(ruling) = rule(&asked, author, &standing) else {
            return Ok(Answer::Refused(ErrorCode::NotClassified));
        };
        for at in 0..self.working.verdicts.len() {
            let old = &self.working.verdicts[at];
            if old.job == row.job && old.state == ClassificationState::Held {
                let state = ClassificationState::Superseded;
                let old = VerdictRow { state, ..old.clone() };
                self.put(Write::Verdict(at, Box::new(old)))?;
            }
        }
        let state = match ruling.is_held {
            true => ClassificationState::Held,
            false => ClassificationState::Applied,
        };
        let is_retry = ruling.action == Verdict::Retry;
        let is_agents = author != Author::Person;
        let at = self.working.verdicts.len();
        let row = VerdictRow { is_retry, is_agents, state, ..row };
        self.put(Write::Verdict(at, Box::new(row)))?;
        match ruling.is_held {
            true => Ok(Answer::Done),
            false => self.do_verdict(flow, index, is_retry, at, now),
        }
    }

    fn do_verdict(
        &mut self,
        flow: usize,
        index: JobIx,
        retry: bool,
        row: usize,
        now: i64,
    ) -> Result<Answer, Broken> {
        let job = self.flow(flow).job(index).id();
        let classify = ClassifyJob { job: index, retry };
        match self.handle(On(workflow_id(flow), classify), now)? {
            Ok(()) => {
                if retry {
                    self.judged.insert(job, row);
                }
                Ok(Answer::Done)
            }
            Err(refused) => {
                Err(format!("a verdict that was written is refused: {}", refused.message))
            }
        }
    }

    /// A person accepts or rejects a verdict that is held.
    pub(crate) fn settle_verdict(
        &mut self,
        at: usize,
        accept: bool,
        now: i64,
    ) -> Result<Answer, Broken> {
        let held = self.working.verdicts.get(at).filter(|v| v.state == ClassificationState::Held);
        let Some(held) = held.cloned() else { return Ok(Answer::Refused(ErrorCode::WrongStatus)) };
        if !accept {
            let row = VerdictRow { state: ClassificationState::Rejected, ..held };
            self.put(Write::Verdict(at, Box::new(row)))?;
            return Ok(Answer::Done);
        }
        let index = self.flow(held.flow).find(held.job);
        let waits = index.and_then(|index| Some((index, self.waiting(held.flow, index)?)));
        let Some((index, (_, found))) = waits.filter(|(_, (_, w))| w.failed == held.failed) else {
            return Ok(Answer::Refused(ErrorCode::Superseded));
        };
        // A person has decided: it no longer counts for the agent.
        let state = ClassificationState::Applied;
        let (flow, is_retry) = (held.flow, held.is_retry);
        let row = VerdictRow { state, is_agents: false, awaited: found.awaited, ..held };
        self.put(Write::Verdict(at, Box::new(row)))?;
        self.do_verdict(flow, index, is_retry, at, now)
    }

    /// Does what the record of earlier verdicts decides alone.
    pub(crate) fn decide_from_memory(&mut self, flow: usize, now: i64) -> Result<Answer, Broken> {
        let all: Vec<JobIx> = self.flow(flow).indexes().collect();
        for index in all {
            let Some((standing, row)) = self.waiting(flow, index) else { continue };
            let counts = self.working.memory.get(&row.awaited.fingerprint).copied();
            let record = Record { again: counts.unwrap_or_default(), ..Record::default() };
            if let Some(known) = known(&standing, Some(&record), None, THRESHOLD) {
                let retry = known.action == Verdict::Retry;
                self.give(flow, index, retry, (Author::Memory, None), now)?;
            }
        }
        Ok(Answer::Done)
    }

    /// A job has ended in some way: a retry that a verdict asked for tells how it went.
    pub(crate) fn observe(&mut self, kind: EventKind, job: JobId) -> Result<(), Broken> {
        let is_end = matches!(
            kind,
            EventKind::JobPendingFailed
                | EventKind::JobCompleted
                | EventKind::JobFailed
                | EventKind::JobTerminated
                | EventKind::JobRetried
                | EventKind::JobCanceled
                // A map has found its items: so ends its own attempt when it succeeds.
                | EventKind::ItemsExpanded
        );
        let Some(row) = self.judged.get(&job).copied().filter(|_| is_end) else { return Ok(()) };
        let Some(ended) = self.working.last_ended(job) else { return Ok(()) };
        let end = RetryEnd {
            attempt: ended.id,
            retry_of: ended.retry_of,
            run: ended.run,
            state: ended.state,
            cause: ended.cause(),
        };
        let verdict = self.working.verdicts[row].clone();
        let mut lesson = verdict.awaited.on_end(&end, || ended.fingerprint());
        if lesson == Lesson::Interrupted && self.sabotage == Some(Sabotage::InterruptionsTeach) {
            lesson = Lesson::Outcome(RetryOutcome::FailedOther);
        }
        match lesson {
            Lesson::NotYet => Ok(()),
            Lesson::Never => {
                self.judged.remove(&job);
                Ok(())
            }
            Lesson::Interrupted => {
                let awaited = AwaitedRetry { follows: end.attempt, ..verdict.awaited.clone() };
                self.put(Write::Verdict(row, Box::new(VerdictRow { awaited, ..verdict })))
            }
            Lesson::Outcome(outcome) => {
                self.judged.remove(&job);
                let fingerprint = verdict.awaited.fingerprint.clone();
                let mut counts = self.working.memory.get(&fingerprint).copied().unwrap_or_default();
                counts.add(outcome);
                let row_now = VerdictRow { outcome: Some(outcome), ..verdict };
                self.put(Write::Verdict(row, Box::new(row_now)))?;
                self.put(Write::Memory(fingerprint, counts))
            }
        }
    }
}
