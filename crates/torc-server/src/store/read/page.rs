//! One page of a list: filters, order and count, from SQL texts that are written here and values
//! that are bound.

use super::{Audience, ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, Row, RowIndex, params_from_iter};
use serde::de::DeserializeOwned;
use torc_model::api::Page;
use torc_model::json::from_text;

/// Which part of a list, in which order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paging {
    /// Rows to skip.
    pub offset: i64,
    /// Rows to give at most.
    pub limit: i64,
    /// A key of the list; its default when None.
    pub sort_by: Option<String>,
    /// Last first.
    pub reverse: bool,
}

impl Paging {
    /// What a list gives when the request names no limit.
    pub const DEFAULT_LIMIT: i64 = 1000;
    /// What a list gives at most.
    pub const MAX_LIMIT: i64 = 10_000;
}

impl Default for Paging {
    fn default() -> Self {
        Self { offset: 0, limit: Self::DEFAULT_LIMIT, sort_by: None, reverse: false }
    }
}

/// The SQL of one list. `key` and the sort columns must be columns of `table`, so that the page's
/// rows are found in a narrow query first and joined only then.
pub struct List {
    /// `SELECT ... FROM ...` with all joins and without conditions.
    pub rows: &'static str,
    /// The table whose rows are listed, with its alias.
    pub table: &'static str,
    /// Its key.
    pub key: &'static str,
    /// Names that callers may sort by, with their columns. The first one is the default.
    pub sorts: &'static [(&'static str, &'static str)],
}

/// Conditions with their values, in order.
#[derive(Default)]
pub struct Filter {
    sql: String,
    values: Vec<Value>,
}

impl Filter {
    /// Adds a condition with one `?` when there is a value.
    pub fn with<T: Into<Value>>(mut self, condition: &'static str, value: Option<T>) -> Self {
        if let Some(value) = value {
            self = self.always(condition);
            self.values.push(value.into());
        }
        self
    }

    /// Adds a condition with one `?` that was put together from texts of our own.
    pub fn and(mut self, condition: &str, value: Value) -> Self {
        self.push(condition);
        self.values.push(value);
        self
    }

    /// Adds that a column has one of these numbers, which stand in the text: SQLite then looks at no
    /// list while it goes through the rows.
    pub fn one_of(mut self, column: &'static str, numbers: impl Iterator<Item = i64>) -> Self {
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        self.push(&format!("{column} IN ({})", numbers.join(", ")));
        self
    }

    /// The conditions, with ` WHERE ` in front, and their values.
    pub fn into_parts(self) -> (String, Vec<Value>) {
        (self.sql, self.values)
    }

    /// Adds a condition without a value.
    pub fn always(mut self, condition: &'static str) -> Self {
        self.push(condition);
        self
    }

    fn push(&mut self, condition: &str) {
        self.sql.push_str(if self.sql.is_empty() { " WHERE " } else { " AND " });
        self.sql.push_str(condition);
    }
}

/// A pattern for `LIKE ? ESCAPE '\'` that finds `text` anywhere.
pub fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

