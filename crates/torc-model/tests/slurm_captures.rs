//! Recorded output of three Slurm versions, every state that could be produced: what we make of
//! each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use torc_model::slurm::squeue::{Answer, Row};
use torc_model::slurm::{AllocationPhase, Verdict, sacct, squeue};
use torc_model::status::Cause;

const VERSIONS: [&str; 3] = ["20.11", "22.05", "24.11"];

fn captures(version: &str, end: &str) -> Vec<(String, String)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slurm").join(version);
    let mut all: Vec<_> = std::fs::read_dir(&dir)
        .expect("fixtures are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(end))
        .map(|path| (stem(&path, end), std::fs::read_to_string(&path).expect("text")))
        .collect();
    all.sort();
    assert!(!all.is_empty(), "no fixtures for {version}");
    all
}

fn stem(path: &Path, end: &str) -> String {
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    name.trim_end_matches(end).to_owned()
}

/// The output of the first command of a capture.
fn first_answer(text: &str) -> String {
    let lines = text.lines().skip(1).take_while(|l| !l.starts_with('$') && !l.starts_with("[exit"));
    lines.map(|l| format!("{l}\n")).collect()
}

/// The captures have more columns than we ask for: `%i|%T|%t|%r|%N|%P|%j|%l|%M|%L|%S|%e|%V`.
fn as_we_ask(text: &str) -> String {
    first_answer(text)
        .lines()
        .map(|line| {
            let f: Vec<_> = line.split('|').collect();
            assert_eq!(f.len(), 13, "{line}");
            let [id, state, nodes, submitted] = [f[0], f[1], f[4], f[12]];
            let [end, start, name, reason] = [f[11], f[10], f[6], f[3]];
            format!("{id}|{state}|{nodes}|{submitted}|{end}|{start}|{name}|{reason}\n")
        })
        .collect()
}

fn queue_row(text: &str) -> Option<Row> {
    match squeue::read(Some(0), &as_we_ask(text), "") {
        Answer::Rows(rows) => rows.into_iter().next(),
        Answer::Unreachable(why) => panic!("{why}"),
    }
}

#[derive(PartialEq, Debug)]
enum Want {
    Waiting,
    Running,
    Leaving,
    Ended(Cause),
}

/// What the name of a capture promises.
fn promised(name: &str) -> Want {
    let table = [
        ("NODE_FAIL_requeued_then_FAILED", Want::Ended(Cause::Lost)),
        ("NODE_FAIL_requeued_pending", Want::Waiting),
        ("NODE_FAIL", Want::Ended(Cause::NodeFail)),
        ("PREEMPTED_requeued_pending", Want::Waiting),
        ("PREEMPTED_requeued_running", Want::Running),
        ("POWERCUT_requeued_running", Want::Running),
        ("PREEMPTED_cancelled", Want::Ended(Cause::Preempted)),
        ("OUT_OF_MEMORY_in_step", Want::Ended(Cause::Lost)),
        ("OUT_OF_MEMORY", Want::Ended(Cause::Oom)),
        ("OOM_without_cgroup", Want::Ended(Cause::Lost)),
        ("REQUEUE", Want::Waiting),
        ("SPECIAL_EXIT", Want::Waiting),
        ("PENDING", Want::Waiting),
        ("SUSPENDED", Want::Running),
        ("RUNNING", Want::Running),
        ("COMPLETING", Want::Leaving),
        ("COMPLETED", Want::Ended(Cause::Lost)),
        ("CANCELLED", Want::Ended(Cause::Lost)),
        ("TIMEOUT", Want::Ended(Cause::Walltime)),
        ("DEADLINE", Want::Ended(Cause::Lost)),
        ("FAILED", Want::Ended(Cause::Lost)),
    ];
    table
        .into_iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, want)| want)
        .expect(name)
}

fn got(verdict: Verdict) -> Option<Want> {
    match verdict {
        Verdict::Alive { phase: AllocationPhase::Waiting, .. } => Some(Want::Waiting),
        Verdict::Alive { phase: AllocationPhase::Running, .. } => Some(Want::Running),
        Verdict::Alive { phase: AllocationPhase::Leaving, .. } => Some(Want::Leaving),
        Verdict::Ended(ending) => Some(Want::Ended(ending.cause)),
        Verdict::Unknown { .. } => None,
    }
}

#[test]
fn every_state_of_every_version_is_understood_from_squeue() {
    let mut seen = 0;
    for version in VERSIONS {
        for (name, text) in captures(version, ".squeue.txt") {
            let Some(row) = queue_row(&text) else { continue };
            // RequeueExitHold shows the failed life for a moment.
            if name == "REQUEUE_HOLD" && row.state == "COMPLETING" {
                continue;
            }
            assert_eq!(got(row.verdict()), Some(promised(&name)), "{version} {name}: {row:?}");
            seen += 1;
        }
    }
    assert!(seen >= 60, "only {seen} captures were read");
}

#[test]
fn accounting_agrees_or_does_not_know_yet() {
    let mut agreed: BTreeMap<&str, usize> = BTreeMap::new();
    for version in VERSIONS {
        for (name, text) in captures(version, ".sacct.txt") {
            let sacct::Answer::Records(records) = sacct::read(Some(0), &first_answer(&text), "")
            else {
                panic!("{version} {name} is not readable");
            };
            let Some(record) = records.iter().rfind(|r| !r.is_step()) else { continue };
            let want = promised(&name);
            match got(record.verdict()) {
                Some(verdict) if verdict == want => *agreed.entry(version).or_default() += 1,
                // Accounting calls a completing or suspended job running, or is not done with it.
                Some(Want::Running) if matches!(want, Want::Leaving) => {}
                None => {}
                // It lags: an ended life may still stand as the last word, which is why the queue
                // is asked first.
                Some(other) => {
                    let lags = matches!(want, Want::Waiting | Want::Leaving);
                    assert!(lags, "{version} {name}: {other:?} instead of {want:?}: {record:?}");
                }
            }
        }
    }
    assert!(agreed.values().all(|n| *n >= 10) && agreed.len() == VERSIONS.len(), "{agreed:?}");
}

#[test]
fn early_accounting_records_are_no_verdict() {
    for version in VERSIONS {
        for (name, text) in captures(version, ".sacct-early.txt") {
            let sacct::Answer::Records(records) = sacct::read(Some(0), &first_answer(&text), "")
            else {
                panic!("{version} {name} is not readable");
            };
            for record in records.iter().filter(|r| !r.is_step() && r.name == "allocation") {
                assert_eq!(got(record.verdict()), None, "{version} {name}: {record:?}");
            }
        }
    }
}

#[test]
fn a_requeued_job_has_one_record_per_life() {
    for version in VERSIONS {
        let captures = captures(version, ".sacct.txt");
        let (_, text) = captures
            .iter()
            .find(|(name, _)| name == "PREEMPTED_requeued_running")
            .expect("captured");
        let all_lives = text.split("$ sacct -D").nth(1).expect("a second command");
        let sacct::Answer::Records(records) = sacct::read(Some(0), &first_answer(all_lives), "")
        else {
            panic!("{version} is not readable");
        };
        let states: Vec<_> =
            records.iter().filter(|r| !r.is_step()).map(|r| r.state.as_str()).collect();
        assert_eq!(states, ["PREEMPTED", "RUNNING"], "{version}");
        let name = records[0].name.clone();
        let newest = sacct::newest(&records, &records[0].job_id, &name).expect("found");
        assert_eq!(newest.state, "RUNNING", "{version}");
    }
}
