//! Slurm's programs: run with a time limit, read with the parsers of the model.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt as _;
use torc_model::slurm::squeue::Submitted;
use torc_model::slurm::{cluster, parse_clock, sacct, squeue};

/// Longer than Slurm's own retries with its usual settings; a controller that hangs longer counts
/// as unknown.
const QUERY_LIMIT: Duration = Duration::from_secs(45);
const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// No answer of Slurm that we read is longer.
const MAX_OUTPUT: u64 = 64 << 20;

/// Runs Slurm's programs.
#[derive(Clone, Debug)]
pub struct Slurm {
    user: String,
}

/// What a program said.
#[derive(Clone, Debug, Default)]
struct Ran {
    /// `None`: it took too long, was killed or could not be started.
    code: Option<i32>,
    stdout: String,
    stderr: String,
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
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
        found("sbatch") && found("squeue")
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
        let ran = run_with("squeue", &arguments, &seconds, QUERY_LIMIT).await;
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

async fn run(program: &str, arguments: &[String], limit: Duration) -> Ran {
    run_with(program, arguments, &[], limit).await
}

async fn run_with(
    program: &str,
    arguments: &[String],
    env: &[(&str, &str)],
    limit: Duration,
) -> Ran {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // Inside an allocation its own settings must not become those of the jobs it asks for; nor may
    // our rights.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_slurm =
            (text.starts_with("SLURM_") && text != "SLURM_CONF") || text.starts_with("SBATCH_");
        if of_slurm || text == "TORC_TOKEN" || text == "TORC_TOKEN_FILE" {
            command.env_remove(&name);
        }
    }
    command.envs(env.iter().copied());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Ran {
                stderr: format!("{program} could not be started: {error}"),
                ..Ran::default()
            };
        }
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let (stdout, stderr, status) = tokio::join!(read(out), read(err), child.wait());
        (stdout, stderr, status.ok().and_then(|s| s.code()))
    };
    match tokio::time::timeout(limit, work).await {
        Ok((stdout, stderr, code)) => Ran { code, stdout, stderr },
        Err(_) => Ran {
            stderr: format!("{program} took longer than {} s", limit.as_secs()),
            ..Ran::default()
        },
    }
}

async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe
        && let Err(error) = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes).await
    {
        tracing::warn!(%error, "an answer of Slurm could not be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
