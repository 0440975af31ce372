//! The journal: every statement of the writer, which reads and writes the state that the engine decides on. Nothing
//! decides here.
//!
//! `load` makes the engine's state of the rows, and `changes` writes the engine's `Change`s. The other files hold rows
//! that bring what the engine does not keep (texts of a plan, who a runner is, what a verdict says, tokens, the
//! outbox), each a function per statement that is named for what it writes or answers. What clients list is read in
//! `store/read`. A test holds that no SQL stands elsewhere.

pub mod access;
pub mod actions;
pub mod additions;
pub mod allocations;
pub mod attempts;
mod changes;
pub mod definitions;
pub mod failures;
pub mod files;
mod jobs;
pub mod knowledge;
pub mod limits;
pub mod load;
pub mod lookups;
pub mod maps;
pub mod meta;
pub mod outbox;
pub mod packets;
mod plan_rows;
pub mod present;
pub mod runners;
pub mod verdicts;
pub mod workflows;

pub use actions::{
    ActionRow, DefinedAction, action, defined_actions, delete_action, insert_action,
};
pub use changes::{
    adjustment, event, family_times, grow_count, json, queue, remember, signed, write, write_shared,
};
pub use jobs::{
    ImportedAttempt, ImportedJob, JobStatements, Rewritten, import_attempt, import_job, own_limit,
    rewrite_job, untie,
};
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
    NewWorkflowRow, RevisedWorkflow, clear_ephemeral, import_workflow, insert_revision,
    insert_workflow, revise_workflow, set_spec, update_workflow,
};
