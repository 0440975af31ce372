//! The fence: kills runners, their guards, or both, under jobs of every kind that could survive,
//! and counts survivors, overlaps and files that were published after the kill.
//!
//! ```text
//!   server (lives) ── runner 1: one job of each kind, all of them running ──► killed
//!                  ── within three seconds nothing of it is alive, nothing was published
//!                  ── runner 2: the retries; each takes its job's lock, or says who holds it
//! ```
//!
//! Each kind runs twice at once: plainly, and with a memory limit, which means a control group where
//! one can be had. Half of the worlds run as a plain user when the harness is root.

use crate::report::Fenced;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing may be alive this long after the kill.
const SURVIVAL: Duration = Duration::from_secs(3);
/// All jobs must have begun by then, on a busy machine.
const BEGIN: Duration = Duration::from_secs(60);
/// The end of the retries.
const END: Duration = Duration::from_secs(60);
/// Between two looks at files and processes that are not children of the harness.
const TICK: Duration = Duration::from_millis(10);
/// A user that owns nothing.
const PLAIN_USER: u32 = 65534;

/// Name and command of each kind; `NAME` is the job's name.
const KINDS: &[(&str, &str)] = &[
    ("plain", "perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("bare", "env -i perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("title", "perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("nondumpable", "perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("daemon", "perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("session", "setsid -w perl k.pl NAME $TORC_ATTEMPT_ID"),
    ("pipe", "perl k.pl NAME $TORC_ATTEMPT_ID | cat > NAME.tmp; mv NAME.tmp published/NAME"),
    ("rename", "perl k.pl NAME $TORC_ATTEMPT_ID > NAME.tmp; mv NAME.tmp published/NAME"),
    (
        "apart",
        "setsid -w env -i perl k.pl NAME $TORC_ATTEMPT_ID > NAME.tmp\nmv NAME.tmp published/NAME",
    ),
];

/// The job itself. The first attempt never ends; later ones end at once. A process takes its job's
/// lock and writes down who it is.
const WITNESS: &str = r#"
use strict; use Fcntl ':flock'; use POSIX ();
my ($name, $attempt, $is_daemon) = @ARGV;
my $kind = $name; $kind =~ s/_limited$//;
if ($kind eq 'daemon' && !$is_daemon) {
    my $child = fork;
    if ($child) { waitpid $child, 0; sleep 600 if $attempt == 1; exit 0 }
    POSIX::setsid();
    exit 0 if fork;
    open STDIN, '<', '/dev/null'; open STDOUT, '>', '/dev/null'; open STDERR, '>', '/dev/null';
    %ENV = ();
    exec '/usr/bin/perl', 'k.pl', $name, $attempt, 1;
}
$0 = 'x' x 5000 if $kind eq 'title';
syscall(157, 4, 0, 0, 0, 0) if $kind eq 'nondumpable'; # prctl(PR_SET_DUMPABLE, 0) on x86-64
open my $lock, '>>', "lock/$name" or die;
flock $lock, LOCK_EX | LOCK_NB or do { open my $out, '>', "overlap/$name"; };
open my $stat, '<', '/proc/self/stat'; my $line = <$stat>; $line =~ s/.*\) //s;
open my $pid, '>', "pid/.$name.$attempt"; print $pid "$$ ", (split ' ', $line)[19]; close $pid;
rename "pid/.$name.$attempt", "pid/$name.$attempt";
print "half of it\n";
sleep 600 if $attempt == 1;
"#;

/// Who is killed, in turns.
#[derive(Clone, Copy, Debug)]
enum FencedVictim {
    Runner,
    Both,
    /// The guard, and the runner before it has another one.
    GuardFirst,
}

const VICTIMS: [FencedVictim; 3] =
    [FencedVictim::Runner, FencedVictim::Both, FencedVictim::GuardFirst];

/// Kills this often. A world is used for several kills.
pub fn run(torc: &Path, base: &Path, kills: u64, tell: fn(&str)) -> io::Result<Fenced> {
    let mut total = Fenced::default();
    let users: &[Option<u32>] =
        if rustix::process::geteuid().is_root() { &[None, Some(PLAIN_USER)] } else { &[None] };
    let mut worlds = Vec::new();
    for user in users {
        worlds.push(FencedWorld::start(torc, base, *user)?);
    }
    for n in 0..kills {
        let victim = VICTIMS[usize::try_from(n).unwrap_or(0) % VICTIMS.len()];
        let world = usize::try_from(n).unwrap_or(0) / VICTIMS.len() % worlds.len();
        let before = total.violations.len();
        worlds[world].round(n, victim, &mut total)?;
        total.kills += 1;
        total.jobs += 2 * KINDS.len() as u64;
        tell(&format!(
            "kill {n} ({victim:?}, {}): nothing alive after {} ms, {} violations",
            if worlds[world].user.is_some() { "plain user" } else { "own user" },
            total.last_ms,
            total.violations.len() - before
        ));
    }
    for world in &mut worlds {
        world.stop(&mut total)?;
    }
    Ok(total)
}

struct FencedWorld {
    torc: PathBuf,
    dir: tempfile::TempDir,
    user: Option<u32>,
    server: Child,
}

impl FencedWorld {
    fn start(torc: &Path, base: &Path, user: Option<u32>) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("torc-fence-").tempdir_in(base)?;
        if let Some(user) = user {
            std::os::unix::fs::chown(dir.path(), Some(user), Some(user))?;
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let log = fs::File::create(dir.path().join("server.log"))?;
        let mut command = command(torc, dir.path(), user);
        command.args(["-v", "server", "run", "--port", "0"]);
        let server = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let world = Self { torc: torc.into(), dir, user, server };
        let file = world.dir.path().join(".torc/server.json");
        until(BEGIN, || file.exists()).ok_or_else(|| io::Error::other("no server came up"))?;
        Ok(world)
    }

    fn runner(&self, workflow: &str) -> io::Result<Child> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("runner.log"))?;
        let mut command = command(&self.torc, self.dir.path(), self.user);
        command.args(["runner", workflow, "--num-cpus", "64", "--memory", "64g"]);
        command.stdout(log.try_clone()?).stderr(log).spawn()
    }

    fn round(&mut self, n: u64, victim: FencedVictim, total: &mut Fenced) -> io::Result<()> {
        let dir = self.dir.path().join(format!("r{n}"));
        for sub in ["", "lock", "pid", "overlap", "published"] {
            fs::create_dir(dir.join(sub))?;
            if let Some(user) = self.user {
                std::os::unix::fs::chown(dir.join(sub), Some(user), Some(user))?;
            }
        }
        fs::write(dir.join("k.pl"), WITNESS)?;
        fs::write(dir.join("spec.json"), spec(n))?;
        let mut create = command(&self.torc, &dir, self.user);
        let made = create
            .args(["--dir", "../.torc", "create", "spec.json", "--initialize"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()?;
        if !made.status.success() {
            let text = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(io::Error::other(format!("the workflow could not be created: {text}")));
        }
        let workflow = format!("fence{n}");
        let mut first = self.runner(&workflow)?;
        let names = names();
        let pid = |name: &str, attempt| read_pid(&dir.join(format!("pid/{name}.{attempt}")));
        let all_begun = || names.iter().all(|name| pid(name, 1).is_some());
        until(BEGIN, all_begun).ok_or_else(|| io::Error::other("not all jobs began"))?;
        let processes: Vec<(String, (i32, u64))> =
            names.iter().filter_map(|name| Some((name.clone(), pid(name, 1)?))).collect();

        let guard = guard_of(first.id());
        match victim {
            FencedVictim::Runner => first.kill()?,
            FencedVictim::Both => {
                guard.into_iter().for_each(kill);
                first.kill()?;
            }
            FencedVictim::GuardFirst => {
                guard.into_iter().for_each(kill);
                std::thread::sleep(Duration::from_millis(200));
                first.kill()?;
            }
        }
        let killed = Instant::now();
        first.wait()?;
        let alive = || -> Vec<&str> {
            let lives = |(_, (pid, start)): &&(String, (i32, u64))| start_of(*pid) == Some(*start);
            processes.iter().filter(lives).map(|(name, _)| name.as_str()).collect()
        };
        until(SURVIVAL, || alive().is_empty());
        total.last_ms = u64::try_from(killed.elapsed().as_millis()).unwrap_or(u64::MAX);
        total.longest_ms = total.longest_ms.max(total.last_ms);
        for name in alive() {
            total.survivors += 1;
            total.violations.push(format!("kill {n} ({victim:?}): {name} is alive after 3 s"));
        }
        for entry in fs::read_dir(dir.join("published"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            total.published += 1;
            total.violations.push(format!("kill {n} ({victim:?}): {name} was published"));
        }

        let mut second = self.runner(&workflow)?;
        let ended = until(END, || second.try_wait().is_ok_and(|status| status.is_some()));
        if ended.is_none() {
            total.violations.push(format!("kill {n} ({victim:?}): the retries do not end"));
            second.kill()?;
        }
        if !second.wait()?.success() {
            total.violations.push(format!("kill {n} ({victim:?}): the retries did not succeed"));
        }
        for entry in fs::read_dir(dir.join("overlap"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            total.overlaps += 1;
            total.violations.push(format!("kill {n} ({victim:?}): two attempts of {name} at once"));
        }
        Ok(())
    }

    /// Ends the server in good order and lets the doctor look.
    fn stop(&mut self, total: &mut Fenced) -> io::Result<()> {
        let mut doctor = command(&self.torc, self.dir.path(), self.user);
        let found = doctor
            .args(["server", "doctor"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()?;
        if !found.status.success() {
            let text = String::from_utf8_lossy(&found.stdout).into_owned();
            total.violations.push(format!("the doctor found: {text}"));
        }
        self.server.kill()?;
        self.server.wait()?;
        Ok(())
    }
}

impl Drop for FencedWorld {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn command(torc: &Path, dir: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new(torc);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TORC_"))
    {
        command.env_remove(name);
    }
    command.current_dir(dir).env("HOME", dir).env("NO_COLOR", "1").stdin(Stdio::null());
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn names() -> Vec<String> {
    KINDS.iter().flat_map(|(kind, _)| [kind.to_string(), format!("{kind}_limited")]).collect()
}

fn spec(n: u64) -> String {
    let jobs: Vec<serde_json::Value> = KINDS
        .iter()
        .flat_map(|(kind, text)| {
            let job = |name: String| {
                serde_json::json!({"name": name, "command": text.replace("NAME", &name)})
            };
            let mut limited = job(format!("{kind}_limited"));
            limited["resource_requirements"] = "limited".into();
            [job(kind.to_string()), limited]
        })
        .collect();
    serde_json::json!({"name": format!("fence{n}"), "jobs": jobs, "resource_requirements": [
        {"name": "limited", "num_cpus": 1, "memory": "200m", "runtime": "1h"},
    ]})
    .to_string()
}

fn until(patience: Duration, mut is_so: impl FnMut() -> bool) -> Option<()> {
    let deadline = Instant::now() + patience;
    loop {
        if is_so() {
            return Some(());
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(TICK);
    }
}

fn read_pid(path: &Path) -> Option<(i32, u64)> {
    let text = fs::read_to_string(path).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// When a living process began, in ticks since boot.
pub fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let start = fields.nth(18)?.parse().ok()?;
    (!is_dead).then_some(start)
}

/// The process beside a runner that is the same program.
pub fn guard_of(runner: u32) -> Option<i32> {
    let own = fs::read_link(format!("/proc/{runner}/exe")).ok()?;
    let tasks = fs::read_dir(format!("/proc/{runner}/task")).ok()?.flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .find(|child| fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|exe| exe == own))
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have died by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}
