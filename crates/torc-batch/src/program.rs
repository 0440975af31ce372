//! Programs of a batch system: run with a time limit, and without the rights of the caller.

use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Longer than Slurm's own retries with its usual settings; a controller that hangs longer counts
/// as unknown.
pub const QUERY_LIMIT: Duration = Duration::from_secs(45);
/// The same for a submission.
pub const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// No answer that we read is longer.
const MAX_OUTPUT: u64 = 64 << 20;

/// What a program said.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// `None`: it took too long, was killed or could not be started.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The program is on the `PATH`.
pub fn is_found(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Runs a program of a batch system.
pub async fn run(program: &str, arguments: &[String], limit: Duration) -> Ran {
    run_with(program, arguments, &[], "", limit).await
}

/// The same, with these variables and with `input` on its standard input.
pub async fn run_with(
    program: &str,
    arguments: &[String],
    env: &[(&str, &str)],
    input: &str,
    limit: Duration,
) -> Ran {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
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
    let pipe = child.stdin.take();
    let work = async {
        let write = async {
            // A program that does not read to the end has said why.
            if let Some(mut pipe) = pipe {
                let _ = pipe.write_all(input.as_bytes()).await;
            }
        };
        let ((), stdout, stderr, status) = tokio::join!(write, read(out), read(err), child.wait());
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
        tracing::warn!(%error, "an answer of the batch system could not be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
