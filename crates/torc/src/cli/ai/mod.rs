//! AI-assisted recovery: the record decides what it knows, an agent judges the rest, and a person
//! what it is unsure of.
//!
//! ```text
//!   round:  record (unless --no-memory) ──► what still waits? ──► agent, with two tools of our own MCP server
//!                                               │ nothing             │ verdicts, checked by the server
//!                                               ▼                     ▼
//!                                              done  ◄──── decided nothing: next round, a few at most
//! ```
//!
//! The agent's exit code and words decide nothing: only what it did through the tools counts.

pub mod agents;
mod prompt;
mod session;

use super::classify;
use crate::error::{Error, Result};
use crate::output::human;
use agents::Agent;
use std::path::PathBuf;
use std::time::Duration;
use torc_client::{Client, Query};
use torc_model::api::WorkflowView;
use torc_model::recovery::MemoryRequest;
use torc_model::units::Runtime;

/// How an agent takes part: what `recover` and `watch` share.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "AI-assisted recovery")]
pub struct AiOptions {
    /// Let an AI agent judge failures that wait for a verdict
    #[arg(long, conflicts_with = "retry_unknown")]
    pub ai_recovery: bool,

    /// The agent: `claude`, or another one of `torc mcp agents`
    #[arg(long, value_name = "NAME", default_value = "claude")]
    ai_agent: String,

    /// Stop the agent after this long
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = Runtime::parse)]
    ai_timeout: Runtime,

    /// Calls of tools that the agent may make in one round
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    ai_max_calls: u64,

    /// Rounds to try when the agent leaves failures undecided
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ai_rounds: u32,

    /// Directory for what the agent said and asked for
    #[arg(long, value_name = "DIR", default_value = "output/ai_recovery")]
    ai_log_dir: PathBuf,
}

/// What a call of AI-assisted recovery came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AgentOutcome {
    /// What happened, in order, for people.
    pub lines: Vec<String>,
    /// Jobs that run again.
    pub retried: i64,
    /// Jobs that have failed for good.
    pub failed: i64,
    /// Jobs that still wait and have no verdict that waits for a person.
    pub undecided: i64,
}

/// Jobs that wait for a verdict, and those of them with one that waits for a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PendingCounts {
    waiting: i64,
    held: i64,
    retried: i64,
    failed: i64,
}

impl PendingCounts {
    async fn look(client: &Client, workflow: &WorkflowView) -> Result<Self> {
        let few = Query::new().add("workflow_id", workflow.id).add("limit", 1);
        let waiting =
            client.list_jobs(&few.clone().add("status", "pending_failed")).await?.total_count;
        let held =
            client.list_classifications(&few.clone().add("state", "held")).await?.total_count;
        let applied: Vec<torc_model::recovery::ClassificationView> = client
            .list_all(
                "/classifications",
                &Query::new().add("workflow_id", workflow.id).add("state", "applied"),
            )
            .await?;
        let of = |verdict| applied.iter().filter(|c| c.said.action == verdict).count() as i64;
        use torc_model::recovery::Verdict;
        Ok(Self { waiting, held, retried: of(Verdict::Retry), failed: of(Verdict::Fail) })
    }

    fn undecided(self) -> i64 {
        (self.waiting - self.held).max(0)
    }
}

impl AiOptions {
    /// Finds the agent before anything else happens.
    pub fn agent(&self) -> Result<Agent> {
        let agent = agents::find(&self.ai_agent)?;
        agent.check()?;
        Ok(agent)
    }

    /// Judges what waits for a verdict, by the record of earlier ones first unless `no_memory`.
    pub async fn judge(
        &self,
        client: &Client,
        workflow: &WorkflowView,
        no_memory: bool,
    ) -> Result<AgentOutcome> {
        let mut judged = AgentOutcome::default();
        if !workflow.use_pending_failed {
            let message =
                format!("workflow {} does not let failures wait for a verdict", workflow.id);
            return Err(Error::usage_hint(message, "set `use_pending_failed: true` in its spec"));
        }
        let before = PendingCounts::look(client, workflow).await?;
        let mut now = before;
        if now.undecided() > 0 && !no_memory {
            let view =
                client.classify_from_memory(workflow.id, &MemoryRequest { dry_run: false }).await?;
            if view.total_classifications > 0 {
                judged.lines.push(format!("without an agent: {}", classify::sentence(&view)));
                now = PendingCounts::look(client, workflow).await?;
            }
        }
        if now.undecided() > 0 {
            let agent = self.agent()?;
            for round in 1..=self.ai_rounds {
                if now.undecided() == 0 {
                    break;
                }
                let ended = self.round(client, workflow, &agent, round, &mut judged).await?;
                let after = PendingCounts::look(client, workflow).await?;
                judged.lines.push(format!(
                    "{} {ended}: {} to be tried again, {} failed for good, {} held for a person, {} undecided",
                    agent.name,
                    after.retried - now.retried,
                    after.failed - now.failed,
                    (after.held - now.held).max(0),
                    after.undecided()
                ));
                now = after;
            }
        }
        judged.retried = now.retried - before.retried;
        judged.failed = now.failed - before.failed;
        judged.undecided = now.undecided();
        if now.held > 0 {
            judged.lines.push(format!(
                "{} a person: `torc jobs classify -w {} --pending`",
                if now.held == 1 {
                    "1 verdict waits for".into()
                } else {
                    format!("{} wait for", human::count(now.held, "verdict"))
                },
                workflow.id
            ));
        }
        Ok(judged)
    }

    async fn round(
        &self,
        client: &Client,
        workflow: &WorkflowView,
        agent: &Agent,
        round: u32,
        judged: &mut AgentOutcome,
    ) -> Result<String> {
        let limits = session::AgentLimits {
            time: Duration::from_secs(self.ai_timeout.0),
            calls: self.ai_max_calls,
            log_dir: self.ai_log_dir.join(format!(
                "wf{}_{}_{round}",
                workflow.id,
                crate::output::human::now_ms()
            )),
        };
        judged.lines.push(format!(
            "asking {} about failures of workflow {}; its words are kept in {}",
            agent.name,
            workflow.id,
            limits.log_dir.display()
        ));
        session::run(client, workflow, agent, &limits).await
    }
}
