//! The distinct needs of a workflow's jobs: a million jobs may need the same.

use super::index::ClassIx;
use std::collections::HashMap;
use std::ops::Index;
use torc_model::class::Class;

/// Each need once, with its number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    list: Vec<Class>,
    by_class: HashMap<Class, ClassIx>,
}

impl Classes {
    /// The number of a class, new or known.
    pub fn number(&mut self, class: Class) -> ClassIx {
        if let Some(index) = self.by_class.get(&class) {
            return *index;
        }
        let index = ClassIx::new(self.list.len());
        self.list.push(class.clone());
        self.by_class.insert(class, index);
        index
    }

    /// All of them, by their number.
    pub fn list(&self) -> &[Class] {
        &self.list
    }
}

impl Index<ClassIx> for Classes {
    type Output = Class;

    fn index(&self, index: ClassIx) -> &Class {
        &self.list[index.at()]
    }
}
