//! With output that Grid Engine 8.1.9 printed.

use super::profile::{host_memory_mb, partition};
use super::text::*;
use crate::{Known, ScriptInput, Submitted};
use std::collections::BTreeMap;
use torc_model::plan::SlurmScheduler;
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
use torc_model::status::Cause;

const QSTAT: &str = "<?xml version='1.0'?>
<job_info  xmlns:xsd=\"http://example.org/qstat.xsd\">
  <queue_info>
    <job_list state=\"running\">
      <JB_job_number>1</JB_job_number>
      <JAT_prio>0.27632</JAT_prio>
      <JB_name>torc-a</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-18T01:18:49</JAT_start_time>
      <queue_name>main.q@vm</queue_name>
      <slots>2</slots>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state=\"pending\">
      <JB_job_number>4</JB_job_number>
      <JAT_prio>0.25000</JAT_prio>
      <JB_name>torc-d</JB_name>
      <JB_owner>root</JB_owner>
      <state>Eqw</state>
      <JB_submission_time>2026-11-18T01:18:49</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
    <job_list state=\"pending\">
      <JB_job_number>6</JB_job_number>
      <JAT_prio>0.00000</JAT_prio>
      <JB_name>torc-f</JB_name>
      <JB_owner>root</JB_owner>
      <state>qw</state>
      <JB_submission_time>2026-11-18T01:18:49</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
      <tasks>2</tasks>
    </job_list>
  </job_info>
</job_info>
";

const QACCT: &str = "==============================================================
qname        main.q              
hostname     vm                  
jobname      torc-b              
jobnumber    2                   
taskid       undefined
start_time   Wed Nov 18 01:18:49 2026
end_time     Wed Nov 18 01:18:55 2026
slots        1                   
failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit
exit_status  137                  (Killed)
ru_wallclock 6s
category     -l h_rt=5
==============================================================
qname        main.q              
jobname      torc-f              
jobnumber    6                   
taskid       2                   
failed       100 : assumedly after job
exit_status  137                  (Killed)
ru_wallclock 5s
category     -l h_rt=600 -pe smp 2
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
fn letters_become_verdicts() {
    let rows = rows(Some(0), QSTAT, "").expect("readable");
    let phase = |id: &str, name: &str| {
        let task = id.split_once('_').and_then(|(_, task)| task.parse().ok());
        match observe(&known(Some(id), name, task), &rows, &[], 0).verdict {
            Verdict::Alive { phase, reason } => Some((phase, reason.is_some())),
            _ => None,
        }
    };
    assert_eq!(phase("1", "torc-a"), Some((AllocationPhase::Running, false)));
    assert_eq!(phase("4", "torc-d"), Some((AllocationPhase::Waiting, true)), "it says why");
    assert_eq!(phase("6_1", "torc-f"), Some((AllocationPhase::Waiting, false)));
    assert_eq!(phase("6_0", "torc-f"), None);
    assert_eq!(phase("1", "another"), None, "an id alone proves nothing");
    let found = observe(&known(None, "torc-f", Some(1)), &rows, &[], 0);
    assert_eq!(found.slurm_job_id.as_deref(), Some("6_1"), "found by its name");
    let leaving = Row { id: "1".into(), name: "a".into(), state: "dr".into() };
    assert!(matches!(leaving.verdict(), Verdict::Alive { phase: AllocationPhase::Leaving, .. }));
}

#[test]
fn a_master_that_does_not_answer_is_unknown() {
    let down = "error: commlib error: got select error (Connection refused)\n\
                error: unable to send message to qmaster using port 1 on host \"vm\": got send error\n";
    assert!(rows(Some(1), "", down).is_err());
    assert!(rows(None, "", "").is_err());
    assert!(rows(Some(0), "<job_info>", "").is_err(), "cut off");
}

#[test]
fn accounting_tells_how_it_ended() {
    let records = records(QACCT);
    let ending = |id: &str, name: &str, task| match observe(
        &known(Some(id), name, task),
        &[],
        &records,
        0,
    ) {
        look if look.is_missing => match look.verdict {
            Verdict::Ended(AllocationEnding { cause, state, .. }) => Some((state, cause)),
            _ => None,
        },
        _ => None,
    };
    assert_eq!(ending("2", "torc-b", None), Some(("TIMEOUT".into(), Cause::Walltime)));
    assert_eq!(ending("6_1", "torc-f", Some(1)), Some(("CANCELLED".into(), Cause::Lost)));
    assert_eq!(ending("2", "torc-x", None), None);
    let mut gone = known(Some("9"), "torc-x", None);
    assert!(matches!(observe(&gone, &[], &[], 1_000).verdict, Verdict::Unknown { .. }));
    gone.missing_since_ms = Some(1_000);
    assert!(matches!(observe(&gone, &[], &[], 7_000).verdict, Verdict::Ended(e) if e.is_vanished));
}

