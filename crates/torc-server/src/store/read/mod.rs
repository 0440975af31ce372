//! Everything that only looks: lists and single rows, as the views of the API.
//!
//! A few read-only connections, used from blocking threads. Each call sees one state of the
//! database. Nothing here can change anything: the connections themselves refuse it.

mod access_groups;
mod actions;
mod adjustments;
mod allocations;
mod attempts;
mod audience;
mod classifications;
mod critical;
mod events;
mod failure_handlers;
mod failures;
mod families;
mod files;
mod gauges;
mod graph;
mod jobs;
mod matching;
pub(super) mod page;
mod pending;
mod people;
mod picture;
mod pool;
mod pool_runners;
mod regroup;
mod relations;
mod requirements;
mod runners;
mod schedulers;
mod sessions;
mod timeline;
mod tokens;
mod usage;
mod user_data;
mod workflows;

pub(super) use access_groups::{ACCESS_GROUPS, access_group_view};
pub use actions::ActionFilter;
pub use allocations::AllocationFilter;
pub use attempts::{AttemptFilter, AttemptLogs, SampledAttempt};
pub use audience::{Audience, Sharers, Thing, sharers_of};
pub use classifications::ClassificationFilter;
pub use events::EventFilter;
pub use families::{FamilyIndex, Surroundings};
pub use files::{FileFilter, WritingJob};
pub use gauges::{Gauges, JobCounts};
pub use graph::FamilyGraph;
pub use jobs::JobFilter;
pub use page::{Listed, NamedFilter, Paging};
pub use pending::PendingQuery;
pub(super) use people::token_view;
pub use picture::PictureRows;
pub use pool::{ReadError, Reader};
pub use pool_runners::PoolRunnerFilter;
pub use regroup::{Grouping, MAX_GROUPS};
pub use requirements::RequirementsFilter;
pub use runners::RunnerFilter;
pub use timeline::MAX_ATTEMPTS;
pub use user_data::UserDataFilter;
pub use workflows::{Earlier, WorkflowFilter};

#[cfg(test)]
mod tests;
