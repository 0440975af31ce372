//! Both ways to start a program do the same.

use super::*;
use crate::sys::linux::Linux;
use crate::sys::{Reap, reap, wait_for_end};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd as _;

fn strings(list: &[&str]) -> Strings {
    let mut strings = Strings::default();
    list.iter().for_each(|text| strings.push(&[text.as_bytes()]).unwrap());
    strings
}

const WAYS: [&dyn Spawn; 2] = [&Linux, &Std];

fn start(
    way: &dyn Spawn,
    path: &str,
    argv: &[&str],
    dir: &str,
    out: &File,
) -> Result<i32, SpawnError> {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let program = Program {
        path: &CString::new(path).unwrap(),
        argv: &strings(argv),
        env: &strings(&["NAME=value of it"]),
        dir: &CString::new(dir).unwrap(),
        stdio: [null.as_fd(), out.as_fd(), null.as_fd()],
        limits: KernelLimits {
            mark: torc_fence::Mark::of_runner("spawn").map(|mark| mark.limits(77)),
            no_core: false,
        },
    };
    way.spawn(&program).map(|(pid, pidfd)| {
        assert!(pidfd.is_some());
        pid
    })
}

#[test]
fn a_program_gets_arguments_variables_directory_and_output() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let text = r#"echo "$0|$1|$NAME|$PWD|$(ps -o pgid= -p $$ | tr -d ' ')|$$"; cat; exit 5"#;
        let pid = start(
            way,
            "/bin/sh",
            &["me", "-c", text, "zero", "one two"],
            dir.path().to_str().unwrap(),
            &out,
        )
        .unwrap();
        wait_for_end(pid);
        let Reap::Ended(reaped) = reap(pid) else { panic!("not reaped") };
        assert_eq!(reaped.status.code(), Some(5));
        let mut seen = String::new();
        File::open(path).unwrap().read_to_string(&mut seen).unwrap();
        let dir = dir.path().display();
        assert_eq!(seen, format!("zero|one two|value of it|{dir}|{pid}|{pid}\n"));
    }
}

#[test]
fn signals_are_as_a_program_expects_them() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let pid = start(way, "/bin/cat", &["cat", "/proc/self/status"], "/", &out).unwrap();
        wait_for_end(pid);
        reap(pid);
        let seen = std::fs::read_to_string(path).unwrap();
        let mask = |name: &str| {
            let line = seen.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        assert_eq!((mask("SigBlk"), mask("SigCgt")), (0, 0), "{seen}");
        assert_eq!(mask("SigIgn") >> (libc::SIGPIPE - 1) & 1, 0, "{seen}");
    }
}

#[test]
fn a_program_and_what_it_starts_carry_the_mark_whatever_they_shed() {
    for way in WAYS {
        let out = File::create("/dev/null").unwrap();
        // Others may run this test at the same time: the number of this process tells whose they are.
        let own = std::process::id();
        let text = format!(
            "env -i /usr/bin/setsid -f /bin/sleep 7731.{own}; exec -a other sleep 7732.{own}"
        );
        let pid = start(way, "/bin/bash", &["bash", "-c", &text], "/", &out).unwrap();
        let is_sleep = |p: &&torc_fence::procfs::Process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            // As the first words: `env` and `setsid` have them in their lines as well, before they
            // become it.
            line == format!("/bin/sleep\x007731.{own}\0")
                || line == format!("other\x007732.{own}\0")
        };
        let found = loop {
            let table = torc_fence::procfs::ProcessTable::read().unwrap();
            let found: Vec<i32> = table.all().filter(is_sleep).map(|p| p.pid).collect();
            if found.len() == 2 {
                break found;
            }
        };
        let marks: Vec<_> = found.iter().map(|pid| torc_fence::mark::read(*pid)).collect();
        for pid in &found {
            crate::sys::signal_process(*pid, rustix::process::Signal::KILL).unwrap();
        }
        wait_for_end(pid);
        reap(pid);
        let runner = torc_fence::mark::runner_number("spawn");
        let expected = torc_fence::mark::Found { runner, process: Some(77) };
        assert_eq!(marks, [Some(expected); 2]);
    }
}

#[test]
fn a_program_may_run_on_the_same_processors_as_we_and_so_may_we_afterwards() {
    for way in WAYS {
        let allowed = |text: &str| {
            text.lines().find(|line| line.starts_with("Cpus_allowed:")).map(str::to_owned).unwrap()
        };
        let own = || allowed(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
        let before = own();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = File::create(&path).unwrap();
        let pid = start(way, "/bin/cat", &["cat", "/proc/self/status"], "/", &out).unwrap();
        wait_for_end(pid);
        reap(pid);
        assert_eq!(allowed(&std::fs::read_to_string(path).unwrap()), before);
        assert_eq!(own(), before);
        start(way, "/no/such/program", &["x"], "/", &out).unwrap_err();
        assert_eq!(own(), before);
    }
}

#[test]
fn each_failure_says_what_it_was_and_leaves_no_child() {
    for way in WAYS {
        let out = File::create("/dev/null").unwrap();
        let missing = start(way, "/no/such/program", &["x"], "/", &out);
        assert!(
            matches!(&missing, Err(SpawnError::Program(e)) if e.kind() == io::ErrorKind::NotFound),
            "{missing:?}"
        );
        let no_dir = start(way, "/bin/sh", &["sh"], "/no/such/dir", &out);
        assert!(
            matches!(&no_dir, Err(SpawnError::Directory(e)) if e.kind() == io::ErrorKind::NotFound),
            "{no_dir:?}"
        );
        let denied = start(way, "/etc/passwd", &["x"], "/", &out);
        let is_denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        assert!(matches!(&denied, Err(SpawnError::Program(e)) if is_denied(e)), "{denied:?}");
    }
}

#[test]
fn a_nul_byte_is_refused() {
    assert!(Strings::default().push(&[b"x", b"y\0"]).is_err());
}
