//! Grid Engine (8.1, Son of Grid Engine): runs its programs. Texts are made and read in `text.rs`.

mod profile;
#[cfg(test)]
mod tests;
pub mod text;

use crate::program::{self, QUERY_LIMIT, SUBMIT_LIMIT, run};
use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::path::Path;
use torc_model::slurm::profile::Profile;

/// Runs Grid Engine's programs.
#[derive(Clone, Debug)]
pub struct GridEngine;

impl GridEngine {
    /// Its programs can be found. `qconf` tells it from other systems that have a `qsub`.
    pub fn is_here() -> bool {
        ["qsub", "qstat", "qdel", "qconf"].into_iter().all(program::is_found)
    }

    /// What it tells about this cluster.
    pub async fn profile(&self) -> Result<Profile, String> {
        profile::derive().await
    }

    async fn rows(&self) -> Result<Vec<text::Row>, String> {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        // Without a name all users' jobs: names of allocations are unique among them.
        let user = user.unwrap_or_else(|_| "*".into());
        let arguments = ["-u", &user, "-g", "d", "-xml"].map(str::to_owned);
        let ran = run("qstat", &arguments, QUERY_LIMIT).await;
        text::rows(ran.code, &ran.stdout, &ran.stderr)
    }

    /// What accounting knows of these jobs; it may know nothing.
    async fn records(&self, numbers: &[String]) -> Vec<text::Record> {
        let mut records = Vec::new();
        for number in numbers {
            let ran = run("qacct", &["-j".to_owned(), number.clone()], QUERY_LIMIT).await;
            records.extend(text::records(&ran.stdout));
        }
        records
    }
}

impl BatchSystem for GridEngine {
    fn name(&self) -> &'static str {
        "Grid Engine"
    }

    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String> {
        text::script(submission)
    }

    async fn submit(&self, script: &Path) -> Submitted {
        let arguments = ["-terse".to_owned(), script.display().to_string()];
        let ran = run("qsub", &arguments, SUBMIT_LIMIT).await;
        text::submitted(ran.code, &ran.stdout, &ran.stderr)
    }

    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        let rows = self.rows().await?;
        let row = rows.iter().find(|row| row.name == name);
        Ok(row.map(|row| row.id.split('_').next().unwrap_or(&row.id).to_owned()))
    }

    async fn look(&self, known: &[Known], now_ms: i64) -> Result<Vec<Look>, String> {
        let rows = self.rows().await?;
        let is_gone = |known: &&Known| text::observe(known, &rows, &[], now_ms).is_missing;
        let mut gone: Vec<String> = known
            .iter()
            .filter(is_gone)
            .filter_map(|known| known.slurm_job_id.as_deref())
            .filter_map(|id| id.split('_').next().map(str::to_owned))
            .collect();
        gone.sort();
        gone.dedup();
        let records = self.records(&gone).await;
        Ok(known.iter().map(|known| text::observe(known, &rows, &records, now_ms)).collect())
    }

    async fn cancel(&self, ids: &[String]) {
        for id in ids {
            let arguments = match id.split_once('_').map(|(job, task)| (job, task.parse::<i64>())) {
                Some((job, Ok(task))) => vec![job.to_owned(), "-t".into(), (task + 1).to_string()],
                _ => vec![id.clone()],
            };
            let ran = run("qdel", &arguments, QUERY_LIMIT).await;
            if ran.code != Some(0) {
                tracing::warn!(code = ?ran.code, id, "qdel failed");
            }
        }
    }
}
