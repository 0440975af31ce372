//! Steps: what a job is made of when one command is not enough, and the decisions that belong to
//! them.
//!
//! A step is the only executable thing, a list of steps the only composite. Everything here is
//! pure: the types of the canonical step tree, the expression language, which `${...}` of a text
//! are ours and how they become environment variables, when a step is tried again, and what a step
//! has come to once its handler has run. The runner executes.

mod data;
mod expr;
mod items;
mod outcome;
mod record;
mod retry;
mod text;
mod tree;

pub use data::{DataPath, EXPORT_MAX, EXPORT_TOTAL_MAX, Piece, Select, lookup, show};
pub use expr::{Expr, ExprError};
pub use items::{Item, ItemError, ItemSource, MapRole, MapSettings, Tolerate, job_name, prepare};
pub use outcome::{
    AfterHandler, AfterTry, HandlerEnd, Outcome, Word, after_handler, after_try, given_up, overall,
};
pub use record::{ErrorKind, Report, Row, StepEvent, failure_line};
pub use retry::{FailedTry, Only, Retry, StepBackoff};
pub use text::{StepShell, TextError, TextReference, env_name, fill, references, shell};
pub use tree::{
    Action, Capture, CaptureSource, Handler, Permissions, Resume, Step, StepAgent, Strategy, Tree,
};
