//! The limit: a tight loop that starts the same shell with the same two log files, as many at once
//! as Torc may.

use super::machine;
use crate::Result;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The shell that the runner takes.
pub fn shell() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        ["/bin", "/usr/bin"].into_iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    places
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// Runs the command this often by the shell, so many at once; answers with how long all of it took.
pub fn run(dir: &Path, command: &str, count: usize, at_once: usize) -> Result<Duration> {
    run_program(dir, &[shell().as_os_str(), "-c".as_ref(), command.as_ref()], count, at_once)
}

/// The same with a program and its arguments, without a shell.
pub fn run_program(dir: &Path, argv: &[&OsStr], count: usize, at_once: usize) -> Result<Duration> {
    std::fs::create_dir_all(dir)?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once)
            .map(|slot| {
                scope.spawn(move || {
                    (slot..count).step_by(at_once).try_for_each(|n| one(argv, dir, n))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread of the limit broke")?)
    })?;
    Ok(begun.elapsed())
}

fn one(argv: &[&OsStr], dir: &Path, n: usize) -> Result<()> {
    let file = |ending| std::fs::File::create(dir.join(format!("job_{n}.{ending}")));
    let status = Command::new(argv[0])
        .args(&argv[1..])
        .env_clear()
        .envs(machine::environment())
        .stdin(Stdio::null())
        .stdout(file("o")?)
        .stderr(file("e")?)
        .process_group(0)
        .spawn()?
        .wait()?;
    if status.success() { Ok(()) } else { Err(format!("{argv:?}: {status}").into()) }
}
