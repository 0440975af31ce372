//! Jobs by groups other than families: by the beginnings of their names, by a regular expression, or
//! one by one. For graphs with so many families that their picture says nothing.

use super::graph::kind;
use super::{FamilyGraph, FamilyIndex, ReadError, Reader};
use crate::store::journal::definitions;
use regex::Regex;
use std::collections::{BTreeMap, HashMap};
use torc_model::api::{GraphEdge, GraphGroup};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::layout;

/// Groups at most. Laying out this many takes less than half a second.
pub const MAX_GROUPS: usize = 10_000;

/// How jobs are put together.
#[derive(Clone, Debug)]
pub enum Grouping {
    /// By the beginnings of their names.
    Prefix,
    /// By what the first capture holds; jobs that do not match stand alone.
    Pattern(Regex),
    /// Each by itself.
    Job,
}

/// Jobs in groups, laid out.
#[derive(Clone, Debug)]
pub struct Regrouped {
    /// Names of the groups and the group of each job.
    pub index: FamilyIndex,
    /// Filter of each group; None for one that is a job.
    pub filters: Vec<Option<String>>,
    /// Ids of the nodes: of the job when each stands for one, else the number of the group.
    pub ids: Vec<i64>,
    /// Edges between groups, by number, and places.
    pub graph: FamilyGraph,
}

impl Reader {
    /// The graph by groups; None when there are too many.
    pub async fn regrouped(
        &self,
        id: WorkflowId,
        grouping: Grouping,
    ) -> Result<Option<Regrouped>, ReadError> {
        self.read(move |connection| {
            let mut jobs = Vec::new();
            let mut groups = Groups::default();
            let mut statement = connection
                .prepare_cached("SELECT id, name FROM job WHERE workflow_id = ? ORDER BY id")?;
            let mut rows = statement.query([id.0])?;
            while let Some(row) = rows.next()? {
                let (job, name): (i64, String) = (row.get(0)?, row.get(1)?);
                jobs.push(job);
                groups.add(&grouping, job, &name);
                if groups.names.len() > MAX_GROUPS {
                    return Ok(None);
                }
            }
            let mut edges = BTreeMap::<(u32, u32), i64>::new();
            let group_of =
                |job: JobId| jobs.binary_search(&job.0).ok().map(|at| groups.of_jobs[at]);
            definitions::each_parent(connection, id, |job, parent| {
                if let (Some(from), Some(to)) = (group_of(parent), group_of(job))
                    && from != to
                {
                    *edges.entry((from, to)).or_default() += 1;
                }
            })?;
            Ok(Some(groups.laid_out(&edges)))
        })
        .await
    }
}

#[derive(Default)]
struct Groups {
    by_name: HashMap<String, u32>,
    names: Vec<String>,
    filters: Vec<Option<String>>,
    ids: Vec<i64>,
    sizes: Vec<i64>,
    of_jobs: Vec<u32>,
}

impl Groups {
    fn add(&mut self, grouping: &Grouping, job: i64, name: &str) {
        let (group, filter) = match grouping {
            Grouping::Job => (name, None),
            Grouping::Prefix => {
                let prefix = prefix(name);
                (prefix, Some(term(&format!("^{}", regex::escape(prefix)))))
            }
            Grouping::Pattern(pattern) => match pattern.captures(name).and_then(|c| c.get(1)) {
                Some(part) => (part.as_str(), Some(term(&filled(pattern.as_str(), part.as_str())))),
                None => (name, None),
            },
        };
        let next = self.names.len() as u32;
        let number = *self.by_name.entry(group.to_owned()).or_insert(next);
        if number == next {
            self.names.push(group.to_owned());
            // A job that stands alone is found by its id.
            self.ids.push(if filter.is_none() { job } else { i64::from(number) });
            self.filters.push(filter);
            self.sizes.push(0);
        }
        self.sizes[number as usize] += 1;
        self.of_jobs.push(number);
    }

