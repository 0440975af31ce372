//! Workflow files: text in four formats -> one canonical [`Spec`] -> a
//! [`Plan`](torc_model::plan::Plan), with every mistake explained at its place.
//!
//! ```text
//! Source --front end--> Node tree --Reader + key tables--> Spec --expand, resolve, check--> Plan
//! ```
//!
//! Nothing here touches a server, a clock or, apart from `parameters_file`, the file system.

mod analysis;
mod checks;
mod diagnostic;
mod document;
mod foreign;
mod front;
mod inline;
mod keys;
mod lint;
mod node;
mod packed;
mod plan;
mod read;
mod recovery;
pub mod reference;
mod render;
mod schema;
mod shell;
mod source;
mod spec;
mod steps;
mod template;
mod values;
mod write;

pub use analysis::{Analysis, CheckedPlan, Graph, LargestNode, PlanNode, PlanStage, Site};
pub use diagnostic::{Diagnostic, Diagnostics, Note, Place, Severity, nearest};
pub use keys::PRIORITIES;
pub use plan::Present;
pub use read::{MAX_NAME, check_name};
pub use recovery::Recovery;
pub use schema::json_schema;
pub use source::{Source, SpecFormat};
pub use spec::{Parsed, Raw, Spec, parse};
