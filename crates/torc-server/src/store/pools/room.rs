//! What of a pool runner is in use, and what is left of it for a workflow.

use super::{Member, Workflows};
use torc_model::api::Capacity;
use torc_model::ids::WorkflowId;

/// What of a pool runner is in use.
#[derive(Default, Debug)]
pub struct Load {
    cpus: i64,
    memory: i64,
    jobs: i64,
    gpus: i64,
    /// GPUs go to one workflow at a time: each runner chooses among all of them by itself.
    gpus_of: Option<WorkflowId>,
}

impl Load {
    /// Nothing more can start.
    pub fn is_full(&self, capacity: &Capacity) -> bool {
        capacity.max_parallel_jobs.is_some_and(|most| self.jobs >= most)
            || !capacity.ignore_resources && self.cpus >= capacity.num_cpus
    }
}

/// What the runners of a pool runner hold, but for that of one workflow.
pub fn load(member: &Member, workflows: &Workflows, without: Option<WorkflowId>) -> Load {
    let mut load = Load::default();
    for (id, runner) in &member.runners {
        let Some(workflow) = workflows.get(id).filter(|_| Some(*id) != without) else { continue };
        for index in workflow.held_by(*runner) {
            let class = workflow.class_of(index);
            load.cpus += i64::from(class.cpus);
            let memory = i64::try_from(class.memory.unwrap_or(0)).unwrap_or(i64::MAX);
            load.memory = load.memory.saturating_add(memory);
            load.jobs += 1;
            if class.gpus > 0 {
                load.gpus_of = Some(*id);
                load.gpus += i64::from(class.gpus);
            }
        }
    }
    load
}

/// What is left of a capacity for a workflow.
pub fn rest(capacity: &Capacity, load: &Load, workflow: WorkflowId) -> Capacity {
    let has_gpus = load.gpus_of.is_none_or(|other| other == workflow);
    Capacity {
        num_cpus: (capacity.num_cpus - load.cpus).max(0),
        memory_bytes: (capacity.memory_bytes - load.memory).max(0),
        num_gpus: if has_gpus { (capacity.num_gpus - load.gpus).max(0) } else { 0 },
        max_parallel_jobs: capacity.max_parallel_jobs.map(|most| (most - load.jobs).max(0)),
        ..capacity.clone()
    }
}
