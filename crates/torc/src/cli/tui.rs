//! `torc tui`: the page's screens in a terminal, and `torc run --tui`, which opens them on its run.

use super::drive::{self, Drive, Stay};
use super::run::{RunOptions, other_runner_here};
use super::session::{Access, Session, state_dir};
use super::{Context, Locator, block_on, detach, logging, references};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use jiff::tz::TimeZone;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use torc_client::{Client, discovery};
use torc_model::api::WorkflowView;
use torc_model::ids::WorkflowId;
use torc_tui::{Options, Settings, Theme};

/// See every workflow in this terminal, and act on its jobs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc tui                     every workflow of this directory
  torc tui latest              one of them
  torc tui sweep --no-mouse    the mouse selects text, as without it
  torc run sweep.yaml --tui    run it, and see it here

`?` shows the keys of a screen, `:` goes anywhere, `q` back, `Q` or Ctrl-C leaves. Every action first shows what it would
do, and the command that does the same. `NO_COLOR` switches colors off.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    workflow: Option<String>,

    #[command(flatten)]
    screen: ScreenOptions,
}

/// How the screens look.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ScreenOptions {
    /// Draw with plain ASCII characters only
    #[arg(long)]
    ascii: bool,

    /// Leave the mouse to the terminal, so that it selects text
    #[arg(long)]
    no_mouse: bool,

    /// Append a line per redraw to this file: time, bytes, microseconds from a key to the screen
    #[arg(long, value_name = "FILE", hide = true)]
    trace: Option<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        check_terminal()?;
        block_on(async {
            let purpose = Purpose::Run { port: 0 };
            let mut session =
                Session::open_for(&context.locator, Access::Existing, purpose).await?;
            let shown = async {
                let workflow = match &self.workflow {
                    Some(name) => Some(references::workflow(&session.client, name).await?.id),
                    None => None,
                };
                show(&context.locator, &mut session, workflow, &self.screen).await
            };
            let shown = shown.await;
            session.close().await;
            shown.map(|()| Exit::Success)
        })
    }
}

/// A terminal that can show screens, on both sides: keys come in, cells go out.
pub fn check_terminal() -> Result<()> {
    let hint = "`torc status --watch` shows how far a workflow is anywhere, `torc ui` opens the page in a browser";
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let message = "the screens need a terminal, and this is not one";
        return Err(Error::usage_hint(message, hint));
    }
    let term = std::env::var("TERM").unwrap_or_default();
    match term.as_str() {
        "" | "dumb" | "unknown" => Err(Error::usage_hint(
            format!("the screens need a terminal that can move its cursor; `TERM` is `{term}`"),
            hint,
        )),
        _ => Ok(()),
    }
}

/// Shows the screens until the user leaves.
async fn show(
    locator: &Locator,
    session: &mut Session,
    workflow: Option<WorkflowId>,
    screen: &ScreenOptions,
) -> Result<()> {
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let options = Options {
        client: session.client.clone(),
        workflow,
        settings: Settings {
            theme: Theme { color, ascii: screen.ascii },
            zone: TimeZone::system(),
            author: super::author("torc tui"),
        },
        has_mouse: !screen.no_mouse,
        trace: screen.trace.clone(),
    };
    // What the parts of the program log would be written over the screen.
    logging::silence(true);
    // The server of a `torc run` ends with it; then this process serves in its place.
    let found_at = session.client.url().to_owned();
    let on_away = async || {
        session.take_over().await;
        moved(locator, &found_at)
    };
    let shown = torc_tui::run(options, on_away).await;
    logging::silence(false);
    shown.map_err(Error::io("draw on", "the terminal"))
}

/// The server of the local state, if it has another address now: it was started again.
fn moved(locator: &Locator, found_at: &str) -> Option<Client> {
    if locator.url.is_some() {
        return None;
    }
    let dir = state_dir(locator, Access::Existing).ok()?;
    let file = discovery::read_server_file(&dir).ok()?;
    if file.url == found_at { None } else { Client::local(&file).ok() }
}

/// `torc run --tui`: the run is a process of its own, as with `--detach`, so that it goes on when
/// the screens are left; then the usual line follows it to its end.
pub fn run_with_screens(
    context: &Context,
    workflow: WorkflowView,
    options: &RunOptions,
) -> Result<Exit> {
    detach::run_in_background(context, &workflow, &options.runner)?;
    block_on(async {
        let purpose = Purpose::Run { port: 0 };
        let mut session = Session::open_for(&context.locator, Access::Existing, purpose).await?;
        let result = async {
            show(&context.locator, &mut session, Some(workflow.id), &options.screen).await?;
            let client = session.client.clone();
            let status =
                drive::patiently(async || Ok(client.workflow_status(workflow.id).await?)).await?;
            let runner = match status.is_complete {
                true => None,
                false => other_runner_here(&client, &workflow).await?,
            };
            let Some(runner) = runner else {
                let end = drive::RunEnd::default();
                return drive::finish(context, &client, &workflow, &status, end).await;
            };
            let (options, force) = (&options.runner, options.force);
            let drive =
                Drive { context, workflow, options, force, show: None, stay: Stay::default() };
            drive::follow(&session, drive, &runner).await
        };
        let result = result.await;
        session.close().await;
        result
    })
}
