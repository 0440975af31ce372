//! Whether an allocation could still be of use to a job.

use super::script::{memory_bytes, walltime_seconds};
use crate::api::Capacity;
use crate::class::{Class, Room};
use crate::plan::SlurmScheduler;
use crate::units::{Memory, Runtime};
use crate::words;

/// A kind of allocation: how it was asked for, and what is known of those that came.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// The scheduler's id.
    pub scheduler_id: i64,
    /// What was asked for.
    pub scheduler: SlurmScheduler,
    /// Options for every allocation name GPUs.
    pub gpus_by_default: bool,
    /// What a runner in such an allocation had.
    pub seen: Option<Capacity>,
}

impl Kind {
    /// A job of this class could run in such an allocation. In doubt it could.
    pub fn could_run(&self, class: &Class) -> bool {
        class.scheduler == Some(self.scheduler_id) || self.why_not(class).is_none()
    }

    /// Why a job of this class does not fit into such an allocation, although it may have been made
    /// for it. In doubt it fits.
    pub fn why_not(&self, class: &Class) -> Option<String> {
        if let Some(label) = &class.label {
            return Some(format!(
                "it asks for a runner with the label `{label}`, and those in allocations have none"
            ));
        }
        let walltime = walltime_seconds(&self.scheduler.walltime).unwrap_or(u64::MAX);
        if let Some(runtime) = class.runtime.filter(|runtime| *runtime > walltime) {
            let (runtime, walltime) = (Runtime(runtime).friendly(), Runtime(walltime).friendly());
            return Some(format!("it may need {runtime}, and the walltime is {walltime}"));
        }
        match &self.seen {
            Some(capacity) => {
                let room = Room::of(capacity);
                (!room.fits(class)).then(|| match room.lacking(class) {
                    Some(lacks) => format!("it needs {lacks}"),
                    None => "its runners take no job".into(),
                })
            }
            None => self.was_not_asked_for(class),
        }
    }

    /// Slurm may give more CPUs than were asked for, and whole nodes where `mem` says nothing; the
    /// rest is as asked for.
    fn was_not_asked_for(&self, class: &Class) -> Option<String> {
        let asked = &self.scheduler;
        let has_gpus = asked.gres.is_some() || asked.extra.is_some() || self.gpus_by_default;
        let memory = asked.mem.as_deref().and_then(memory_bytes);
        let wanted = class.memory.unwrap_or(0);
        if class.nodes > asked.nodes.max(1) {
            return Some(format!(
                "it needs {}, and `nodes` is {}",
                words::count(class.nodes, "node"),
                asked.nodes.max(1)
            ));
        }
        if class.gpus > 0 && !has_gpus {
            return Some(format!(
                "it needs {}, and no `gres` asks for any",
                words::count(class.gpus, "GPU")
            ));
        }
        let memory = memory.filter(|memory| wanted > *memory)?;
        Some(format!("it needs {} of memory, and `mem` is {}", Memory(wanted), Memory(memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Kind {
        let scheduler = SlurmScheduler {
            name: "s".into(),
            nodes: 1,
            walltime: "01:00:00".into(),
            mem: Some("4g".into()),
            ..SlurmScheduler::default()
        };
        Kind { scheduler_id: 7, scheduler, gpus_by_default: false, seen: None }
    }

    fn small() -> Class {
        Class { cpus: 1, nodes: 1, memory: Some(1 << 30), runtime: Some(600), ..Class::default() }
    }

    #[test]
    fn what_was_asked_for_tells_what_can_not_run() {
        let kind = kind();
        assert!(kind.could_run(&small()));
        assert!(
            kind.could_run(&Class { cpus: 64, ..small() }),
            "Slurm may give more CPUs than that"
        );
        assert!(!kind.could_run(&Class { memory: Some(5 << 30), ..small() }));
        assert!(!kind.could_run(&Class { gpus: 1, ..small() }));
        assert!(!kind.could_run(&Class { nodes: 2, ..small() }));
        assert!(!kind.could_run(&Class { runtime: Some(3601), ..small() }));
        assert!(!kind.could_run(&Class { label: Some("x".into()), ..small() }));
        assert!(
            kind.could_run(&Class { scheduler: Some(8), ..small() }),
            "runners also take what others should"
        );
        assert!(
            kind.could_run(&Class { gpus: 1, scheduler: Some(7), ..small() }),
            "it was made for it"
        );
    }

    #[test]
    fn in_doubt_it_could_run() {
        let with_extra = SlurmScheduler {
            extra: Some("--gpus=1".into()),
            mem: Some("0".into()),
            ..kind().scheduler
        };
        let kind = Kind { scheduler: with_extra, ..kind() };
        assert!(kind.could_run(&Class { gpus: 1, memory: Some(1 << 50), ..small() }));
    }

    #[test]
    fn what_came_counts_more_than_what_was_asked_for() {
        let seen =
            Capacity { num_cpus: 4, memory_bytes: 4 << 30, num_nodes: 1, ..Capacity::default() };
        let kind = Kind { seen: Some(seen), ..kind() };
        assert!(kind.could_run(&small()));
        assert!(!kind.could_run(&Class { cpus: 5, ..small() }));
    }
}
