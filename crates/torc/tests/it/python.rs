//! The Python package against the real program: its own tests, run with pytest.
//!
//! `scripts/python-lab` installs what they need. `TORC_PYTHON_LAB` names a directory in which that
//! is already, or is `none` where it cannot be fetched. Where it is missing these tests say so and
//! are skipped; with `CI=true` that is a failure.

use crate::support::TORC;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use torc_model::status::Cause;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where Python and its packages are; `None` where they cannot be had.
fn lab() -> Option<PathBuf> {
    let named = std::env::var_os("TORC_PYTHON_LAB").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: the packages of the Python tests cannot be fetched here");
        return None;
    }
    let ready = named.unwrap_or_else(|| root().join("target/python-lab"));
    if ready.join("installed").is_file() {
        return Some(ready);
    }
    let how = "the packages of the Python tests are not installed; `scripts/python-lab` does it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// Runs a command of the lab in the package's directory and shows what it said if it fails.
fn passes(args: &[&str]) {
    let Some(lab) = lab() else { return };
    let done = Command::new(lab.join("bin/python"))
        .args(args)
        .current_dir(root().join("python"))
        .env("TORC_BIN", TORC)
        .env_remove("TORC_DIR")
        .env_remove("TORC_API_URL")
        .output()
        .expect("the lab's Python");
    let said = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "python {args:?}: {}\n{said}\n{errors}", done.status);
}

/// One file of tests.
fn tests_of(file: &str) {
    passes(&["-m", "pytest", "-q", "-p", "no:cacheprovider", &format!("tests/{file}")]);
}

/// Python sees causes as text, so no compiler tells it of a new one.
#[test]
fn python_calls_the_losses_of_the_model_lost() {
    let source = root().join("python/torcflow/_outcome.py");
    let source = std::fs::read_to_string(source).expect("the source");
    let (list, _) = source.split_once("):\n        return Lost(").expect("the causes of `Lost`");
    let list = list.rsplit('(').next().unwrap_or_default();
    let lost: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let is_lost = |cause: &&Cause| cause.is_loss() || cause.is_stop();
    assert_eq!(lost, Cause::ALL.iter().filter(is_lost).map(|cause| cause.as_str()).collect());
}

#[test]
fn python_executor_keeps_the_promises_of_executors() {
    tests_of("test_executor.py");
}

#[test]
fn python_errors_carry_type_cause_and_remedy() {
    tests_of("test_errors.py");
}

#[test]
fn python_calls_survive_kills() {
    tests_of("test_survival.py");
}

#[test]
fn python_client_builder_and_package_hold_together() {
    tests_of("test_package.py");
}

#[test]
fn python_calls_run_in_slurm_allocations() {
    // `scripts/test` starts the cluster; CI has one.
    let cluster = std::env::var_os("SLURM_CONF").is_some();
    assert!(cluster || std::env::var("CI").as_deref() != Ok("true"), "no Slurm cluster");
    if !cluster {
        eprintln!("SKIPPED: no Slurm cluster; `scripts/slurm-lab start` makes one");
        return;
    }
    // The tests of the cluster itself stop its parts and cancel what runs there.
    let lab =
        std::env::var_os("SLURM_LAB_DIR").map(PathBuf::from).expect("the cluster's directory");
    let lock = File::create(lab.join("test.lock")).expect("a lock file");
    lock.lock().expect("the cluster for ourselves");
    tests_of("test_slurm.py");
}

#[test]
fn python_docs_run() {
    tests_of("test_docs.py");
}

#[test]
fn python_types_are_strict() {
    passes(&["-m", "mypy"]);
    let Some(lab) = lab() else { return };
    let python = lab.join("bin/python").display().to_string();
    passes(&["-m", "pyright", "--pythonpath", &python]);
}
