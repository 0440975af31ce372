//! Slurm's programs: run with a time limit, read with the parsers of the model.

use crate::program::{self, QUERY_LIMIT, SUBMIT_LIMIT, run, run_with};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use torc_model::slurm::squeue::Submitted;
use torc_model::slurm::{cluster, parse_clock, sacct, squeue, test_only};

/// Runs Slurm's programs.
#[derive(Clone, Debug)]
pub struct Slurm {
    user: String,
}

impl Default for Slurm {
    fn default() -> Self {
        Self::new()
    }
}

impl Slurm {
    /// For the user that we are.
    pub fn new() -> Self {
        Self { user: rustix::process::getuid().as_raw().to_string() }
    }

    /// `sbatch` and `squeue` can be found.
    pub fn is_here() -> bool {
        program::is_found("sbatch") && program::is_found("squeue")
    }

    /// Every job of ours, ended ones included.
    pub async fn queue(&self) -> squeue::Answer {
        let ran = run("squeue", &squeue::arguments(&self.user), QUERY_LIMIT).await;
        squeue::read(ran.code, &ran.stdout, &ran.stderr)
    }

    /// What accounting knows of these jobs.
    pub async fn accounting(&self, ids: &[String]) -> sacct::Answer {
        if ids.is_empty() {
            return sacct::Answer::Records(Vec::new());
        }
        let ran = run("sacct", &sacct::arguments(ids), QUERY_LIMIT).await;
        sacct::read(ran.code, &ran.stdout, &ran.stderr)
    }

    /// Submits a script.
    pub(super) async fn sbatch(&self, script: &Path) -> Submitted {
        let arguments = ["--parsable".to_owned(), script.display().to_string()];
        let ran = run("sbatch", &arguments, SUBMIT_LIMIT).await;
        squeue::submitted(ran.code, &ran.stdout, &ran.stderr)
    }

    /// When Slurm would start a job with this script, as far as it can tell now. Submits nothing.
    pub async fn test_only(&self, script: &str) -> test_only::Start {
        let arguments = ["--test-only".to_owned()];
        let ran = run_with("sbatch", &arguments, &[], script, QUERY_LIMIT).await;
        test_only::read(ran.code, &ran.stderr)
    }

    /// Asks Slurm to end these jobs. Whether it did, only a later look tells. Without `--state` or
    /// `--name`: with any such filter Slurm 22.05 cancels all waiting tasks of an array instead of
    /// the one that was named.
    pub(super) async fn scancel(&self, ids: &[String]) {
        let ran = run("scancel", ids, QUERY_LIMIT).await;
        if ran.code != Some(0) {
            tracing::warn!(code = ?ran.code, message = squeue::last_line(&ran.stderr), "scancel failed");
        }
    }

    /// Seconds that a running job has left; `None` when Slurm does not say.
    pub async fn time_left(&self, id: &str) -> Option<Option<u64>> {
        let arguments = ["-h", "-j", id, "-o", "%L|%e"].map(str::to_owned);
        // Whatever format the user has set.
        let seconds = [("SLURM_TIME_FORMAT", "%s")];
        let ran = run_with("squeue", &arguments, &seconds, "", QUERY_LIMIT).await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        parse_left(ran.stdout.lines().next()?, now)
    }

    /// What `scontrol show ...` prints, or why it does not.
    pub async fn show(&self, what: &str) -> Result<String, String> {
        let arguments = ["-o", "show", what].map(str::to_owned);
        let ran = run("scontrol", &arguments, QUERY_LIMIT).await;
        match ran.code {
            Some(0) => Ok(ran.stdout),
            Some(code) => {
                Err(format!("scontrol ended with {code}: {}", squeue::last_line(&ran.stderr)))
            }
            None => Err(format!("scontrol did not answer: {}", squeue::last_line(&ran.stderr))),
        }
    }

    /// The nodes of a list such as `n[1-3,7]`.
    pub async fn host_names(&self, list: &str) -> Result<Vec<String>, String> {
        let arguments = ["show", "hostnames", list].map(str::to_owned);
        let ran = run("scontrol", &arguments, QUERY_LIMIT).await;
        match ran.code {
            Some(0) => Ok(ran.stdout.lines().map(|line| line.trim().to_owned()).collect()),
            _ => Err(format!(
                "the nodes of `{list}` are unknown: {}",
                squeue::last_line(&ran.stderr)
            )),
        }
    }

    /// Seconds between TERM and KILL when Slurm ends a job.
    pub async fn kill_wait(&self) -> Option<Duration> {
        let config = cluster::config(&self.show("config").await.ok()?);
        let seconds = config.get("KillWait")?.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// `LEFT|END`, the end in seconds since 1970. What is left follows from the time limit in whole
/// minutes; an operator may have set an earlier end.
fn parse_left(line: &str, now: u64) -> Option<Option<u64>> {
    let (left, end) = line.trim().split_once('|')?;
    let by_limit = parse_clock(left)?;
    let by_end = end.trim().parse::<u64>().ok().map(|end| end.saturating_sub(now));
    Some(by_limit.map(|left| by_end.map_or(left, |end| left.min(end))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_of_limit_and_end_counts() {
        assert_eq!(parse_left("2:49|1100", 1000), Some(Some(100)));
        assert_eq!(parse_left("1:00|5000", 1000), Some(Some(60)));
        assert_eq!(parse_left("1:00|900", 1000), Some(Some(0)), "it is over");
        assert_eq!(parse_left("1:00|N/A", 1000), Some(Some(60)));
        assert_eq!(parse_left("UNLIMITED|5000", 1000), Some(None));
        assert_eq!(parse_left("", 1000), None);
    }
}
