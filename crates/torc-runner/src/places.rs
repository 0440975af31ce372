//! Where a job runs, in the words of Slurm and of MPI: the environment that `srun` and `mpirun` go by.

use std::collections::BTreeMap;

/// Names the nodes of a job.
pub const NODELIST: &str = "TORC_NODELIST";

/// Options that Open MPI's `mpirun` passes on to `srun`: its own name of them, and that since version 5.
const MPI_ARGS: [&str; 2] = ["OMPI_MCA_plm_slurm_args", "PRTE_MCA_plm_slurm_args"];

/// Where a job in an allocation of several nodes finds its own: as if they were the whole allocation, so
/// that `mpirun` starts its ranks there and nowhere else. `srun` takes nodes only as an option.
pub fn add_places(env: &mut BTreeMap<String, String>, places: &[(String, i64)]) {
    add_with(env, places, |name| std::env::var(name).ok());
}

fn add_with(
    env: &mut BTreeMap<String, String>,
    places: &[(String, i64)],
    inherited: impl Fn(&str) -> Option<String>,
) {
    let names: Vec<&str> = places.iter().map(|(name, _)| name.as_str()).collect();
    let (list, count) = (names.join(","), places.len().to_string());
    let cpus: Vec<i64> = places.iter().map(|(_, cpus)| *cpus).collect();
    let (tasks, per_node) = (cpus.iter().sum::<i64>().to_string(), per_node(&cpus));
    env.insert(NODELIST.into(), list.clone());
    env.insert("TORC_NUM_NODES".into(), count.clone());
    let mut add = |name: &str, value: &str| {
        // What the spec says wins.
        env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    // The agents of the runner hold all CPUs of the nodes; steps of the job share them.
    add("SLURM_OVERLAP", "1");
    for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
        add(name, &list);
    }
    for name in ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"] {
        add(name, &count);
    }
    for name in ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"] {
        add(name, &per_node);
    }
    for name in ["SLURM_NTASKS", "SLURM_NPROCS"] {
        add(name, &tasks);
    }
    // Else `srun` warns of the number that the batch script asked for.
    if let [(_, each), rest @ ..] = places
        && rest.iter().all(|(_, cpus)| cpus == each)
    {
        add("SLURM_NTASKS_PER_NODE", &each.to_string());
    }
    // It names no nodes to `srun` when it uses all that it believes to have.
    for name in MPI_ARGS {
        let site = inherited(name).map(|site| format!("{site} ")).unwrap_or_default();
        add(name, &format!("{site}--nodelist={list}"));
    }
}

/// As Slurm writes it: `4(x2),8`.
fn per_node(cpus: &[i64]) -> String {
    let text = |run: &[i64]| match run {
        [one] => one.to_string(),
        several => format!("{}(x{})", several[0], several.len()),
    };
    cpus.chunk_by(|a, b| a == b).map(text).collect::<Vec<_>>().join(",")
}

/// What Slurm tells the tasks of a step. An agent is one; the jobs that it starts are not, and neither
/// `srun` nor `mpirun` in a job may take the agent's numbers for the job's. The number of the step
/// stays where the step is the job's own.
pub fn is_of_a_step(name: &str, is_own: bool) -> bool {
    const BEGINNINGS: [&str; 4] =
        ["SLURM_STEP_", "SLURM_SRUN_", "SLURM_CPU_BIND", "SLURM_MEM_BIND"];
    const NAMES: [&str; 14] = [
        "SLURM_STEPID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_GTIDS",
        "SLURM_NODEID",
        "SLURM_TASK_PID",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_DISTRIBUTION",
        "SLURM_CPUS_PER_TASK",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NNODES",
    ];
    let is_kept = is_own && name == "SLURM_STEP_ID";
    let is_named = NAMES.contains(&name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin));
    is_named && !is_kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_its_nodes_as_if_they_were_the_allocation() {
        let places = [("n2".to_owned(), 4), ("n3".to_owned(), 4), ("n4".to_owned(), 8)];
        let mut env = BTreeMap::from([("SLURM_NTASKS".to_owned(), "2".to_owned())]);
        let site = |name: &str| (name == MPI_ARGS[0]).then(|| "--mem=0".to_owned());
        add_with(&mut env, &places, site);
        for (name, value) in [
            ("TORC_NODELIST", "n2,n3,n4"),
            ("TORC_NUM_NODES", "3"),
            ("SLURM_JOB_NODELIST", "n2,n3,n4"),
            ("SLURM_NNODES", "3"),
            ("SLURM_TASKS_PER_NODE", "4(x2),8"),
            ("SLURM_NPROCS", "16"),
            ("OMPI_MCA_plm_slurm_args", "--mem=0 --nodelist=n2,n3,n4"),
            ("PRTE_MCA_plm_slurm_args", "--nodelist=n2,n3,n4"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(env["SLURM_NTASKS"], "2", "what the spec says stays");
    }

    #[test]
    fn a_job_inherits_nothing_of_the_step_that_its_agent_is() {
        for name in ["SLURM_NTASKS", "SLURM_STEP_NODELIST", "SLURM_CPU_BIND_TYPE", "SLURM_STEPID"] {
            assert!(is_of_a_step(name, false) && is_of_a_step(name, true), "{name}");
        }
        for name in ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "PATH"] {
            assert!(!is_of_a_step(name, false), "{name}");
        }
        assert!(is_of_a_step("SLURM_STEP_ID", false) && !is_of_a_step("SLURM_STEP_ID", true));
    }
}
