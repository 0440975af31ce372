use super::*;
use crate::units::Runtime;

fn needs(name: &str, cpus: u32, memory_mb: u64, minutes: u64) -> Requirements {
    Requirements {
        name: name.into(),
        num_cpus: cpus,
        memory: Some(Memory(memory_mb << 20)),
        runtime: Some(Runtime(minutes * 60)),
        ..Requirements::default()
    }
}

fn job(name: &str, requirements: &Requirements, depends_on: &[usize]) -> PendingJob {
    PendingJob {
        name: name.into(),
        requirements: requirements.clone(),
        depends_on: depends_on.to_vec(),
    }
}

fn profile(shared: bool) -> Profile {
    let partition = Partition {
        name: "main".into(),
        cpus_per_node: 4,
        memory_mb: 4000,
        max_walltime: Some("04:00:00".into()),
        shared,
        ..Partition::default()
    };
    Profile {
        name: "lab".into(),
        display_name: String::new(),
        detect: vec![],
        partitions: vec![partition],
    }
}

#[test]
fn groups_follow_needs_and_dependencies() {
    let (small, gpu) = (needs("default", 1, 100, 10), needs("gpu", 2, 100, 10));
    let jobs =
        [job("a", &small, &[]), job("b", &small, &[]), job("c", &small, &[0]), job("d", &gpu, &[])];
    let groups: Vec<_> = scheduler_groups(&jobs)
        .into_iter()
        .map(|g| (g.requirements.name.clone(), g.has_dependencies, g.jobs().collect::<Vec<_>>()))
        .collect();
    assert_eq!(
        groups,
        vec![
            ("default".into(), false, vec![0, 1]),
            ("default".into(), true, vec![2]),
            ("gpu".into(), false, vec![3])
        ]
    );
}

#[test]
fn a_chain_in_one_group_asks_again_for_each_link() {
    let small = needs("s", 1, 100, 10);
    let jobs = [
        job("a", &small, &[]),
        job("b", &small, &[0]),
        job("c", &small, &[1]),
        job("d", &small, &[2]),
    ];
    let planned = plan(&jobs, &profile(true), &Options::default()).expect("fits");
    assert_eq!(planned.len(), 2);
    assert_eq!(planned[1].scheduler.name, "s_deferred_scheduler");
    assert_eq!(planned[1].levels, vec![vec![1], vec![2], vec![3]]);
    assert_eq!(planned[1].allocations, vec![1, 1, 1]);
}

#[test]
fn counts_follow_the_walltime_that_is_asked_for() {
    let small = needs("s", 1, 500, 60);
    let jobs: Vec<_> = (0..100).map(|i| job(&format!("j{i}"), &small, &[])).collect();
    let planned = plan(&jobs, &profile(false), &Options::default()).expect("fits");
    // 4 per node, one round in 91 minutes.
    assert_eq!((planned[0].jobs_at_once, planned[0].rounds, planned[0].allocations[0]), (4, 1, 25));
    assert_eq!(planned[0].scheduler.walltime, "01:31:00");
    assert_eq!(planned[0].scheduler.mem.as_deref(), Some("4000m"));
    let long = Options { use_max_walltime: true, ..Options::default() };
    let planned = plan(&jobs, &profile(false), &long).expect("fits");
    assert_eq!((planned[0].rounds, planned[0].allocations[0]), (3, 9));
    assert!((planned[0].cost().node_hours - 36.0).abs() < 1e-9);
}

#[test]
fn one_allocation_of_many_nodes_and_jobs_of_many_nodes() {
    let small = needs("s", 2, 500, 60);
    let jobs: Vec<_> = (0..6).map(|i| job(&format!("j{i}"), &small, &[])).collect();
    let single = Options { single_allocation: true, ..Options::default() };
    let planned = plan(&jobs, &profile(false), &single).expect("fits");
    assert_eq!((planned[0].scheduler.nodes, planned[0].allocations[0]), (3, 1));
    assert!(planned[0].start_one_worker_per_node);
    let wide = Requirements { num_nodes: 2, ..small };
    let planned =
        plan(&[job("w", &wide, &[])], &profile(false), &Options::default()).expect("fits");
    assert_eq!((planned[0].scheduler.nodes, planned[0].jobs_at_once), (2, 1));
}

#[test]
fn a_shared_node_is_asked_for_what_is_needed() {
    let small = needs("s", 1, 500, 10);
    let planned =
        plan(&[job("a", &small, &[])], &profile(true), &Options::default()).expect("fits");
    assert_eq!(planned[0].scheduler.ntasks_per_node, Some(1));
    assert_eq!(planned[0].scheduler.mem.as_deref(), Some("756m"));
}

#[test]
fn jobs_of_a_partition_can_share_its_allocations() {
    let (small, large) = (needs("small", 1, 500, 10), needs("large", 2, 1000, 30));
    let mut jobs: Vec<_> = (0..4).map(|i| job(&format!("s{i}"), &small, &[])).collect();
    jobs.extend((0..2).map(|i| job(&format!("l{i}"), &large, &[])));
    jobs.push(job("last", &small, &[0]));
    let by = |group_by| {
        let options = Options { group_by, ..Options::default() };
        plan(&jobs, &profile(false), &options).expect("fits")
    };
    assert_eq!(by(GroupBy::Requirement).len(), 3);
    let planned = by(GroupBy::Partition);
    assert_eq!(planned.len(), 2, "{planned:#?}");
    assert_eq!(planned[0].scheduler.name, "main_scheduler");
    assert_eq!(planned[0].scheduler.walltime, "00:46:00");
    // A quarter of a node for 10 minutes each, four rounds; a half for 30, one round.
    assert_eq!((planned[0].allocations.as_slice(), planned[0].job_count()), ([2].as_slice(), 6));
    assert_eq!(planned[1].levels, vec![vec![6]]);
}

#[test]
fn a_walltime_that_is_named_is_asked_for_or_refused() {
    let small = needs("s", 1, 500, 60);
    let with = |hours: u64, minutes: u64| {
        let walltime_seconds = Some(hours * 3600 + minutes * 60);
        let options = Options { walltime_seconds, ..Options::default() };
        plan(&[job("a", &small, &[])], &profile(false), &options)
    };
    let planned = with(3, 0).expect("fits");
    assert_eq!((planned[0].scheduler.walltime.as_str(), planned[0].rounds), ("03:00:00", 2));
    assert!(with(1, 0).unwrap_err()[0].contains("too short"), "{:?}", with(1, 0));
    assert!(with(9, 0).is_err(), "the partition allows four hours");
}

#[test]
fn what_fits_nowhere_is_named() {
    let errors =
        plan(&[job("a", &needs("huge", 64, 1, 1), &[])], &profile(true), &Options::default())
            .unwrap_err();
    assert!(errors[0].contains("64 CPUs, a node has 4"), "{errors:?}");
}

#[test]
fn a_long_chain_does_not_overflow() {
    let small = needs("s", 1, 100, 10);
    let jobs: Vec<_> = (0..20_000usize)
        .rev()
        .map(|i| job("x", &small, &if i == 0 { vec![] } else { vec![20_000 - i] }))
        .collect();
    assert_eq!(scheduler_groups(&jobs).iter().map(|g| g.levels.len()).sum::<usize>(), 20_000);
}
