//! The expanded files and user data, found by name.

use super::index::Index;
use crate::diagnostic::Advice;
use std::collections::HashMap;
use torc_model::plan::{File, UserData};

/// The expanded files and user data, found by name.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Files, in order.
    pub files: Vec<File>,
    /// User data, in order.
    pub user_data: Vec<UserData>,
    file_index: Index,
    /// The first file with each path.
    path_index: Index,
    user_data_index: HashMap<String, u32>,
    advice: Advice,
}

impl Catalog {
    /// Adds a file; gives back the index of one with the same name if there is one.
    pub fn add_file(&mut self, file: File) -> Result<(), u32> {
        if let Some(first) = self.by_name(&file.name) {
            return Err(first);
        }
        let number = self.files.len();
        self.file_index.add(&file.name, number, |file| &self.files[file].name);
        let path = plain_path(&file.path);
        if self.by_path(path).is_none() {
            self.path_index.add(path, number, |file| plain_path(&self.files[file].path));
        }
        self.files.push(file);
        Ok(())
    }

    /// Adds a file that a job names by its path, unless it is known by that as its name or path.
    /// What is neither a name nor looks like a path stays unknown.
    pub fn add_path(&mut self, path: &str) {
        if !is_path(path) || self.file(path).is_some() {
            return;
        }
        let plain = plain_path(path);
        // Another file may be called as this one's path is.
        let name = if self.by_name(plain).is_some() { path } else { plain };
        let file = File { name: name.to_owned(), path: plain.to_owned(), min_size: 0 };
        let added = self.add_file(file);
        debug_assert!(added.is_ok(), "`{path}` is added twice");
    }

    /// Adds user data; gives back the index of one with the same name if there is one.
    pub fn add_user_data(&mut self, data: UserData) -> Result<(), u32> {
        if let Some(first) = self.user_data_index.get(&data.name) {
            return Err(*first);
        }
        self.user_data_index.insert(data.name.clone(), index(self.user_data.len()));
        self.user_data.push(data);
        Ok(())
    }

    /// A file by name, or else by path.
    pub fn file(&self, name: &str) -> Option<u32> {
        self.by_name(name).or_else(|| self.by_path(plain_path(name)))
    }

    fn by_name(&self, name: &str) -> Option<u32> {
        self.file_index.get(name, |file| &self.files[file].name).map(index)
    }

    fn by_path(&self, plain: &str) -> Option<u32> {
        self.path_index.get(plain, |file| plain_path(&self.files[file].path)).map(index)
    }

    /// User data by name.
    pub fn user_data(&self, name: &str) -> Option<u32> {
        self.user_data_index.get(name).copied()
    }

    /// Advice for a name that is no file.
    pub fn nearest_file(&self, name: &str) -> Option<String> {
        self.advice.suggest(name, self.files.iter().map(|file| file.name.as_str()))
    }

    /// Advice for a name that is no user data.
    pub fn nearest_user_data(&self, name: &str) -> Option<String> {
        self.advice.suggest(name, self.user_data.iter().map(|data| data.name.as_str()))
    }
}

/// A path without the `./` that says nothing.
fn plain_path(path: &str) -> &str {
    let mut plain = path;
    while let Some(rest) = plain.strip_prefix("./").filter(|rest| !rest.is_empty()) {
        plain = rest.trim_start_matches('/');
    }
    if plain.is_empty() { path } else { plain }
}

/// A dot or a slash tells a path from a name.
pub fn is_path(text: &str) -> bool {
    text.contains(['/', '.'])
}

fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