#[test]
fn refusals_are_told_from_silence() {
    assert_eq!(submitted(Some(0), "7\n", ""), Submitted::Id("7".into()));
    assert_eq!(submitted(Some(0), "6.1-3:1\n", ""), Submitted::Id("6".into()));
    let queue = "Unable to run job: Job was rejected because job requests unknown queue \"nowhere.q\"\nExiting.\n";
    assert!(
        matches!(submitted(Some(1), "", queue), Submitted::Refused(why) if why.contains("nowhere.q"))
    );
    let down = "error: commlib error: got select error (Connection refused)\n\
                Unable to run job: unable to send message to qmaster using port 1 on host \"vm\": got send error\nExiting.\n";
    assert!(matches!(submitted(Some(1), "", down), Submitted::Ambiguous(_)));
    assert!(matches!(submitted(None, "", ""), Submitted::Ambiguous(_)));
    let full = "Unable to run job: job rejected: only 1 jobs are allowed per user (current job count: 1)\nExiting.\n";
    assert!(matches!(submitted(Some(25), "", full), Submitted::Later(_)));
}

#[test]
fn a_script_says_what_grid_engine_knows_and_refuses_the_rest() {
    let scheduler = SlurmScheduler {
        account: "acct".into(),
        partition: Some("main.q".into()),
        walltime: "00:10:00".into(),
        nodes: 1,
        mem: Some("1g".into()),
        ntasks_per_node: Some(4),
        ..SlurmScheduler::default()
    };
    let script = |scheduler: &SlurmScheduler, count| {
        script(&ScriptInput {
            scheduler,
            defaults: &BTreeMap::new(),
            name: "torc-wf1-chain-0a-0b",
            count,
            at_once: None,
            output_dir: "/my out",
            work_dir: "/w",
            command: &["/opt/torc".into(), "it's".into()],
            one_worker_per_node: false,
            end_seconds: 20,
        })
    };
    assert_eq!(
        script(&scheduler, 1).as_deref(),
        Ok("#!/bin/bash\n\
            #$ -N torc-wf1-chain-0a-0b\n\
            #$ -S /bin/bash\n\
            #$ -A acct\n\
            #$ -q main.q\n\
            #$ -l h_rt=600\n\
            #$ -l mem_free=1024M\n\
            #$ -pe smp 4\n\
            #$ -V\n\
            #$ -r n\n\
            #$ -notify\n\
            #$ -o /dev/null\n\
            #$ -j y\n\
            exec >>'/my out/slurm_output_torc-wf1-chain-0a-0b_sl'\"${JOB_ID}\".o \
            2>>'/my out/slurm_output_torc-wf1-chain-0a-0b_sl'\"${JOB_ID}\".e\n\
            cd /w || exit 1\n\
            trap '' USR2\n\
            unset TORC_TOKEN TORC_TOKEN_FILE\n\
            exec /opt/torc 'it'\\''s'\n")
    );
    let chained = SlurmScheduler { serialize_allocations: true, ..scheduler.clone() };
    let text = script(&chained, 3).unwrap_or_default();
    assert!(text.contains("#$ -t 1-3\n#$ -tc 1\n#$ -hold_jid torc-wf1-chain-0a-*\n"), "{text}");
    let own =
        SlurmScheduler { extra: Some("-pe mpi 4\n#$ -P physics".into()), ..scheduler.clone() };
    let text = script(&own, 1).unwrap_or_default();
    assert!(!text.contains("smp") && text.contains("#$ -pe mpi 4\n#$ -P physics\n"), "{text}");
    for bad in [
        SlurmScheduler { nodes: 2, ..scheduler.clone() },
        SlurmScheduler { gres: Some("gpu:1".into()), ..scheduler.clone() },
        SlurmScheduler { qos: Some("high".into()), ..scheduler.clone() },
        SlurmScheduler { partition: Some("a\nb".into()), ..scheduler.clone() },
        SlurmScheduler { account: "-x".into(), ..scheduler.clone() },
    ] {
        assert!(script(&bad, 1).is_err(), "{bad:?}");
    }
}

#[test]
fn queues_and_hosts_become_a_profile() {
    let hosts = "HOSTNAME                ARCH         NCPU NSOC NCOR NTHR  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS
----------------------------------------------------------------------------------------------
global                  -               -    -    -    -     -       -       -       -       -
vm                      lx-amd64        2    1    2    2  2.47   23.5G    2.7G     0.0     0.0
";
    assert_eq!(host_memory_mb(hosts), 24_064);
    let queue = "qname                 main.q\nhostlist              @allhosts\nslots                 1,[vm=8]\nh_rt                  24:00:00\n";
    let found = partition(queue, 100).expect("a queue");
    assert_eq!((found.name.as_str(), found.cpus_per_node), ("main.q", 8));
    assert_eq!(found.max_walltime.as_deref(), Some("1-00:00:00"));
    let open = partition("qname all.q\nslots 4\nh_rt INFINITY\n", 100).expect("a queue");
    assert_eq!((open.max_walltime, open.cpus_per_node), (None, 4));
    assert!(partition("qname none.q\nslots 0\n", 100).is_none());
}
