//! What the engine promises, one claim per test, where a chronicle would only repeat what it does today.

mod breaker;
mod commands;
mod comparisons;
mod forecasts;
mod kept_runners;
mod learning;
mod maps;
mod refunds;
mod revised_jobs;
mod revisions;
mod runners;
mod workflows;

use super::chronicles::{Chronicle, but, end, handler, ix, job, node, statuses};
use super::*;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
