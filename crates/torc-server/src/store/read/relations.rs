//! What jobs depend on, read and write, as one list.

use super::page::{self, Paging};
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::{Row, params};
use torc_model::api::{Page, RelationKind, RelationView};
use torc_model::ids::{JobId, WorkflowId};

impl Reader {
    /// One page of the relations of a workflow's jobs, in the order of the jobs.
    pub async fn list_relations(
        &self,
        id: WorkflowId,
        kinds: Vec<RelationKind>,
        paging: Paging,
    ) -> Result<Page<RelationView>, ReadError> {
        self.read(move |connection| {
            let rows = union(&kinds);
            let count = format!("SELECT count(*) FROM ({rows})");
            let total: i64 =
                connection.prepare_cached(&count)?.query_row([id.0], |row| row.get(0))?;
            let sql = format!("{rows} ORDER BY job_id, kind, item_id LIMIT ?2 OFFSET ?3");
            let items: Vec<_> = connection
                .prepare_cached(&sql)?
                .all(params![id.0, paging.limit, paging.offset], view)?;
            let has_more = paging.offset.saturating_add(items.len() as i64) < total;
            Ok(Page::part(items, paging.offset, total, has_more))
        })
        .await
    }
}

/// The rows of these kinds; of all, when none is named.
fn union(kinds: &[RelationKind]) -> String {
    let is_wanted = |kind: &RelationKind| kinds.is_empty() || kinds.contains(kind);
    let wanted = RelationKind::ALL.iter().filter(|kind| is_wanted(kind));
    let selects: Vec<String> = wanted.map(|kind| select(*kind)).collect();
    selects.join(" UNION ALL ")
}

fn select(kind: RelationKind) -> String {
    let word = kind.as_str();
    let table = match kind {
        RelationKind::DependsOn => {
            return format!(
                "SELECT j.id AS job_id, j.name AS job_name, '{word}' AS kind, p.id AS item_id, p.name AS item_name
                 FROM job_depends_on d JOIN job j ON j.id = d.job_id JOIN job p ON p.id = d.depends_on_job_id
                 WHERE d.workflow_id = ?1"
            );
        }
        RelationKind::InputFile | RelationKind::OutputFile => "file",
        RelationKind::InputUserData | RelationKind::OutputUserData => "user_data",
    };
    format!(
        "SELECT j.id AS job_id, j.name AS job_name, i.kind AS kind, x.id AS item_id, x.name AS item_name
         FROM job j JOIN job_item i ON i.job_id = j.id AND i.kind = '{word}' JOIN {table} x ON x.id = i.item_id
         WHERE j.workflow_id = ?1"
    )
}

fn view(row: &Row<'_>) -> rusqlite::Result<RelationView> {
    Ok(RelationView {
        job_id: page::id(row, "job_id", JobId)?,
        job_name: row.get("job_name")?,
        kind: page::word(row, "kind", RelationKind::parse)?,
        item_id: row.get("item_id")?,
        item_name: row.get("item_name")?,
    })
}
