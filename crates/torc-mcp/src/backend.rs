//! How a tool reaches Torc's server. The program decides; the tools only see a client.

use crate::tools::ToolError;
use serde_json::Value;
use std::pin::Pin;
use torc_client::Client;
use torc_model::ids::WorkflowId;

/// A future that may move between threads.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a tool does with the server.
pub type Work = Box<dyn FnOnce(Client) -> Later<'static, Result<Value, ToolError>> + Send>;

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

/// Proposes allocations for jobs that are to run again; the program knows the cluster, this crate does not.
pub trait Planner: Send + Sync {
    /// How many allocations of which shape; `None` for a workflow that does not run on a cluster.
    fn propose(&self, client: Client, workflow: WorkflowId) -> Later<'_, Option<Value>>;
}
