//! With texts as OpenPBS 19 to 23 prints them; not run on a real cluster.

use super::text::*;
use crate::{Known, ScriptInput, Submitted};
use std::collections::BTreeMap;
use torc_model::plan::SlurmScheduler;
use torc_model::slurm::{AllocationPhase, Verdict};
use torc_model::status::Cause;

const QSTAT: &str = "Job Id: 12.pbs01
    Job_Name = torc-a
    Job_Owner = me@login1
    job_state = R
    queue = workq
    comment = Job run at Wed Nov 18 at 01:18 on (node1:ncpus=4:mem=1048576kb)
    Resource_List.walltime = 00:10:00

Job Id: 13.pbs01
    Job_Name = torc-b
    job_state = F
    queue = workq
    comment = Job run at Wed Nov 18 at 01:18 on (node1:ncpus=4) and exceeded resource walltime
    Exit_status = -29

Job Id: 14[1].pbs01
    Job_Name = torc-c
    job_state = Q
    comment = Not Running: Insufficient amount of resource: ncpus 

Job Id: 15.pbs01
    Job_Name = torc-d
    job_state = F
    Exit_status = 271

";

fn known(id: Option<&str>, name: &str, array_task: Option<i64>) -> Known {
    Known {
        slurm_job_id: id.map(str::to_owned),
        name: name.into(),
        array_task,
        missing_since_ms: None,
        has_started: true,
    }
}

#[test]
fn states_become_verdicts() {
    let stderr = "qstat: Unknown Job Id 16.pbs01\n";
    let jobs = jobs(Some(153), QSTAT, stderr).expect("one is unknown, the others are told");
    let look = |id: &str, name: &str, task| observe(&known(Some(id), name, task), &jobs, 0);
    assert!(matches!(
        look("12", "torc-a", None).verdict,
        Verdict::Alive { phase: AllocationPhase::Running, .. }
    ));
    let waits = look("14_1", "torc-c", Some(1)).verdict;
    assert!(
        matches!(&waits, Verdict::Alive { phase: AllocationPhase::Waiting, reason: Some(why) } if why.contains("ncpus")),
        "{waits:?}"
    );
    let cause = |id: &str, name: &str| match look(id, name, None).verdict {
        Verdict::Ended(ending) => Some((ending.state, ending.cause)),
        _ => None,
    };
    assert_eq!(cause("13", "torc-b"), Some(("TIMEOUT".into(), Cause::Walltime)));
    assert_eq!(cause("15", "torc-d"), Some(("CANCELLED".into(), Cause::Lost)));
    let gone = look("16", "torc-e", None);
    assert!(gone.is_missing && matches!(gone.verdict, Verdict::Unknown { .. }));
    assert_eq!(
        observe(&known(None, "torc-c", Some(1)), &jobs, 0).slurm_job_id.as_deref(),
        Some("14_1")
    );
}

#[test]
fn a_server_that_does_not_answer_is_unknown() {
    let down = "Connection refused\nqstat: cannot connect to server pbs01 (errno=15010)\n";
    assert!(jobs(Some(255), "", down).is_err());
    assert!(jobs(None, "", "").is_err());
    let no_history = "qstat: PBS is not configured to maintain job history 12.pbs01\n";
    assert_eq!(jobs(Some(35), "", no_history), Ok(Vec::new()));
}

#[test]
fn refusals_are_told_from_silence() {
    assert_eq!(submitted(Some(0), "17.pbs01\n", ""), Submitted::Id("17".into()));
    assert_eq!(submitted(Some(0), "17[].pbs01\n", ""), Submitted::Id("17".into()));
    assert_eq!(
        submitted(Some(170), "", "qsub: Unknown queue\n"),
        Submitted::Refused("Unknown queue".into())
    );
    let down = "Connection refused\nqsub: cannot connect to server pbs01 (errno=15010)\n";
    assert!(matches!(submitted(Some(255), "", down), Submitted::Ambiguous(_)));
    let full = "qsub: would exceed queue generic's per-user limit\n";
    assert!(matches!(submitted(Some(32), "", full), Submitted::Later(_)));
}

#[test]
fn ids_go_both_ways() {
    assert_eq!((native_id("12").as_str(), native_id("14_1").as_str()), ("12", "14[1]"));
    assert_eq!(number_of("14[].pbs01").as_deref(), Some("14"));
    assert_eq!(number_of("none"), None);
}

#[test]
fn a_script_says_what_pbs_knows_and_refuses_the_rest() {
    let scheduler = SlurmScheduler {
        account: "acct".into(),
        partition: Some("workq".into()),
        walltime: "1-06:00:00".into(),
        nodes: 1,
        mem: Some("1g".into()),
        gres: Some("gpu:a100:2".into()),
        ntasks_per_node: Some(4),
        ..SlurmScheduler::default()
    };
    let script = |scheduler: &SlurmScheduler, count| {
        script(&ScriptInput {
            scheduler,
            defaults: &BTreeMap::new(),
            name: "torc-wf1-s1-0b",
            count,
            at_once: None,
            output_dir: "/o",
            work_dir: "/w",
            command: &["/opt/torc".into()],
            one_worker_per_node: false,
            end_seconds: 20,
        })
    };
    assert_eq!(
        script(&scheduler, 2).as_deref(),
        Ok("#!/bin/bash\n\
            #PBS -N torc-wf1-s1-0b\n\
            #PBS -A acct\n\
            #PBS -q workq\n\
            #PBS -l select=1:ncpus=4:mem=1024mb:ngpus=2\n\
            #PBS -l walltime=30:00:00\n\
            #PBS -V\n\
            #PBS -r n\n\
            #PBS -o /dev/null\n\
            #PBS -j oe\n\
            #PBS -J 0-1\n\
            job=${PBS_JOBID%%[.[]*}\n\
            exec >>/o/slurm_output_torc-wf1-s1-0b_sl\"${job}_${PBS_ARRAY_INDEX}\".o \
            2>>/o/slurm_output_torc-wf1-s1-0b_sl\"${job}_${PBS_ARRAY_INDEX}\".e\n\
            cd /w || exit 1\n\
            unset TORC_TOKEN TORC_TOKEN_FILE\n\
            exec /opt/torc\n")
    );
    assert!(script(&SlurmScheduler { nodes: 2, ..scheduler.clone() }, 1).is_err());
    assert!(script(&SlurmScheduler { tmp: Some("1g".into()), ..scheduler }, 1).is_err());
}
