//! `torc reservations`: pauses of claims.

use super::session::Access;
use super::{Context, person};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde::Serialize;
use torc_model::api::{
    CreateReservation, Page, ReleaseReservation, ReservationToken, ReservationView,
};
use torc_model::status::ReservationStatus;
use torc_model::units::Runtime;

/// Pause the start of new jobs for a while, to have something to yourself
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc reservations create --ttl 30m                    no new job starts for half an hour
  torc reservations create limit:licence --ttl 10m      none that uses the licence
  torc reservations list
  torc reservations release 3                           before its time is over")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the newest reservations
    List,
    /// Reserve: no new job starts in the scope until it is released, its time is over or the server
    /// ends
    Create {
        /// `all`, `workflow:ID` or `limit:NAME`
        #[arg(default_value = "all")]
        scope: String,
        /// It ends by itself after this long
        #[arg(long, default_value = "10m", value_parser = Runtime::parse)]
        ttl: Runtime,
        /// Who asks [default: you]
        #[arg(long, default_value_t = person::name(), hide_default_value = true)]
        by: String,
    },
    /// Give a reservation more time
    Renew {
        /// Its id
        id: i64,
        /// The token that was printed when it was made
        token: String,
        /// It ends this long from now
        #[arg(long, default_value = "10m", value_parser = Runtime::parse)]
        ttl: Runtime,
    },
    /// Release a reservation
    Release {
        /// Its id
        id: i64,
        /// The token that was printed when it was made; without it the reservation is released
        /// even if another user holds it
        token: Option<String>,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::List => context.with_server(Access::Existing, async |client| {
                let page: Page<ReservationView> = client.get("/reservations").await?;
                context
                    .output
                    .list("reservations", &page.items, page.total_count, || table(&page.items))?;
                Ok(Exit::Success)
            }),
            Command::Create { scope, ttl, by } => {
                let body = CreateReservation { scope, reserved_by: by, ttl_seconds: seconds(ttl) };
                context.with_lasting_server("a reservation", async |client| {
                    show(context, &client.post("/reservations", &body).await?)
                })
            }
            Command::Renew { id, token, ttl } => {
                let body = ReservationToken { token, ttl_seconds: seconds(ttl) };
                change(context, id, "renew", &body)
            }
            Command::Release { id, token } => {
                change(context, id, "release", &ReleaseReservation { token })
            }
        }
    }
}

fn seconds(ttl: Runtime) -> Option<i64> {
    Some(i64::try_from(ttl.0).unwrap_or(i64::MAX))
}

fn change(context: &Context, id: i64, how: &str, body: &impl Serialize) -> Result<Exit> {
    context.with_server(Access::Existing, async |client| {
        show(context, &client.post(&format!("/reservations/{id}/{how}"), body).await?)
    })
}

fn show(context: &Context, reservation: &ReservationView) -> Result<Exit> {
    context.output.value(reservation, describe)?;
    Ok(Exit::Success)
}

fn table(reservations: &[ReservationView]) -> Table {
    let mut table = Table::new(["id", "scope", "by", "status", "left", "until"]);
    for r in reservations {
        table.row([
            Field::number(r.id),
            Field::text(&r.scope),
            Field::text(&r.reserved_by),
            Field::text(r.status.as_str()),
            Field::optional(left(r)),
            Field::text(human::local_time(r.expires_ms)),
        ]);
    }
    table
}

/// How long an active one still holds.
fn left(r: &ReservationView) -> Option<String> {
    let left = (r.expires_ms - human::now_ms()) as f64 / 1000.0;
    (r.status == ReservationStatus::Active).then(|| human::seconds(left))
}

fn describe(r: &ReservationView) -> String {
    let running = match r.still_running.unwrap_or(0) {
        0 => "no job runs in its scope".to_owned(),
        1 => "1 job still runs in its scope".to_owned(),
        many => format!("{} still run in its scope", human::count(many, "job")),
    };
    let token = r.token.as_ref().map(|t| format!("token {t}\n")).unwrap_or_default();
    // The scope is `all`, `workflow:ID` or `limit:NAME`.
    let scope = match r.scope.split_once(':') {
        Some((what, which)) => format!(" of {what} `{which}`"),
        None => String::new(),
    };
    let state = match r.status {
        ReservationStatus::Active => {
            let left = (r.expires_ms - r.reserved_ms.max(human::now_ms())).max(0) / 1000;
            format!("is active: no new job{scope} starts for {left} s")
        }
        ReservationStatus::Released => "was released".to_owned(),
        ReservationStatus::Expired => "has expired".to_owned(),
    };
    format!("reservation {} {state}; {running}\n{token}", r.id)
}
