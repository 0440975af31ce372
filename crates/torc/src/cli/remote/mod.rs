//! `torc remote`: runners on other machines, started and looked after over SSH.
//!
//! A runner that was started outlives the connection: it speaks to the server itself. Its token goes
//! through the encrypted connection into a file that only its user can read.

mod registry;
mod ssh;

use super::Context;
use super::session::{Access, Session};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape};
use clap::Subcommand;
use serde::Serialize;
use ssh::{Host, RemoteOutput};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use torc_client::Client;

const PROBE: &str = include_str!("probe.sh");
const UPLOAD: &str = include_str!("upload.sh");
const START: &str = include_str!("start.sh");
const STATUS: &str = include_str!("status.sh");
const STOP: &str = include_str!("stop.sh");
const TAIL: &str = include_str!("tail.sh");
const COLLECT: &str = include_str!("collect.sh");

/// Machines that are spoken to at the same time.
const AT_ONCE: usize = 16;

/// Run runners on other machines over SSH
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc remote add n1 n2 me@n3             remember machines, as ssh names them
  torc remote run                         a runner on each, which stays and serves every workflow
  torc remote run n1 -w sweep -- -j 8     one for this workflow on n1, with options of `torc runner`
  torc remote status
  torc remote logs n1 --to collected      copy what its runners and their jobs wrote
  torc remote stop

Machines are reached with your `ssh`, without questions: use keys and an agent. `TORC_SSH` names another program or
options, such as `ssh -F FILE`. Where the program is missing, this one is copied there. The runner goes on when the
connection is lost; it must reach the server by itself (`--server`).")]
pub struct Args {
    #[command(subcommand)]
    command: RemoteTask,
}

#[derive(Subcommand, Debug)]
enum RemoteTask {
    /// Remember machines
    Add(HostArgs),
    /// Forget machines; their runners go on
    Remove(HostArgs),
    /// List the machines that are remembered
    List,
    /// Start a runner on machines
    Run(Run),
    /// Show the runners that were started, and whether they run
    Status(Look),
    /// Stop runners
    Stop(Stop),
    /// Show the logs of runners, or copy them here with those of their jobs
    Logs(Logs),
}

#[derive(clap::Args, Debug)]
struct HostArgs {
    /// Machines [default: those that were added]
    #[arg(value_name = "HOST", value_parser = Host::parse)]
    hosts: Vec<Host>,

    /// File of machines, one per line
    #[arg(long, value_name = "FILE")]
    hosts_file: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct Look {
    #[command(flatten)]
    hosts: HostArgs,

    /// Directory on the machines [default: `.torc-remote` in the home directory]
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    remote_dir: String,
}

#[derive(clap::Args, Debug)]
struct Run {
    #[command(flatten)]
    look: Look,

    /// Serve this workflow only: its id, its name, or `latest` [default: every one]
    #[arg(short, long, value_name = "WORKFLOW")]
    workflow: Option<String>,

    /// Address of the server as the machines see it [default: as it is seen here]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// Program on the machines [default: `torc` of this version there, or a copy of this one]
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    program: String,

    /// File with the token for the runners [default: the token in use]
    #[arg(long, value_name = "FILE")]
    runner_token_file: Option<PathBuf>,

    /// Let jobs start in a directory of the machine, and not where their workflow was created
    #[arg(long)]
    own_dir: bool,

    /// Options of `torc runner`
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

#[derive(clap::Args, Debug)]
struct Stop {
    #[command(flatten)]
    look: Look,

    /// Only the runner of this name, as `torc remote status` shows it
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Seconds to wait for jobs to end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u32,
}

#[derive(clap::Args, Debug)]
struct Logs {
    #[command(flatten)]
    look: Look,

    /// Only of the runner of this name
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Lines from the end
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    tail: u32,

