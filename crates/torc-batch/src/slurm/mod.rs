//! Slurm, for real: runs its programs. Texts are made and read in `torc_model::slurm`.

mod command;
mod profiles;
mod regenerate;

pub use command::Slurm;
pub use profiles::{
    all as all_profiles, derive as derive_profile, detect as detect_profile, find as find_profile,
};
pub use regenerate::{Regeneration, pending_jobs, plan as plan_regeneration};

use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::path::Path;
use torc_model::slurm::squeue::Answer;
use torc_model::slurm::{AllocationPhase, Verdict, observe, script};

impl BatchSystem for Slurm {
    fn name(&self) -> &'static str {
        "Slurm"
    }

    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String> {
        script::render(submission).map_err(|error| error.to_string())
    }

    async fn submit(&self, script: &Path) -> Submitted {
        self.sbatch(script).await
    }

    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        match self.queue().await {
            Answer::Unreachable(why) => Err(why),
            Answer::Rows(rows) => {
                let row = rows.iter().find(|row| row.is_of(name));
                Ok(row.map(|row| row.id.split('_').next().unwrap_or(&row.id).to_owned()))
            }
        }
    }

    async fn look(&self, known: &[Known], now_ms: i64) -> Result<Vec<Look>, String> {
        let queue = self.queue().await;
        if let Answer::Unreachable(why) = queue {
            return Err(why);
        }
        // What is not in the queue, and what waits in it although it has run: only accounting knows
        // why.
        let has_ended = |known: &&Known| {
            let look = observe(known, &queue, None, now_ms);
            let waits =
                matches!(look.verdict, Verdict::Alive { phase: AllocationPhase::Waiting, .. });
            look.is_missing || waits && known.has_started
        };
        let ended: Vec<String> =
            known.iter().filter(has_ended).filter_map(|known| known.slurm_job_id.clone()).collect();
        let accounting = match ended.is_empty() {
            true => None,
            false => Some(self.accounting(&ended).await),
        };
        Ok(known.iter().map(|known| observe(known, &queue, accounting.as_ref(), now_ms)).collect())
    }

    async fn cancel(&self, ids: &[String]) {
        self.scancel(ids).await;
    }
}
