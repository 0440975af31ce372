//! `torc ui`: a link to the page, with a code that is good once.

use super::interrupt::Interrupts;
use super::references;
use super::session::{Access, Session};
use super::{Context, block_on};
use crate::embedded::Purpose;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde_json::json;
use std::process::{Command as Process, Stdio};
use torc_client::Client;
use torc_model::api::{CreateUiCode, Page, PageScope, UiCode, UiSessionView};

/// Open the page: see every workflow, and act on its jobs
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  torc ui                      every workflow of this directory
  torc ui sweep                one of them
  torc ui --read-only          a link to give to a colleague: it looks and cannot act
  torc ui --remember           stay signed in on this computer for 7 days
  torc ui --base-url https://ondemand.example.org/node/n12/40123   a link through a proxy
  torc ui sessions             who has the page open
  torc ui sessions --revoke 3  end one of them

The link is good once, for ten minutes. It uses the running server of this directory, or serves the page itself until
Ctrl-C. Over SSH it prints the line that brings the page to your own computer."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Workflow: its id, its name, or `latest`
    workflow: Option<String>,

    /// Do not open a browser
    #[arg(long)]
    no_browser: bool,

    /// The page may look but not act
    #[arg(long)]
    read_only: bool,

    /// The browser that opens the link stays signed in for 7 days instead of 12 hours
    #[arg(long)]
    remember: bool,

    /// Where a proxy shows the server, such as `https://hub.example.org/user/me/proxy/40123`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the sessions of the page, or end one
    Sessions(SessionsArgs),
}

#[derive(clap::Args, Debug)]
struct SessionsArgs {
    /// End this session
    #[arg(long, value_name = "ID")]
    revoke: Option<i64>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        if let Some(Command::Sessions(args)) = self.command {
            return context.with_server(Access::Existing, async |client| {
                args.execute(context, client).await?;
                Ok(Exit::Success)
            });
        }
        block_on(self.open(context))
    }

    async fn open(self, context: &Context) -> Result<Exit> {
        let purpose = Purpose::Run { port: 0 };
        let session = Session::open_for(&context.locator, Access::Existing, purpose).await?;
        let shown = self.show(context, &session.client).await;
        if shown.is_ok() && session.is_momentary().await {
            let mut interrupts = Interrupts::listen()?;
            context.output.talk("Ctrl-C ends the page");
            interrupts.next().await;
        }
        session.close().await;
        shown.map(|()| Exit::Success)
    }

    async fn show(&self, context: &Context, client: &Client) -> Result<()> {
        let place = match &self.workflow {
            Some(name) => format!("w/{}", references::workflow(client, name).await?.id),
            None => String::new(),
        };
        let scope = if self.read_only { PageScope::Read } else { PageScope::Act };
        let label = Some(super::author("torc ui"));
        let code: UiCode = client.post("/ui_codes", &CreateUiCode { scope, label }).await?;
        let remember = if self.remember { "&r=1" } else { "" };
        let fragment = format!("ui/{place}#k={}{remember}", code.code);
        let base = self.base_url.as_deref().unwrap_or(client.url()).trim_end_matches('/');
        let url = format!("{base}/{fragment}");
        let is_remote = std::env::var_os("SSH_CONNECTION").is_some() && self.base_url.is_none();
        if context.output.is_json() {
            return context.output.json(&json!({
                "url": url, "scope": scope, "socket": code.socket, "expires_ms": code.expires_ms,
            }));
        }
        match (is_remote, &code.socket) {
            (true, Some(socket)) => context.output.data(&tunnel(socket, &fragment, &url))?,
            _ => context.output.data(&format!("{url}\n"))?,
        }
        let is_opened = !self.no_browser && !is_remote && open_browser(&url);
        context.output.talk(match is_opened {
            true => "opened in your browser; the link is good once, for 10 minutes",
            false => "the link is good once, for 10 minutes; `torc ui` makes another",
        });
        Ok(())
    }
}

/// What to do on one's own computer, ready to be copied.
fn tunnel(socket: &str, fragment: &str, url: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!(
        "Torc is ready. On your own computer run\n    ssh -N -L 8765:{socket} {host}\nthen open\n    \
         http://localhost:8765/{fragment}\nVS Code forwards it by itself: {url}\n"
    )
}

/// Starts a browser where there is a screen; whether it did.
fn open_browser(url: &str) -> bool {
    let has_screen =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|key| std::env::var_os(key).is_some());
    let programs: Vec<String> = match std::env::var("BROWSER") {
        Ok(browser) if !browser.is_empty() => vec![browser],
        _ if cfg!(target_os = "macos") => vec!["open".into()],
        _ if has_screen => vec!["xdg-open".into()],
        _ => return false,
    };
    programs.iter().any(|program| {
        let mut call = Process::new(program);
        call.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        call.spawn().is_ok()
    })
}

impl SessionsArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        if let Some(id) = self.revoke {
            let _: serde_json::Value = client.delete(&format!("/ui_sessions/{id}")).await?;
            context.output.talk(format_args!("session {id} is over"));
            return Ok(());
        }
        let page: Page<UiSessionView> = client.get("/ui_sessions").await?;
        context.output.list("sessions", &page.items, page.total_count, || table(&page.items))
    }
}

fn table(sessions: &[UiSessionView]) -> Table {
    let mut table = Table::new(["id", "may", "made by", "since", "until"]);
    for session in sessions {
        table.row([
            Field::number(session.id),
            Field::text(session.scope.as_str()),
            Field::optional(session.label.as_deref()),
            Field::text(human::local_time(session.created_ms)),
            Field::text(human::local_time(session.expires_ms)),
        ]);
    }
    table
}
