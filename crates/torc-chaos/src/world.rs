//! One world: a state directory, a server, runners and jobs, and the one who kills them.

use crate::client::{self, Shared, WorkloadClient};
use crate::clocks::{self, Shift, WorldClocks};
use crate::history::ClientHistory;
use crate::live::{LiveWitness, witnesses};
use crate::net::{self, Wire};
use crate::oracle;
use crate::plan::{Fault, Faults, Plan, RUNNERS, Victim, What};
use crate::receiver::{self, DeliveryLog};
use crate::report::Report;
use crate::space::NetworkSpace;
use crate::workload::{HIDDEN_WITNESS, WITNESS, grown};
use crate::{Options, calls, kinds, witness};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use torc_client::Client;

/// Between two looks at the processes. There is no one thing to wait for: several children may die,
/// a kill falls due, and the other thread ends; and a server's files appear without a word.
const TICK: Duration = Duration::from_millis(5);
/// A server must be there this long after its start.
const BOOT: Duration = Duration::from_secs(60);
/// A second of patience is at most this long while there is progress.
const LONGEST: Duration = Duration::from_secs(8);
/// So many starts in a row that fail by themselves are no accident.
const MAX_FAILED_STARTS: u32 = 20;

/// A port that nothing listens at. It lies below the range from which the kernel takes ports for outgoing
/// connections and for listeners that ask for any: one of those could get it before the server does.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes begin at places of their own.
    let begin = std::process::id().wrapping_mul(131);
    for _ in 0..1000 {
        let place = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = 20_000 + place as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("no port is free"))
}

/// Runs one world to its end.
pub fn run(options: &Options, seed: u64, kills: u64) -> io::Result<Report> {
    let begin = Instant::now();
    let dir =
        tempfile::Builder::new().prefix(&format!("torc-chaos-{seed}-")).tempdir_in(&options.dir)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut world = World::new(options, dir.path(), seed)?;
    let (hook, log) = receiver::start(&world.network.server)?;
    world.start_server(false)?;
    let client = world.client()?;
    runtime.block_on(client::prepare(&client, &hook)).map_err(io::Error::other)?;
    let shared = Arc::new(Shared::default());
    let directory = dir.path().canonicalize()?.display().to_string();
    let watcher = WorkloadClient {
        client: client.clone(),
        shared: shared.clone(),
        directory,
        history: ClientHistory::default(),
    };
    let workload = world.plan.workload.clone();
    let watching = runtime.spawn(watcher.run(workload));

    let rogues = match options.sabotage {
        Some(sabotage) => {
            world.await_workflow(&shared)?;
            Some(sabotage.commit(dir.path())?)
        }
        None => None,
    };
    world.torment(&shared, kills)?;
    shared.draining.store(true, Ordering::SeqCst);
    calls::finish(dir.path())?;
    let ended = world.settle(&shared, options.patience)?;
    shared.abort.store(true, Ordering::SeqCst);
    let mut history = runtime.block_on(watching).map_err(io::Error::other)?;
    if world.clocks.is_some() {
        // The server's times are not those of the client.
        history.workflows.iter_mut().for_each(|created| created.reservations.clear());
    }
    if ended {
        world.wait_for_webhooks(&runtime, &client, options.patience);
    } else {
        let message = format!(
            "the faults stopped, and not everything has ended: no sign of a job for {} s, or for eight times as long no end",
            options.patience.as_secs()
        );
        world.report.violations.push(message);
    }
    world.examine()?;
    world.stop();
    let mut report = std::mem::take(&mut world.report);
    let judged = judge(dir.path(), &history, &log, ended, &mut report);
    let (calls, problems) = calls::judge(dir.path())?;
    report.calls = calls;
    report.violations.extend(problems.into_iter().filter(|_| ended));
    if let Some(mut rogues) = rogues {
        rogues.end(dir.path());
    }
    judged?;
    report.worlds = 1;
    report.took = begin.elapsed();
    report.file_under(world.faults.name());
    if !report.violations.is_empty() {
        let kept = dir.keep();
        (options.tell)(&format!(
            "seed {seed}: everything about this world is in {}",
            kept.display()
        ));
    }
    Ok(report)
}

