//! `torc server`: a server that runs by itself, its backups and its token.

use super::interrupt::Interrupts;
use super::logging::LogFormat;
use super::session::{self, Access};
use super::{Context, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use torc_batch::System;
use torc_client::discovery;
use torc_model::api::{AuditView, Page, PruneRequest};
use torc_server::{Options, Server, StartError, TlsFiles, doctor};

/// Run a server by itself, back it up, show its token
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc server run                               on this machine only, at any free port
  torc server run --host 0.0.0.0 --port 8080    for other machines, with a certificate of its own
  torc server install --user                    as a service that starts with the machine
  torc server backup copy.db                    while it runs or not
  torc server doctor                            is everything in the database as it must be?
  torc server usage                             who takes how much room?
  torc server token                             for `--token-file` on other machines")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a server until it is told to stop
    Run(RunServerArgs),
    Install(super::install::Args),
    /// Copy the database, also while a server uses it
    Backup(Backup),
    /// Check the database, and repair it
    Doctor(Doctor),
    /// Print the token of the server
    Token(TokenArgs),
    /// Show how much room the database and the files of each workflow take
    Usage,
    /// Show who changed what, the newest first
    Audit(Audit),
    /// Give the room of deleted workflows back to the disk
    #[command(after_help = "\
Writes the database anew. It takes as much room again for a while, and requests that change something wait.")]
    Vacuum,
}

#[derive(clap::Args, Debug)]
struct RunServerArgs {
    /// Name or address to listen on [default: this machine only]
    #[arg(short = 'H', long)]
    host: Option<String>,

    /// Port to listen on [default: any free one]
    #[arg(short, long, default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Directory for the token and the database [default: `--dir`, or .torc]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Another place for the database
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,

    /// Serve HTTPS with this certificate (PEM, with its chain); read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Serve plain HTTP although other machines can reach the address: the network sees the token
    #[arg(long, conflicts_with = "tls_cert")]
    insecure: bool,

    /// How the log on standard error looks: `text`, or `json`, which also tells of every request
    /// that changes something or is refused
    #[arg(
        long,
        value_name = "FORMAT",
        env = "TORC_LOG_FORMAT",
        default_value = "text",
        value_enum
    )]
    #[arg(hide_possible_values = true, hide_default_value = true, hide_env_values = true)]
    log_format: LogFormat,

    /// A further name that clients use for this machine; may be repeated
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,

    /// A proxy, or a network of them (`10.0.0.0/8`), whose `X-Forwarded-For` and `X-Forwarded-Proto` count; may be
    /// repeated [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = torc_server::Network::parse)]
    trusted_proxy: Vec<torc_server::Network>,

    /// The address that people use for this server, for links in messages [default: its own]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,

    /// Delete workflows that ended longer ago than this, such as `30d`; looked at every hour
    /// [default: all are kept]
    #[arg(long, value_name = "TIME", value_parser = super::workflows::age)]
    prune_older_than: Option<i64>,

    /// With `--prune-older-than`: keep those with jobs that did not succeed
    #[arg(long)]
    prune_keep_failed: bool,

    /// With `--prune-older-than`: remove the logs and samples of their jobs too
    #[arg(long)]
    prune_with_files: bool,
}

#[derive(clap::Args, Debug)]
struct Backup {
    /// File to write; it must not exist
    file: PathBuf,

    /// The database [default: the one in the state directory]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Checks the file, the schema, references between rows and every promise about jobs and attempts. Looking changes nothing
and may be done while a server runs; a repair needs the database for itself and keeps a copy first.
Exits with 1 when something is (still) wrong.")]
struct Doctor {
    /// Repair what can be repaired
    #[arg(long)]
    repair: bool,

    /// The database [default: the one in the state directory]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct TokenArgs {}

#[derive(clap::Args, Debug)]
struct Audit {
    /// Only changes of this user
    #[arg(long)]
    user: Option<String>,

    /// How many at most
    #[arg(long, default_value_t = 100)]
    limit: i64,
}

impl Audit {
    fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let mut query = torc_client::Query::new().add("limit", self.limit);
            if let Some(user) = &self.user {
                query = query.add("user", user);
            }
            let page: Page<AuditView> = client.get(&format!("/server/audit{query}")).await?;
            context.output.list("entries", &page.items, page.total_count, || {
                let mut table = Table::new(["when", "user", "token", "request", "id"]);
                for entry in &page.items {
                    let token = entry.token_id.map(|id| id.to_string()).unwrap_or_default();
                    table.row([
                        Field::text(human::local_time(entry.at_ms)),
                        Field::text(&entry.user),
                        Field::text(token),
                        Field::text(format!("{} {}", entry.method, entry.path)),
                        Field::text(&entry.request_id),
                    ]);
                }
                table
            })
        })?;
        Ok(Exit::Success)
    }
}

