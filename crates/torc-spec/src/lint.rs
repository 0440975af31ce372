//! Doubts that are no mistakes: unused names, jobs that fit nowhere, rules that never match.

use crate::analysis::{LargestNode, Site};
use crate::diagnostic::{Diagnostic, Diagnostics, excerpt, suggest};
use crate::node::At;
use crate::spec::Spec;
use crate::template;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use torc_model::plan::{ActionKind, Plan};
use torc_model::steps::MapRole;
use torc_model::units::{Memory, Runtime};
use torc_model::words::count;

/// Names that one line lists.
const MAX_LISTED: usize = 5;

/// Looks for everything doubtful in a plan.
pub(crate) fn lint(spec: &Spec, plan: &Plan, origins: &[usize], site: Site<'_>) -> Diagnostics {
    let mut lint = Lint { spec, plan, origins, found: Diagnostics::default() };
    lint.unused();
    lint.unread();
    lint.missing(site.dir);
    lint.rules();
    lint.sizes(site.machine);
    lint.tiny();
    lint.valueless();
    lint.labels();
    lint.found
}

struct Lint<'a> {
    spec: &'a Spec,
    plan: &'a Plan,
    origins: &'a [usize],
    found: Diagnostics,
}

impl Lint<'_> {
    fn say(&mut self, at: &At<'_>, diagnostic: Diagnostic) {
        self.found.push(diagnostic.at(self.spec.place(at, "")));
    }

    fn unused(&mut self) {
        let (spec, plan) = (self.spec, self.plan);
        let document = &spec.document;
        let requirements: HashSet<usize> =
            plan.jobs.iter().filter_map(|job| job.resource_requirements).collect();
        let handlers: HashSet<usize> = plan
            .jobs
            .iter()
            .filter_map(|job| job.failure_handler)
            .chain(plan.settings.default_failure_handler)
            .collect();
        let mut schedulers: HashSet<&str> = plan
            .jobs
            .iter()
            .filter_map(|job| job.scheduler)
            .map(|i| plan.slurm_schedulers[i].name.as_str())
            .collect();
        for action in &plan.actions {
            if let ActionKind::ScheduleNodes { scheduler, .. } = &action.what {
                schedulers.insert(scheduler);
            }
        }
        let mut report = |key: &str, index: usize, what: &str, name: &str| {
            let message = format!("{what} `{}` is never used", excerpt(name));
            self.say(&At::top(key).index(index).key("name"), Diagnostic::warning(message));
        };
        for (index, entry) in
            plan.resource_requirements.iter().enumerate().filter(|(i, _)| !requirements.contains(i))
        {
            report("resource_requirements", index, "resource requirement", &entry.name);
        }
        for (index, entry) in
            plan.failure_handlers.iter().enumerate().filter(|(i, _)| !handlers.contains(i))
        {
            report("failure_handlers", index, "failure handler", &entry.name);
        }
        for (index, entry) in plan.slurm_schedulers.iter().enumerate() {
            if !schedulers.contains(entry.name.as_str()) {
                report("slurm_schedulers", index, "Slurm scheduler", &entry.name);
            }
        }
        let uses: HashSet<&String> = plan.jobs.iter().flat_map(|job| &job.extra.uses).collect();
        for name in document.limits.keys().filter(|name| !uses.contains(name)) {
            let message = format!("no job takes limit `{}` with `uses`", excerpt(name));
            self.say(&At::top("limits").key(name), Diagnostic::warning(message));
        }
        if plan.name == "latest" || plan.name.chars().all(|c| c.is_ascii_digit()) {
            let message =
                format!("`{}` means another workflow on the command line", excerpt(&plan.name));
            let help = "this one can only be named by its id; give it a name with letters";
            self.say(&At::top("name"), Diagnostic::warning(message).help(help));
        }
        self.unknown_limits();
        let mut taken: HashSet<String> =
            document.jobs().flat_map(|job| job.use_parameters.clone()).collect();
        taken.extend(document.files.iter().flat_map(|file| file.use_parameters.clone()));
        taken.extend(document.user_data.iter().flat_map(|data| data.use_parameters.clone()));
        for name in document.parameters.keys().filter(|name| !taken.contains(*name)) {
            let message = format!("no entry takes parameter `{name}` with `use_parameters`");
            self.say(&At::top("parameters").key(name), Diagnostic::warning(message));
        }
        if let Some(crate::node::Kind::Map(variables)) =
            spec.tree().get("variables").map(|node| &node.kind)
        {
            let text = spec.tree().to_value().to_string();
            let used: HashSet<&str> = template::names(&text).collect();
            for variable in variables.iter().filter(|variable| !used.contains(&*variable.key)) {
                let message = format!("variable `{}` is never used", variable.key);
                let path = At::top("variables").key(&variable.key).path().to_string();
                let place = spec.place_at(variable.key_span, path);
                self.found.push(Diagnostic::warning(message).at(place));
            }
        }
    }

    /// Limits that jobs take and the spec does not set. A spec that sets none relies on those of
    /// the server.
    fn unknown_limits(&mut self) {
        let (spec, plan) = (self.spec, self.plan);
        let known = spec.document.limits.keys().map(String::as_str);
        let mut told: HashSet<&str> = HashSet::new();
        for (job, origin) in plan.jobs.iter().zip(self.origins) {
            for name in
                job.extra.uses.iter().filter(|name| !spec.document.limits.contains_key(*name))
            {
                if !told.insert(name) {
                    continue;
                }
                if spec.document.limits.is_empty() {
                    let message = format!(
                        "limit `{}` is not set here, so it has no effect unless the server has it",
                        excerpt(name)
                    );
                    let help = format!(
                        "`torc limits list` shows what it has, `limits: {{{name}: N}}` here sets it"
                    );
                    self.say(
                        &At::top("jobs").index(*origin).key("uses"),
                        Diagnostic::note(message).help(help),
                    );
                    continue;
                }
                let message =
                    format!("limit `{}` is not in `limits`, so it has no effect", excerpt(name));
                let help = suggest(name, known.clone()).unwrap_or_default();
                let help = format!("{help} `torc limits set {name} N` sets one for all workflows");
                self.say(
                    &At::top("jobs").index(*origin).key("uses"),
                    Diagnostic::warning(message).help(help),
                );
            }
        }
    }

    /// Files and user data that no job touches, outputs that no job reads, and two names for one
    /// path.
    fn unread(&mut self) {
        let plan = self.plan;
        let mut file_use = vec![(false, false); plan.files.len()];
        let mut data_use = vec![(false, false); plan.user_data.len()];
        for job in &plan.jobs {
            job.input_files.iter().for_each(|file| file_use[*file].0 = true);
            job.output_files.iter().for_each(|file| file_use[*file].1 = true);
            job.input_user_data.iter().for_each(|data| data_use[*data].0 = true);
            job.output_user_data.iter().for_each(|data| data_use[*data].1 = true);
        }
        let files = plan.files.iter().map(|file| file.name.as_str()).zip(&file_use);
        let data = plan.user_data.iter().map(|data| data.name.as_str()).zip(&data_use);
        for (what, names) in [("file", files.collect::<Vec<_>>()), ("user data", data.collect())] {
            let pick = |wanted: (bool, bool)| -> Vec<&str> {
                names.iter().filter(|(_, usage)| **usage == wanted).map(|(name, _)| *name).collect()
            };
            let (untouched, unread) = (pick((false, false)), pick((false, true)));
            if !untouched.is_empty() {
                let message =
                    format!("{} {what} never used: {}", untouched.len(), list(&untouched));
                self.found.push(Diagnostic::warning(message));
            }
            // A file that no job reads is what the workflow is for.
            if !unread.is_empty() && what != "file" {
                let message =
                    format!("{} {what} written that no job reads: {}", unread.len(), list(&unread));
                self.found.push(Diagnostic::note(message));
            }
        }
        let mut paths: HashMap<&str, &str> = HashMap::new();
        for file in &plan.files {
            if let Some(first) = paths.insert(&file.path, &file.name) {
                let (first, second) = (excerpt(first), excerpt(&file.name));
                let message = format!(
                    "files `{first}` and `{second}` have the same path `{}`",
                    excerpt(&file.path)
                );
                let help = "jobs only wait for each other through the same name";
                self.found.push(Diagnostic::warning(message).help(help));
            }
        }
    }

    /// Input files that are not there and that no job writes: the first job to read one would fail.
    fn missing(&mut self, dir: Option<&Path>) {
        let (Some(dir), plan) = (dir, self.plan) else { return };
        let written: HashSet<usize> =
            plan.jobs.iter().flat_map(|job| &job.output_files).copied().collect();
        let read: BTreeSet<usize> =
            plan.jobs.iter().flat_map(|job| &job.input_files).copied().collect();
        // A path that the shell will complete cannot be looked up.
        let is_plain = |path: &str| !path.contains('$') && !path.starts_with('~');
        let missing: Vec<&str> = read
            .difference(&written.into_iter().collect())
            .map(|index| plan.files[*index].path.as_str())
            .filter(|path| is_plain(path) && !dir.join(path).exists())
            .collect();
        if !missing.is_empty() {
            let message = format!(
                "{} input {} not there, and no job writes {}: {}",
                missing.len(),
                if missing.len() == 1 { "file is" } else { "files are" },
                if missing.len() == 1 { "it" } else { "them" },
                list(&missing)
            );
            let help = "jobs that read what is missing may fail; paths start from the directory where the workflow is run";
            self.found.push(Diagnostic::warning(message).help(help));
        }
    }

    fn rules(&mut self) {
        // Those that stand for `retries` come after these and repeat their rules.
        let written = self.spec.document.failure_handlers.len();
        for (index, handler) in self.plan.failure_handlers.iter().take(written).enumerate() {
            let mut codes: HashSet<i32> = HashSet::new();
            let mut all = false;
            // A rule without retries makes an exception of others, or of what waits for a verdict.
            let is_exception = self.plan.settings.use_pending_failed
                || handler
                    .rules
                    .iter()
                    .any(|rule| rule.match_all_exit_codes && rule.max_retries > 1);
            for (number, rule) in handler.rules.iter().enumerate() {
                let only_codes = rule.signals.is_empty()
                    && rule.causes.is_empty()
                    && rule.stderr_matches.is_empty();
                let shadowed = only_codes
                    && if rule.match_all_exit_codes {
                        all
                    } else {
                        rule.exit_codes.iter().all(|code| codes.contains(code))
                    };
                let impossible = only_codes
                    && !rule.match_all_exit_codes
                    && rule.exit_codes.iter().all(|code| *code > 255);
                let why = match (shadowed, impossible) {
                    (true, _) => Some("an earlier rule takes all of its failures"),
                    (false, true) => Some("exit codes end at 255"),
                    (false, false) => None,
                };
                let list = At::top("failure_handlers");
                let entry = list.index(index);
                let rules = entry.key("rules");
                let at = rules.index(number);
                if let Some(why) = why {
                    self.say(&at, Diagnostic::warning("this rule can never match").label(why));
                } else if rule.max_retries < 2 && rule.recovery_script.is_some() {
                    let diagnostic = Diagnostic::warning("this recovery script never runs")
                        .label("the rule allows no second attempt");
                    self.say(
                        &at,
                        diagnostic.help("`max_retries` counts attempts: 2 allows one retry"),
                    );
                } else if rule.max_retries < 2 && !rule.match_all_exit_codes && !is_exception {
                    let diagnostic = Diagnostic::warning("this rule never gives a retry")
                        .label("the first attempt is the only one");
                    self.say(
                        &at,
                        diagnostic.help("`max_retries` counts attempts: 2 allows one retry"),
                    );
                }
                if only_codes && !rule.match_all_exit_codes {
                    codes.extend(&rule.exit_codes);
                }
                all |= rule.match_all_exit_codes && only_codes;
            }
        }
    }

    /// The requirements stand for what jobs say themselves.
    fn is_short(&self, requirements: usize) -> bool {
        requirements >= self.spec.document.resource_requirements.len()
    }

    /// User data that jobs read without that anything gives it a value.
    fn valueless(&mut self) {
        let plan = self.plan;
        let produced: HashSet<usize> =
            plan.jobs.iter().flat_map(|job| &job.output_user_data).copied().collect();
        let mut read: BTreeMap<usize, &str> = BTreeMap::new();
        for job in &plan.jobs {
            for data in &job.input_user_data {
                read.entry(*data).or_insert(&job.name);
            }
        }
        for (index, reader) in read {
            let data = &plan.user_data[index];
            if data.data.is_some() || produced.contains(&index) {
                continue;
            }
            let message = format!(
                "user data `{}` has no value and no job produces it, but job `{}` reads it",
                excerpt(&data.name),
                excerpt(reader)
            );
            let help = "give it `data`, name it in the `output_user_data` of a job, or set it with \
                        `torc user-data update` before the job starts";
            self.found.push(Diagnostic::warning(message).help(help));
        }
    }

    /// The unit was forgotten.
    fn tiny(&mut self) {
        const LEAST: Memory = Memory(1 << 20);
        for (index, wanted) in self.plan.resource_requirements.iter().enumerate() {
            if let Some(memory) = wanted.memory.filter(|memory| *memory < LEAST) {
                let bytes = memory.0;
                let warning = Diagnostic::warning(format!(
                    "{bytes} bytes of memory are less than any program needs"
                ))
                .help(format!(
                    "a number without a unit is bytes; write `{memory}m` or `{memory}g`"
                ));
                let list = At::top("resource_requirements");
                let jobs = At::top("jobs");
                let user =
                    self.plan.jobs.iter().position(|j| j.resource_requirements == Some(index));
                let entry = match user.filter(|_| self.is_short(index)) {
                    Some(user) => jobs.index(self.origins[user]),
                    None => list.index(index),
                };
                self.say(&entry.key("memory"), warning);
            }
        }
    }

    /// Jobs that fit into no node: the machine at hand, or what their scheduler asks for.
    fn sizes(&mut self, machine: Option<LargestNode>) {
        let plan = self.plan;
        let mut said: HashSet<usize> = HashSet::new();
        for (job, origin) in plan.jobs.iter().zip(self.origins) {
            let Some(index) = job.resource_requirements else { continue };
            let wanted = &plan.resource_requirements[index];
            let mut reasons = Vec::new();
            if let Some(scheduler) = job.scheduler.map(|index| &plan.slurm_schedulers[index]) {
                if let (Some(runtime), Ok(walltime)) =
                    (wanted.runtime, Runtime::parse(&scheduler.walltime))
                    && runtime > walltime
                {
                    reasons.push(format!(
                        "its runtime {} is longer than the allocation's {}",
                        runtime.friendly(),
                        walltime.friendly()
                    ));
                }
                // A bare number is megabytes to Slurm, and 0 the whole node.
                let mem = scheduler
                    .mem
                    .as_deref()
                    .filter(|mem| mem.ends_with(|c: char| c.is_ascii_alphabetic()));
                if let (Some(memory), Some(Ok(mem))) = (wanted.memory, mem.map(Memory::parse))
                    && memory > mem
                {
                    reasons.push(format!(
                        "it needs {memory} of memory, the allocation has {mem} per node"
                    ));
                }
                if wanted.num_nodes > scheduler.nodes {
                    reasons.push(format!(
                        "it needs {}, the allocation has {}",
                        count(wanted.num_nodes, "node"),
                        scheduler.nodes
                    ));
                }
            } else if let (Some(machine), true) = (machine, plan.slurm_schedulers.is_empty()) {
                if wanted.num_cpus > machine.num_cpus {
                    reasons.push(format!(
                        "it needs {}, this machine has {}",
                        count(wanted.num_cpus, "CPU"),
                        machine.num_cpus
                    ));
                }
                if wanted.memory.is_some_and(|memory| memory.0 > machine.memory_bytes) {
                    let have = Memory(machine.memory_bytes >> 20 << 20);
                    let memory = wanted.memory.unwrap_or_default();
                    reasons.push(format!("it needs {memory} of memory, this machine has {have}"));
                }
                if machine.num_gpus.is_some_and(|gpus| wanted.num_gpus > gpus) {
                    reasons.push(format!(
                        "it needs {}, this machine has fewer",
                        count(wanted.num_gpus, "GPU")
                    ));
                }
            }
            if !reasons.is_empty() && said.insert(*origin) {
                let message = format!(
                    "job `{}` would never start: {}",
                    excerpt(&job.name),
                    reasons.join("; ")
                );
                let list = At::top("jobs");
                let entry = list.index(*origin);
                let key = if self.is_short(index) { "name" } else { "resource_requirements" };
                self.say(&entry.key(key), Diagnostic::warning(message));
            }
        }
    }

    /// Jobs that wait for a runner with a label. A label is given when a runner is started, and no
    /// command starts one with a label in Slurm.
    fn labels(&mut self) {
        let plan = self.plan;
        let mut waiting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut said: HashSet<usize> = HashSet::new();
        for (job, origin) in plan.jobs.iter().zip(self.origins) {
            let Some(label) = job.extra.label.as_deref() else { continue };
            // A map stands for its items.
            if job
                .extra
                .map
                .as_ref()
                .is_some_and(|map| matches!(MapRole::from_value(map), Ok(MapRole::Item { .. })))
            {
                continue;
            }
            let Some(scheduler) =
                job.scheduler.map(|index| plan.slurm_schedulers[index].name.as_str())
            else {
                waiting.entry(label).or_default().push(&job.name);
                continue;
            };
            if said.insert(*origin) {
                let message = format!(
                    "job `{}` would never start on nodes of Slurm scheduler `{}`: it asks for a runner with the label \
                     `{}`, and those in allocations have none",
                    excerpt(&job.name),
                    excerpt(scheduler),
                    excerpt(label)
                );
                let help = "leave out `label`, or `scheduler` if you start `torc runner ... --label` for it";
                self.say(
                    &At::top("jobs").index(*origin).key("label"),
                    Diagnostic::warning(message).help(help),
                );
            }
        }
        let Some((first, _)) = waiting.first_key_value() else { return };
        let jobs: usize = waiting.values().map(Vec::len).sum();
        let wait = if jobs == 1 { "waits" } else { "wait" };
        let labels: Vec<String> = waiting
            .iter()
            .take(MAX_LISTED)
            .map(|(label, jobs)| format!("`{}` ({})", excerpt(label), list(jobs)))
            .collect();
        let message = format!(
            "{} {wait} for a runner with a label: {}{}",
            count(jobs, "job"),
            labels.join(", "),
            if waiting.len() > MAX_LISTED { ", ..." } else { "" }
        );
        let one = if waiting.len() == 1 { "one" } else { "one for each label" };
        let is_plain = plan.name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        let name = if is_plain { plan.name.as_str() } else { "WORKFLOW" };
        let help = format!(
            "start {one}, such as `torc runner {name} --label {}`; others do not take them",
            excerpt(first)
        );
        self.found.push(Diagnostic::note(message).help(help));
    }
}

/// The first few of many names.
fn list(names: &[&str]) -> String {
    let shown: Vec<String> =
        names.iter().take(MAX_LISTED).map(|name| format!("`{}`", excerpt(name))).collect();
    format!("{}{}", shown.join(", "), if names.len() > MAX_LISTED { ", ..." } else { "" })
}