impl List {
    /// Reads one page.
    pub fn page<T>(
        &self,
        connection: &Connection,
        filter: Filter,
        paging: &Paging,
        view: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Page<T>, ReadError> {
        self.page_of(connection, filter, paging, None, view)
    }

    /// The same when it is already known how many rows the filter lets through.
    pub fn page_of<T>(
        &self,
        connection: &Connection,
        filter: Filter,
        paging: &Paging,
        known_count: Option<i64>,
        view: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Page<T>, ReadError> {
        let order = self.order(paging)?;
        let Self { rows, table, key, .. } = self;
        let total_count = match known_count {
            Some(count) => count,
            None => self.count(connection, &filter)?,
        };
        let conditions = filter.sql;
        let sql = format!(
            "{rows} WHERE {key} IN (SELECT {key} FROM {table}{conditions} ORDER BY {order} LIMIT ? OFFSET ?) \
             ORDER BY {order}"
        );
        // A search that knows how many there are ends with the last of them.
        let limit = known_count
            .map_or(paging.limit, |count| paging.limit.min(count.saturating_sub(paging.offset)));
        if limit <= 0 {
            return Ok(Page::part(Vec::new(), paging.offset, total_count, false));
        }
        let mut values = filter.values;
        values.push(limit.into());
        values.push(paging.offset.into());
        let items: Vec<T> = connection.prepare_cached(&sql)?.all(params_from_iter(values), view)?;
        let has_more =
            paging.offset.saturating_add(items.len() as i64) < total_count && !items.is_empty();
        Ok(Page::part(items, paging.offset, total_count, has_more))
    }

    /// Reads one row by its key.
    pub fn get<T>(
        &self,
        connection: &Connection,
        what: &'static str,
        id: i64,
        view: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ReadError> {
        connection
            .prepare_cached(&format!("{} WHERE {} = ?", self.rows, self.key))?
            .query_row([id], view)
            .map_err(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => ReadError::NotFound { what, id },
                other => other.into(),
            })
    }

    fn count(&self, connection: &Connection, filter: &Filter) -> rusqlite::Result<i64> {
        let sql = format!("SELECT count(*) FROM {}{}", self.table, filter.sql);
        connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(&filter.values), |row| row.get(0))
    }

    fn order(&self, paging: &Paging) -> Result<String, ReadError> {
        let asked = paging.sort_by.as_deref();
        let found = self.sorts.iter().find(|(name, _)| asked.is_none_or(|asked| asked == *name));
        let Some((_, column)) = found else {
            let known = self.sorts.iter().map(|(name, _)| *name).collect();
            return Err(ReadError::UnknownSort { asked: asked.unwrap_or_default().into(), known });
        };
        let direction = if paging.reverse { "DESC" } else { "ASC" };
        // The key breaks ties, so that pages neither overlap nor leave gaps.
        Ok(format!("{column} {direction}, {} {direction}", self.key))
    }
}

/// Which rows of a list, by workflow and name.
#[derive(Clone, Default, Debug)]
pub struct NamedFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
}

/// What clients list, and read one by one.
pub trait Listed: Send + Sized + 'static {
    /// Which of them.
    type Filter: Send + 'static;
    /// Where they stand.
    const LIST: List;
    /// What one of them is called.
    const WHAT: &'static str;

    /// The filter in SQL.
    fn conditions(filter: Self::Filter) -> Filter;

    /// One of them.
    fn view(row: &Row<'_>) -> rusqlite::Result<Self>;
}

impl Reader {
    /// One page of a list.
    pub async fn list<V: Listed>(
        &self,
        filter: V::Filter,
        paging: Paging,
    ) -> Result<Page<V>, ReadError> {
        self.read(move |db| V::LIST.page(db, V::conditions(filter), &paging, V::view)).await
    }

    /// One row of a list.
    pub async fn get<V: Listed>(&self, id: i64) -> Result<V, ReadError> {
        self.read(move |db| V::LIST.get(db, V::WHAT, id, V::view)).await
    }
}

/// Numbers as one value, for `IN (SELECT value FROM json_each(?))`.
pub fn numbers<'a>(all: impl IntoIterator<Item = &'a i64>) -> String {
    let all: Vec<String> = all.into_iter().map(i64::to_string).collect();
    format!("[{}]", all.join(","))
}

/// A column with JSON text, or NULL.
pub fn json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: impl RowIndex,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| from_text(&text).map_err(|e| conversion(row, column, e))).transpose()
}

/// A column with one of our words.
pub fn word<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| conversion(row, column, format!("unknown word `{text}`")))
}

/// A column with one of our words, or NULL.
pub fn maybe_word<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| {
        parse(&text).ok_or_else(|| conversion(row, column, format!("unknown word `{text}`")))
    })
    .transpose()
}

/// The same, where a word that this version does not know counts as none.
pub fn known_word<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    Ok(row.get::<_, Option<String>>(column)?.as_deref().and_then(parse))
}

