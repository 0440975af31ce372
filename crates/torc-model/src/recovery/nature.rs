//! What helps against a failure, as far as the failure itself tells.

use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What helps against a failure.
    Nature {
        /// It passes by itself: the same again, after a while.
        Transient = "transient",
        /// It will fail again until something outside of Torc changes.
        Permanent = "permanent",
        /// It needs more memory.
        Memory = "memory",
        /// It needs more time.
        Time = "time",
        /// Nothing tells.
        Unclear = "unclear",
    }
}
