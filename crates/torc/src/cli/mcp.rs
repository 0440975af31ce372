//! `torc mcp`: Torc's tools for AI agents and assistants.

use super::ai::agents;
use super::interrupt::Interrupts;
use super::session::{Access, Session};
use super::{Context, Locator, block_on, person, slurm};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use torc_client::Client;
use torc_mcp::{
    Backend, Cluster, HttpServer, Journal, Later, LogIssues, Server, Settings, ToolError, Toolset,
    Work, guidance, serve_stdio,
};
use torc_model::ids::WorkflowId;

/// Offer Torc's tools to AI agents over MCP
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  torc mcp                               serve standard input and output, as agents start it
  torc mcp --http 8765                   serve http://127.0.0.1:8765/mcp; the token is printed
  torc mcp --unattended --workflow 3     only the two tools of recovery, for one workflow
  torc mcp config claude                 how to register it with an agent
  torc mcp skill .claude/skills/torc     documentation and examples as a skill folder

`torc-mcp-server`, as a link to this program, is the same as `torc mcp`."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Serve HTTP on this port of this machine instead; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,

    /// File with the token that HTTP clients must send; made if it is not there [default: a new
    /// token, printed]
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token_file: Option<PathBuf>,

    /// Offer only what an agent needs that works by itself: reading failures that wait, and judging
    /// them
    #[arg(long)]
    unattended: bool,

    /// Speak of this workflow only
    #[arg(short, long, value_name = "ID")]
    workflow: Option<WorkflowId>,

    /// The agent's name, for the record
    #[arg(long, value_name = "NAME", default_value = "mcp")]
    agent_name: String,

    /// Accepted for users of earlier servers; the server knows where output is
    #[arg(long, value_name = "DIR", hide = true)]
    output_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Print what registers the server with an agent
    Config(ConfigArgs),
    /// List the agents that `--ai-agent` takes
    Agents,
    /// Print what agents are told about failures
    Guidance,
    /// Write a skill folder for agents: SKILL.md, the documentation and examples
    Skill(Skill),
}

#[derive(clap::Args, Debug)]
struct Skill {
    /// Directory to write, such as `.claude/skills/torc`; files of this name in it are replaced
    directory: PathBuf,
}

impl Skill {
    fn execute(self, context: &Context) -> Result<()> {
        let files = torc_mcp::library::skill();
        for (name, text) in &files {
            let path = self.directory.join(name);
            let dir = path.parent().unwrap_or(&self.directory);
            std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
            std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        }
        let answer = json!({"directory": self.directory, "files": files.len()});
        context
            .output
            .value(&answer, |_| format!("{}\n", self.directory.join("SKILL.md").display()))
    }
}

#[derive(clap::Args, Debug)]
struct ConfigArgs {
    /// The agent: `claude`, `codex`, `gemini`, `copilot`, `opencode`, or any other
    agent: String,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Some(Command::Config(args)) => args.execute(context)?,
            Some(Command::Skill(args)) => args.execute(context)?,
            Some(Command::Agents) => list_agents(context)?,
            Some(Command::Guidance) => {
                let text = guidance::load().map_err(Error::usage)?;
                context.output.data(&text)?;
            }
            None => block_on(self.serve(context))?,
        }
        Ok(Exit::Success)
    }

    async fn serve(self, context: &Context) -> Result<()> {
        let server = Server::new(Settings {
            toolset: if self.unattended { Toolset::Unattended } else { Toolset::Attended },
            workflow: self.workflow,
            agent: self.agent_name,
            by: person::name(),
            guidance: guidance::load().map_err(Error::usage)?,
            backend: Arc::new(Local::new(&context.locator)),
            cluster: Some(Arc::new(SlurmCluster)),
            journal: Arc::new(Journal::default()),
        });
        let failed = |message| Error::Unreachable {
            message,
            hint: "see what the client says".into(),
            is_unsent: false,
        };
        let Some(port) = self.http else {
            return serve_stdio(server).await.map_err(failed);
        };
        let (token, place) = match &self.http_token_file {
            Some(path) => (token_in(path)?, json!({"token_file": path})),
            None => {
                let token = new_token()?;
                let shown = json!({"token": &token});
                (token, shown)
            }
        };
        let mut http = HttpServer::start(server, port, &token)
            .await
            .map_err(Error::io("listen on", "127.0.0.1"))?;
        let mut where_it_is = json!({"url": http.url()});
        if let (Some(fields), Value::Object(more)) = (where_it_is.as_object_mut(), place) {
            fields.extend(more);
        }
        context.output.value(&where_it_is, |value| {
            let text = |key: &str| {
                value[key].as_str().map(|v| format!("{key:<10}  {v}\n")).unwrap_or_default()
            };
            format!("{}{}{}", text("url"), text("token"), text("token_file"))
        })?;
        let mut interrupts = Interrupts::listen()?;
        tokio::select! {
            ended = http.wait() => ended.map_err(Error::io("serve", "127.0.0.1")),
            () = interrupts.next() => { http.stop().await; Ok(()) }
        }
    }
}

