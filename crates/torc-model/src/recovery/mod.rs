//! From a failure to what can be done about it: what happened ([`diagnose`]), what would repair it
//! ([`Remedy`]), and what many attempts teach about what jobs need ([`usage`]). What no rule knows
//! is judged by a person or an agent: failures are told apart by their [`Fingerprint`], a verdict
//! is checked by [`rule`], and what became of earlier ones is a [`Record`].
//!
//! Pure: the facts are what an attempt's row holds. Nothing here retries anything; the store
//! applies a remedy.

mod bad_node;
mod classify;
mod decide;
mod diagnosis;
mod fingerprint;
mod kind;
mod knowledge;
mod limits;
mod named;
mod nature;
mod observed;
mod pattern;
mod progress;
mod record;
mod remedy;
mod rules;
mod text;
mod triage;
pub mod untrusted;
pub mod usage;
mod view;
mod wait;

#[cfg(test)]
mod labelled;

pub use bad_node::{NodeHealth, NodeVerdict};
pub use classify::{AGENT_RETRIES, Asked, Author, Known, Ruling, Standing, known, rule};
pub use decide::{Case, FailureCard, PastFailure};
pub use diagnosis::{Diagnosis, Facts, Place, Proof, diagnose, diagnose_with};
pub use fingerprint::Fingerprint;
pub use kind::Kind;
pub use knowledge::{Knowledge, KnowledgeForgotten, KnowledgeTaken, KnownFailure, KnownOutcome};
pub use named::FailureName;
pub use nature::Nature;
pub use observed::Observed;
pub use record::{Counts, Learned, Level, Record, Tried, Weights};
pub use remedy::{Action, Caps, Change, Current, LARGEST_MULTIPLIER, Policy, Remedy};
pub use rules::{Rule, RuleSpec, Rules};
pub use text::{Excerpt, Found, Stream, may_matter, terminal_error};
pub use triage::{
    Classification, ClassificationState, ClassificationView, ClassifyJob, ClassifyRequest,
    ClassifyView, MemoryRequest, PendingEnd, PendingExample, PendingFailures, PendingGroup,
    PendingNeeds, Proposal, ResolveRequest, RetryOutcome, StatedVerdict, Verdict, VerdictEnd,
};
pub use view::{AdjustmentView, NodeShape, RecoverJob, RecoverRequest, RecoverView};