    /// Copy all logs into this directory, one directory per machine
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// One runner on a machine, or why the machine did not tell.
#[derive(Serialize)]
struct Row {
    host: String,
    name: Option<String>,
    pid: Option<i64>,
    state: &'static str,
    note: String,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            RemoteTask::Add(hosts) => change(context, &hosts, |all, host| all.insert(host.clone())),
            RemoteTask::Remove(hosts) => change(context, &hosts, |all, host| all.remove(host)),
            RemoteTask::List => list(context, &registry::read()?),
            RemoteTask::Run(run) => run.execute(context),
            RemoteTask::Status(look) => look.execute(context),
            RemoteTask::Stop(stop) => stop.execute(context),
            RemoteTask::Logs(logs) => logs.execute(context),
        }
    }
}

fn change(
    context: &Context,
    named: &HostArgs,
    each: impl Fn(&mut BTreeSet<Host>, &Host) -> bool,
) -> Result<Exit> {
    let hosts = named.named()?;
    if hosts.is_empty() {
        return Err(Error::usage_hint("no machine is named", "name some, or `--hosts-file FILE`"));
    }
    let mut all = registry::read()?;
    hosts.iter().for_each(|host| _ = each(&mut all, host));
    registry::write(&all)?;
    list(context, &all)
}

fn list(context: &Context, hosts: &BTreeSet<Host>) -> Result<Exit> {
    let names: Vec<&str> = hosts.iter().map(Host::as_str).collect();
    context.output.list("hosts", &names, names.len() as i64, || {
        let mut table = Table::new(["host"]);
        names.iter().for_each(|name| table.row([Field::text(name)]));
        table
    })?;
    Ok(Exit::Success)
}

impl HostArgs {
    fn named(&self) -> Result<Vec<Host>> {
        let mut hosts = self.hosts.clone();
        if let Some(file) = &self.hosts_file {
            hosts.extend(registry::of_file(file)?);
        }
        Ok(hosts)
    }

