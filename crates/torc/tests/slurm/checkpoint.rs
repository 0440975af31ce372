//! Time to save a state before an allocation ends.

use crate::cluster::{Cluster, campaign, cluster};
use std::time::{Duration, Instant};

/// Notes when it is told to end, takes most of its lead to save its state, and continues from it.
const JOB: &str = r#"#!/bin/bash
if [ -e state ]; then echo "continued $TORC_JOB_NAME" >> witness; exit 0; fi
save() {
    date +%s > "told_$1"
    for i in $(seq SAVING); do sleep 1; done
    echo saved > state
    date +%s > saving
    mv saving saved
    exit 42
}
trap 'save TERM' TERM
trap 'save USR1' USR1
echo > begun
while :; do sleep 0.2; done
"#;

fn spec(execution: &str) -> String {
    format!(
        "name: w
checkpoint_exit_code: 42
execution_config: {{{execution}}}
resource_requirements: [{{name: any, num_cpus: 1, memory: 200m}}]
slurm_schedulers:
  - {{name: s, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 1, mem: 500m}}
jobs:
  - {{name: long, command: ./job.sh, resource_requirements: any, scheduler: s, max_lost_retries: 0}}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}}
  - {{trigger_type: auto_schedule_on_ready_jobs, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}}
"
    )
}

fn number(cluster: &Cluster, file: &str) -> i64 {
    let text = std::fs::read_to_string(cluster.dir.path().join(file)).unwrap_or_default();
    text.trim().parse().unwrap_or_else(|_| panic!("{file}: `{text}`"))
}

fn begin(cluster: &Cluster, execution: &str, saving: u64) {
    let script = cluster.dir.path().join("job.sh");
    std::fs::write(&script, JOB.replace("SAVING", &saving.to_string())).expect("written");
    cluster.slurm("chmod", &["+x", "job.sh"]);
    cluster.submit(&spec(execution));
    cluster.wait_for_running(1);
    cluster.wait("begin", 30, || cluster.dir.path().join("begun").exists());
}

#[test]
fn a_job_saves_its_state_before_the_walltime_and_continues_in_the_next_allocation() {
    let Some(cluster) = cluster() else { return };
    save_and_continue(&cluster, "srun_termination_signal: USR1@60, sigkill_headroom_seconds: 15");
}

#[test]
fn a_job_has_the_lead_of_its_spec_before_the_walltime() {
    let Some(cluster) = campaign() else { return };
    let execution =
        "termination_signal: SIGUSR1, sigterm_lead_seconds: 60, sigkill_headroom_seconds: 15";
    save_and_continue(&cluster, execution);
}

/// The signal comes a minute and the headroom before the end; the job takes nearly all of the minute.
fn save_and_continue(cluster: &Cluster, execution: &str) {
    // Longer than `KillWait` and than any time that was given without a setting.
    let lead = 60;
    begin(cluster, execution, lead - 4);
    // The operator shortens the time, and Slurm's own signal tells the runner of it.
    let job = cluster.slurm_job();
    let asked = number_after(&cluster.slurm("scontrol", &["show", "job", &job]), "Signal=");
    assert!(asked.is_none_or(|seconds| seconds >= lead + 15), "{asked:?}");
    let end = Instant::now() + Duration::from_secs(120);
    let update = format!("JobId={job}");
    cluster.slurm("scontrol", &["update", &update, "EndTime=now+120seconds"]);
    cluster.wait("state", 130, || cluster.dir.path().join("saved").exists());
    assert!(Instant::now() < end, "it was saved after the end");
    assert!(!cluster.dir.path().join("told_TERM").exists(), "USR1 came instead");
    let took = number(cluster, "saved") - number(cluster, "told_USR1");
    assert!(took >= (lead - 4) as i64, "{took} s");
    println!("a job had {took} s of its lead of {lead} s to save its state");
    cluster.wait_for_success(1, 90);
    assert_eq!(cluster.witnesses().len(), 1, "{:?}", cluster.witnesses());
    let mut causes: Vec<_> = cluster.attempts().into_iter().map(|a| (a.1, a.3)).collect();
    causes.sort();
    assert_eq!(causes, [(1, "checkpoint".to_owned()), (2, String::new())]);
    assert_eq!(cluster.allocations().len(), 2);
}

/// The number behind `@` of the word that begins so.
fn number_after(text: &str, begin: &str) -> Option<u64> {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(begin))?;
    word.rsplit('@').next()?.parse().ok()
}

#[test]
fn a_canceled_allocation_gives_jobs_no_more_time_than_slurm_does() {
    let Some(cluster) = cluster() else { return };
    // Slurm kills everything one second after its signal; the runner must not wait for the job.
    begin(&cluster, "sigterm_lead_seconds: 300", 100);
    cluster.slurm("scancel", &[&cluster.slurm_job()]);
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    assert!(!cluster.dir.path().join("saved").exists());
    let causes: Vec<_> =
        cluster.attempts().into_iter().map(|a| a.3).filter(|c| !c.is_empty()).collect();
    assert_eq!(causes, ["stopped"], "{:?}", cluster.attempts());
}