fn judge(
    dir: &Path,
    history: &ClientHistory,
    log: &DeliveryLog,
    ended: bool,
    report: &mut Report,
) -> io::Result<()> {
    let records = witness::read(dir)?;
    let published = witness::read_published(dir)?;
    oracle::judge(&records, &published, history, &log.all(), ended, report);
    for witness in witnesses(dir).into_iter().filter(LiveWitness::lives) {
        report.violations.push(format!("process {} of a job is still alive", witness.pid));
    }
    Ok(())
}

/// A process of the program.
struct Process {
    child: Child,
    /// Where it dies by itself.
    point: Option<String>,
    since: Instant,
}

/// Who reaches whom, and how.
struct FaultyNetwork {
    /// The server's network, and those of the runners: the harness's own unless the network fails.
    server: NetworkSpace,
    runners: Vec<NetworkSpace>,
    /// Between each runner and the server, where the network fails.
    wires: Vec<Wire>,
    /// From the client to the server, where that is in a network of its own. It does not fail.
    own_wire: Option<Wire>,
}

/// A client that makes calls of Python.
struct PythonCalls {
    /// None where such calls are not part of the world.
    interpreter: Option<PathBuf>,
    client: Option<Child>,
    /// The client has come to its end.
    is_done: bool,
}

struct World<'a> {
    options: &'a Options,
    dir: PathBuf,
    faults: Faults,
    plan: Plan,
    port: u16,
    network: FaultyNetwork,
    /// The last runner is one of a pool.
    has_pool: bool,
    python: PythonCalls,
    /// Where clocks are set.
    clocks: Option<WorldClocks>,
    server: Option<Process>,
    server_due: Instant,
    runners: Vec<Option<Process>>,
    runners_due: Vec<Instant>,
    failed_starts: u32,
    report: Report,
}

impl<'a> World<'a> {
    fn new(options: &'a Options, dir: &Path, seed: u64) -> io::Result<Self> {
        fs::write(dir.join("witness.sh"), WITNESS)?;
        fs::write(dir.join("hidden.pl"), HIDDEN_WITNESS)?;
        fs::write(dir.join("grown.json"), grown().to_string())?;
        for sub in ["witness", "live", "tmp", "published", "repaired"] {
            fs::create_dir(dir.join(sub))?;
        }
        let now = Instant::now();
        let faults = options.faults.unwrap_or(Faults::of_seed(seed));
        // A port that is free now; the server keeps it over its deaths, as one with a configured port
        // would.
        let port = free_port()?;
        let is_apart = faults == Faults::Network && rustix::process::geteuid().is_root();
        let space = || if is_apart { NetworkSpace::new() } else { Ok(NetworkSpace::default()) };
        let server_space = space()?;
        let runner_spaces = (0..RUNNERS).map(|_| space()).collect::<io::Result<Vec<_>>>()?;
        let server = net::Server { space: server_space.clone(), port };
        let wires = match faults {
            Faults::Network => {
                let wire = |space| Wire::start(space, server.clone());
                runner_spaces.iter().map(wire).collect::<io::Result<_>>()?
            }
            _ => Vec::new(),
        };
        let own_wire = match is_apart {
            true => Some(Wire::start(&NetworkSpace::default(), server)?),
            false => None,
        };
        let has_pool = Faults::has_pool(seed) && options.sabotage.is_none();
        let python = if has_pool { calls::prepare(&dir.canonicalize()?)? } else { None };
        let clocks = match faults {
            Faults::Clocks => Some(WorldClocks::new(dir, RUNNERS)?),
            _ => None,
        };
        Ok(Self {
            options,
            dir: dir.into(),
            faults,
            plan: Plan::new(seed, faults, options.long_faults),
            port,
            network: FaultyNetwork {
                server: server_space,
                runners: runner_spaces,
                wires,
                own_wire,
            },
            has_pool,
            python: PythonCalls { client: None, is_done: python.is_none(), interpreter: python },
            clocks,
            server: None,
            server_due: now,
            runners: (0..RUNNERS).map(|_| None).collect(),
            runners_due: vec![now; RUNNERS],
            failed_starts: 0,
            report: Report::default(),
        })
    }

