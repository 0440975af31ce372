//! Power loss and full disks at the size of a test: every write, flush and rename of a server and a
//! runner is recorded, the power is cut at moments all over the run, and a new server opens what a
//! disk may hold then. Long campaigns are a command of `torc-chaos`.

use crate::support::TORC;
use torc_chaos::power;

fn cut(cuts: usize, forget_flushes: Option<&str>) -> power::PowerReport {
    let dir = tempfile::tempdir().expect("a directory");
    let options = power::Options {
        torc: TORC.into(),
        dir: dir.path().into(),
        seed: 1,
        cuts,
        worlds: 1,
        forget_flushes: forget_flushes.map(str::to_owned),
        tell: |line| eprintln!("{line}"),
    };
    let report = power::run(&options).expect("a run is recorded");
    println!("{report}");
    if forget_flushes.is_none() && !report.violations.is_empty() {
        panic!("{:#?}\neverything about it is in {}", report.violations, dir.keep().display());
    }
    report
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() {
    let report = cut(200, None);
    assert_eq!(report.cuts.iter().sum::<usize>(), 200, "{report}");
    assert!(report.operations > 500 && report.flushes > 20, "{report}");
    assert!(report.acknowledged > 0 && report.ran_on > 0, "{report}");
}

#[test]
fn missing_flushes_are_found() {
    let cases = [
        // As with `synchronous=OFF`: an end is lost, or what a checkpoint copied has no log any more.
        ("torc.db-wal", &["was acknowledged and is lost", "disk image is malformed"][..]),
        // Results that a runner keeps while there is no server.
        (".torc_spool", &["and now:"]),
    ];
    for (part, expected) in cases {
        let found = cut(300, Some(part)).violations;
        let is_expected = |text: &String| expected.iter().any(|one| text.contains(one));
        assert!(found.iter().any(is_expected), "{part}: {found:#?}");
    }
}

#[test]
fn a_full_disk_at_any_write_of_server_or_runner_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let writes = [1, 3, 30, 120, 330];
    let tell = |line: &str| eprintln!("{line}");
    let report = power::full_disks(TORC.as_ref(), dir.path(), writes, tell).expect("worlds");
    if !report.violations.is_empty() {
        panic!("{:#?}\neverything about it is in {}", report.violations, dir.keep().display());
    }
    assert_eq!(report.runs, 2 * writes.len(), "{report}");
    assert!(report.ended + report.refused > 0, "no disk was ever full: {report}");
}
