//! How the rows of a statement are read.

use rusqlite::{OptionalExtension as _, Params, Result, Row, Statement};
use std::borrow::BorrowMut;

/// Reads rows of a prepared statement.
pub trait Rows<'c>: BorrowMut<Statement<'c>> {
    /// The first row; None where there is none.
    fn find<T>(
        &mut self,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.borrow_mut().query_row(values, read).optional()
    }

    /// All rows.
    fn all<T, C: FromIterator<T>>(
        &mut self,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<C> {
        self.borrow_mut().query_map(values, read)?.collect()
    }
}

impl<'c> Rows<'c> for Statement<'c> {}