    fn command(&self, name: &str, args: &[&str], point: Option<&str>) -> io::Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{name}.log")))?;
        // The server cannot look at the runners of a network that fails: they count as another machine's.
        let is_elsewhere = self.faults == Faults::Network && name.starts_with("runner");
        let mut command = match is_elsewhere && rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("unshare");
                command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
                command.arg(&self.options.torc);
                command
            }
            false => Command::new(&self.options.torc),
        };
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TORC_"))
        {
            command.env_remove(name);
        }
        if let Some(point) = point {
            command.env("TORC_FAILPOINT", point);
        }
        command.args(args).current_dir(&self.dir).env("HOME", &self.dir).env("NO_COLOR", "1");
        if let Some(clocks) = &self.clocks {
            clocks.wind(&mut command, &self.options.torc, name);
        }
        // Jobs inherit it from their runner: one of them calls the program.
        command.env("CHAOS_TORC", &self.options.torc);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn start_server(&mut self, armed: bool) -> io::Result<()> {
        let point = if armed { self.plan.server_point() } else { None };
        let port = self.port.to_string();
        let mut command =
            self.command("server", &["-v", "server", "run", "--port", &port], point.as_deref())?;
        let child = self.network.server.spawn(&mut command)?;
        self.server = Some(Process { child, point, since: Instant::now() });
        Ok(())
    }

    fn start_runner(&mut self, slot: usize, workflow: i64, armed: bool) -> io::Result<()> {
        let is_pool = self.is_pool(slot);
        // The runners that it starts would inherit it, each of them.
        let point = if armed && !is_pool { self.plan.runner_point() } else { None };
        let port = self.network.wires.get(slot).map_or(self.port, |wire| wire.port);
        let (url, workflow) = (format!("http://127.0.0.1:{port}"), workflow.to_string());
        let name = format!("runner{slot}");
        let args = [
            "--url",
            &url,
            "--token-file",
            ".torc/token",
            "runner",
            if is_pool { "--any" } else { &workflow },
            // Jobs that wait need no CPU: the more run at once, the more a kill hits.
            "-j",
            "5",
            "--num-cpus",
            "64",
            "--memory",
            "64g",
        ];
        let mut command = self.command(&name, &args, point.as_deref())?;
        let child = self.network.runners[slot].spawn(&mut command)?;
        self.runners[slot] = Some(Process { child, point, since: Instant::now() });
        Ok(())
    }

    /// Waits for the first server and talks to it.
    fn client(&self) -> io::Result<Client> {
        let deadline = Instant::now() + BOOT;
        loop {
            let token = fs::read_to_string(self.dir.join(".torc/token")).unwrap_or_default();
            let is_there = self.dir.join(".torc/server.json").exists();
            if !token.trim().is_empty() && is_there {
                let port = self.network.own_wire.as_ref().map_or(self.port, |wire| wire.port);
                return Client::new(&format!("http://127.0.0.1:{port}"), &token)
                    .map_err(io::Error::other);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the first server did not come up"));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Waits until the first workflow is there.
    fn await_workflow(&mut self, shared: &Shared) -> io::Result<()> {
        let deadline = Instant::now() + BOOT;
        while shared.current().is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other("no workflow was created"));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// The doctor looks at what is left, as a user would.
    fn examine(&mut self) -> io::Result<()> {
        let mut doctor = self.command("doctor", &["server", "doctor"], None)?;
        let doctor = doctor.stdout(Stdio::piped());
        let found = self.network.server.inside(|| doctor.output())?;
        if !found.status.success() {
            let text = String::from_utf8_lossy(&found.stdout).into_owned();
            self.report.violations.push(format!("the doctor found: {text}"));
        }
        Ok(())
    }

    /// Kills until it was enough.
    fn torment(&mut self, shared: &Shared, kills: u64) -> io::Result<()> {
        let mut next = self.plan.fault();
        let mut due = Instant::now() + next.after;
        while self.report.kills() < kills && self.failed_starts < MAX_FAILED_STARTS {
            self.tend(shared, self.options.failpoints && self.faults.has_failpoints())?;
            if Instant::now() >= due && shared.current().is_some() {
                self.execute(next)?;
                next = self.plan.fault();
                due = Instant::now() + next.after;
            }
            if shared.done.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(TICK);
        }
        // What lasts longer than every lease is not cut short by the end of the faults.
        while self.network.wires.iter().any(Wire::has_long_trouble) {
            self.tend(shared, false)?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Lets everything come to its end. False when it does not in time.
    fn settle(&mut self, shared: &Shared, patience: Duration) -> io::Result<bool> {
        // Those that are armed might still die; that is a fault, and the faults have stopped.
        for process in self.server.iter_mut().chain(self.runners.iter_mut().flatten()) {
            if process.point.take().is_some() {
                kill(&process.child);
            }
        }
        self.network.wires.iter().for_each(Wire::mend);
        // A machine that is busy with other things is slow, and no fault: what counts is the time in which
        // no job says anything. Jobs that go on for ever are one, too.
        let end = Instant::now() + LONGEST * patience.as_secs().max(1) as u32;
        let (mut said, mut since, mut looked) = (0, Instant::now(), Instant::now());
        while since.elapsed() < patience && Instant::now() < end {
            if looked.elapsed() > Duration::from_secs(1) {
                looked = Instant::now();
                let now = witness::volume(&self.dir)? + calls::volume(&self.dir);
                if now != said {
                    (said, since) = (now, looked);
                }
            }
            self.tend(shared, false)?;
            if shared.done.load(Ordering::SeqCst) && self.python.is_done {
                return Ok(true);
            }
            std::thread::sleep(TICK);
        }
        if !self.python.is_done {
            self.report.violations.push("calls of Python have not ended".into());
        }
        Ok(false)
    }

    /// Notices who has died and starts again who is due.
    fn tend(&mut self, shared: &Shared, armed: bool) -> io::Result<()> {
        if let Some(server) = &mut self.server
            && let Some(status) = server.child.try_wait()?
        {
            let server = self.server.take();
            let outage = self.plan.server_outage();
            self.server_due = Instant::now() + outage;
            match (status.signal(), server.and_then(|server| server.point)) {
                (Some(9), Some(point)) => self.killed(&point),
                (Some(9), None) => {}
                _ => {
                    // Chaos did not kill it: it could not start, or it ended by itself.
                    self.failed_starts += 1;
                    if self.failed_starts >= MAX_FAILED_STARTS {
                        self.report
                            .violations
                            .push(format!("the server does not start any more: {status}"));
                    }
                }
            }
        }
        if self.server.is_none() && Instant::now() >= self.server_due {
            self.start_server(armed)?;
        }
        if self
            .server
            .as_ref()
            .is_some_and(|server| server.since.elapsed() > Duration::from_secs(2))
        {
            self.failed_starts = 0;
        }
        for slot in 0..self.runners.len() {
            let Some(runner) = &mut self.runners[slot] else { continue };
            if let Some(status) = runner.child.try_wait()? {
                let runner = self.runners[slot].take();
                let outage = self.plan.runner_outage();
                self.runners_due[slot] = Instant::now() + outage;
                match (status.signal(), runner.and_then(|runner| runner.point)) {
                    (Some(9), Some(point)) => self.killed(&point),
                    (Some(9), None) => {}
                    // It found nothing to do, or no server.
                    _ => self.runners_due[slot] = Instant::now() + Duration::from_millis(150),
                }
            }
        }
        self.tend_calls()?;
        let workflow = shared.current();
        for slot in 0..self.runners.len() {
            if self.runners[slot].is_none() && Instant::now() >= self.runners_due[slot] {
                match workflow {
                    Some(workflow) => self.start_runner(slot, workflow, armed)?,
                    // It serves what calls of Python have made, too.
                    None if self.is_pool(slot) => self.start_runner(slot, 0, armed)?,
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn is_pool(&self, slot: usize) -> bool {
        self.has_pool && slot == RUNNERS - 1
    }

    /// Starts the client of Python again when it was killed.
    fn tend_calls(&mut self) -> io::Result<()> {
        if let Some(client) = &mut self.python.client
            && let Some(status) = client.try_wait()?
        {
            self.python.client = None;
            if status.signal() != Some(9) {
                self.python.is_done = true;
                if !status.success() {
                    let text = format!("the client of Python ended with {status}: see calls.err");
                    self.report.violations.push(text);
                }
            }
        }
        let Some(python) = self.python.interpreter.as_ref().filter(|_| !self.python.is_done) else {
            return Ok(());
        };
        if self.python.client.is_none() && self.server.is_some() {
            let err = self.dir.join("calls.err");
            let log = OpenOptions::new().create(true).append(true).open(err)?;
            let mut client = calls::client(python, &self.options.torc, &self.dir.canonicalize()?);
            client.env("HOME", &self.dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            self.python.client = Some(self.network.server.spawn(&mut client)?);
        }
        Ok(())
    }

    fn killed(&mut self, who: &str) {
        let name = who.split(':').next().unwrap_or(who);
        *self.report.killed.entry(name.to_owned()).or_default() += 1;
    }

    fn execute(&mut self, fault: Fault) -> io::Result<()> {
        match fault.what {
            What::Kill(victim) => self.kill(victim, fault.pick),
            What::Wire { runner, trouble, lasts } => {
                if self.network.wires[runner].trouble(trouble, lasts) {
                    self.killed(trouble.name());
                    if lasts >= net::LONG {
                        self.report.long_troubles += 1;
                    }
                }
            }
            What::Clock(shift) => self.set_clocks(shift)?,
        }
        Ok(())
    }

    fn set_clocks(&mut self, shift: Shift) -> io::Result<()> {
        if shift == Shift::Boot {
            // The machine takes everything with it.
            clocks::kill_all_in(&self.dir)?;
        }
        if let Some(clocks) = &mut self.clocks {
            clocks.set(shift)?;
        }
        self.killed(match shift {
            Shift::Server(_) => "clock of the server",
            Shift::Runner(..) => "clock of a runner",
            Shift::Sleep(_) => "sleep",
            Shift::Boot => "boot",
        });
        Ok(())
    }

    fn kill(&mut self, victim: Victim, pick: u64) {
        let victims: Vec<Victim> = match victim {
            Victim::All => [Victim::Server]
                .into_iter()
                .chain((0..RUNNERS).map(Victim::RunnerAndGuard))
                .collect(),
            one => vec![one],
        };
        for victim in victims {
            let (name, is_done) = match victim {
                Victim::Server => ("server", kill_armed(self.server.as_mut())),
                Victim::Client => {
                    ("client of Python", self.python.client.as_ref().map(kill).is_some())
                }
                // The pool's runner, which may go on without the process that started it.
                Victim::Runner(slot) if self.is_pool(slot) && pick.is_multiple_of(2) => {
                    ("runner of a pool", self.runner_of_pool(slot).map(kill_pid).is_some())
                }
                Victim::Runner(slot) if self.is_pool(slot) => {
                    ("pool", kill_armed(self.runners[slot].as_mut()))
                }
                Victim::Runner(slot) => ("runner", kill_armed(self.runners[slot].as_mut())),
                Victim::RunnerAndGuard(slot) => {
                    let guard = self.guard(slot);
                    self.runner_of_pool(slot).into_iter().for_each(kill_pid);
                    let is_done = kill_armed(self.runners[slot].as_mut());
                    guard.into_iter().for_each(kill_pid);
                    ("runner with its guard", is_done)
                }
                Victim::Guard(slot) => ("guard", self.guard(slot).map(kill_pid).is_some()),
                Victim::Job => ("job", self.kill_job(pick)),
                Victim::All => ("all", false),
            };
            if is_done {
                self.killed(name);
            }
        }
    }

    /// The process that ends a runner's jobs when the runner is killed: its child that is this same
    /// program.
    fn guard(&self, slot: usize) -> Option<i32> {
        if self.is_pool(slot) {
            return kinds::guard_of(self.runner_of_pool(slot)?.cast_unsigned());
        }
        kinds::guard_of(self.runners[slot].as_ref()?.child.id())
    }

    /// One of the runners that the process of a pool started: its child that is this same program.
    fn runner_of_pool(&self, slot: usize) -> Option<i32> {
        let pool = self.runners[slot].as_ref().filter(|_| self.is_pool(slot))?;
        kinds::guard_of(pool.child.id())
    }

    /// Kills what a pool has started, also before it was killed itself: these runners have no parent here.
    fn end_runners_of_pools(&self) {
        let Ok(dir) = self.dir.canonicalize() else { return };
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid.filter(|_| self.has_pool) else { continue };
            let is_here = fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == dir);
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let is_runner =
                words.split(|byte| *byte == 0).any(|word| word.starts_with(b"--pool-runner"));
            if is_here && is_runner {
                kill_pid(pid);
            }
        }
    }

    fn kill_job(&self, pick: u64) -> bool {
        let (mut alive, gone): (Vec<LiveWitness>, Vec<LiveWitness>) =
            witnesses(&self.dir).into_iter().partition(LiveWitness::lives);
        for witness in gone {
            let _ = fs::remove_file(witness.path);
        }
        alive.retain(|witness| witness.may_be_killed);
        alive.sort_by_key(|witness| (witness.start, witness.pid));
        let picked = alive.get(pick as usize % alive.len().max(1));
        picked.map(|witness| kill_pid(witness.pid)).is_some()
    }

    fn wait_for_webhooks(
        &mut self,
        runtime: &tokio::runtime::Runtime,
        client: &Client,
        patience: Duration,
    ) {
        let deadline = Instant::now() + patience;
        loop {
            let pending = runtime.block_on(client.get::<serde_json::Value>("/webhooks"));
            let left = pending.ok().and_then(|page| page.pointer("/items/0/pending")?.as_i64());
            if left == Some(0) {
                return;
            }
            if Instant::now() >= deadline {
                self.report.violations.push(format!("webhooks were not delivered: {left:?} left"));
                return;
            }
            // The courier sends no notice when its outbox is empty, and it is the program under test:
            // it is looked at from outside.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends what is left, the server in good order.
    fn stop(&mut self) {
        if let Some(client) = &mut self.python.client {
            kill(client);
            let _ = client.wait();
        }
        for runner in self.runners.iter_mut().flatten() {
            kill(&runner.child);
            let _ = runner.child.wait();
        }
        self.end_runners_of_pools();
        if let Some(server) = &mut self.server {
            if let Some(pid) = pid_of(&server.child) {
                let _ = kill_process(pid, Signal::TERM);
            }
            let _ = server.child.wait();
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for process in self.server.iter_mut().chain(self.runners.iter_mut().flatten()) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        if let Some(client) = &mut self.python.client {
            let _ = client.kill();
            let _ = client.wait();
        }
        self.end_runners_of_pools();
    }
}

/// Kills a process of ours if there is one. A failpoint that it did not reach no longer counts.
fn kill_armed(process: Option<&mut Process>) -> bool {
    let Some(process) = process else { return false };
    process.point = None;
    kill(&process.child);
    true
}

/// Its number.
pub fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Kills it.
pub fn kill(child: &Child) {
    // Not reaped yet, so that the number cannot belong to another process.
    if let Some(pid) = pid_of(child) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills a process that is not ours.
pub fn kill_pid(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
