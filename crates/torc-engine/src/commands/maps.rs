//! Maps: people run items again, drop them, or give one another value.

use super::moves;
use crate::{Change, JobIx};
use torc_model::ids::JobId;

moves! {
    /// Runs items again.
    RetryItems<'a> {
        /// Which.
        items: &'a [JobIx],
    } -> () = |workflow, _, now| workflow.retry_items(items, now);

    /// Takes dead items out of the count.
    DropItems<'a> {
        /// Which.
        items: &'a [JobIx],
    } -> () = |workflow, _, now| workflow.drop_items(items, now);

    /// Gives an item another value.
    ChangeItem {
        /// Which.
        item: JobId,
        /// The rest of its row, as JSON.
        extra: Option<String>,
    } -> () = |workflow, _, _| {
        workflow.record(Change::ItemChanged(item, extra));
        Ok(())
    };
}