    fn laid_out(mut self, edges: &BTreeMap<(u32, u32), i64>) -> Regrouped {
        let pairs: Vec<(u32, u32)> = edges.keys().copied().collect();
        let places = layout::layers(self.names.len(), &pairs);
        // Where groups and single jobs are mixed, numbers and ids of jobs must not meet.
        if self.filters.iter().any(Option::is_some) {
            for (number, filter) in self.filters.iter_mut().enumerate() {
                let id = self.ids[number];
                self.ids[number] = number as i64;
                filter.get_or_insert_with(|| format!("id:{id}"));
            }
        }
        let edge = |(&(from, to), &count): (&(u32, u32), &i64)| GraphEdge {
            from: self.ids[from as usize],
            to: self.ids[to as usize],
            count,
            kind: kind(self.sizes[from as usize], self.sizes[to as usize], count).to_owned(),
        };
        let edges = edges.iter().map(edge).collect();
        Regrouped {
            index: FamilyIndex { names: self.names, of_jobs: self.of_jobs },
            filters: self.filters,
            ids: self.ids,
            graph: FamilyGraph { edges, places },
        }
    }
}

impl Grouping {
    /// What a node of it stands for.
    pub fn word(&self) -> GraphGroup {
        match self {
            Self::Prefix => GraphGroup::Prefix,
            Self::Pattern(_) => GraphGroup::Pattern,
            Self::Job => GraphGroup::Job,
        }
    }
}

/// The name up to its first digit or mark; all of it when it begins with one.
fn prefix(name: &str) -> &str {
    let end = name.find(|c: char| c.is_ascii_digit() || "_-./:".contains(c));
    match end {
        None | Some(0) => name,
        Some(end) => &name[..end],
    }
}

/// The pattern with its first capture replaced by what it held.
fn filled(pattern: &str, part: &str) -> String {
    let bytes = pattern.as_bytes();
    let (mut at, mut is_class, mut begin, mut depth) = (0, false, None, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => is_class = true,
            b']' => is_class = false,
            b'(' if !is_class && begin.is_some() => depth += 1,
            b'(' if !is_class => {
                let rest = &pattern[at + 1..];
                let is_capture =
                    !rest.starts_with('?') || rest.starts_with("?P<") || rest.starts_with("?<");
                if is_capture {
                    begin = Some(at);
                }
            }
            b')' if !is_class => match begin {
                Some(begin) if depth == 0 => {
                    let middle = regex::escape(part);
                    return format!("{}{middle}{}", &pattern[..begin], &pattern[at + 1..]);
                }
                Some(_) => depth -= 1,
                None => {}
            },
            _ => {}
        }
        at += 1;
    }
    pattern.to_owned()
}

/// A term of the filter language.
fn term(pattern: &str) -> String {
    if pattern.contains(char::is_whitespace) {
        return format!("name~\"{pattern}\"");
    }
    format!("name~{pattern}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(grouping: &Grouping, names: &[&str]) -> Regrouped {
        let mut groups = Groups::default();
        names.iter().enumerate().for_each(|(at, name)| groups.add(grouping, at as i64 + 10, name));
        groups.laid_out(&BTreeMap::from([((0, 1), 2)]))
    }

    #[test]
    fn names_that_begin_alike_are_one_group() {
        let made = groups(&Grouping::Prefix, &["train_1", "train_2", "eval-a", "7z"]);
        assert_eq!(made.index.names, ["train", "eval", "7z"]);
        assert_eq!(made.index.of_jobs, [0, 0, 1, 2]);
        assert_eq!(made.filters[0].as_deref(), Some("name~^train"));
        assert_eq!(made.graph.edges[0].kind, "all");
    }

    #[test]
    fn a_pattern_groups_by_its_first_capture_and_leaves_the_rest_alone() {
        let pattern = Regex::new(r"^(.*)_\d+$").unwrap();
        let made = groups(&Grouping::Pattern(pattern), &["a b_1", "a b_22", "c"]);
        assert_eq!(made.index.names, ["a b", "c"]);
        assert_eq!(made.filters[0].as_deref(), Some(r#"name~"^a b_\d+$""#));
        assert_eq!(made.filters[1].as_deref(), Some("id:12"));
        assert_eq!(made.ids, [0, 1]);
    }

    #[test]
    fn each_job_by_itself_has_its_id() {
        let made = groups(&Grouping::Job, &["a", "b"]);
        assert_eq!((made.ids, made.filters), (vec![10, 11], vec![None, None]));
        assert_eq!((made.graph.edges[0].from, made.graph.edges[0].to), (10, 11));
    }

    #[test]
    fn the_capture_of_a_pattern_is_replaced_whatever_stands_around_it() {
        assert_eq!(filled(r"^(?:x|y)\((a(b)?)\)[(]$", "a."), r"^(?:x|y)\(a\.\)[(]$");
        assert_eq!(filled("plain", "x"), "plain");
    }
}
