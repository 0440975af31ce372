//! One call of an agent: our MCP server on loopback, a private working directory, a time limit, and
//! logs.

use super::agents::{Agent, fill, fill_value};
use super::prompt;
use crate::cli::mcp::{SlurmCluster, new_token};
use crate::cli::person;
use crate::error::{Error, Result};
use crate::output::human;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use torc_client::{Client, Query};
use torc_mcp::{HttpServer, Journal, Server, Settings, Toolset, guidance};
use torc_model::api::WorkflowView;

/// Variables that would give the agent a way to Torc's server besides the two tools.
const HIDDEN: [&str; 5] =
    ["TORC_TOKEN", "TORC_TOKEN_FILE", "TORC_API_URL", "TORC_DIR", "TORC_FORMAT"];

/// How far an agent may go.
pub struct AgentLimits {
    /// It is stopped after this long.
    pub time: Duration,
    /// It may call tools this often.
    pub calls: u64,
    /// Where its words go.
    pub log_dir: PathBuf,
}

/// Starts the agent and waits for its end, which is told in a few words.
pub async fn run(
    client: &Client,
    workflow: &WorkflowView,
    agent: &Agent,
    limits: &AgentLimits,
) -> Result<String> {
    make_private_dir(&limits.log_dir)?;
    // Short-lived, and not where the user's own settings of the agent would be found.
    let work = WorkDir::make()?;
    let guidance = guidance::load().map_err(Error::usage)?;
    let waiting = client
        .pending_failures(workflow.id, &Query::new().add("groups", 1).add("examples", 0))
        .await?;
    let text = prompt::task(
        workflow,
        waiting.pending_failed_count,
        waiting.confidence_threshold,
        &guidance,
    );
    let calls = limits.log_dir.join("calls.jsonl");
    let journal =
        Arc::new(Journal::create(&calls, limits.calls).map_err(Error::io("write", &calls))?);
    let token = new_token()?;
    let server = Server::new(Settings {
        toolset: Toolset::Unattended,
        workflow: Some(workflow.id),
        agent: agent.name.clone(),
        by: person::name(),
        guidance,
        backend: Arc::new(client.clone()),
        cluster: Some(Arc::new(SlurmCluster)),
        journal: journal.clone(),
    });
    let http =
        HttpServer::start(server, 0, &token).await.map_err(Error::io("listen on", "127.0.0.1"))?;
    let prompt_file = limits.log_dir.join("prompt.txt");
    write_private(&prompt_file, text.as_bytes())?;
    let torc = std::env::current_exe().map_err(Error::io("find", "the program"))?;
    let (url, id) = (http.url(), workflow.id.to_string());
    let values = [
        ("prompt", text.as_str()),
        ("prompt_file", &*prompt_file.to_string_lossy()),
        ("mcp_url", &url),
        ("mcp_token", &token),
        ("work_dir", &*work.path.to_string_lossy()),
        ("workflow_id", &id),
        ("torc", &*torc.to_string_lossy()),
        ("agents_dir", &*agent.dir.to_string_lossy()),
    ];
    let ended = start_and_wait(agent, &values, &work.path, limits, &journal).await;
    http.stop().await;
    let how = ended?;
    Ok(format!("{how} after {}", human::count(journal.calls(), "call")))
}

async fn start_and_wait(
    agent: &Agent,
    values: &[(&str, &str)],
    work: &Path,
    limits: &AgentLimits,
    journal: &Journal,
) -> Result<String> {
    for (name, content) in &agent.files {
        let path = work.join(name);
        if let Some(parent) = path.parent() {
            make_private_dir(parent)?;
        }
        let text = match fill_value(content, values) {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        write_private(&path, text.as_bytes())?;
    }
    let filled: Vec<String> = agent.command.iter().map(|part| fill(part, values)).collect();
    let Some((program, arguments)) = filled.split_first() else {
        return Err(Error::usage(format!("agent `{}` has no command", agent.name)));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(work)
        .envs(agent.env.iter().map(|(name, value)| (name, fill(value, values))))
        .stdin(Stdio::piped())
        .stdout(log_file(&limits.log_dir.join("stdout.txt"))?)
        .stderr(log_file(&limits.log_dir.join("stderr.txt"))?)
        .process_group(0);
    for name in HIDDEN {
        command.env_remove(name);
    }
    let child = command.spawn().map_err(Error::io("start", program))?;
    let mut group = Group { child };
    forbid_core_dump(&group.child);
    if let Some(mut stdin) = group.child.stdin.take() {
        let text = agent.stdin.as_ref().map(|text| fill(text, values)).unwrap_or_default();
        // Closed at once when there is nothing to read; an agent that does not read is no error.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
    tokio::select! {
        ended = group.child.wait() => match ended {
            Ok(status) => Ok(format!("ended ({status})")),
            Err(error) => Err(Error::io("wait for", program)(error)),
        },
        () = tokio::time::sleep(limits.time) => Ok(format!("was stopped after {} s", limits.time.as_secs())),
        () = journal.overrun() => Ok(format!("was stopped: it may call {} and would not end", human::count(limits.calls, "time"))),
    }
}

/// A core dump of the agent would hold its keys and the token of its server. What it starts later
/// inherits the limit.
fn forbid_core_dump(agent: &Child) {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let pid = agent.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid
        && let Err(error) = prlimit(Some(pid), Resource::Core, none)
        // One that has ended already leaves none.
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(%error, "an agent may leave a core dump");
    }
}

/// The agent and everything it started; all of it ends when this is dropped.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Only while the leader is not reaped: its number could be another's by then.
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // It may have ended by itself a moment ago.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// A private directory that goes with its owner.
struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    fn make() -> Result<Self> {
        let name = format!("torc-agent-{}-{}", std::process::id(), &new_token()?[..12]);
        let path = std::env::temp_dir().join(name);
        make_private_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // What is left in a temporary directory costs only disk space; the token in it is
        // already dead.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn make_private_dir(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    torc_fs::make_private_dir(path).map_err(Error::io("create", path))
}

fn log_file(path: &Path) -> Result<File> {
    torc_fs::append_private(path)
        .and_then(|file| file.set_len(0).map(|()| file))
        .map_err(Error::io("write", path))
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write as _;
    log_file(path)?.write_all(bytes).map_err(Error::io("write", path))
}