/// A column whose value is wrapped by an id type.
pub fn id<T>(row: &Row<'_>, column: impl RowIndex, wrap: fn(i64) -> T) -> rusqlite::Result<T> {
    row.get(column).map(wrap)
}

/// A column whose value is wrapped by an id type, or NULL.
pub fn maybe_id<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    wrap: fn(i64) -> T,
) -> rusqlite::Result<Option<T>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(wrap))
}

/// A single value, None when there is no row.
pub fn find<T: FromSql>(
    connection: &Connection,
    sql: &str,
    id: i64,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.find([id], |row| row.get(0))
}

fn conversion(
    row: &Row<'_>,
    column: impl RowIndex,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    let index = column.idx(row.as_ref()).unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: List = List {
        rows: "SELECT x, y FROM t",
        table: "t",
        key: "x",
        sorts: &[("id", "x"), ("name", "y")],
    };

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT)").unwrap();
        for (x, y) in [(1, "b"), (2, "a"), (3, "b"), (4, "100%"), (5, "1000")] {
            connection.execute("INSERT INTO t VALUES (?1, ?2)", (x, y)).unwrap();
        }
        connection
    }

    fn ids(filter: Filter, paging: Paging) -> (Vec<i64>, i64, bool) {
        let page = LIST.page(&table(), filter, &paging, |row| row.get(0)).unwrap();
        (page.items, page.total_count, page.has_more)
    }

    #[test]
    fn pages_follow_each_other_in_a_total_order() {
        let by_name =
            |offset, reverse| Paging { offset, limit: 2, sort_by: Some("name".into()), reverse };
        assert_eq!(ids(Filter::default(), by_name(0, false)), (vec![4, 5], 5, true));
        assert_eq!(ids(Filter::default(), by_name(2, false)), (vec![2, 1], 5, true));
        assert_eq!(ids(Filter::default(), by_name(4, false)), (vec![3], 5, false));
        assert_eq!(ids(Filter::default(), by_name(0, true)), (vec![3, 1], 5, true));
        assert_eq!(ids(Filter::default(), by_name(i64::MAX, true)), (vec![], 5, false));
    }

    #[test]
    fn a_known_number_ends_the_search() {
        let page = |offset, known| {
            let filter = Filter::default().with("y = ?", Some("b".to_string()));
            let paging = Paging { offset, limit: 10, ..Paging::default() };
            let page =
                LIST.page_of(&table(), filter, &paging, Some(known), |row| row.get(0)).unwrap();
            (page.items, page.total_count, page.has_more)
        };
        assert_eq!(page(0, 2), (vec![1, 3], 2, false));
        assert_eq!(page(1, 2), (vec![3], 2, false));
        assert_eq!(page(2, 2), (Vec::<i64>::new(), 2, false));
        // One of them came after it was counted.
        assert_eq!(page(0, 1), (vec![1], 1, false));
        assert_eq!(page(i64::MAX, 1), (vec![], 1, false));
    }

    #[test]
    fn filters_bind_values_and_patterns_are_taken_literally() {
        let filter = Filter::default().with("y = ?", Some("b".to_string())).with("x > ?", Some(1));
        assert_eq!(ids(filter, Paging::default()), (vec![3], 1, false));
        let filter = Filter::default().with("y LIKE ? ESCAPE '\\'", Some(containing("0%")));
        assert_eq!(ids(filter, Paging::default()), (vec![4], 1, false));
        let filter = Filter::default().with("x = ?", None::<i64>);
        assert_eq!(ids(filter, Paging::default()).1, 5);
    }

    #[test]
    fn unknown_order_is_refused_with_the_known_ones() {
        let paging = Paging { sort_by: Some("x; DROP TABLE t".into()), ..Paging::default() };
        let error = LIST
            .page(&table(), Filter::default(), &paging, |row| row.get::<_, i64>(0))
            .unwrap_err();
        assert_eq!(error.to_string(), "cannot sort by `x; DROP TABLE t` (known: id, name)");
    }
}
