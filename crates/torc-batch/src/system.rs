//! The batch system of the machine that we are on: one of those that Torc speaks.

use crate::gridengine::GridEngine;
use crate::pbs::Pbs;
use crate::slurm::{Slurm, all_profiles, derive_profile};
use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::path::Path;
use torc_model::slurm::profile::Profile;

/// Names the batch system where several have their programs on the `PATH`.
pub const VARIABLE: &str = "TORC_BATCH_SYSTEM";

/// A batch system that Torc speaks.
#[derive(Clone, Debug)]
pub enum System {
    /// Slurm, asked by `sbatch`, `squeue`, `sacct` and `scancel`.
    Slurm(Slurm),
    /// Grid Engine.
    GridEngine(GridEngine),
    /// OpenPBS, asked by `qsub`, `qstat` and `qdel`.
    Pbs(Pbs),
}

impl System {
    /// The one that `TORC_BATCH_SYSTEM` names, else the first whose programs are here; `None` where
    /// there is none. The error is about the variable.
    pub fn here() -> Result<Option<Self>, String> {
        match std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()) {
            Some(name) => Self::named(&name).map(Some),
            None if Slurm::is_here() => Ok(Some(Self::Slurm(Slurm::new()))),
            None if GridEngine::is_here() => Ok(Some(Self::GridEngine(GridEngine))),
            None if Pbs::is_here() => Ok(Some(Self::Pbs(Pbs))),
            None => Ok(None),
        }
    }

    fn named(name: &str) -> Result<Self, String> {
        match name {
            "slurm" => Ok(Self::Slurm(Slurm::new())),
            "gridengine" => Ok(Self::GridEngine(GridEngine)),
            "pbs" => Ok(Self::Pbs(Pbs)),
            other => Err(format!(
                "`{VARIABLE}` is `{other}`, which is no batch system that Torc speaks (known: slurm, gridengine, pbs)"
            )),
        }
    }

    /// The profile of the cluster: by its environment, else by asking the batch system.
    pub async fn profile(&self) -> Result<Profile, String> {
        let here = all_profiles()?.into_iter().find(|p| p.is_here(|name| std::env::var(name).ok()));
        if let Some(profile) = here {
            return Ok(profile);
        }
        match self {
            Self::Slurm(slurm) => derive_profile(slurm, None).await,
            Self::GridEngine(engine) => engine.profile().await,
            Self::Pbs(_) => Err("PBS is not asked what its queues offer".into()),
        }
    }
}

impl BatchSystem for System {
    fn name(&self) -> &'static str {
        match self {
            Self::Slurm(system) => system.name(),
            Self::GridEngine(system) => system.name(),
            Self::Pbs(system) => system.name(),
        }
    }

    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String> {
        match self {
            Self::Slurm(system) => system.script(submission),
            Self::GridEngine(system) => system.script(submission),
            Self::Pbs(system) => system.script(submission),
        }
    }

    async fn submit(&self, script: &Path) -> Submitted {
        match self {
            Self::Slurm(system) => system.submit(script).await,
            Self::GridEngine(system) => system.submit(script).await,
            Self::Pbs(system) => system.submit(script).await,
        }
    }

    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        match self {
            Self::Slurm(system) => system.find(name).await,
            Self::GridEngine(system) => system.find(name).await,
            Self::Pbs(system) => system.find(name).await,
        }
    }

    async fn look(&self, known: &[Known], now_ms: i64) -> Result<Vec<Look>, String> {
        match self {
            Self::Slurm(system) => system.look(known, now_ms).await,
            Self::GridEngine(system) => system.look(known, now_ms).await,
            Self::Pbs(system) => system.look(known, now_ms).await,
        }
    }

    async fn cancel(&self, ids: &[String]) {
        match self {
            Self::Slurm(system) => system.cancel(ids).await,
            Self::GridEngine(system) => system.cancel(ids).await,
            Self::Pbs(system) => system.cancel(ids).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_batch_system_is_refused_with_those_that_are() {
        assert!(matches!(System::named("gridengine"), Ok(System::GridEngine(_))));
        let refused = System::named("lsf").expect_err("unknown");
        assert!(refused.contains("slurm, gridengine, pbs"), "{refused}");
    }
}
