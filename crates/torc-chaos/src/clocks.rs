//! Clocks that are set while the program runs: the wall clock of each process by hours, the time
//! since the machine started as after a sleep, and the name of the boot as after a restart.

use crate::preload;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What happens to clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    /// The wall clock of the server is set by this many seconds.
    Server(i64),
    /// That of one runner.
    Runner(usize, i64),
    /// The machine slept for this many seconds: all clocks but the one that measures went on.
    Sleep(i64),
    /// The machine was started again.
    Boot,
}

/// The clocks of one world.
pub struct WorldClocks {
    library: PathBuf,
    dir: PathBuf,
    /// The server's, and the runners'.
    processes: Vec<(String, [i64; 2])>,
    boots: u64,
}

impl WorldClocks {
    /// All of them are right.
    pub fn new(dir: &Path, runners: usize) -> io::Result<Self> {
        let dir = dir.canonicalize()?.join("clocks");
        fs::create_dir(&dir)?;
        let names =
            std::iter::once("server".into()).chain((0..runners).map(|i| format!("runner{i}")));
        let clocks = Self {
            library: preload::build(preload::CLOCK, &dir)?,
            processes: names.map(|name| (name, [0, 0])).collect(),
            dir,
            boots: 0,
        };
        for (name, shift) in &clocks.processes {
            clocks.write(name, *shift)?;
        }
        clocks.name_boot()?;
        Ok(clocks)
    }

    fn write(&self, name: &str, shift: [i64; 2]) -> io::Result<()> {
        // Written in place: processes have mapped it.
        let file =
            File::options().create(true).truncate(false).write(true).open(self.dir.join(name))?;
        file.write_all_at(&shift.map(i64::to_ne_bytes).concat(), 0)
    }

    fn name_boot(&self) -> io::Result<()> {
        let name = format!("00000000-0000-4000-8000-{:012x}\n", self.boots);
        fs::write(self.dir.join("boot_id"), name)
    }

    /// Gives a process its clock.
    pub fn wind(&self, command: &mut Command, torc: &Path, name: &str) {
        command.env("LD_PRELOAD", &self.library).env("CHAOS_CLOCK_EXE", torc);
        command.env("CHAOS_CLOCK_BOOT_ID", self.dir.join("boot_id"));
        let known = self.processes.iter().any(|(process, _)| process == name);
        command.env("CHAOS_CLOCK_FILE", self.dir.join(if known { name } else { "server" }));
    }

    /// Sets them. A boot is only named here: nothing of the earlier one may run when this is called.
    pub fn set(&mut self, shift: Shift) -> io::Result<()> {
        if shift == Shift::Boot {
            self.boots += 1;
            return self.name_boot();
        }
        for place in 0..self.processes.len() {
            let [wall, since_boot] = match shift {
                Shift::Server(seconds) if place == 0 => [seconds, 0],
                Shift::Runner(slot, seconds) if place == slot + 1 => [seconds, 0],
                Shift::Sleep(seconds) => [seconds, seconds],
                _ => continue,
            };
            let (name, now) = &mut self.processes[place];
            *now = [now[0] + wall, now[1] + since_boot];
            let (name, now) = (name.clone(), *now);
            self.write(&name, now)?;
        }
        Ok(())
    }
}

/// Kills all that works in this directory, as the end of a machine does: jobs that hide do not leave
/// it.
pub fn kill_all_in(dir: &Path) -> io::Result<()> {
    let dir = dir.canonicalize()?;
    loop {
        let mut found = 0;
        for process in fs::read_dir("/proc")?.flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let is_there =
                fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&dir));
            if is_there && pid != rustix::process::getpid().as_raw_nonzero().get() {
                found += 1;
                crate::world::kill_pid(pid);
            }
        }
        // A zombie has no directory, so that this ends when they have.
        if found == 0 {
            return Ok(());
        }
        std::thread::yield_now();
    }
}
