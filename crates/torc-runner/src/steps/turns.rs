//! The executor of steps as a conversation: it asks for one thing at a time and goes on with the
//! answer.
//!
//! The executor itself is straight code, an `async fn` that only [`StepRun::advance`] polls:
//! it needs no runtime and no thread of its own, and while it waits for a process it is only a
//! value.

use super::run;
use crate::attempt::{Attempt, AttemptContext};
use crate::process::ProcessOrder;
use crate::supervisor::{ProcessExit, StopReason};
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use torc_model::api::CompletionReport;
use torc_model::steps::Step;

/// What a run of steps wants next.
#[derive(Debug)]
pub enum Ask {
    /// A process; its number is not set yet.
    Run(Box<ProcessOrder>),
    /// To be woken after this long.
    Wait(Duration),
    /// One of these files, locked as soon as it can be; to be woken without one after this long.
    Slot {
        /// The files.
        paths: Vec<PathBuf>,
        /// Not longer than this.
        at_most: Option<Duration>,
    },
    /// Nothing: it is over.
    Done(Box<CompletionReport>),
}

/// What it gets.
#[derive(Debug)]
pub enum Answer {
    /// The steps may begin.
    Begin,
    /// The process has ended.
    Ended(Box<ProcessExit>),
    /// The time is over.
    Woken,
    /// A file that it asked for, locked.
    Slot(File),
    /// Instead of what it asked for: end now.
    Stop(StopReason),
}

#[derive(Default)]
struct Slot {
    ask: Option<Ask>,
    answer: Option<Answer>,
}

/// The steps' side of the conversation.
#[derive(Clone, Default)]
pub struct Port(Arc<Mutex<Slot>>);

impl Port {
    fn with<T>(&self, act: impl FnOnce(&mut Slot) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks and waits for the answer.
    pub fn ask(&self, ask: Ask) -> impl Future<Output = Answer> + use<> {
        let port = self.clone();
        let mut ask = Some(ask);
        std::future::poll_fn(move |_| {
            if let Some(ask) = ask.take() {
                port.with(|slot| slot.ask = Some(ask));
                return Poll::Pending;
            }
            match port.with(|slot| slot.answer.take()) {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            }
        })
    }
}

/// One attempt's steps, between two turns.
pub struct StepRun {
    future: Pin<Box<dyn Future<Output = Box<CompletionReport>> + Send>>,
    port: Port,
    is_light: bool,
}

impl fmt::Debug for StepRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepRun").finish_non_exhaustive()
    }
}

impl StepRun {
    /// The steps of an attempt, not begun.
    pub fn new(attempt: Attempt, context: Arc<AttemptContext>) -> Self {
        Self::of(run::Plan::of(attempt, &context), context)
    }

    /// The same, but the first try of its first step is this one.
    pub fn rehearsal(attempt: Attempt, context: Arc<AttemptContext>, first: Step) -> Self {
        let mut plan = run::Plan::of(attempt, &context);
        plan.rehearsal = Some(first);
        Self::of(plan, context)
    }

    fn of(plan: run::Plan, context: Arc<AttemptContext>) -> Self {
        let port = Port::default();
        let is_light = plan.is_light();
        Self { future: Box::pin(run::attempt(plan, context, port.clone())), port, is_light }
    }

    /// A turn of it touches no file and takes no time.
    pub fn is_light(&self) -> bool {
        self.is_light
    }

    /// Goes on with the answer to what it asked last. May look at files.
    pub fn advance(&mut self, answer: Answer) -> Ask {
        // `Begin` answers no question: it must not be taken for the answer to the first question.
        self.port.with(|slot| {
            slot.answer = Some(answer).filter(|answer| !matches!(answer, Answer::Begin))
        });
        let mut task = std::task::Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut task) {
            Poll::Ready(report) => Ask::Done(report),
            Poll::Pending => {
                self.port.with(|slot| slot.ask.take()).unwrap_or(Ask::Wait(Duration::ZERO))
            }
        }
    }
}