impl ConfigArgs {
    fn execute(self, context: &Context) -> Result<()> {
        let torc = std::env::current_exe().map_err(Error::io("find", "the program"))?;
        let torc = torc.to_string_lossy();
        let mut arguments: Vec<String> = context
            .locator
            .to_args()
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        arguments.push("mcp".into());
        let (file, snippet) = match self.agent.as_str() {
            "codex" => {
                let quoted: Vec<String> =
                    arguments.iter().map(|part| json!(part).to_string()).collect();
                let text = format!(
                    "[mcp_servers.torc]\ncommand = {}\nargs = [{}]\n",
                    json!(torc),
                    quoted.join(", ")
                );
                ("~/.codex/config.toml", text)
            }
            "gemini" => {
                ("~/.gemini/settings.json", servers(json!({"command": torc, "args": arguments})))
            }
            "copilot" => {
                let entry =
                    json!({"type": "local", "command": torc, "args": arguments, "tools": ["*"]});
                ("~/.copilot/mcp-config.json", servers(entry))
            }
            "opencode" => {
                let command: Vec<&str> =
                    std::iter::once(&*torc).chain(arguments.iter().map(String::as_str)).collect();
                let entry = json!({"mcp": {"torc": {"type": "local", "command": command, "enabled": true}}});
                ("opencode.json", pretty(&entry))
            }
            "claude" => (
                ".mcp.json",
                servers(json!({"type": "stdio", "command": torc, "args": arguments, "env": {}})),
            ),
            _ => ("its MCP settings", servers(json!({"command": torc, "args": arguments}))),
        };
        context.output.talk(format_args!("put this into {file}:"));
        context.output.data(&snippet)?;
        let known = agents::all()?;
        if let Some(register) = known.get(&self.agent).and_then(|agent| agent.register.as_ref()) {
            context.output.talk(format_args!("or: {}", agents::fill(register, &[("torc", &torc)])));
        }
        Ok(())
    }
}

fn servers(entry: Value) -> String {
    pretty(&json!({"mcpServers": {"torc": entry}}))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn list_agents(context: &Context) -> Result<()> {
    let agents: Vec<agents::Agent> = agents::all()?.into_values().collect();
    let rows: Vec<Value> = agents
        .iter()
        .map(|agent| json!({"name": agent.name, "installed": agent.check().is_ok(), "command": agent.command}))
        .collect();
    context.output.list("agents", &rows, rows.len() as i64, || {
        let mut table = Table::new(["name", "installed", "program"]);
        for (agent, row) in agents.iter().zip(&rows) {
            let installed = row["installed"].as_bool().unwrap_or_default();
            table.row([
                Field::text(&agent.name),
                Field::text(if installed { "yes" } else { "no" }),
                Field::optional(agent.command.first()),
            ]);
        }
        table
    })
}

/// 256 random bits, as text.
pub fn new_token() -> Result<String> {
    let mut bytes = [0u8; torc_mcp::TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(Error::io("read", "/dev/urandom"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The token in a file; a new one when there is no such file.
fn token_in(path: &Path) -> Result<String> {
    match torc_fs::read_text(path, torc_fs::Trust::Config, 4096) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => Err(Error::usage(format!("`{}` holds no token", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = new_token()?;
            torc_fs::write_new_private(path, format!("{token}\n").as_bytes())
                .map_err(Error::io("write", path))?;
            Ok(token)
        }
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// The server that a command of ours would use, looked for anew at each call: it may come and go
/// meanwhile.
struct Local {
    locator: Locator,
}

impl Local {
    fn new(locator: &Locator) -> Self {
        Self { locator: locator.clone() }
    }
}

impl Backend for Local {
    fn with_client(&self, work: Work) -> Later<'_, std::result::Result<Value, ToolError>> {
        Box::pin(async move {
            let access = match self.locator.url {
                Some(_) => Access::Existing,
                // `create_workflow` may be the first thing that happens here.
                None => super::session::state_dir(&self.locator, Access::Existing)
                    .map_or(Access::Create, |_| Access::Existing),
            };
            let session = Session::open(&self.locator, access).await.map_err(told)?;
            let answer = work(session.client.clone()).await;
            session.close().await;
            answer
        })
    }
}

/// The cluster we are on.
pub struct SlurmCluster;

impl Cluster for SlurmCluster {
    fn propose(&self, client: Client, id: WorkflowId) -> Later<'_, Option<Value>> {
        Box::pin(async move {
            let plan = async {
                let workflow = client.get_workflow(id).await?;
                slurm::propose(&client, &workflow).await
            };
            match plan.await {
                Ok(plan) => plan.map(|plan| json!(plan)),
                // A proposal is a help, not a condition.
                Err(error) => Some(json!({"error": error.to_string()})),
            }
        })
    }

    fn accounting(
        &self,
        client: Client,
        id: WorkflowId,
    ) -> Later<'_, std::result::Result<Value, ToolError>> {
        Box::pin(async move {
            let workflow = client.get_workflow(id).await?;
            let records =
                slurm::accounting_records(&client, &workflow, true).await.map_err(told)?;
            let total: u64 =
                records.iter().filter(|r| !r.is_step()).map(|r| r.elapsed_seconds).sum();
            Ok(json!({"workflow_id": id, "records": records, "total_walltime_seconds": total}))
        })
    }

    fn log_issues(
        &self,
        client: Client,
        id: WorkflowId,
    ) -> Later<'_, std::result::Result<LogIssues, ToolError>> {
        Box::pin(async move {
            let workflow = client.get_workflow(id).await?;
            slurm::find_issues(&client, &workflow, None).await.map_err(told)
        })
    }
}

/// An error of ours for the caller of a tool.
fn told(error: Error) -> ToolError {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    ToolError::Torc(format!("{error}{hint}"))
}
