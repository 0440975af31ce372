//! Wire types: what travels between the command line, the server and the runners.
//!
//! Integers are `i64` on the wire so that the generated OpenAPI document and its clients agree on
//! ranges.

mod access_groups;
mod apply;
mod code;
mod jobs;
mod notify;
mod operations;
mod pages;
mod pool;
mod reports;
mod runners;
mod tidy;
mod tokens;
mod workflows;

pub use access_groups::*;
pub use apply::*;
pub use code::ErrorCode;
pub use jobs::*;
pub use notify::*;
pub use operations::*;
pub use pages::*;
pub use pool::*;
pub use reports::*;
pub use runners::*;
pub use tidy::*;
pub use tokens::*;
pub use workflows::*;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where every route of the API lives.
pub const BASE_PATH: &str = "/torc-service/v1";

/// The body of every answer that is not a success.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorInfo,
}

/// What went wrong, for programs (`code`) and for people (the rest).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ErrorInfo {
    /// Stable word such as `not_found` or `run_mismatch`.
    #[schema(value_type = ErrorCode)]
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// How many rows were skipped.
    pub offset: i64,
    /// How many rows there are in all.
    pub total_count: i64,
    /// More rows follow.
    pub has_more: bool,
    /// How many rows these are; clients of Torc 1.0 insist on it, and on the next.
    #[serde(default)]
    pub count: i64,
    /// How many rows one answer has at most.
    #[serde(default)]
    pub max_limit: i64,
}

/// How many rows one answer has at most.
pub const MAX_ROWS: i64 = 10_000;

impl<T> Page<T> {
    /// A list that is short enough to be one page.
    pub fn whole(items: Vec<T>) -> Self {
        let total_count = items.len() as i64;
        Self::part(items, 0, total_count, false)
    }

    /// A part of a list.
    pub fn part(items: Vec<T>, offset: i64, total_count: i64, has_more: bool) -> Self {
        let count = items.len() as i64;
        Self { items, offset, total_count, has_more, count, max_limit: MAX_ROWS }
    }
}

/// A count that is not worth a word.
fn is_zero(count: &i64) -> bool {
    *count == 0
}
