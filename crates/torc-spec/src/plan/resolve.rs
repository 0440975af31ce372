//! Resolution: names and expressions become indexes, and files and user data become dependencies.

use super::Planner;
use super::catalog::Catalog;
use super::command::ReferenceKind;
use super::jobs::{Instance, LISTS};
use super::matching::{Matches, Names};
use crate::diagnostic::{Diagnostic, excerpt};
use crate::node::At;
use serde_json::Value;
use std::collections::HashMap;
use torc_model::plan::{Job, JobExtra};
use torc_model::sparse::Sparse;

/// More dependencies than this are refused: the graph would not fit into memory.
const MAX_EDGES: usize = 20_000_000;

/// The lists of a job as indexes: jobs, then files read and written, then user data read and written.
#[derive(Clone, PartialEq, Debug, Default)]
struct Lists([Vec<u32>; 5]);
torc_model::plain!(Lists);

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
    pub fn resolve_jobs(&mut self, instances: Vec<Instance>, catalog: &Catalog) -> (Vec<Job>, Vec<usize>) {
        let job_names: Vec<&str> = instances.iter().map(|instance| instance.name.as_str()).collect();
        let file_names: Vec<&str> = catalog.files.iter().map(|file| file.name.as_str()).collect();
        let data_names: Vec<&str> = catalog.user_data.iter().map(|data| data.name.as_str()).collect();
        let index: HashMap<&str, u32> = job_names.iter().enumerate().map(|(i, name)| (*name, i as u32)).collect();
        let patterns = |wanted: &'static [u8]| {
            let elements = instances.iter().flat_map(|instance| &instance.elements);
            elements.filter(|element| wanted.contains(&element.list)).map(|element| element.text.as_str())
        };
        let jobs_found = Names::new(job_names.clone()).match_all(patterns(&[1]));
        let files_found = Names::new(file_names.clone()).match_all(patterns(&[3, 5]));
        let data_found = Names::new(data_names.clone()).match_all(patterns(&[7, 9]));
        let (by_job, by_file, by_data) = (
            |name: &str| index.get(name).copied(),
            |name: &str| catalog.file(name),
            |name: &str| catalog.user_data(name),
        );
        let jobs = Lookup { what: "job", names: &by_job, all: &job_names, found: &jobs_found };
        let files = Lookup { what: "file", names: &by_file, all: &file_names, found: &files_found };
        let data = Lookup { what: "user data", names: &by_data, all: &data_names, found: &data_found };

        let mut resolved: Vec<Sparse<Lists>> = Vec::with_capacity(instances.len());
        let mut edges = 0usize;
        for (own, instance) in instances.iter().enumerate() {
            let named =
                |kind: ReferenceKind| instance.references.iter().filter(move |(k, _)| *k == kind).map(|(_, i)| *i);
            let mut lists = [
                self.resolve_list(instance, 0, &jobs, own),
                self.resolve_list(instance, 2, &files, usize::MAX),
                self.resolve_list(instance, 4, &files, usize::MAX),
                self.resolve_list(instance, 6, &data, usize::MAX),
                self.resolve_list(instance, 8, &data, usize::MAX),
            ];
            let jobs_at = At::top("jobs");
            let at = jobs_at.index(instance.origin);
            if let Some(map) = &instance.reduce {
                match by_job(map) {
                    Some(index) => lists[0].push(index),
                    None => self.unknown_name(instance, map, &jobs, &at.key("reduce")),
                }
            }
            if let Some(Value::String(name)) = instance.map.as_ref().and_then(|map| map.pointer("/items/user_data")) {
                match by_data(name) {
                    Some(index) => lists[3].push(index),
                    None => self.unknown_name(instance, name, &data, &at.key("map").key("items").key("user_data")),
                }
            }
            lists[1].extend(named(ReferenceKind::InputFile));
            lists[2].extend(named(ReferenceKind::OutputFile));
            lists[3].extend(named(ReferenceKind::InputUserData));
            lists[4].extend(named(ReferenceKind::OutputUserData));
            edges += lists.iter().map(Vec::len).sum::<usize>();
            if edges > MAX_EDGES {
                self.too_many_edges(instance);
                return (Vec::new(), Vec::new());
            }
            resolved.push(Sparse::from(Lists(lists.map(sorted))));
        }
        self.link(&instances, &mut resolved, catalog);
        let origins = instances.iter().map(|instance| instance.origin).collect();
        if resolved.len() < instances.len() {
            return (Vec::new(), Vec::new());
        }
        let finished = instances.into_iter().zip(resolved).map(|(instance, job)| self.finish(instance, job)).collect();
        (finished, origins)
    }

    /// One list of names and the list of expressions that follows it in [`LISTS`].
    fn resolve_list(&mut self, instance: &Instance, list: u8, lookup: &Lookup<'_>, own: usize) -> Vec<u32> {
        let jobs = At::top("jobs");
        let job = jobs.index(instance.origin);
        let mut out = Vec::new();
        for element in &instance.elements {
            let key = job.key(LISTS[usize::from(element.list)].key);
            let at = key.index(element.position as usize);
            if element.list == list {
                match (lookup.names)(&element.text) {
                    Some(found) => out.push(found),
                    None => self.unknown_name(instance, &element.text, lookup, &at),
                }
            } else if element.list == list + 1 {
                match &lookup.found[element.text.as_str()] {
                    Ok(matches) => {
                        let before = out.len();
                        out.extend(matches.iter().filter(|found| **found as usize != own));
                        if out.len() == before {
                            self.no_match(instance, &element.text, lookup, &at, !matches.is_empty());
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

    fn unknown_name(&mut self, instance: &Instance, name: &str, lookup: &Lookup<'_>, at: &At<'_>) {
        let job = excerpt(&instance.name);
        let message = format!("job `{job}`: there is no {} called `{}`", lookup.what, excerpt(name));
        let family = format!("{name}_");
        let help = if lookup.what == "job" && self.advice.any(lookup.all, |job| job.starts_with(&family)) {
            Some(format!("to depend on all jobs that begin with `{family}`, write `depends_on_regexes: ['^{family}']`"))
        } else {
            self.advice.suggest(name, lookup.all.iter().copied())
        };
        self.report(at, "", Diagnostic::error(message).maybe_help(help));
    }

    fn no_match(&mut self, instance: &Instance, pattern: &str, lookup: &Lookup<'_>, at: &At<'_>, itself: bool) {
        let (job, shown) = (excerpt(&instance.name), excerpt(pattern));
        if itself {
            self.report(at, "", Diagnostic::error(format!("job `{job}`: `{shown}` matches only the job itself")));
            return;
        }
        let plain: String = pattern.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
        let help = self.advice.suggest(&plain, lookup.all.iter().copied());
        let message = format!("job `{job}`: `{shown}` matches no {}", lookup.what);
        self.report(at, "", Diagnostic::error(message).maybe_help(help));
    }

    /// Adds the dependencies that files and user data bring. Leaves nothing if they are too many.
    fn link(&mut self, instances: &[Instance], resolved: &mut Vec<Sparse<Lists>>, catalog: &Catalog) {
        if catalog.files.is_empty() && catalog.user_data.is_empty() {
            return;
        }
        let mut file_producers: Vec<Vec<u32>> = vec![Vec::new(); catalog.files.len()];
        let mut data_producers: Vec<Vec<u32>> = vec![Vec::new(); catalog.user_data.len()];
        for (job, lists) in resolved.iter().enumerate() {
            lists.0[2].iter().for_each(|file| file_producers[*file as usize].push(job as u32));
            lists.0[4].iter().for_each(|data| data_producers[*data as usize].push(job as u32));
        }
        for (file, producers) in catalog.files.iter().zip(&file_producers) {
            self.warn_producers(instances, "file", &file.name, producers);
        }
        for (data, producers) in catalog.user_data.iter().zip(&data_producers) {
            self.warn_producers(instances, "user data", &data.name, producers);
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
                self.too_many_edges(&instances[job]);
                resolved.clear();
                return;
            }
        }
    }

    fn too_many_edges(&mut self, instance: &Instance) {
        let message = format!("the jobs have more than {MAX_EDGES} dependencies");
        let help = "put one job between the two groups: it depends on all of the first, and all of the second on it";
        self.report(&At::top("jobs").index(instance.origin).key("name"), "", Diagnostic::error(message).help(help));
    }

    fn warn_producers(&mut self, instances: &[Instance], what: &str, name: &str, producers: &[u32]) {
        let [first, second, ..] = producers else { return };
        let (first, second) = (&instances[*first as usize], &instances[*second as usize]);
        let message = format!(
            "{what} `{}` is written by {} jobs, such as `{}` and `{}`",
            excerpt(name),
            producers.len(),
            excerpt(&first.name),
            excerpt(&second.name)
        );
        let diagnostic = Diagnostic::warning(message).help("whoever reads it waits for all of them");
        self.report(&At::top("jobs").index(second.origin).key("name"), "", diagnostic);
    }

    fn finish(&mut self, instance: Instance, lists: Sparse<Lists>) -> Job {
        let document = &self.spec.document;
        let definition = &document.jobs[instance.origin];
        let requirements: Vec<&str> = document.resource_requirements.iter().map(|r| r.name.as_str()).collect();
        let handlers: Vec<&str> = document.failure_handlers.iter().map(|h| h.name.as_str()).collect();
        let schedulers: Vec<&str> = document.slurm_schedulers.iter().map(|s| s.name.as_str()).collect();
        let wanted = instance.resource_requirements.as_deref().filter(|name| *name != "default");
        let resource_requirements = self.named(&instance, "resource_requirements", wanted, &requirements);
        let failure_handler = self.named(&instance, "failure_handler", instance.failure_handler.as_deref(), &handlers);
        let scheduler = self.named(&instance, "scheduler", instance.scheduler.as_deref(), &schedulers);
        let role = match crate::steps::role(instance.map.as_ref(), instance.reduce.as_deref()) {
            Ok(role) => role.map(|role| role.to_value()),
            Err(message) => {
                let at = At::top("jobs");
                self.report(&at.index(instance.origin).key("map"), "", Diagnostic::error(message));
                None
            }
        };
        let [depends_on, input_files, output_files, input_user_data, output_user_data] =
            lists.into_inner().0.map(|list| list.into_iter().map(|i| i as usize).collect());
        let Instance { name, command, rest, .. } = instance;
        let rest = rest.into_inner();
        Job {
            name,
            command,
            invocation_script: rest.invocation_script,
            steps: rest.steps,
            depends_on,
            input_files,
            output_files,
            input_user_data,
            output_user_data,
            resource_requirements,
            failure_handler,
            scheduler,
            cancel_on_blocking_job_failure: definition.cancel_on_blocking_job_failure.unwrap_or(true),
            priority: definition.priority,
            extra: JobExtra {
                env: rest.env,
                timeout: definition.timeout,
                max_lost_retries: definition.max_lost_retries,
                uses: rest.uses,
                label: rest.label,
                stdio: definition.stdio.or(None),
                parameters: rest.parameters,
                map: role,
            }
            .into(),
        }
    }

    fn named(&mut self, instance: &Instance, key: &'static str, name: Option<&str>, known: &[&str]) -> Option<usize> {
        let name = name?;
        let found = known.iter().position(|known| *known == name);
        if found.is_none() {
            let (message, list) = match key {
                "resource_requirements" => ("there are no resource requirements called", "resource_requirements"),
                "failure_handler" => ("there is no failure handler called", "failure_handlers"),
                _ => ("there is no Slurm scheduler called", "slurm_schedulers"),
            };
            let help = self.advice.suggest(name, known.iter().copied());
            let help = help.or_else(|| Some(format!("the workflow defines none; add `{list}`")));
            let message = format!("job `{}`: {message} `{}`", excerpt(&instance.name), excerpt(name));
            self.report(
                &At::top("jobs").index(instance.origin).key(key),
                "",
                Diagnostic::error(message).maybe_help(help),
            );
        }
        found
    }
}

fn sorted(mut list: Vec<u32>) -> Vec<u32> {
    list.sort_unstable();
    list.dedup();
    list
}
