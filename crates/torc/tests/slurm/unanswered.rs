//! A Slurm that does not answer `watch`: no job fails for it, it is said, and all goes on
//! when Slurm answers.

use crate::cluster::{Cluster, cluster};
use crate::spec;

const PROGRAMS: [&str; 5] = ["squeue", "sbatch", "scontrol", "scancel", "sacct"];

/// What `torc watch` has written down so far.
fn told(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.dir.path().join("watch.log")).unwrap_or_default()
}

#[test]
fn watch_outlives_a_slurm_that_does_not_answer() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 3, 6.0, ""));
    cluster.wait_for_running(3);
    let silent = "test -e answers || { echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1; }";
    for program in PROGRAMS {
        cluster.stand_in(program, silent);
    }
    let watch = ["watch", "latest", "--auto-schedule", "--log-file", "watch.log"];
    let mut watch = cluster.spawn_torc_beside_stand_ins(&watch);
    cluster.wait("word about Slurm", 60, || told(&cluster).contains("Slurm does not answer"));
    assert_eq!(
        cluster.attempts().iter().filter(|a| a.2 == "failed").count(),
        0,
        "{:?}",
        cluster.attempts()
    );
    // The nodes go; the server sees it, but `watch` cannot ask for others.
    cluster.slurm("scancel", &[&cluster.slurm_job()]);
    cluster.wait("ready jobs", 60, || cluster.counts().get("ready") == Some(&3));
    cluster
        .wait("word about nodes", 60, || told(&cluster).contains("nodes could not be asked for"));
    assert_eq!(cluster.allocations().len(), 1);
    std::fs::write(cluster.dir.path().join("answers"), "").expect("written");
    assert!(watch.wait().expect("ended").success(), "{}", told(&cluster));
    cluster.assert_witnessed_once(3);
    assert_eq!(cluster.allocations().len(), 2, "{:?}", cluster.allocations());
    assert!(
        cluster.attempts().iter().all(|a| a.3.is_empty() || a.3 == "stopped"),
        "{:?}",
        cluster.attempts()
    );
}

#[test]
fn watch_does_not_wait_for_a_slurm_that_hangs() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 2, 3.0, ""));
    for program in PROGRAMS {
        cluster.stand_in(program, "touch asked; exec sleep 600");
    }
    // It ends with the workflow, although the answer to its first question never comes.
    let watch = cluster.spawn_torc_beside_stand_ins(&["watch", "latest", "--auto-schedule"]);
    let watch = std::cell::RefCell::new(watch);
    cluster.wait("question", 30, || cluster.dir.path().join("asked").exists());
    cluster.wait_for_success(2, 60);
    // Far less than what a question to Slurm may take.
    cluster
        .wait("end of the watch", 20, || watch.borrow_mut().try_wait().expect("asked").is_some());
    assert!(watch.into_inner().wait().expect("ended").success());
    cluster.assert_witnessed_once(2);
}
