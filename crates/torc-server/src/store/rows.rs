//! How the rows of a statement are read.

use rusqlite::{OptionalExtension as _, Params, Result, Row, Statement};

/// Reads rows of a prepared statement.
pub trait Rows {
    /// The first row; None where there is none.
    fn find<T>(
        &mut self,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>>;

    /// All rows.
    fn all<T, C: FromIterator<T>>(
        &mut self,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<C>;
}

impl Rows for Statement<'_> {
    fn find<T>(
        &mut self,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.query_row(values, read).optional()
    }

    fn all<T, C: FromIterator<T>>(
        &mut self,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<C> {
        self.query_map(values, read)?.collect()
    }
}
