//! Resolution: names and expressions become indexes, and files and user data become dependencies.

use super::Planner;
use super::catalog::Catalog;
use super::command::ReferenceKind;
use super::jobs::{Draft, Expanded, LISTS};
use super::matching::{Matches, Names};
use crate::diagnostic::{Diagnostic, excerpt};
use crate::node::At;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use torc_model::plan::Job;
use torc_model::sparse::Sparse;

/// More dependencies than this are refused: the graph would not fit into memory.
const MAX_EDGES: usize = 20_000_000;
/// Dependencies that are followed to find out whether jobs that write the same file are ordered.
const MAX_LOOKS: usize = 2_000_000;

/// The lists of a job as indexes: jobs, then files read and written, then user data read and
/// written.
#[derive(Clone, PartialEq, Debug, Default)]
struct JobLists([Vec<u32>; 5]);
torc_model::plain!(JobLists);

type Found<'a> = HashMap<&'a str, Result<Matches, String>>;

/// How a list of names is looked up.
struct Lookup<'a> {
    what: &'static str,
    names: &'a dyn Fn(&str) -> Option<u32>,
    all: &'a [&'a str],
    found: &'a Found<'a>,
}

impl Planner<'_> {
    /// Resolves every reference of every job. Also gives the definition of each job.
    pub fn resolve_jobs(
        &mut self,
        expanded: Expanded,
        owned: &mut Catalog,
    ) -> (Vec<Job>, Vec<usize>) {
        let catalog = &*owned;
        let job_names: Vec<&str> = expanded.jobs.iter().map(|job| job.name.as_str()).collect();
        let file_names: Vec<&str> = catalog.files.iter().map(|file| file.name.as_str()).collect();
        let data_names: Vec<&str> =
            catalog.user_data.iter().map(|data| data.name.as_str()).collect();
        let patterns = |wanted: &'static [u8]| {
            let elements = expanded.drafts.iter().flat_map(|draft| &draft.elements);
            elements
                .filter(|element| wanted.contains(&element.list))
                .map(|element| element.text.as_str())
        };
        let jobs_found = Names::new(job_names.clone()).match_all(patterns(&[1]));
        let files_found = Names::new(file_names.clone()).match_all(patterns(&[3, 5]));
        let data_found = Names::new(data_names.clone()).match_all(patterns(&[7, 9]));
        let (by_job, by_file, by_data) = (
            |name: &str| expanded.find(name).map(|index| index as u32),
            |name: &str| catalog.file(name),
            |name: &str| catalog.user_data(name),
        );
        let jobs = Lookup { what: "job", names: &by_job, all: &job_names, found: &jobs_found };
        let files = Lookup { what: "file", names: &by_file, all: &file_names, found: &files_found };
        let data =
            Lookup { what: "user data", names: &by_data, all: &data_names, found: &data_found };

        let mut resolved: Vec<Sparse<JobLists>> = Vec::with_capacity(expanded.jobs.len());
        let mut edges = 0usize;
        for (own, draft) in expanded.drafts.iter().enumerate() {
            let name = job_names[own];
            let named = |kind: ReferenceKind| {
                draft.references.iter().filter(move |(k, _)| *k == kind).map(|(_, i)| *i)
            };
            let mut lists = [
                self.resolve_list(name, draft, 0, &jobs, own),
                self.resolve_list(name, draft, 2, &files, usize::MAX),
                self.resolve_list(name, draft, 4, &files, usize::MAX),
                self.resolve_list(name, draft, 6, &data, usize::MAX),
                self.resolve_list(name, draft, 8, &data, usize::MAX),
            ];
            let jobs_at = At::top("jobs");
            let at = jobs_at.index(draft.origin as usize);
            if let Some(map) = &draft.reduce {
                match by_job(map) {
                    Some(index) => lists[0].push(index),
                    None => self.unknown_name(name, map, &jobs, &at.key("reduce")),
                }
            }
            if let Some(Value::String(wanted)) =
                draft.map.as_ref().and_then(|map| map.pointer("/items/user_data"))
            {
                match by_data(wanted) {
                    Some(index) => lists[3].push(index),
                    None => self.unknown_name(
                        name,
                        wanted,
                        &data,
                        &at.key("map").key("items").key("user_data"),
                    ),
                }
            }
            lists[1].extend(named(ReferenceKind::InputFile));
            lists[2].extend(named(ReferenceKind::OutputFile));
            lists[3].extend(named(ReferenceKind::InputUserData));
            lists[4].extend(named(ReferenceKind::OutputUserData));
            edges += lists.iter().map(Vec::len).sum::<usize>();
            if edges > MAX_EDGES {
                self.too_many_edges(draft);
                return (Vec::new(), Vec::new());
            }
            // Asking whether they are empty is much quicker than comparing them with empty ones.
            let has_any = lists.iter().any(|list| !list.is_empty());
            resolved.push(if has_any {
                JobLists(lists.map(sorted)).into()
            } else {
                Sparse::default()
            });
        }
        self.link(&expanded, &mut resolved, catalog);
        if resolved.len() < expanded.jobs.len() {
            return (Vec::new(), Vec::new());
        }
        let Expanded { mut jobs, drafts, .. } = expanded;
        let mut origins = Vec::with_capacity(jobs.len());
        for ((job, draft), lists) in jobs.iter_mut().zip(drafts).zip(resolved) {
            origins.push(draft.origin as usize);
            for file in lists.0[2].iter().filter(|_| draft.min_size > 0) {
                let size = &mut owned.files[*file as usize].min_size;
                *size = draft.min_size.max(*size);
            }
            self.finish(job, draft, lists);
        }
        (jobs, origins)
    }

    /// One list of names and the list of expressions that follows it in [`LISTS`].
    fn resolve_list(
        &mut self,
        name: &str,
        draft: &Draft,
        list: u8,
        lookup: &Lookup<'_>,
        own: usize,
    ) -> Vec<u32> {
        let jobs = At::top("jobs");
        let job = jobs.index(draft.origin as usize);
        let mut out = Vec::new();
        for element in &draft.elements {
            let key = job.key(LISTS[usize::from(element.list)].key);
            let at = key.index(element.position as usize);
            if element.list == list {
                match (lookup.names)(&element.text) {
                    Some(found) => out.push(found),
                    None => self.unknown_name(name, &element.text, lookup, &at),
                }
            } else if element.list == list + 1 {
                match &lookup.found[element.text.as_str()] {
                    Ok(matches) => {
                        let before = out.len();
                        out.extend(matches.iter().filter(|found| **found as usize != own));
                        if out.len() == before {
                            self.no_match(name, &element.text, lookup, &at, !matches.is_empty());
                        }
                    }
                    Err(error) => {
                        let reason = error.lines().last().unwrap_or("");
                        let message = format!("cannot use `{}`: {reason}", excerpt(&element.text));
                        self.report(&at, "", Diagnostic::error(message));
                    }
                }
            }
        }
        out
    }

    fn unknown_name(&mut self, job: &str, name: &str, lookup: &Lookup<'_>, at: &At<'_>) {
        if self.may_be_lost(lookup.what, name) {
            return;
        }
        let job = excerpt(job);
        let message =
            format!("job `{job}`: there is no {} called `{}`", lookup.what, excerpt(name));
        let family = format!("{name}_");
        let is_file = lookup.what == "file";
        let help = if is_file && name.contains(['*', '?']) {
            Some("write each path, or one job per file with `parameters`".to_owned())
        } else if lookup.what == "job"
            && self.advice.any(lookup.all, |job| job.starts_with(&family))
        {
            Some(format!(
                "to depend on all jobs that begin with `{family}`, write `depends_on_regexes: ['^{family}']`"
            ))
        } else {
            let near = self.advice.suggest(name, lookup.all.iter().copied());
            match near {
                _ if !is_file => near,
                Some(near) => Some(format!("{near} For a path write `./{name}`")),
                None => Some(format!("for a path write `./{name}`")),
            }
        };
        self.report(at, "", Diagnostic::error(message).maybe_help(help));
    }

    fn no_match(
        &mut self,
        job: &str,
        pattern: &str,
        lookup: &Lookup<'_>,
        at: &At<'_>,
        itself: bool,
    ) {
        if self.lost.contains_key(lookup.what) {
            return;
        }
        let (job, shown) = (excerpt(job), excerpt(pattern));
        if itself {
            self.report(
                at,
                "",
                Diagnostic::error(format!("job `{job}`: `{shown}` matches only the job itself")),
            );
            return;
        }
        let plain: String =
            pattern.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
        let help = self.advice.suggest(&plain, lookup.all.iter().copied());
        let message = format!("job `{job}`: `{shown}` matches no {}", lookup.what);
        self.report(at, "", Diagnostic::error(message).maybe_help(help));
    }

    /// Adds the dependencies that files and user data bring. Leaves nothing if they are too many.
    fn link(
        &mut self,
        expanded: &Expanded,
        resolved: &mut Vec<Sparse<JobLists>>,
        catalog: &Catalog,
    ) {
        if catalog.files.is_empty() && catalog.user_data.is_empty() {
            return;
        }
        let mut file_producers: Vec<Vec<u32>> = vec![Vec::new(); catalog.files.len()];
        let mut data_producers: Vec<Vec<u32>> = vec![Vec::new(); catalog.user_data.len()];
        for (job, lists) in resolved.iter().enumerate() {
            lists.0[2].iter().for_each(|file| file_producers[*file as usize].push(job as u32));
            lists.0[4].iter().for_each(|data| data_producers[*data as usize].push(job as u32));
        }
        let mut edges = 0usize;
        for (job, lists) in resolved.iter_mut().enumerate() {
            if lists.0.iter().all(Vec::is_empty) {
                continue;
            }
            let [depends_on, input_files, _, input_data, _] = &mut lists.0;
            for file in input_files.iter() {
                depends_on.extend(&file_producers[*file as usize]);
            }
            for data in input_data.iter() {
                depends_on.extend(&data_producers[*data as usize]);
            }
            *depends_on = sorted(std::mem::take(depends_on));
            edges += depends_on.len();
            if edges > MAX_EDGES {
                self.too_many_edges(&expanded.drafts[job]);
                resolved.clear();
                return;
            }
        }
        let mut order = JobOrder { resolved, looks: MAX_LOOKS };
        for (file, producers) in catalog.files.iter().zip(&file_producers) {
            self.warn_producers(expanded, &mut order, "file", &file.name, producers);
        }
        for (data, producers) in catalog.user_data.iter().zip(&data_producers) {
            self.warn_producers(expanded, &mut order, "user data", &data.name, producers);
        }
    }

    fn too_many_edges(&mut self, draft: &Draft) {
        let message = format!("the jobs have more than {MAX_EDGES} dependencies");
        let help = "put one job between the two groups: it depends on all of the first, and all of the second on it";
        let at = At::top("jobs");
        self.report(
            &at.index(draft.origin as usize).key("name"),
            "",
            Diagnostic::error(message).help(help),
        );
    }

    /// Jobs that write the same may run at the same time, unless one waits for the other.
    fn warn_producers(
        &mut self,
        expanded: &Expanded,
        order: &mut JobOrder<'_>,
        what: &str,
        name: &str,
        producers: &[u32],
    ) {
        let unordered = producers.windows(2).find(|pair| !order.is_known(pair[0], pair[1]));
        let Some([first, second]) = unordered else { return };
        let (first, second) = (*first as usize, *second as usize);
        let message = format!(
            "{what} `{}` is written by {} jobs, such as `{}` and `{}`",
            excerpt(name),
            producers.len(),
            excerpt(&expanded.jobs[first].name),
            excerpt(&expanded.jobs[second].name)
        );
        let help = "nothing orders them, so they may write at the same time: let one wait for the other with \
                    `depends_on`, or give each its own; a job that reads it waits for all of them";
        let diagnostic = Diagnostic::warning(message).help(help);
        let origin = expanded.drafts[second].origin as usize;
        self.report(&At::top("jobs").index(origin).key("name"), "", diagnostic);
    }

    /// Puts what was found into a job.
    fn finish(&mut self, job: &mut Job, draft: Draft, lists: Sparse<JobLists>) {
        let lists = lists.into_inner().0;
        if lists.iter().any(|list| !list.is_empty()) {
            [
                job.depends_on,
                job.input_files,
                job.output_files,
                job.input_user_data,
                job.output_user_data,
            ] = lists.map(|list| list.into_iter().map(|i| i as usize).collect());
        }
        let origin = draft.origin as usize;
        let rest = draft.rest.into_inner();
        let document = &self.spec.document;
        let mut rest = rest;
        if let Some(present) = self.present {
            self.take_present(job, &mut rest, present);
        }
        let wanted = rest.resource_requirements.take().filter(|name| name != "default");
        let known = document.resource_requirements.iter().map(|r| r.name.as_str());
        let named = self.named(&job.name, origin, "resource_requirements", wanted, known);
        job.resource_requirements = named.or(job.resource_requirements);
        if let Some(needs) = rest.needs {
            job.resource_requirements = Some(self.short.requirements(needs, document));
        }
        let known = document.failure_handlers.iter().map(|h| h.name.as_str());
        let named =
            self.named(&job.name, origin, "failure_handler", rest.failure_handler.take(), known);
        job.failure_handler = named.or(job.failure_handler);
        if rest.retries > 0 {
            self.add_retries(job, rest.retries, origin);
        }
        let known = document.slurm_schedulers.iter().map(|s| s.name.as_str());
        let named = self.named(&job.name, origin, "scheduler", rest.scheduler.take(), known);
        job.scheduler = named.or(job.scheduler);
        match crate::steps::role(rest.map.as_ref(), rest.reduce.as_deref()) {
            Ok(Some(role)) => job.extra.map = Some(role.to_value()),
            Ok(None) => {}
            Err(message) => {
                let at = At::top("jobs");
                self.report(&at.index(origin).key("map"), "", Diagnostic::error(message));
            }
        }
    }

    fn named<'k>(
        &mut self,
        job: &str,
        origin: usize,
        key: &'static str,
        name: Option<String>,
        known: impl ExactSizeIterator<Item = &'k str> + Clone,
    ) -> Option<usize> {
        let name = name.as_deref()?;
        let found = known.clone().position(|known| known == name);
        if found.is_none() {
            let (message, list) = match key {
                "resource_requirements" => {
                    ("there are no resource requirements called", "resource_requirements")
                }
                "failure_handler" => ("there is no failure handler called", "failure_handlers"),
                _ => ("there is no Slurm scheduler called", "slurm_schedulers"),
            };
            let help = self.advice.suggest(name, known);
            let help = help.or_else(|| Some(format!("the workflow defines none; add `{list}`")));
            let message = format!("job `{}`: {message} `{}`", excerpt(job), excerpt(name));
            self.report(
                &At::top("jobs").index(origin).key(key),
                "",
                Diagnostic::error(message).maybe_help(help),
            );
        }
        found
    }
}

/// Which jobs wait for which.
struct JobOrder<'a> {
    resolved: &'a [Sparse<JobLists>],
    /// Dependencies that may still be followed; what is not found out counts as no order.
    looks: usize,
}

impl JobOrder<'_> {
    /// One of the two waits for the other, perhaps over jobs between them.
    fn is_known(&mut self, a: u32, b: u32) -> bool {
        self.waits(a, b) || self.waits(b, a)
    }

    fn waits(&mut self, job: u32, other: u32) -> bool {
        let mut seen = HashSet::from([job]);
        let mut open = vec![job];
        while let Some(job) = open.pop() {
            for before in &self.resolved[job as usize].0[0] {
                self.looks = self.looks.saturating_sub(1);
                if *before == other {
                    return true;
                }
                if self.looks == 0 {
                    return false;
                }
                if seen.insert(*before) {
                    open.push(*before);
                }
            }
        }
        false
    }
}

fn sorted(mut list: Vec<u32>) -> Vec<u32> {
    list.sort_unstable();
    list.dedup();
    list
}
