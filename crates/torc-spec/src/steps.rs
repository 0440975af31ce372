//! Steps, handlers, map and reduce: the recursive part of a job.
//!
//! The key tables point here with [`Part`]; [`read`] turns a part into its canonical form.

use crate::diagnostic::Diagnostic;
use crate::node::Node;
use crate::read::Reader;

/// Which part of the step grammar a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A list of steps, a step or a string.
    Steps,
    /// What runs on failure.
    Handler,
    /// Items and how to go through them.
    Map,
    /// The map job whose results are reduced.
    Reduce,
    /// `start` or `step`.
    Resume,
    /// A directory.
    Dir,
    /// The agent program.
    Agent,
}

/// Reads one part into its canonical form.
pub fn read(reader: &mut Reader<'_>, node: Node, _part: Part) -> Option<Node> {
    reader.report(node.span, Diagnostic::error("steps are not supported yet").help("write `command`"));
    None
}