impl Args {
    /// How the log is to look.
    pub fn log_format(&self) -> LogFormat {
        match &self.command {
            Command::Run(args) => args.log_format,
            Command::Install(_)
            | Command::Backup(_)
            | Command::Doctor(_)
            | Command::Token(_)
            | Command::Usage
            | Command::Audit(_)
            | Command::Vacuum => LogFormat::Text,
        }
    }

    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Run(args) => args.execute(context),
            Command::Install(args) => args.execute(context),
            Command::Backup(args) => args.execute(context),
            Command::Doctor(args) => args.execute(context),
            Command::Token(_) => token(context),
            Command::Usage => usage(context),
            Command::Audit(args) => args.execute(context),
            Command::Vacuum => vacuum(context),
        }
    }
}

impl RunServerArgs {
    fn execute(self, context: &Context) -> Result<Exit> {
        let state_dir = match self.state_dir {
            Some(dir) => dir,
            None => session::state_dir(&context.locator, Access::Create)?,
        };
        let mut options = Options::new(&state_dir);
        options.host = self.host;
        options.port = self.port;
        options.database = self.database;
        options.allowed_hosts = self.allowed_host;
        options.insecure = self.insecure;
        options.public_url = self.public_url;
        options.trusted_proxies = self.trusted_proxy;
        options.retention = self.prune_older_than.map(|older_than_seconds| PruneRequest {
            older_than_seconds,
            keep_failed: self.prune_keep_failed,
            files: self.prune_with_files,
            dry_run: false,
        });
        if let (Some(cert), Some(key)) = (self.tls_cert, self.tls_key) {
            // Clients read `server.json` in other directories.
            let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
            let ca = context.locator.tls_ca.clone().map(whole);
            options.tls = Some(TlsFiles { cert, key, ca });
        }
        if let Err(error) = raise_file_limit() {
            context.output.warn(format_args!("the limit of open files stays as it is: {error}"));
        }
        block_on(async {
            let mut interrupts = Interrupts::listen()?;
            let mut server =
                Server::start(options).await.map_err(|error| cannot_start(&state_dir, error))?;
            let token_file = state_dir.join("token");
            if context.output.is_json() {
                context.output.json(&json!({
                    "url": server.url(),
                    "token_file": token_file,
                    "tls_ca": server.tls_ca(),
                }))?;
            } else {
                context.output.data(&format!("{}\n", server.url()))?;
                if let Some(ca) = server.tls_ca() {
                    context.output.talk(format_args!(
                        "clients elsewhere need `--tls-ca` with a copy of `{}`",
                        ca.display()
                    ));
                }
                context.output.talk(format_args!(
                    "the token is in `{}`; Ctrl-C stops the server",
                    token_file.display()
                ));
            }
            let client =
                torc_client::Client::with_ca(server.url(), server.token(), server.tls_ca())?;
            let allocations = server.allocations();
            let mut slurm = std::pin::pin!(async {
                match System::here() {
                    Ok(Some(system)) => torc_batch::serve(client, system, allocations).await,
                    Ok(None) => {}
                    Err(why) => context.output.warn(why),
                }
                // Without a batch system there is nothing to do, which is no reason to stop.
                std::future::pending::<()>().await;
            });
            tokio::select! {
                () = &mut slurm => Ok(Exit::Success),
                () = interrupts.next() => {
                    context.output.talk("stopping");
                    server.shutdown().await;
                    Ok(Exit::Success)
                }
                () = server.stopped() => Err(Error::Embedded {
                    dir: None,
                    reason: "the server ended by itself".into(),
                    hint: Some("its log says why; `-v` shows more of it".into()),
                }),
            }
        })
    }
}

impl Backup {
    fn execute(self, context: &Context) -> Result<Exit> {
        let database = match self.database {
            Some(file) => file,
            None => own_state(context, "backup")?.join(Options::DATABASE),
        };
        torc_server::backup(&database, &self.file).map_err(|error| match error {
            StartError::Io { doing: _, path, source } => Error::Io { doing: "write", path, source },
            other => cannot_start(&database, other),
        })?;
        if context.output.is_json() {
            context.output.json(&json!({ "database": database, "backup": self.file }))?;
        } else {
            context.output.talk(format_args!("wrote `{}`", self.file.display()));
        }
        Ok(Exit::Success)
    }
}

impl Doctor {
    fn execute(self, context: &Context) -> Result<Exit> {
        let database = match &self.database {
            Some(file) => file.clone(),
            None => own_state(context, "doctor")?.join(Options::DATABASE),
        };
        if !database.is_file() {
            return Err(Error::usage(format!("there is no database `{}`", database.display())));
        }
        let examined = if self.repair {
            let mut options = Options::new(database.parent().unwrap_or(Path::new(".")));
            options.database = Some(database.clone());
            block_on(async {
                doctor::repair(&options).await.map_err(|error| cannot_start(&database, error))
            })?
        } else {
            doctor::examine(&database).map_err(|error| cannot_start(&database, error))?
        };
        let output = &context.output;
        if output.is_json() {
            output.json(&examined)?;
        } else {
            for line in &examined.repaired {
                output.data(&format!("repaired: {}\n", escape::line(line)))?;
            }
            for problem in &examined.problems {
                output.data(&format!("{}: {}\n", problem.promise, escape::line(&problem.what)))?;
            }
            if let Some(copy) = &examined.copy {
                output.talk(format_args!("as it was before: `{}`", copy.display()));
            }
            self.conclude(context, &examined);
        }
        Ok(if examined.problems.is_empty() { Exit::Success } else { Exit::JobsFailed })
    }

