//! OpenPBS: runs its programs. Texts are made and read in `text.rs`.
//!
//! Tested with recorded output only: no OpenPBS could be had for the tests.

#[cfg(test)]
mod tests;
pub mod text;

use crate::program::{self, QUERY_LIMIT, SUBMIT_LIMIT, run};
use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::path::Path;

/// Runs the programs of OpenPBS.
#[derive(Clone, Debug)]
pub struct Pbs;

impl Pbs {
    /// Its programs can be found. `qselect` and the absence of `qconf` tell it from Grid Engine.
    pub fn is_here() -> bool {
        let found = ["qsub", "qstat", "qdel", "qselect"].into_iter().all(program::is_found);
        found && !program::is_found("qconf")
    }

    async fn jobs(&self, ids: &[String]) -> Result<Vec<text::Job>, String> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        // `-x`: ended ones as well; `-w`: a value is one line, however long.
        let mut arguments = ["-x", "-f", "-w"].map(str::to_owned).to_vec();
        arguments.extend(ids.iter().map(|id| text::native_id(id)));
        let ran = run("qstat", &arguments, QUERY_LIMIT).await;
        text::jobs(ran.code, &ran.stdout, &ran.stderr)
    }

    async fn named(&self, name: &str) -> Result<Option<String>, String> {
        let arguments = ["-x", "-N", name].map(str::to_owned);
        let ran = run("qselect", &arguments, QUERY_LIMIT).await;
        match ran.code {
            Some(0) => Ok(ran.stdout.lines().find_map(text::number_of)),
            code => Err(format!("qselect ended with {code:?}: {}", ran.stderr.trim())),
        }
    }
}

impl BatchSystem for Pbs {
    fn name(&self) -> &'static str {
        "PBS"
    }

    fn script(&self, submission: &ScriptInput<'_>) -> Result<String, String> {
        text::script(submission)
    }

    async fn submit(&self, script: &Path) -> Submitted {
        let ran = run("qsub", &[script.display().to_string()], SUBMIT_LIMIT).await;
        text::submitted(ran.code, &ran.stdout, &ran.stderr)
    }

    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        self.named(name).await
    }

    async fn look(&self, known: &[Known], now_ms: i64) -> Result<Vec<Look>, String> {
        let mut ids: Vec<String> = known.iter().filter_map(|k| k.slurm_job_id.clone()).collect();
        for lost in known.iter().filter(|known| known.slurm_job_id.is_none()) {
            let task = |number| match lost.array_task {
                Some(task) => format!("{number}_{task}"),
                None => number,
            };
            ids.extend(self.named(&lost.name).await?.map(task));
        }
        let jobs = self.jobs(&ids).await?;
        Ok(known.iter().map(|known| text::observe(known, &jobs, now_ms)).collect())
    }

    async fn cancel(&self, ids: &[String]) {
        let native: Vec<String> = ids.iter().map(|id| text::native_id(id)).collect();
        let ran = run("qdel", &native, QUERY_LIMIT).await;
        if ran.code != Some(0) {
            tracing::warn!(code = ?ran.code, message = ran.stderr.trim(), "qdel failed");
        }
    }
}
