//! Steps, handlers, map and reduce: the recursive part of a job.
//!
//! The key tables point here with [`Part`]; [`read`] turns a part into its canonical form,
//! [`sugar`] rewrites the short forms of a whole file before that, [`tree`] makes the tree that is
//! stored out of the canonical form, and [`flow`] checks which variables are known where.

mod flow;
mod grammar;
mod sugar;
mod tree;

pub(crate) use flow::check;
pub use grammar::{Part, part_object, read};
pub use sugar::desugar;
pub(crate) use tree::{role, sketch, tree};
