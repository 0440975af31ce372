//! What the engine promises, one claim per test, where a chronicle would only repeat what it does today.

mod forecasts;
mod learning;
mod runners;

use super::chronicles::{Chronicle, but, end, handler, ix, job, node};
use super::*;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
