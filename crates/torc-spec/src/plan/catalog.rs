//! The expanded files and user data, found by name.

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
    file_index: HashMap<String, u32>,
    user_data_index: HashMap<String, u32>,
    advice: Advice,
}

impl Catalog {
    /// Adds a file; gives back the index of one with the same name if there is one.
    pub fn add_file(&mut self, file: File) -> Result<(), u32> {
        if let Some(first) = self.file_index.get(&file.name) {
            return Err(*first);
        }
        self.file_index.insert(file.name.clone(), index(self.files.len()));
        self.files.push(file);
        Ok(())
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

    /// A file by name.
    pub fn file(&self, name: &str) -> Option<u32> {
        self.file_index.get(name).copied()
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

fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
