//! `torc exec --direct`: runs a command itself, in the place of a job: no new job starts in the
//! scope until it ends.
//!
//! It is no job: it is not recorded, retried or recovered. What it holds is a reservation, which is
//! renewed while the command runs, released at its end, and which ends by itself if this process is
//! killed.

use super::interrupt::Interrupts;
use super::session::{Access, Session};
use super::{Context, person};
use crate::embedded::Purpose;
use crate::error::{Error, Result};
use crate::exit::Exit;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use torc_client::{Client, Query};
use torc_model::api::{
    CreateReservation, ErrorCode, LimitView, Page, ReleaseReservation, ReservationToken,
    ReservationView,
};
use torc_model::status::ReservationStatus;

/// The server answers when a job has made room, or after this long.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Before a server is asked again that did not answer: nothing tells when it is back.
const PAUSE: Duration = Duration::from_secs(1);
/// Between the signal to end and the one that ends.
const GRACE: Duration = Duration::from_secs(10);

/// What to run, and instead of what.
#[derive(Debug)]
pub struct Direct {
    /// `all`, `workflow:ID` or `limit:NAME`.
    pub scope: String,
    /// The reservation ends this long after the last renewal.
    pub ttl: Duration,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// A reservation that is ours.
struct HeldReservation<'a> {
    client: &'a Client,
    direct: &'a Direct,
    view: ReservationView,
}

impl Direct {
    /// Reserves, waits for a free place, runs, releases.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        super::block_on(async {
            // Announced, so that a command that starts meanwhile finds this server and is paused by
            // it.
            let purpose = Purpose::Run { port: 0 };
            let session = Session::open_for(&context.locator, Access::Create, purpose).await?;
            let result = self.run(context, &session.client).await;
            session.close().await;
            result
        })
    }

    async fn run(&self, context: &Context, client: &Client) -> Result<Exit> {
        let mut interrupts = Interrupts::listen()?;
        let mut held = HeldReservation { client, direct: self, view: self.reserve(client).await? };
        let result = held.use_it(context, &mut interrupts).await;
        held.release(context).await;
        result
    }

    async fn reserve(&self, client: &Client) -> Result<ReservationView> {
        let request = CreateReservation {
            scope: self.scope.clone(),
            reserved_by: person::name(),
            ttl_seconds: Some(i64::try_from(self.ttl.as_secs()).unwrap_or(i64::MAX)),
        };
        Ok(client.post("/reservations", &request).await?)
    }
}

