//! Agents as data: how each one is started with nothing but our two tools. A site adds its own in a
//! file.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The agents that come with the program.
const SHIPPED: &str = include_str!("agents.json");

/// Names another file with agents.
const ENV_FILE: &str = "TORC_AGENTS";

/// How to start an agent. In every text `{prompt}`, `{prompt_file}`, `{mcp_url}`, `{mcp_token}`,
/// `{work_dir}`, `{workflow_id}`, `{torc}` and `{agents_dir}` are filled in.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// The directory of the file that describes it; what comes with the program has none.
    #[serde(skip)]
    pub dir: PathBuf,
    /// A call that succeeds when the agent is installed.
    #[serde(default)]
    check: Vec<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What it reads on standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Environment besides the user's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Files that are written into its working directory first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Value>,
    /// The command that registers Torc's MCP server with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<String>,
    /// How to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    install: Option<String>,
}

const MAX_BYTES: u64 = 1 << 20;

/// All agents: those that come with the program, and those of the site's and the user's file.
pub fn all() -> Result<BTreeMap<String, Agent>> {
    let mut agents = parse(SHIPPED).unwrap_or_else(|error| unreachable!("our own file: {error}"));
    for path in torc_fs::config_files(ENV_FILE, "agents.json") {
        // It names programs to start: no other user may have written it.
        let text = match torc_fs::read_text(&path, torc_fs::Trust::Config, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("read", path)(error)),
        };
        let mut own = parse(&text).map_err(|error| {
            Error::usage(format!("`{}` does not describe agents: {error}", path.display()))
        })?;
        // Agents start in a directory of their own, so it must be whole.
        let whole = std::path::absolute(&path).map_err(Error::io("find", &path))?;
        for agent in own.values_mut() {
            agent.dir = whole.parent().map(Path::to_owned).unwrap_or_default();
        }
        agents.extend(own);
    }
    Ok(agents)
}

fn parse(text: &str) -> serde_json::Result<BTreeMap<String, Agent>> {
    let mut agents: BTreeMap<String, Agent> = serde_json::from_str(text)?;
    for (name, agent) in &mut agents {
        agent.name.clone_from(name);
    }
    Ok(agents)
}

/// The agent with this name.
pub fn find(name: &str) -> Result<Agent> {
    let mut agents = all()?;
    agents.remove(name).ok_or_else(|| {
        let known: Vec<&str> = agents.keys().map(String::as_str).collect();
        Error::usage_hint(
            format!("there is no agent `{name}` (known: {})", known.join(", ")),
            "describe it in a file, see `torc mcp agents`",
        )
    })
}

impl Agent {
    /// Whether it is installed; the error says how to get it.
    pub fn check(&self) -> Result<()> {
        let Some((program, arguments)) =
            self.check.split_first().or_else(|| self.command.split_first())
        else {
            return Err(Error::usage(format!("agent `{}` has no command", self.name)));
        };
        let is_there = match self.check.is_empty() {
            // Nothing tells how to ask it, so that it exists must do.
            true => is_program(program),
            false => Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        };
        if is_there {
            return Ok(());
        }
        let message = format!("the agent `{}` is not here: `{}` does not work", self.name, program);
        match &self.install {
            Some(install) => {
                Err(Error::usage_hint(message, format!("install it with `{install}`")))
            }
            None => Err(Error::usage(message)),
        }
    }
}

fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Puts values into a text. Each is put in once: a value that holds braces stays as it is.
pub fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = values
            .iter()
            .find(|(name, _)| rest[1..].strip_prefix(name).is_some_and(|r| r.starts_with('}')));
        match known {
            Some((name, value)) => {
                out.push_str(value);
                rest = &rest[name.len() + 2..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Puts values into every text of a JSON value.
pub fn fill_value(value: &Value, values: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, values)),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill_value(item, values)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(key, item)| (key.clone(), fill_value(item, values))).collect(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_agents_are_read_and_get_two_tools_only() {
        let agents = parse(SHIPPED).expect("our own file");
        assert_eq!(
            agents.keys().collect::<Vec<_>>(),
            ["claude", "codex", "copilot", "gemini", "opencode"]
        );
        let claude = agents["claude"].command.join(" ");
        for part in [
            "--strict-mcp-config",
            "--bare",
            "mcp__torc__list_pending_failed_jobs,mcp__torc__classify",
        ] {
            assert!(claude.contains(part), "{claude}");
        }
    }

    #[test]
    fn values_are_put_in_once() {
        let values = [("prompt", "say {mcp_url}"), ("mcp_url", "http://x")];
        assert_eq!(
            fill("a {prompt} {mcp_url} {other} {", &values),
            "a say {mcp_url} http://x {other} {"
        );
    }
}
