//! How a tool reaches Torc's server. The program decides; the tools only see a client.

use crate::tools::ToolError;
use serde_json::Value;
use std::pin::Pin;
use torc_client::Client;
use torc_model::ids::WorkflowId;
use torc_model::slurm::logs::Issue;

/// A future that may move between threads.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a tool does with the server.
pub type Work = Box<dyn FnOnce(Client) -> Later<'static, Result<Value, ToolError>> + Send>;

/// Files and what was found in each.
pub type LogIssues = Vec<(String, Vec<Issue>)>;

/// A way to Torc's server for the length of one call.
pub trait Backend: Send + Sync {
    /// Opens the way, does the work, closes it.
    fn with_client(&self, work: Work) -> Later<'_, Result<Value, ToolError>>;
}

/// A server that stays where it is.
impl Backend for Client {
    fn with_client(&self, work: Work) -> Later<'_, Result<Value, ToolError>> {
        work(self.clone())
    }
}

/// The cluster that workflows run on; the program knows it, this crate does not.
pub trait Cluster: Send + Sync {
    /// How many allocations of which shape the jobs that are to run need; `None` for a workflow
    /// that does not run on a cluster.
    fn propose(&self, client: Client, workflow: WorkflowId) -> Later<'_, Option<Value>>;

    /// What the accounting knows of the workflow's allocations.
    fn accounting(
        &self,
        client: Client,
        workflow: WorkflowId,
    ) -> Later<'_, Result<Value, ToolError>>;

    /// What the output of the workflow's allocations says went wrong, per file.
    fn log_issues(
        &self,
        client: Client,
        workflow: WorkflowId,
    ) -> Later<'_, Result<LogIssues, ToolError>>;
}
