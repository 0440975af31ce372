//! Ids are types: a job's id cannot be passed where a workflow's is meant.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta] $name:ident),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )*};
}

id! {
    /// A workflow.
    WorkflowId,
    /// A job; kept for ever, through every run and attempt.
    JobId,
    /// One attempt's row. Its number within the job and run is `attempt_id` on the wire.
    AttemptId,
    /// A runner (`compute_node` on the wire).
    RunnerId,
    /// A workflow action.
    ActionId,
    /// A runner that serves every workflow its token may see.
    PoolRunnerId,
}
