//! The requests of a runner, each kind on a lane of its own, so that a long poll never holds up a
//! report.
//!
//! A request is repeated with the same key until an answer comes: the server answers a repeat like
//! the first. None is dropped while it is on its way, because its answer may grant an attempt.

use crate::actions::ActionResult;
use crate::dispatcher::Event;
use crate::mailbox::Mailbox;
use crate::sys;
use crate::tasks::FollowUp;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use torc_client::{Client, Error};
use torc_model::api::{ActionReport, ClaimRequest, Goodbye};
use torc_model::ids::{RunnerId, WorkflowId};

/// The first pause after a failure; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A leaving runner does not wait long for the server to hear its goodbye.
const GOODBYE_TRIES: u32 = 8;

/// When the server was last heard of, by a clock that also runs while the machine sleeps.
#[derive(Debug)]
pub struct Contact {
    last_ms: AtomicU64,
}

impl Contact {
    /// Heard just now.
    pub fn new() -> Self {
        Self { last_ms: AtomicU64::new(Self::now_ms()) }
    }

    fn now_ms() -> u64 {
        u64::try_from(sys::boottime().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs a request; if it is answered, the server was there when it was sent at the earliest.
    pub async fn track<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let sent = Self::now_ms();
        let result = request.await;
        if !matches!(result, Err(Error::Unreachable { .. })) {
            self.last_ms.fetch_max(sent, Ordering::Relaxed);
        }
        result
    }

    /// Time since the server was last heard of.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(Self::now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// Where requests go in. Dropping it ends the lanes.
pub struct Lanes {
    listen: UnboundedSender<ClaimRequest>,
    actions: UnboundedSender<ActionResult>,
    goodbye: UnboundedSender<Goodbye>,
    _tasks: JoinSet<()>,
}

/// The lane of exchanges. It has no thread: the thread that decides on an exchange sends it and
/// waits for the answer, because it is the one who starts what the answer grants. One exchange at a
/// time.
pub struct Exchange {
    line: Line,
    /// There until the end.
    runtime: Option<Runtime>,
    is_closed: watch::Sender<bool>,
}

impl Exchange {
    /// A connection of its own; nothing is sent yet.
    pub fn open(line: &Line) -> io::Result<Self> {
        let client = line.client.single();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            line: Line { client, ..line.clone() },
            runtime: Some(runtime),
            is_closed: watch::Sender::new(false),
        })
    }

    /// Sends a request until it is answered, or the answer is no longer wanted.
    pub fn send(&self, request: &ClaimRequest) -> FollowUp {
        let (line, Some(runtime)) = (&self.line, &self.runtime) else { return FollowUp::Later };
        torc_failpoint::hit("runner.before_claim");
        let answer = runtime.block_on(async {
            let mut is_closed = self.is_closed.subscribe();
            tokio::select! {
                answer = line.insist(|| line.client.claim(line.workflow_id, request)) => Some(answer),
                _ = is_closed.wait_for(|is_closed| *is_closed) => None,
            }
        });
        torc_failpoint::hit("runner.after_answer");
        match answer {
            Some(Ok(answer)) => line.events.send_quietly(Event::Exchanged(answer)),
            Some(Err(error)) => line.events.send_quietly(Event::Refused(error.to_string())),
            None => return FollowUp::Later,
        }
        FollowUp::Now
    }

    /// The answer is no longer wanted.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The last owner may be a task of another runtime, which must not wait for this one to
        // end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What all lanes need.
#[derive(Clone)]
pub struct Line {
    /// Talks to the server.
    pub client: Client,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// This runner.
    pub runner_id: RunnerId,
    /// Hears the answers.
    pub events: Mailbox<Event>,
    /// Notes when the server was heard of.
    pub contact: Arc<Contact>,
}

impl Lanes {
    /// Opens the lanes on the current runtime.
    pub fn open(line: &Line) -> Self {
        let mut tasks = JoinSet::new();
        let (listen, requests) = unbounded_channel();
        tasks.spawn(run_listener(line.clone(), requests));
        let (actions, requests) = unbounded_channel();
        tasks.spawn(report_actions(line.clone(), requests));
        let (goodbye, requests) = unbounded_channel();
        tasks.spawn(say_goodbye(line.clone(), requests));
        Self { listen, actions, goodbye, _tasks: tasks }
    }

    // A lane that has ended takes nothing more; that happens only when the whole program is being
    // torn down.

    /// Sends a listener.
    pub fn listen(&self, request: ClaimRequest) {
        let _ = self.listen.send(request);
    }

    /// Reports an action.
    pub fn report_action(&self, result: ActionResult) {
        let _ = self.actions.send(result);
    }

    /// Says goodbye.
    pub fn goodbye(&self, goodbye: Goodbye) {
        let _ = self.goodbye.send(goodbye);
    }
}

async fn run_listener(line: Line, mut requests: UnboundedReceiver<ClaimRequest>) {
    while let Some(request) = requests.recv().await {
        torc_failpoint::hit("runner.before_claim");
        let answer = line.insist(|| line.client.claim(line.workflow_id, &request)).await;
        torc_failpoint::hit("runner.after_answer");
        match answer {
            Ok(answer) => line.events.send(Event::Heard(answer)),
            Err(error) => line.events.send(Event::Refused(error.to_string())),
        }
    }
}

async fn report_actions(line: Line, mut results: UnboundedReceiver<ActionResult>) {
    while let Some(ActionResult { id, return_code, error }) = results.recv().await {
        let report = ActionReport { runner_id: line.runner_id, return_code, error };
        torc_failpoint::hit("runner.before_action_report");
        let answer = line.insist(|| line.client.complete_action(id, &report)).await;
        torc_failpoint::hit("runner.after_action_report");
        if let Err(error) = answer {
            tracing::warn!(action = %id, %error, "the server did not take the report of an action");
        }
        line.events.send(Event::ActionReported(id));
    }
}

async fn say_goodbye(line: Line, mut goodbyes: UnboundedReceiver<Goodbye>) {
    while let Some(goodbye) = goodbyes.recv().await {
        let mut pauses = Pauses::new();
        let mut tries = 0;
        loop {
            tries += 1;
            torc_failpoint::hit("runner.before_goodbye");
            let answer = line.contact.track(line.client.goodbye(line.runner_id, &goodbye)).await;
            torc_failpoint::hit("runner.after_goodbye");
            match answer {
                Ok(answer) => line.events.send(Event::GoodbyeAnswered(answer.actions)),
                Err(error) if error.is_temporary() && tries < GOODBYE_TRIES => {
                    pauses.pause().await;
                    continue;
                }
                Err(error) => line.events.send(Event::GoodbyeFailed(error.to_string())),
            }
            break;
        }
    }
}

impl Line {
    /// Repeats a request until it is answered for good.
    async fn insist<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut pauses = Pauses::new();
        loop {
            match self.contact.track(request()).await {
                Err(error) if error.is_temporary() => {
                    self.events.send(Event::ServerLost(error.to_string(), error.code()));
                    pauses.pause().await;
                }
                other => return other,
            }
        }
    }
}

/// Growing pauses between tries.
pub struct Pauses {
    next: Duration,
}

impl Pauses {
    /// Begins with a short one.
    pub fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    /// Waits, a little longer each time. A part of it is chance, so that runners do not come back
    /// in step.
    pub async fn pause(&mut self) {
        let spread = f64::from(sys::boottime().subsec_nanos() % 1000) / 1000.0;
        tokio::time::sleep(self.next.mul_f64(0.75 + spread / 2.0)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