impl HeldReservation<'_> {
    async fn use_it(&mut self, context: &Context, interrupts: &mut Interrupts) -> Result<Exit> {
        let room = self.room().await?;
        let mut told = false;
        let mut renew_at = Instant::now() + self.direct.ttl / 3;
        loop {
            let running = self.view.still_running.unwrap_or(0);
            if running <= room {
                break;
            }
            if !told {
                context
                    .output
                    .talk(format_args!("waiting for one of {running} running jobs to end"));
                told = true;
            }
            tokio::select! {
                () = interrupts.next() => {
                    context.output.talk("interrupted before it began");
                    return Ok(Exit::JobsFailed);
                }
                looked = self.looked(room) => self.view = looked?,
            }
            // One that ended with its server is made anew.
            if renew_at <= Instant::now() || self.view.status != ReservationStatus::Active {
                renew_at = Instant::now() + self.direct.ttl / 3;
                self.view = self.renewed(context).await?;
            }
        }
        let status = self.run_command(context, interrupts).await?;
        Ok(match (status.code(), status.signal()) {
            (Some(0), _) => Exit::Success,
            (Some(code), _) => {
                context.output.talk(format_args!("the command returned {code}"));
                Exit::JobsFailed
            }
            (None, signal) => {
                context
                    .output
                    .talk(format_args!("the command was ended by signal {}", signal.unwrap_or(0)));
                Exit::JobsFailed
            }
        })
    }

    /// How many jobs may run beside it: as many as leave a unit of the limit, or one less than
    /// there are.
    async fn room(&self) -> Result<i64> {
        if let Some(name) = self.direct.scope.strip_prefix("limit:") {
            let limits: Page<LimitView> = self.client.get("/limits").await?;
            return Ok(limits
                .items
                .iter()
                .find(|limit| limit.name == name)
                .map_or(0, |limit| limit.max - 1)
                .max(0));
        }
        Ok((self.view.still_running.unwrap_or(0) - 1).max(0))
    }

    async fn run_command(
        &mut self,
        context: &Context,
        interrupts: &mut Interrupts,
    ) -> Result<ExitStatus> {
        let (program, arguments) = self.direct.command.split_first().unzip();
        let program = program.map(String::as_str).unwrap_or_default();
        let child = Command::new(program).args(arguments.unwrap_or_default()).spawn();
        let child = child.map_err(Error::io("start", program))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let mut ended = tokio::task::spawn_blocking(move || wait(child));
        let mut kill_at = None;
        loop {
            let renew_in = (self.direct.ttl / 3).max(Duration::from_millis(300));
            tokio::select! {
                status = &mut ended => {
                    return status.map_err(|e| Error::io("wait for", program)(std::io::Error::other(e)))?
                        .map_err(Error::io("wait for", program));
                }
                () = interrupts.next() => {
                    // Ours is not reaped before `ended` says so: the number is still its own.
                    let signal = if kill_at.is_some() { Signal::KILL } else { Signal::TERM };
                    kill_at.get_or_insert_with(|| tokio::time::Instant::now() + GRACE);
                    send(pid, signal);
                }
                () = until(kill_at) => {
                    kill_at = Some(tokio::time::Instant::now() + GRACE);
                    send(pid, Signal::KILL);
                }
                () = tokio::time::sleep(renew_in) => {
                    match self.renewed(context).await {
                        Ok(view) => self.view = view,
                        Err(error) => context.output.talk(format_args!("the reservation could not be renewed: {error}")),
                    }
                }
            }
        }
    }

    /// The same reservation, as soon as there is room, or after a while.
    async fn looked(&self, room: i64) -> Result<ReservationView> {
        let wait = (self.direct.ttl / 3).min(LONGEST_WAIT).as_secs().max(1);
        let query = Query::new().add("until_running", room).add("wait_seconds", wait);
        match self
            .client
            .get::<ReservationView>(&format!("/reservations/{}{query}", self.view.id))
            .await
        {
            Ok(view) => Ok(ReservationView { token: self.view.token.clone(), ..view }),
            Err(error) if error.is_temporary() => {
                tokio::time::sleep(PAUSE).await;
                Ok(self.view.clone())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// More time. A server that was started again has ended the reservation: then it is made anew.
    async fn renewed(&self, context: &Context) -> Result<ReservationView> {
        let body = ReservationToken {
            token: self.view.token.clone().unwrap_or_default(),
            ttl_seconds: Some(i64::try_from(self.direct.ttl.as_secs()).unwrap_or(i64::MAX)),
        };
        match self
            .client
            .post::<ReservationView>(&format!("/reservations/{}/renew", self.view.id), &body)
            .await
        {
            Ok(view) => Ok(ReservationView { token: self.view.token.clone(), ..view }),
            Err(error) if error.code() == Some(ErrorCode::ReservationEnded) => {
                context.output.talk("the reservation had ended; making a new one");
                self.direct.reserve(self.client).await
            }
            // While it does not answer, the reservation goes on by itself.
            Err(error) if error.is_temporary() => Ok(self.view.clone()),
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, context: &Context) {
        let body = ReleaseReservation { token: self.view.token.clone() };
        let path = format!("/reservations/{}/release", self.view.id);
        if let Err(error) = self.client.post::<ReservationView>(&path, &body).await {
            let left = self.direct.ttl.as_secs();
            context
                .output
                .talk(format_args!("not released ({error}); it ends by itself within {left} s"));
        }
    }
}

fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    child.wait()
}

async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn send(pid: Option<Pid>, signal: Signal) {
    // One that has just ended needs no signal.
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}
