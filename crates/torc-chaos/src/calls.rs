//! Calls of Python: a client of the package submits functions, the pool runner of the world executes
//! them, and all of them are killed. Each call writes down that it began and ended, the client what
//! it got.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package, where this program was built.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
/// Where calls and client write.
const LOG: &str = "calls.log";
/// Tells the client that this round is the last one.
const LAST: &str = "calls.last";

/// What the client runs. The world has a server already, and a pool runner that serves every
/// workflow: the package neither starts nor stops any. A call that was lost too often is submitted
/// again; what is stored does not run again.
const CLIENT: &str = r#"
import fcntl, os, sys, time
import torcflow
from torcflow import _engine, _http

def server(self):
    found = []
    def ready():
        found[:] = [one for one in [self.reachable()] if one]
        return bool(found)
    _http.wait_until(ready, 300.0)
    return found[0]

_engine.Engine.server = server
_engine.Engine.runner = lambda self, *rest: None
_engine.Engine.stop_server = lambda self: None
here = os.getcwd()

def say(word, number):
    import os
    log = os.open(os.path.join(here, "calls.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{word} {number}\n".encode())
    os.fsync(log)
    os.close(log)

def square(number):
    import fcntl, os, time
    lock = os.open(os.path.join(here, f"calls.lock.{number}"), os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("overlap", number)
    say("begin", number)
    time.sleep(0.03)
    say("end", number)
    return number * number

SIZE = 12
known = [line.split() for line in open("calls.log")] if os.path.exists("calls.log") else []
got = [int(number) for word, number in known if word == "got"]
# The last whole round is asked for again: all of it is stored.
first = max(0, (max(got) // SIZE - 1)) if got else 0
# What the last client had asked for must come to its end.
asked = max([int(number) for word, number in known if word == "round"], default=0)
with torcflow.Executor("calls", backend="local") as executor:
    turn = first
    while True:
        is_last = os.path.exists("calls.last")
        missing = set(range(turn * SIZE, (turn + 1) * SIZE))
        tries = 0
        # Before the first call can begin: the next client must know that these were asked for.
        say("round", turn)
        while missing:
            tries += 1
            if tries > 200:
                sys.exit(f"calls {sorted(missing)} do not end")
            futures = {number: executor.submit(square, number) for number in sorted(missing)}
            for number, future in futures.items():
                try:
                    value = future.result()
                except torcflow.TorcError as error:
                    print(f"{number}: {error}", file=sys.stderr)
                    continue
                say("got" if value == number * number else "wrong", number)
                missing.discard(number)
        turn += 1
        if is_last and turn > asked:
            break
"#;

/// Puts the script and the state of the executor into the directory of a world. None where there is
/// no Python with the package's needs.
pub fn prepare(dir: &Path) -> io::Result<Option<PathBuf>> {
    let python = PathBuf::from("python3");
    let has_needs = Command::new(&python).args(["-c", "import cloudpickle"]).output();
    if !Path::new(PACKAGE).is_dir() || !has_needs.is_ok_and(|done| done.status.success()) {
        return Ok(None);
    }
    fs::write(dir.join("calls.py"), CLIENT)?;
    fs::create_dir_all(dir.join("flow/calls"))?;
    // The executor's server is that of the world.
    std::os::unix::fs::symlink(dir.join(".torc"), dir.join("flow/calls/torc"))?;
    Ok(Some(python))
}

/// The client.
pub fn client(python: &Path, torc: &Path, dir: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg("calls.py").current_dir(dir);
    command.env("PYTHONPATH", PACKAGE).env("TORC_BIN", torc).env("TORCFLOW_DIR", dir.join("flow"));
    command
}

/// Lets the client come to its end.
pub fn finish(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(LAST), "")
}

/// How much has been said so far.
pub fn volume(dir: &Path) -> u64 {
    fs::metadata(dir.join(LOG)).map_or(0, |found| found.len())
}

/// What was violated, and how many calls came to their end.
pub fn judge(dir: &Path) -> io::Result<(u64, Vec<String>)> {
    match fs::read_to_string(dir.join(LOG)) {
        Ok(text) => Ok(examine(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, Vec::new())),
        Err(error) => Err(error),
    }
}

fn examine(text: &str) -> (u64, Vec<String>) {
    #[derive(Default)]
    struct PythonCall {
        begun: u64,
        ended: u64,
        got: bool,
    }
    let mut calls: BTreeMap<&str, PythonCall> = BTreeMap::new();
    let mut problems = Vec::new();
    for line in text.lines() {
        let Some((word, number)) = line.split_once(' ') else {
            problems.push(format!("calls: unreadable line `{line}`"));
            continue;
        };
        if word == "round" {
            continue;
        }
        let call = calls.entry(number).or_default();
        let problem = match word {
            "begin" => {
                call.begun += 1;
                call.got.then_some("ran again after its value had been given")
            }
            "end" => {
                call.ended += 1;
                (call.ended > call.begun).then_some("ended without a beginning")
            }
            "got" => {
                call.got = true;
                (call.ended == 0).then_some("has a value, but did not happen")
            }
            "wrong" => Some("has the wrong value"),
            "overlap" => Some("began while the same call ran"),
            _ => Some("said something unknown"),
        };
        problems.extend(problem.map(|problem| format!("call {number} of Python: {problem}")));
    }
    let got = calls.values().filter(|call| call.got).count() as u64;
    let open = calls.iter().filter(|(_, call)| !call.got);
    problems.extend(open.map(|(number, _)| format!("call {number} of Python: was lost")));
    (got, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_lost_repeated_forged_or_doubled_are_found() {
        assert_eq!(examine("round 0\nbegin 1\nbegin 1\nend 1\ngot 1\ngot 1\n"), (1, vec![]));
        let cases = [
            ("begin 1\nend 1\ngot 1\nbegin 1\n", "ran again"),
            ("begin 1\ngot 1\n", "did not happen"),
            ("begin 1\nend 1\nwrong 1\ngot 1\n", "wrong value"),
            ("overlap 1\nbegin 1\nend 1\ngot 1\n", "same call ran"),
            ("begin 1\nend 1\n", "was lost"),
            ("end 1\nbegin 1\ngot 1\n", "without a beginning"),
        ];
        for (text, expected) in cases {
            let found = examine(text).1;
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }
}
