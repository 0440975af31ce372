//! Jobs in steps of their own: Slurm shows and accounts them, and all else is as everywhere.

use crate::cases::spec;
use crate::cluster::{cluster, has};
use std::collections::BTreeSet;

#[test]
fn jobs_run_in_steps_that_slurm_shows_and_accounts() {
    let Some(cluster) = cluster() else { return };
    let more = "execution_config: {mode: slurm}
resource_requirements: [{name: small, num_cpus: 1, memory: 300m, runtime: 1m}]";
    let jobs = "  - {name: 'long{i}', scheduler: s, resource_requirements: small, parameters: {i: '1:3'}, \
                command: 'echo $SLURM_STEP_ID >> steps; until [ -e go ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness'}
  - {name: bad, scheduler: s, resource_requirements: small, command: 'echo oops >&2; exit 3'}
  - {name: endless, scheduler: s, resource_requirements: small, timeout: 3s, command: 'sleep 1003.5'}
  - {name: work, scheduler: s, resource_requirements: small, command: 'python3 work.py'}";
    let work =
        "import time\nx = bytearray(200 << 20)\ne = time.time() + 2\nwhile time.time() < e: pass\n";
    std::fs::write(cluster.dir.path().join("work.py"), work).expect("written");
    cluster.submit(&spec(more, "nodes: 2, ntasks_per_node: 4, mem: 1500m", jobs));
    cluster.wait("three steps", 90, || {
        let names = cluster.slurm("squeue", &["-h", "-s", "-o", "%j"]);
        (1..=3).all(|job| names.lines().any(|name| name == format!("long{job}")))
    });
    // Codes, limits and measuring are as everywhere.
    cluster.wait("ends of the others", 60, || {
        let counts = cluster.counts();
        let ended = counts.get("failed").copied().unwrap_or(0)
            + counts.get("terminated").copied().unwrap_or(0);
        counts.get("completed") == Some(&1) && ended == 2
    });
    let rows =
        cluster.json(&["results", "list"])["results"].as_array().cloned().unwrap_or_default();
    let row =
        |job: &str| rows.iter().find(|row| row["job_name"] == job).cloned().unwrap_or_default();
    assert_eq!(
        (&row("bad")["return_code"], &row("bad")["cause"]),
        (&3.into(), &"exit".into()),
        "{}",
        row("bad")
    );
    assert_eq!(row("endless")["cause"], "timeout", "{}", row("endless"));
    assert!(
        row("work")["peak_memory_bytes"].as_i64().is_some_and(|bytes| bytes > 200 << 20),
        "{}",
        row("work")
    );
    assert!(
        row("work")["cpu_seconds"].as_f64().is_some_and(|seconds| seconds > 0.5),
        "{}",
        row("work")
    );
    // Other tests on this machine sleep for other times.
    let left = cluster.slurm("sh", &["-c", "pgrep -fx 'sleep 1003[.]5' || true"]);
    assert_eq!(left.trim(), "", "nothing of a job outlives it");
    std::fs::write(cluster.dir.path().join("go"), "").expect("written");
    cluster.wait("ends of the long ones", 60, || cluster.counts().get("completed") == Some(&4));
    cluster.assert_witnessed_once(3);
    let steps = std::fs::read_to_string(cluster.dir.path().join("steps")).expect("written");
    let steps: BTreeSet<&str> = steps.lines().collect();
    assert_eq!(steps.len(), 3, "a step each: {steps:?}");
    if has("SLURM_LAB_SACCT") {
        let job = cluster.slurm_job();
        cluster.wait("accounting", 60, || {
            let text = cluster.slurm("sacct", &["-n", "-P", "-j", &job, "-o", "JobName,State"]);
            ["long1|COMPLETED", "work|COMPLETED"]
                .iter()
                .all(|line| text.lines().any(|l| l == *line))
        });
    }
}

#[test]
fn cancel_ends_jobs_that_run_in_steps() {
    let Some(cluster) = cluster() else { return };
    let jobs = "  - {name: 'j{i}', scheduler: s, parameters: {i: '1:3'}, command: 'sleep 1001; echo $TORC_JOB_NAME >> witness'}";
    cluster.submit(&spec(
        "execution_config: {mode: slurm}",
        "nodes: 1, ntasks_per_node: 4, mem: 1500m",
        jobs,
    ));
    cluster.wait_for_running(3);
    cluster.torc(&["cancel", "latest"]);
    cluster.wait("end of all allocations", 60, || {
        cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
    });
    cluster.wait("canceled jobs", 30, || cluster.counts().get("canceled") == Some(&3));
    let left = cluster.slurm("sh", &["-c", "pgrep -fx 'sleep 1001' || true"]);
    assert_eq!(left.trim(), "", "nothing of a job outlives it");
    assert!(cluster.witnesses().is_empty(), "{:?}", cluster.witnesses());
}