    fn conclude(&self, context: &Context, examined: &doctor::Examined) {
        let checks = human::count(examined.checks, "check");
        match examined.problems.len() {
            0 => context.output.talk(format_args!("{checks}, nothing is wrong")),
            problems => {
                context.output.talk(format_args!("{checks}, {}", human::count(problems, "problem")))
            }
        }
        let can_repair = examined.problems.iter().any(|problem| problem.can_repair);
        if can_repair && !self.repair {
            context.output.talk("hint: stop the server, then `torc server doctor --repair`");
        } else if !examined.problems.is_empty() {
            context.output.talk(
                "hint: if you have a backup made with `torc server backup`, put it in its place",
            );
        }
    }
}

/// The state directory on this machine. A server that was named by its address must be the one
/// that owns it: another server's data would be mistaken for that server's.
fn own_state(context: &Context, command: &str) -> Result<PathBuf> {
    let dir = session::state_dir(&context.locator, Access::Existing);
    let Some(url) = &context.locator.url else { return dir };
    let origin = |url: &str| {
        let url = url.trim().trim_end_matches('/');
        url.strip_suffix(torc_model::api::BASE_PATH).unwrap_or(url).to_owned()
    };
    let serves = |dir: &PathBuf| {
        discovery::read_server_file(dir).is_ok_and(|file| origin(&file.url) == origin(url))
    };
    dir.ok().filter(serves).ok_or_else(|| {
        Error::usage_hint(
            format!(
                "`torc server {command}` works on a state directory of this machine, and none here \
                 belongs to the server at {url}"
            ),
            "run it on the machine of that server, with `--dir` and its state directory; `TORC_API_URL` \
             counts like `--url`",
        )
    })
}

fn token(context: &Context) -> Result<Exit> {
    let dir = own_state(context, "token")?;
    let token = torc_server::read_token(&dir).map_err(|error| cannot_start(&dir, error))?;
    let Some(token) = token else {
        return Err(Error::usage_hint(
            format!("there is no token in `{}`", dir.display()),
            "a server makes one when it first starts",
        ));
    };
    if context.output.is_json() {
        context.output.json(&json!({ "token": token }))?;
    } else {
        context.output.data(&format!("{token}\n"))?;
    }
    Ok(Exit::Success)
}

fn usage(context: &Context) -> Result<Exit> {
    context.with_server(Access::Existing, async |client| {
        let usage = client.usage().await?;
        if context.output.is_json() {
            return context.output.json(&usage);
        }
        let count = usage.workflows.len() as i64;
        context.output.list("workflows", &usage.workflows, count, || {
            let mut table =
                Table::new(["id", "name", "user", "jobs", "attempts", "database", "files", "size"]);
            for workflow in &usage.workflows {
                table.row([
                    Field::number(workflow.id.0),
                    Field::text(&workflow.name),
                    Field::text(&workflow.user),
                    Field::number(workflow.jobs),
                    Field::number(workflow.attempts),
                    Field::text(human::bytes(workflow.database_bytes)),
                    Field::number(workflow.files),
                    Field::text(human::bytes(workflow.file_bytes)),
                ]);
            }
            table
        })?;
        let mut line = format!(
            "database {}, of which {} are free; log {}",
            human::bytes(usage.database_bytes),
            human::bytes(usage.database_free_bytes),
            human::bytes(usage.log_bytes)
        );
        if let (Some(free), Some(size)) = (usage.disk_free_bytes, usage.disk_bytes) {
            line += &format!("; disk {}, {} left", human::bytes(size), human::bytes(free));
        }
        context.output.talk(line);
        for directory in &usage.unseen {
            let directory = escape::line(directory);
            context.output.warn(format_args!("the server cannot see files in `{directory}`"));
        }
        if usage.is_low {
            context.output.warn(
                "the disk of the database is nearly full: `torc workflows prune` and `torc server vacuum` make room",
            );
        }
        Ok(())
    })?;
    Ok(Exit::Success)
}

fn vacuum(context: &Context) -> Result<Exit> {
    context.with_server(Access::Existing, async |client| {
        let view = client.vacuum().await?;
        context.output.value(&view, |view| {
            let bytes = |bytes| human::bytes(bytes);
            let (before, after) = (bytes(view.bytes_before), bytes(view.bytes_after));
            format!("the database takes {after} now; before {before}\n")
        })
    })?;
    Ok(Exit::Success)
}

/// Every runner keeps some connections open. Only this process and not `torc run`: jobs take after their
/// runner, and some programs go through all descriptors that they could have.
fn raise_file_limit() -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
}

fn cannot_start(dir: &Path, error: StartError) -> Error {
    crate::embedded::cannot_start(dir, &error)
}
