//! The harness of `torc-chaos` at the size of a test: server, runners and jobs are killed, and an
//! oracle that reads only what the jobs, a client and a receiver of webhooks wrote down decides.
//! Long campaigns are a command of their own.

use crate::support::TORC;
use std::time::Duration;

fn campaign(seed: u64, kills: u64, faults: torc_chaos::Faults) -> torc_chaos::Report {
    let dir = tempfile::tempdir().expect("a directory");
    let report = torc_chaos::run(&torc_chaos::Options {
        torc: TORC.into(),
        dir: dir.path().into(),
        seed,
        kills,
        kills_per_world: 50,
        faults: Some(faults),
        long_faults: false,
        failpoints: cfg!(debug_assertions),
        patience: Duration::from_secs(240),
        sabotage: None,
        tell: |line| eprintln!("{line}"),
    })
    .expect("the worlds come up");
    println!("{report}\n{:#?}", report.killed);
    if !report.violations.is_empty() {
        panic!("{:#?}\neverything about it is in {}", report.violations, dir.keep().display());
    }
    report
}

#[test]
fn kills_at_random_times_and_at_failpoints_lose_nothing() {
    let report = campaign(1, 150, torc_chaos::Faults::Mixed);
    assert!(report.kills() >= 150 && report.starts > 0 && report.deliveries > 0, "{report}");
    assert!(report.failpoint_kills() > 0, "{report}");
}

#[test]
fn other_kills_lose_nothing_either() {
    let report = campaign(1000, 150, torc_chaos::Faults::Mixed);
    assert!(report.kills() >= 150 && report.lost_attempts > 0 && report.scripts > 0, "{report}");
}

#[test]
fn a_network_that_fails_loses_and_doubles_nothing() {
    let report = campaign(6, 60, torc_chaos::Faults::Network);
    assert!(report.kills() >= 60 && report.starts > 0 && report.answers > 0, "{report}");
}

#[test]
fn clocks_that_jump_and_machines_that_sleep_or_start_again_lose_and_double_nothing() {
    let report = campaign(7, 40, torc_chaos::Faults::Clocks);
    assert!(report.kills() >= 40 && report.starts > 0, "{report}");
    assert!(report.killed.contains_key("boot"), "{:?}", report.killed);
}

#[test]
fn the_oracle_finds_what_the_harness_violates_itself() {
    use torc_chaos::HarnessSabotage;
    let cases = [
        (
            HarnessSabotage::Overlap,
            "job rogue, attempt 1: started while a process of the same job was alive",
        ),
        (HarnessSabotage::Limit, "started while all places below the limit were taken"),
        (HarnessSabotage::Survivor, "of a job is still alive"),
        (HarnessSabotage::Publish, "job rogue: attempt 1 was killed and put its file into place"),
        (HarnessSabotage::Unknown, "job first0: attempt 77 ran, but the server does not know it"),
    ];
    for (sabotage, expected) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let report = torc_chaos::run(&torc_chaos::Options {
            torc: TORC.into(),
            dir: dir.path().into(),
            seed: 1,
            kills: 1,
            kills_per_world: 1,
            faults: Some(torc_chaos::Faults::Mixed),
            long_faults: false,
            failpoints: false,
            patience: Duration::from_secs(240),
            sabotage: Some(sabotage),
            tell: |line| eprintln!("{line}"),
        })
        .expect("the world comes up");
        let found = &report.violations;
        assert!(found.iter().any(|text| text.contains(expected)), "{sabotage:?}: {found:#?}");
    }
}

#[test]
fn nothing_of_a_killed_runner_survives_overlaps_or_publishes_whatever_its_jobs_hide_behind() {
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return eprintln!("skipped: the jobs of this test are written in perl");
    }
    let dir = tempfile::tempdir().expect("a directory");
    // Open to a plain user too: half of the worlds run as one when this is root.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("permissions");
    let tell = |line: &str| eprintln!("{line}");
    let report =
        torc_chaos::fence(std::path::Path::new(TORC), dir.path(), 6, tell).expect("worlds");
    assert!(report.violations.is_empty(), "{report}\n{:#?}", report.violations);
}
