//! Runners: they come, tell that they are alive, leave or are found dead; people order them about.

use crate::engine::{Command, Engine, Turn, Wakes};
use crate::{BurntAttempt, Holdup, KnownRunner, Lost, Quarantine, Refused, RunnerEvent, unwritten};
use torc_model::api::{Evidence, Heartbeat, HeartbeatAnswer};
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::status::{Cause, EvidenceSource, RunnerOrder};

/// A runner has come. Its row is there.
#[derive(Clone, Debug)]
pub struct RegisterRunner {
    /// Its row.
    pub id: RunnerId,
    /// What is known of it.
    pub runner: KnownRunner,
}

impl Command for RegisterRunner {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.runner.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let workflow = self.runner.workflow;
        let (changes, was_alone) = turn.engine.runners.come(self.id, self.runner);
        if was_alone {
            turn.wake(Wakes::Workflow);
        }
        turn.record(workflow, changes);
        Ok(())
    }
}

/// A runner is alive, and tells what it holds and what the steps of its attempts have done.
#[derive(Clone, Copy, Debug)]
pub struct Beat<'a> {
    /// What it says.
    pub beat: &'a Heartbeat,
    /// How many events of the steps of each attempt that it tells of are written.
    pub written: &'a [u64],
}

impl Command for Beat<'_> {
    type Reply = HeartbeatAnswer;

    fn needs(&self, engine: &Engine) -> Option<WorkflowId> {
        engine.runners.get(&self.beat.runner_id).map(|known| known.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<HeartbeatAnswer, Refused> {
        let Self { beat, written } = self;
        let runner = beat.runner_id;
        let id = turn.engine.runners.find(runner)?.workflow;
        turn.step_runner(id, runner, RunnerEvent::Beat);
        turn.on(id, |workflow, limits, now| {
            for (told, written) in beat.step_events.iter().zip(written) {
                let attempt = &told.attempt;
                let Some(index) = workflow.may_report(attempt.id, runner, &attempt.token) else {
                    continue;
                };
                let news = unwritten(*written, told.from, &told.events);
                if !news.is_empty() {
                    workflow.tell_steps(index, news);
                    workflow.count_steps(attempt.id, written.saturating_add(news.len() as u64));
                }
            }
            workflow.heartbeat(beat, limits, now)
        })
    }
}

/// A runner leaves in good order. What it still holds is given up at once: it said itself that it is
/// going. Answers with the actions that it executes before.
#[derive(Clone, Copy, Debug)]
pub struct Leave<'a> {
    /// Who.
    pub runner: RunnerId,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// Why.
    pub reason: &'a str,
}

impl Command for Leave<'_> {
    type Reply = Vec<ActionId>;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Vec<ActionId>, Refused> {
        let Self { runner, workflow: id, reason } = self;
        let host = turn.engine.runners.get(&runner).map_or("?", |known| &known.host);
        let text = format!("its runner on {host} left: {reason}");
        let evidence = Evidence { source: EvidenceSource::Journal, text };
        // It leaves in good order, so it has told the end of all it ran: what it was given in its last
        // moment never started.
        turn.on(id, |workflow, limits, now| workflow.leave_unstarted(runner, limits, now))?;
        turn.end_runner(id, runner, &Lost { cause: Cause::Lost, evidence }, reason)?;
        // After the end, so that they are not taken back with the rest.
        turn.on(id, |workflow, _, _| workflow.last_actions(runner))
    }
}

/// A runner is gone: its attempts end. Answers how many those were.
#[derive(Clone, Copy, Debug)]
pub struct EndRunner<'a> {
    /// Who.
    pub runner: RunnerId,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// What is known of its end.
    pub lost: &'a Lost,
    /// Why it ended, for its row.
    pub reason: &'a str,
    /// What it held and had certainly not begun goes back to the queue at no cost.
    pub unbegun: &'a [AttemptId],
}

impl Command for EndRunner<'_> {
    type Reply = usize;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<usize, Refused> {
        let Self { runner, workflow: id, lost, reason, unbegun } = self;
        turn.on(id, |workflow, limits, now| {
            for attempt in unbegun {
                let why = format!("{} before it had begun", lost.evidence.text);
                workflow.never_began(runner, *attempt, &why, limits, now);
            }
        })?;
        turn.end_runner(id, runner, lost, reason)
    }
}

/// What a person asks of a runner; None: that it works again. All waiting claims look again.
#[derive(Clone, Copy, Debug)]
pub struct OrderRunner {
    /// Who.
    pub runner: RunnerId,
    /// What is asked.
    pub ordered: Option<RunnerOrder>,
}

impl Command for OrderRunner {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let id = turn.engine.runners.find(self.runner)?.workflow;
        turn.step_runner(id, self.runner, RunnerEvent::Ordered(self.ordered));
        turn.wake(Wakes::All);
        Ok(())
    }
}

/// The machine of a runner gets no work for a while, and attempts that it burnt are given back.
#[derive(Clone, Debug)]
pub struct QuarantineRunner {
    /// Who.
    pub runner: RunnerId,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// Why, and until when.
    pub kept: Quarantine,
    /// The attempts, each with its job.
    pub burnt: Vec<(JobId, BurntAttempt)>,
}

impl Command for QuarantineRunner {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let Self { runner, workflow: id, kept, burnt } = self;
        if !turn.engine.runners.contains_key(&runner) {
            return Ok(());
        }
        let again = turn.on(id, |workflow, _, now| {
            let mut again = 0;
            for (job, attempt) in &burnt {
                let Some(index) = workflow.find(*job) else { continue };
                again += usize::from(workflow.refund(index, attempt, now));
            }
            again
        })?;
        turn.step_runner(id, runner, RunnerEvent::Quarantined(kept, burnt.len(), again));
        Ok(())
    }
}

/// A runner that was kept from work gets it again.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRunner(pub RunnerId);

impl Command for ReleaseRunner {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let id = turn.engine.runners.find(self.0)?.workflow;
        turn.step_runner(id, self.0, RunnerEvent::Released);
        Ok(())
    }
}

/// A sweep saw what stands in the way of an end of what a runner holds.
#[derive(Clone, Debug)]
pub struct NoteHoldup {
    /// Who.
    pub runner: RunnerId,
    /// What the sweep saw.
    pub holdup: Option<Holdup>,
}

impl Command for NoteHoldup {
    type Reply = ();

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<(), Refused> {
        if let Some(known) = turn.engine.runners.get_mut(&self.runner) {
            known.holdup = self.holdup;
        }
        Ok(())
    }
}

impl Turn<'_> {
    /// Something happens to a runner of this workflow.
    pub(crate) fn step_runner(&mut self, id: WorkflowId, runner: RunnerId, event: RunnerEvent) {
        let changes = self.engine.runners.step(runner, event);
        self.record(id, changes);
    }

    pub(crate) fn end_runner(
        &mut self,
        id: WorkflowId,
        runner: RunnerId,
        lost: &Lost,
        reason: &str,
    ) -> Result<usize, Refused> {
        let lose = |w: &mut crate::Workflow, limits: &mut crate::Limits, now| {
            w.runner_lost(runner, lost, limits, now)
        };
        let ended = self.on(id, lose)?;
        self.step_runner(id, runner, RunnerEvent::Ended(reason.to_owned(), ended));
        Ok(ended)
    }
}
