//! The journal: every statement that writes what the engine decides on, and nothing else decides here.
//!
//! `changes` writes the engine's `Change`s. The other files write rows that bring what the engine does
//! not keep (texts of a plan, who a runner is, what a verdict says), each a function per statement.
//! What is written elsewhere in the store is no state of the engine: tokens, groups, webhooks,
//! sessions, what was seen of files, what is known of failures. A test holds this.

mod actions;
pub mod allocations;
mod changes;
mod jobs;
mod limits;
mod plan_rows;
mod runners;
mod verdicts;
mod workflows;

pub use actions::{ActionRow, delete_action, insert_action};
pub use changes::{
    adjustment, event, family_times, grow_count, json, queue, remember, signed, write,
};
pub use jobs::{
    AdditionRow, ImportedAttempt, ImportedJob, JobStatements, Rewritten, import_attempt,
    import_job, insert_addition, own_limit, rewrite_job, untie,
};
pub use limits::{reservation, write_limit};
pub use plan_rows::{
    UserDataRow, delete_handler, file_seen, import_user_data, insert_family, insert_file,
    move_file, put_handler, put_requirements, put_scheduler, put_user_data, resize_file,
    set_input_hash, set_user_data, size, update_handler,
};
pub use runners::{
    RunnerRow, end_pool_runner, insert_pool_runner, insert_runner, order_pool_runner,
    pool_runner_seen, put_share,
};
pub use verdicts::{
    AskedIn, RemedyRow, VerdictRow, decide_verdict, insert_remedy, insert_round, insert_verdict,
    remedy_goes_on, retry_follows, retry_outcome, supersede_verdicts,
};
pub use workflows::{
    NewWorkflowRow, RevisedWorkflow, clear_ephemeral, delete_workflow, import_workflow,
    insert_revision, insert_workflow, revise_workflow, set_spec, update_workflow,
};
