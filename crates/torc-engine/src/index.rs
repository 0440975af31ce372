//! Numbers that point into a workflow's own lists. Each list has a type of its own for them, so that
//! the compiler refuses the number of a class where that of a job is meant.

use std::fmt;
use std::ops::Range;

/// Defines a number that is an index into one kind of list.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(u32);

        impl $name {
            /// The entry at this place of the list. Lists have fewer than 2³² entries.
            pub const fn new(at: usize) -> Self {
                Self(at as u32)
            }

            /// Its place in the list.
            pub const fn at(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// A job of a workflow. It stays the same as long as the workflow is in memory.
    JobIx
}

index! {
    /// What some jobs of a workflow need: the number of a [`crate::Class`] among those of the workflow.
    ClassIx
}

index! {
    /// One of a workflow's failure handlers.
    HandlerIx
}

impl JobIx {
    /// The jobs of a range of places, in order.
    pub fn range(
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
        places.map(Self::new)
    }
}
