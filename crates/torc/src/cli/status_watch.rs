//! `torc status --watch`: shows how far a workflow is whenever that changes. It follows the events
//! and only looks.

use super::interrupt::Interrupts;
use super::session::{Access, Session};
use super::{Context, drive, references, slurm, status};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{self, Output, human, progress};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};
use torc_client::Client;
use torc_model::api::{JobView, StatusView};
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;
use torc_model::status::JobStatus;

/// However much happens, the counts are asked for this often at most.
const REFRESH: Duration = Duration::from_millis(300);
/// On a terminal the time goes on although nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Shows a workflow until it is complete or the user has seen enough.
pub async fn watch(context: &Context, workflow: &str) -> Result<Exit> {
    let open = async || {
        Session::open_for(&context.locator, Access::Existing, Purpose::Run { port: 0 }).await
    };
    let mut session = open().await?;
    let mut interrupts = Interrupts::listen()?;
    let mut view = StatusScreen::new(context.output);
    let mut id = None;
    let mut is_stopped = false;
    let mut deadline = Instant::now() + drive::PATIENCE;
    loop {
        let shown = view.looks;
        let result = {
            let watched = watch_server(context, &session.client, workflow, &mut id, &mut view);
            tokio::select! {
                result = watched => result,
                () = interrupts.next() => {
                    is_stopped = true;
                    Ok(())
                }
            }
        };
        session.close().await;
        match result {
            Ok(()) => {
                let exit = view.last.as_ref().map_or(Exit::Success, drive::exit);
                return Ok(if is_stopped { interrupts.exit(exit) } else { exit });
            }
            // The server of a `torc run` ends with it; the process that has the local state now
            // knows how it went on.
            Err(Error::Unreachable { .. }) if is_local(context) && view.looks > shown => {
                deadline = Instant::now() + drive::PATIENCE;
            }
            // It ended before we saw anything; there is no notice when the next one is there.
            Err(Error::Unreachable { .. }) if is_local(context) && Instant::now() < deadline => {
                tokio::time::sleep(drive::ASK_AGAIN).await;
            }
            Err(error) => return Err(error),
        }
        session = loop {
            match open().await {
                Err(Error::Unreachable { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(drive::ASK_AGAIN).await;
                }
                opened => break opened?,
            }
        };
    }
}

/// The server is found through the local state, which outlives it.
fn is_local(context: &Context) -> bool {
    context.locator.url.is_none()
}

/// The same as long as this server is there.
async fn watch_server(
    context: &Context,
    client: &Client,
    workflow: &str,
    id: &mut Option<WorkflowId>,
    view: &mut StatusScreen,
) -> Result<()> {
    // `latest` means what it meant at the beginning.
    let id = match *id {
        Some(id) => id,
        None => *id.insert(references::workflow(client, workflow).await?.id),
    };
    // Before the first look, so that nothing falls between the look and the stream.
    let mut events = slurm::events_from_now(client, id).await?;
    if is_local(context) {
        events = events.once();
    }
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stale_at = Some(Instant::now());
    loop {
        tokio::select! {
            event = events.next() => {
                let is_end = event?.kind == EventKind::WorkflowCompleted;
                // The server may be gone soon after the end.
                let at = Instant::now() + if is_end { Duration::ZERO } else { REFRESH };
                stale_at = Some(stale_at.map_or(at, |old| old.min(at)));
            }
            () = drive::due(stale_at) => {
                stale_at = None;
                let status = client.workflow_status(id).await?;
                view.show(client, status).await?;
                if view.last.as_ref().is_some_and(|status| status.is_complete) {
                    return Ok(());
                }
            }
            _ = tick.tick(), if view.is_live() => view.draw()?,
        }
    }
}

/// What is shown, and how.
struct StatusScreen {
    output: Output,
    /// The block is drawn over itself.
    terminal: Option<console::Term>,
    /// Lines of the block that stands there.
    drawn: usize,
    last: Option<StatusView>,
    failures: Vec<JobView>,
    /// Jobs that run, the longest first.
    longest: Vec<(String, std::time::Instant)>,
    /// When the first look was, and how many jobs were done then: the rate since tells what is left.
    begun: Option<(Instant, i64)>,
    /// How often the server answered.
    looks: usize,
}

impl StatusScreen {
    fn new(output: Output) -> Self {
        let is_live = output::stdout_is_terminal() && !output.is_json();
        let terminal = is_live.then(console::Term::stdout);
        Self {
            output,
            terminal,
            drawn: 0,
            last: None,
            failures: Vec::new(),
            longest: Vec::new(),
            begun: None,
            looks: 0,
        }
    }

    fn is_live(&self) -> bool {
        self.terminal.is_some()
    }

    /// Takes new counts, and shows them if they are new.
    async fn show(&mut self, client: &Client, status: StatusView) -> Result<()> {
        self.looks += 1;
        let is_news = self.last.as_ref().is_none_or(|last| differs(last, &status));
        if self.is_live() {
            self.failures = status::failures(client, &status).await?;
            self.longest = match drive::count(&status, JobStatus::Running) {
                0 => Vec::new(),
                _ => drive::longest_running(client, status.workflow_id).await?,
            };
            self.begun.get_or_insert((Instant::now(), progress::done(&status)));
            self.last = Some(status);
            return self.draw();
        }
        let status = self.last.insert(status);
        if !is_news {
            return Ok(());
        }
        if self.output.is_json() {
            let text = serde_json::to_string(status)
                .unwrap_or_else(|error| unreachable!("our own types: {error}"));
            return self.output.data(&(text + "\n"));
        }
        let time = human::local_time(human::now_ms());
        self.output.data(&format!(
            "{time}  {}  {}\n",
            progress::succeeded_of_all(status),
            progress::counts(status)
        ))
    }

    /// Seconds that are left, if the rate since the first look holds.
    fn left(&self, status: &StatusView) -> Option<f64> {
        let (since, done_then) = self.begun?;
        let (done, elapsed) = (progress::done(status), since.elapsed().as_secs_f64());
        let (ended, left) = ((done - done_then) as f64, (status.total - done) as f64);
        (ended > 0.0 && left > 0.0).then(|| elapsed / ended * left)
    }

    /// Draws the block in the place of the last one. What does not fit into the window is left out:
    /// lines that wrap or scroll away could not be taken back.
    fn draw(&mut self) -> Result<()> {
        let (Some(terminal), Some(status)) = (&self.terminal, &self.last) else { return Ok(()) };
        let (height, width) = terminal.size();
        let mut block = status::render(status, None, &self.failures);
        block += &status::longest_line(&self.longest);
        if let Some(left) = self.left(status) {
            block += &format!("  {:<12}about {}\n", "left", human::seconds(left));
        }
        let lines: Vec<_> = block
            .lines()
            .take(usize::from(height).saturating_sub(1).max(1))
            .map(|line| console::truncate_str(line, usize::from(width), "…"))
            .collect();
        terminal.clear_last_lines(self.drawn).map_err(Error::io("write", "standard output"))?;
        self.output.data(&(lines.join("\n") + "\n"))?;
        self.drawn = lines.len();
        Ok(())
    }
}

/// Something changed that a line would show.
fn differs(a: &StatusView, b: &StatusView) -> bool {
    let key = |s: &StatusView| (s.run_id, s.counts.clone(), s.is_complete, s.is_canceled);
    key(a) != key(b)
}
