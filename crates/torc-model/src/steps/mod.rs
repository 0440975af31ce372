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

pub use data::{EXPORT_MAX, EXPORT_TOTAL_MAX, Path, Piece, Select, lookup, show};
pub use expr::{Expr, ExprError};
pub use items::{Item, ItemError, MapSettings, Role, Source, Tolerate, job_name, prepare};
pub use outcome::{
    AfterHandler, AfterTry, HandlerEnd, Outcome, Word, after_handler, after_try, given_up, overall,
};
pub use record::{ErrorKind, Report, Row, StepEvent, failure_line};
pub use retry::{Backoff, Only, Retry};
pub use text::{Reference, Shell, TextError, env_name, fill, references, shell};
pub use tree::{
    Action, Agent, Capture, CaptureSource, Handler, Permissions, Resume, Step, Strategy, Tree,
};
