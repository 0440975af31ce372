//! Defects that the harness itself builds in, with real processes beside those of the program, to
//! prove that the oracle finds each kind of violation.

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What is violated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HarnessSabotage {
    /// A second process of a job beside the first one.
    Overlap,
    /// Three users of a limit of two.
    Limit,
    /// A process of a job that lives when everything has ended.
    Survivor,
    /// A shell that goes on after its command was killed, and puts a half-written file into place.
    Publish,
    /// An attempt that the program does not know of.
    Unknown,
}

/// Processes that were started for this; they end with it.
pub struct Rogues(Vec<Child>);

/// The rogue's witness has its name here when it runs.
const TICK: Duration = Duration::from_millis(10);

impl HarnessSabotage {
    /// Does it, in the world in this directory. Returns when it is done.
    pub fn commit(self, dir: &Path) -> io::Result<Rogues> {
        let mut rogues = Rogues(Vec::new());
        let mut start = |job: &str, command: &str| rogues.start(dir, job, command);
        match self {
            Self::Overlap => {
                start("rogue", "bash witness.sh work 2")?;
                await_line(dir, "rogue", "start");
                start("rogue", "bash witness.sh work 0.01")?;
                await_line(dir, "rogue", "overlap");
            }
            Self::Limit => {
                // The program's own jobs take places too: one of these is too many in any case.
                for job in ["rogue0", "rogue1", "rogue2"] {
                    start(job, "bash witness.sh limited 2 two 2")?;
                    await_line(dir, job, "start");
                }
            }
            Self::Survivor => {
                start("rogue", "setsid perl hidden.pl apart 1 rogue 1 1 600")?;
                await_line(dir, "rogue", "start");
            }
            Self::Publish => {
                let text =
                    "perl hidden.pl rename 1 rogue 1 1 600 > tmp/x; mv tmp/x published/1.rogue.1.1";
                start("rogue", text)?;
                await_line(dir, "rogue", "start");
                kill_witness(dir, "rogue")?;
                while !dir.join("published/1.rogue.1.1").exists() {
                    std::thread::sleep(TICK);
                }
            }
            Self::Unknown => {
                start("first0", "TORC_ATTEMPT_ID=77 bash witness.sh work 0.01")?;
                await_line(dir, "first0", "start 1 77");
            }
        }
        Ok(rogues)
    }
}

impl Rogues {
    fn start(&mut self, dir: &Path, job: &str, command: &str) -> io::Result<()> {
        let child = Command::new("bash")
            .args(["-c", command])
            .current_dir(dir)
            .envs([("TORC_WORKFLOW_ID", "1"), ("TORC_JOB_NAME", job)])
            .envs([("TORC_RUN_ID", "1"), ("TORC_ATTEMPT_ID", "1")])
            .stdin(Stdio::null())
            .spawn()?;
        self.0.push(child);
        Ok(())
    }

    /// Ends what is left, also what has left its session.
    pub fn end(&mut self, dir: &Path) {
        let _ = kill_witness(dir, "rogue");
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn log(dir: &Path, job: &str) -> String {
    std::fs::read_to_string(dir.join(format!("witness/1/{job}.log"))).unwrap_or_default()
}

/// Waits until a witness has written a line that begins so. It sends no other notice.
fn await_line(dir: &Path, job: &str, begin: &str) {
    while !log(dir, job).lines().any(|line| line.starts_with(begin)) {
        std::thread::sleep(TICK);
    }
}

/// Kills the witness that wrote the last line.
fn kill_witness(dir: &Path, job: &str) -> io::Result<()> {
    let text = log(dir, job);
    let pid = text.lines().last().and_then(|line| line.split(' ').nth(3)?.parse().ok());
    let pid = pid.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no witness"))?;
    Ok(kill_process(pid, Signal::KILL)?)
}