    /// Those that are named, or all that were added.
    fn chosen(&self) -> Result<Vec<Host>> {
        let mut hosts = self.named()?;
        if hosts.is_empty() {
            hosts = registry::read()?.into_iter().collect();
        }
        if hosts.is_empty() {
            return Err(Error::usage_hint(
                "there is no machine",
                "`torc remote add HOST` adds one",
            ));
        }
        hosts.sort();
        hosts.dedup();
        Ok(hosts)
    }
}

/// Does something with each machine, with some of them at the same time; in the order of the machines.
fn with_each<T: Send>(
    hosts: &[Host],
    each: impl Fn(&Host) -> Result<T> + Sync,
) -> Vec<(Host, Result<T>)> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(hosts.len()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            scope.spawn(|| {
                while let Some(host) =
                    hosts.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let result = each(host);
                    done.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((host.clone(), result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by(|a, b| a.0.cmp(&b.0));
    done
}

fn nothing() -> std::io::Empty {
    std::io::empty()
}

/// The rows of all machines; those that could not be reached have one that says why.
fn rows(done: Vec<(Host, Result<Vec<Row>>)>) -> (Vec<Row>, bool) {
    let mut all = Vec::new();
    let mut is_well = true;
    for (host, rows) in done {
        match rows {
            Ok(rows) => all.extend(rows),
            Err(error) => {
                is_well = false;
                all.push(Row {
                    host: host.as_str().to_owned(),
                    name: None,
                    pid: None,
                    state: "unreachable",
                    note: error.to_string(),
                });
            }
        }
    }
    (all, is_well)
}

fn print(context: &Context, done: Vec<(Host, Result<Vec<Row>>)>) -> Result<Exit> {
    let (rows, is_well) = rows(done);
    context.output.list("remote_runners", &rows, rows.len() as i64, || {
        let mut table = Table::new(["host", "name", "pid", "state", "note"]);
        for row in &rows {
            table.row([
                Field::text(&row.host),
                Field::text(row.name.as_deref().unwrap_or("")),
                row.pid.map_or_else(|| Field::text(""), Field::number),
                Field::text(row.state),
                Field::text(escape::line(&row.note)),
            ]);
        }
        table
    })?;
    Ok(if is_well { Exit::Success } else { Exit::Unreachable })
}

/// Lines of `NAME PID STATE NOTE`.
fn parse_rows(host: &Host, said: &RemoteOutput) -> Vec<Row> {
    let parse = |line: &String| {
        let mut words = line.splitn(4, ' ');
        let (name, pid, state) = (words.next()?, words.next()?, words.next()?);
        let state = ["running", "ended", "stopped", "ends"].into_iter().find(|s| *s == state)?;
        Some(Row {
            host: host.as_str().to_owned(),
            name: Some(name.to_owned()),
            pid: pid.parse().ok(),
            state,
            note: words.next().unwrap_or_default().to_owned(),
        })
    };
    said.lines().iter().filter_map(parse).collect()
}

impl Look {
    fn execute(self, context: &Context) -> Result<Exit> {
        let hosts = self.hosts.chosen()?;
        let done = with_each(&hosts, |host| {
            let said = ssh::call(host, STATUS, &[&self.remote_dir], &mut nothing())?;
            Ok(parse_rows(host, &said))
        });
        print(context, done)
    }
}

impl Stop {
    fn execute(self, context: &Context) -> Result<Exit> {
        let hosts = self.look.hosts.chosen()?;
        let wait = self.wait.to_string();
        let done = with_each(&hosts, |host| {
            let lines = [self.look.remote_dir.as_str(), &self.name, &wait];
            Ok(parse_rows(host, &ssh::call(host, STOP, &lines, &mut nothing())?))
        });
        print(context, done)
    }
}

impl Logs {
    fn execute(self, context: &Context) -> Result<Exit> {
        let hosts = self.look.hosts.chosen()?;
        let (dir, name, tail) = (&self.look.remote_dir, &self.name, self.tail.to_string());
        let done = with_each(&hosts, |host| match &self.to {
            None => Ok(ssh::call(host, TAIL, &[dir, name, &tail], &mut nothing())?.lines()),
            Some(to) => {
                let archive = ssh::call(host, COLLECT, &[dir, name], &mut nothing())?;
                let place = to.join(host.file_name());
                unpack(&archive.out, &place)?;
                Ok(vec![format!("copied to {}", place.display())])
            }
        });
        let mut is_well = true;
        for (host, lines) in done {
            match lines {
                Ok(lines) => {
                    for line in lines {
                        let (host, line) = (host.as_str(), escape::line(&line));
                        context.output.data(&format!("{host}: {line}\n"))?;
                    }
                }
                Err(error) => {
                    is_well = false;
                    context.output.warn(format_args!("{}: {error}", host.as_str()));
                }
            }
        }
        Ok(if is_well { Exit::Success } else { Exit::Unreachable })
    }
}

/// An archive of another machine is unpacked without its owners and rights; tar keeps what it unpacks
/// inside the directory.
fn unpack(archive: &[u8], place: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(place).map_err(Error::io("make", place))?;
    let mut tar = Command::new("tar")
        .args(["-x", "--no-same-owner", "--no-same-permissions", "-f", "-", "-C"])
        .arg(place)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(Error::io("start", "tar"))?;
    if let Some(mut input) = tar.stdin.take() {
        input.write_all(archive).map_err(Error::io("write to", "tar"))?;
    }
    let status = tar.wait().map_err(Error::io("wait for", "tar"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::usage(format!("tar could not unpack the logs: {status}"))),
    }
}

/// What a machine needs to start a runner.
struct Start {
    name: String,
    url: String,
    /// PEM of the certificates to trust; empty: those of the machine.
    certificates: String,
    token: String,
    arguments: Vec<String>,
}

impl Run {
    fn execute(self, context: &Context) -> Result<Exit> {
        let hosts = self.look.hosts.chosen()?;
        let start = super::block_on(async {
            let session = Session::open(&context.locator, Access::Existing).await?;
            let start = self.prepare(&session.client).await;
            session.close().await;
            start
        })?;
        let done = with_each(&hosts, |host| self.start(context, host, &start));
        print(context, done)
    }

    async fn prepare(&self, client: &Client) -> Result<Start> {
        let url = self.server.clone().unwrap_or_else(|| client.url().to_owned());
        if self.server.is_none() && is_local(&url) {
            return Err(Error::usage_hint(
                format!("other machines cannot reach the server at {url}"),
                "start it with `torc server run --host ADDRESS`, or say with `--server URL` how they reach it",
            ));
        }
        let certificates = match client.ca() {
            Some(file) if url.starts_with("https:") => {
                std::fs::read_to_string(file).map_err(Error::io("read", file))?
            }
            _ => String::new(),
        };
        let token = match &self.runner_token_file {
            Some(file) => torc_client::discovery::read_token_file(file)?,
            None => client.token().to_owned(),
        };
        let (name, mut arguments) = match &self.workflow {
            Some(workflow) => {
                let id = super::references::workflow(client, workflow).await?.id;
                (format!("wf{id}"), vec![id.to_string()])
            }
            None => ("pool".to_owned(), vec!["--any".to_owned()]),
        };
        if self.own_dir {
            arguments.push("--work-dir=.".into());
        }
        arguments.extend(self.options.iter().cloned());
        Ok(Start { name, url, certificates, token, arguments })
    }

    fn start(&self, context: &Context, host: &Host, start: &Start) -> Result<Vec<Row>> {
        let program = self.program_on(context, host)?;
        let certificates: Vec<&str> = start.certificates.lines().collect();
        let (lines, arguments) =
            (certificates.len().to_string(), start.arguments.len().to_string());
        let mut input: Vec<&str> =
            vec![&self.look.remote_dir, &start.name, &program, &start.url, &lines];
        input.extend(certificates);
        input.extend([start.token.as_str(), &arguments]);
        input.extend(start.arguments.iter().map(String::as_str));
        let said = ssh::call(host, START, &input, &mut nothing())?.lines();
        let (word, pid) = said
            .last()
            .and_then(|line| line.split_once(' '))
            .ok_or_else(|| Error::usage("the machine did not say whether the runner began"))?;
        let note = if word == "runs" { "it ran already" } else { "" };
        Ok(vec![Row {
            host: host.as_str().to_owned(),
            name: Some(start.name.clone()),
            pid: pid.trim().parse().ok(),
            state: "running",
            note: note.to_owned(),
        }])
    }

    /// The program on the machine: one that is there, or a copy of this one.
    fn program_on(&self, context: &Context, host: &Host) -> Result<String> {
        let version = env!("CARGO_PKG_VERSION");
        let lines = [self.look.remote_dir.as_str(), version, &self.program];
        let said = ssh::call(host, PROBE, &lines, &mut nothing())?.lines();
        let answer = said.last().map(String::as_str).unwrap_or_default();
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("found", path) => return Ok(path.to_owned()),
            ("other", said) => {
                let message = format!("`{}` is not torc {version}: {said}", self.program);
                return Err(Error::usage(message));
            }
            ("missing", system) => {
                let uname = rustix::system::uname();
                let own = format!(
                    "{} {}",
                    uname.sysname().to_string_lossy(),
                    uname.machine().to_string_lossy()
                );
                if system != own {
                    let message = format!("it runs {system}, and this program is for {own}");
                    let hint = "install torc there, or name it with `--program PATH`";
                    return Err(Error::usage_hint(message, hint));
                }
            }
            (other, _) => {
                return Err(Error::usage(format!(
                    "the machine answered `{}`",
                    escape::line(other)
                )));
            }
        }
        context.output.talk(format_args!("copying the program to {}", host.as_str()));
        let own = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let mut file = std::fs::File::open(&own).map_err(Error::io("read", &own))?;
        let lines = [self.look.remote_dir.as_str(), version];
        let said = ssh::call(host, UPLOAD, &lines, &mut file)?.lines();
        match said.last().and_then(|line| line.split_once(' ')) {
            Some(("found", path)) => Ok(path.to_owned()),
            Some((_, said)) => Err(Error::usage_hint(
                format!("a copy of this program does not run there: {said}"),
                "install torc there, or name it with `--program PATH`",
            )),
            None => Err(Error::usage("the machine did not take the program")),
        }
    }
}

/// An address that means another machine there than here.
fn is_local(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or(url);
    let host = host.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |ip: std::net::IpAddr| ip.is_loopback() || ip.is_unspecified();
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_mean_this_machine_are_known() {
        for local in [
            "http://127.0.0.1:8080",
            "http://localhost:1/torc",
            "http://[::1]:80",
            "https://0.0.0.0:1",
        ] {
            assert!(is_local(local), "{local}");
        }
        for other in ["https://login1:8080", "https://10.0.0.1:80/torc", "http://[fe80::1]:80"] {
            assert!(!is_local(other), "{other}");
        }
    }

    #[test]
    fn hosts_cannot_be_options_of_ssh() {
        for wrong in ["-oProxyCommand=x", "", "a b", "a;b", "$(x)", "17"] {
            assert!(Host::parse(wrong).is_err(), "{wrong}");
        }
        for right in ["n1", "me@n1.example.org", "ssh://me@n1:2222"] {
            assert!(Host::parse(right).is_ok(), "{right}");
        }
    }
}
