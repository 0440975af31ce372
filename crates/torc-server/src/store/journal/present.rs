//! What a piece of a spec may refer to in the workflow that it is added to.

use super::load::parse;
use super::{definitions, files, lookups};
use crate::store::facts::ItemKind;
use crate::store::rows::Rows as _;
use definitions::Named;
use rusqlite::{Connection, params};
use std::cell::OnceCell;
use std::collections::HashMap;
use torc_model::ids::WorkflowId;
use torc_model::plan::{FailureHandler, File, Requirements, SlurmScheduler, UserData};
use torc_spec::Present;

/// The names of the jobs that write each file and each piece of user data.
type Writers = HashMap<(ItemKind, i64), Vec<String>>;

/// The workflow as the database has it.
pub struct StoredWorkflow<'a> {
    db: &'a Connection,
    workflow: WorkflowId,
    /// Place of the failure handler of jobs that name none, in the order of the rows.
    default_handler: Option<usize>,
    writers: OnceCell<Writers>,
    paths: OnceCell<HashMap<String, String>>,
}

impl<'a> StoredWorkflow<'a> {
    pub fn new(db: &'a Connection, workflow: WorkflowId, default_handler: Option<usize>) -> Self {
        let (writers, paths) = (OnceCell::new(), OnceCell::new());
        Self { db, workflow, default_handler, writers, paths }
    }

    /// The jobs that write a file or a piece of user data. Read once: there is no index by item.
    fn writers(&self, kind: ItemKind, item: i64) -> rusqlite::Result<Vec<String>> {
        if self.writers.get().is_none() {
            _ = self.writers.set(files::writers(self.db, self.workflow)?);
        }
        let writers = self.writers.get().and_then(|writers| writers.get(&(kind, item)));
        Ok(writers.cloned().unwrap_or_default())
    }

    /// Files by their paths. Read once: there is no index by path.
    fn name_at(&self, path: &str) -> rusqlite::Result<Option<String>> {
        if self.paths.get().is_none() {
            let mut paths = HashMap::new();
            files::each_file(self.db, self.workflow, |file| {
                paths.insert(file.path.to_owned(), file.name.to_owned());
            })?;
            _ = self.paths.set(paths);
        }
        let path = path.strip_prefix("./").unwrap_or(path);
        Ok(self.paths.get().and_then(|paths| paths.get(path)).cloned())
    }

    pub fn find_file(&self, name: &str) -> rusqlite::Result<Option<(File, Vec<String>)>> {
        let mut find = self.db.prepare_cached(
            "SELECT id, path, min_size FROM file WHERE workflow_id = ?1 AND name = ?2",
        )?;
        let mut by_name = |name: &str| {
            find.find(params![self.workflow.0, name], |row| {
                let min_size = row.get::<_, i64>(2)?.unsigned_abs();
                Ok((row.get(0)?, File { name: name.into(), path: row.get(1)?, min_size }))
            })
        };
        let mut row = by_name(name)?;
        if row.is_none() && name.contains(['/', '.']) {
            row = self.name_at(name)?.map(|name| by_name(&name)).transpose()?.flatten();
        }
        row.map(|(id, file)| Ok((file, self.writers(ItemKind::OutputFile, id)?))).transpose()
    }

    pub fn find_user_data(&self, name: &str) -> rusqlite::Result<Option<(UserData, Vec<String>)>> {
        let row = files::find_user_data(self.db, self.workflow, name)?;
        row.map(|(id, data)| {
            let writers = self.writers(ItemKind::OutputData, id)?;
            // What a job produces becomes known when the reader starts.
            let value = data.data.filter(|_| writers.is_empty());
            Ok((UserData { data: value, ..data }, writers))
        })
        .transpose()
    }

    pub fn find_requirements(&self, name: &str) -> rusqlite::Result<Option<Requirements>> {
        let all = definitions::requirements(self.db, self.workflow)?;
        Ok(all.into_values().find(|requirements| requirements.name == name))
    }

    pub fn find_handler(&self, name: &str) -> rusqlite::Result<Option<FailureHandler>> {
        let found = definitions::find_handler(self.db, self.workflow, name)?;
        Ok(found.map(|(_, rules)| FailureHandler { name: name.into(), rules }))
    }

    pub fn find_default_handler(&self) -> rusqlite::Result<Option<String>> {
        let Some(place) = self.default_handler else { return Ok(None) };
        let names = definitions::names(self.db, self.workflow, Named::Handlers)?;
        Ok(names.into_iter().nth(place).map(|(_, name)| name))
    }

    fn find_scheduler(&self, name: &str) -> rusqlite::Result<Option<SlurmScheduler>> {
        self.db
            .prepare_cached(
                "SELECT definition FROM slurm_scheduler WHERE workflow_id = ?1 AND name = ?2",
            )?
            .find(params![self.workflow.0, name], |row| parse(&row.get::<_, String>(0)?))
    }
}

/// A name that cannot be looked up is not there: the caller is told so, and the statement
/// that would have used it fails as well.
fn found<T>(looked: rusqlite::Result<Option<T>>) -> Option<T> {
    looked.unwrap_or_else(|error| {
        tracing::error!("a name of an added job could not be looked up: {error}");
        None
    })
}

impl Present for StoredWorkflow<'_> {
    fn has_job(&self, name: &str) -> bool {
        found(lookups::find_job(self.db, self.workflow, name)).is_some()
    }

    fn file(&self, name: &str) -> Option<(File, Vec<String>)> {
        found(self.find_file(name))
    }

    fn user_data(&self, name: &str) -> Option<(UserData, Vec<String>)> {
        found(self.find_user_data(name))
    }

    fn requirements(&self, name: &str) -> Option<Requirements> {
        found(self.find_requirements(name))
    }

    fn handler(&self, name: &str) -> Option<FailureHandler> {
        found(self.find_handler(name))
    }

    fn default_handler(&self) -> Option<String> {
        found(self.find_default_handler())
    }

    fn scheduler(&self, name: &str) -> Option<SlurmScheduler> {
        found(self.find_scheduler(name))
    }
}
