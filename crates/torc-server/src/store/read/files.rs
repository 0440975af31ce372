//! Files that jobs read or write.

use super::page::{self, Filter, List, Listed, containing};
use super::{Audience, ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::{Connection, Row};
use torc_model::api::FileView;
use torc_model::ids::WorkflowId;

/// Which files.
#[derive(Clone, Default, Debug)]
pub struct FileFilter {
    /// Of workflows that these may see.
    pub audience: Audience,
    /// Of this workflow.
    pub workflow_id: Option<i64>,
    /// Exactly this name.
    pub name: Option<String>,
    /// Exactly this path.
    pub path: Option<String>,
    /// A part of the name or the path.
    pub search: Option<String>,
    /// Written by this job.
    pub produced_by_job_id: Option<i64>,
    /// Read by this job.
    pub needed_by_job_id: Option<i64>,
}

/// The job that writes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritingJob {
    /// There is none.
    None,
    /// It has not succeeded so far.
    NotYet,
    /// It has succeeded.
    Done {
        /// When that was.
        ended_ms: i64,
    },
}

/// The directory of a workflow.
pub fn directory(connection: &Connection, id: WorkflowId) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT directory FROM workflow WHERE id = ?")?
        .query_row([id.0], |row| row.get(0))
}

impl Listed for FileView {
    type Filter = FileFilter;
    const LIST: List = List {
        rows: "SELECT f.id, f.workflow_id, f.name, f.path, f.mtime_ms, f.size FROM file f",
        table: "file f",
        key: "f.id",
        sorts: &[("id", "f.id"), ("name", "f.name"), ("path", "f.path")],
    };
    const WHAT: &'static str = "file";

    fn conditions(filter: FileFilter) -> Filter {
        Filter::default()
            .with("f.workflow_id = ?", filter.workflow_id)
            .seen_by("f.workflow_id", &filter.audience)
            .with("f.name = ?", filter.name)
            .with("f.path = ?", filter.path)
            .with(
                "(f.name || ' ' || f.path) LIKE ? ESCAPE '\\'",
                filter.search.as_deref().map(containing),
            )
            .with(
                "f.id IN (SELECT item_id FROM job_item WHERE job_id = ? AND kind = 'output_file')",
                filter.produced_by_job_id,
            )
            .with(
                "f.id IN (SELECT item_id FROM job_item WHERE job_id = ? AND kind = 'input_file')",
                filter.needed_by_job_id,
            )
    }

    fn view(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            workflow_id: page::id(row, "workflow_id", WorkflowId)?,
            name: row.get("name")?,
            path: row.get("path")?,
            mtime_ms: row.get("mtime_ms")?,
            size: row.get("size")?,
            now: None,
        })
    }
}

impl Reader {
    /// Where the files of a workflow are, and when the job that writes each of these last succeeded:
    /// none where no job writes it.
    pub async fn writers_of_files(
        &self,
        workflow: WorkflowId,
        files: Vec<i64>,
    ) -> Result<(Option<String>, Vec<WritingJob>), ReadError> {
        self.read(move |connection| {
            let directory = directory(connection, workflow)?;
            let sql = "SELECT i.job_id, (SELECT max(a.ended_ms) FROM attempt a WHERE a.job_id = i.job_id AND a.state = 'completed') \
                       FROM job_item i JOIN job j ON j.id = i.job_id \
                       WHERE j.workflow_id = ?1 AND i.kind = 'output_file' AND i.item_id = ?2 LIMIT 1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut writers = Vec::with_capacity(files.len());
            for file in files {
                let writer = statement.find((workflow.0, file), |row| row.get(1))?;
                writers.push(match writer {
                    None => WritingJob::None,
                    Some(None) => WritingJob::NotYet,
                    Some(Some(ended_ms)) => WritingJob::Done { ended_ms },
                });
            }
            Ok((directory, writers))
        })
        .await
    }
}
