//! Everything beside the jobs: settings, requirements, handlers, schedulers, actions.

use super::Planner;
use super::matching::Names;
use crate::diagnostic::{Diagnostic, excerpt};
use crate::document::{ActionSpec, Document};
use crate::node::At;
use crate::template::{Quoting, Template};
use std::collections::HashMap;
use torc_model::api::WorkflowNotes;
use torc_model::plan::{
    Action, ActionKind, AutoRecover, DynamicJobs, Execution, ExecutionMode, FailureHandler, Job,
    Plan, RecoverySettings, Requirements, ResourceMonitor, RunnerPatience, Settings,
    SlurmScheduler,
};
use torc_model::status::DispatchOrder;

impl Planner<'_> {
    /// The plan without its jobs and what they touch.
    pub fn frame(&mut self) -> Plan {
        let document = &self.spec.document;
        self.check_duplicates(
            "resource_requirements",
            document.resource_requirements.iter().map(|r| r.name.as_str()),
        );
        self.check_duplicates(
            "failure_handlers",
            document.failure_handlers.iter().map(|h| h.name.as_str()),
        );
        self.check_duplicates(
            "slurm_schedulers",
            document.slurm_schedulers.iter().map(|s| s.name.as_str()),
        );
        Plan {
            name: document.name.clone(),
            user: document.user.clone(),
            notes: WorkflowNotes {
                description: document.description.clone(),
                project: document.project.clone(),
                metadata: document.metadata.clone(),
            },
            access_groups: document.access_groups.clone(),
            settings: self.settings(document),
            resource_requirements: requirements(document),
            failure_handlers: self.handlers(document),
            slurm_schedulers: self.schedulers(document),
            limits: document.limits.clone(),
            ..Plan::default()
        }
    }

    fn check_duplicates<'n>(&mut self, key: &'static str, names: impl Iterator<Item = &'n str>) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, name) in names.enumerate() {
            let Some(first) = seen.insert(name, index) else { continue };
            let place = self.spec.place(&At::top(key).index(first).key("name"), "");
            let message = format!("`{}` is defined twice in `{key}`", excerpt(name));
            self.report(
                &At::top(key).index(index).key("name"),
                "",
                Diagnostic::error(message).remark_at("first here", place),
            );
        }
    }

    fn settings(&mut self, document: &Document) -> Settings {
        let default = Settings::default();
        let default_failure_handler = document.default_failure_handler.as_ref().and_then(|name| {
            let known = || document.failure_handlers.iter().map(|handler| handler.name.as_str());
            let found = known().position(|known| known == name);
            if found.is_none() {
                let help = self.advice.suggest(name, known().collect::<Vec<_>>());
                let message = format!("there is no failure handler called `{}`", excerpt(name));
                self.report(
                    &At::top("default_failure_handler"),
                    "",
                    Diagnostic::error(message).maybe_help(help),
                );
            }
            found
        });
        for (option, value) in &document.slurm_defaults {
            let scalar = match value {
                serde_json::Value::String(text) => !text.contains(char::is_control),
                other => !other.is_array() && !other.is_object() && !other.is_null(),
            };
            if !scalar {
                let message = format!("`{option}` must be one line of text, a number or a boolean");
                self.report(
                    &At::top("slurm_defaults").key(option.as_str()),
                    "",
                    Diagnostic::error(message),
                );
            }
        }
        Settings {
            use_pending_failed: document.use_pending_failed,
            enable_ro_crate: document.enable_ro_crate,
            default_failure_handler,
            env: document.env.clone(),
            disown_seconds: document.disown_seconds.unwrap_or(default.disown_seconds),
            checkpoint_exit_code: document.checkpoint_exit_code,
            order: document
                .order
                .as_deref()
                .and_then(DispatchOrder::parse)
                .unwrap_or(default.order),
            compare_contents: document.compare_files_by.as_deref() == Some("content"),
            resource_monitor: monitor(document),
            execution: execution(document),
            dynamic_jobs: dynamic(document),
            slurm_defaults: document.slurm_defaults.clone(),
            runners: patience(document),
            agent: document.agent.clone(),
            recovery: RecoverySettings {
                classification_threshold: document
                    .classification_threshold
                    .unwrap_or(default.recovery.classification_threshold),
                auto_recover: auto_recover(document),
                recovery_rules: document.recovery_rules.clone(),
            },
        }
    }

    /// A text without parameters: only checks that no placeholder is left over.
    fn plain(&mut self, text: &str, at: &At<'_>) -> String {
        match Template::parse(text, &[], Quoting::Plain).map(|template| template.fill(&[])) {
            Ok(Ok(text)) => text,
            Ok(Err(message)) => {
                self.report(at, "", Diagnostic::error(message));
                text.to_owned()
            }
            Err(error) => {
                let message = format!("`{}` is not a variable of this workflow", error.token);
                let help = format!("write `{{{}}}` for the braces themselves", error.token);
                self.report(at, &error.token, Diagnostic::error(message).help(help));
                text.to_owned()
            }
        }
    }

    fn handlers(&mut self, document: &Document) -> Vec<FailureHandler> {
        let mut handlers = Vec::new();
        for (index, handler) in document.failure_handlers.iter().enumerate() {
            let mut rules = handler.rules.clone();
            for (number, rule) in rules.iter_mut().enumerate() {
                if let Some(script) = &mut rule.recovery_script {
                    *script = self.plain(
                        script,
                        &At::top("failure_handlers")
                            .index(index)
                            .key("rules")
                            .index(number)
                            .key("recovery_script"),
                    );
                }
            }
            handlers.push(FailureHandler { name: handler.name.clone(), rules });
        }
        handlers
    }

    fn schedulers(&mut self, document: &Document) -> Vec<SlurmScheduler> {
        let default_account = document.slurm_defaults.get("account").map(crate::template::display);
        let mut schedulers = Vec::new();
        for (index, scheduler) in document.slurm_schedulers.iter().enumerate() {
            let account = scheduler.account.clone().or_else(|| default_account.clone());
            if account.is_none() {
                let message =
                    format!("Slurm scheduler `{}` has no `account`", excerpt(&scheduler.name));
                let help = "add `account`, here or once for all under `slurm_defaults`";
                self.report(
                    &At::top("slurm_schedulers").index(index).key("name"),
                    "",
                    Diagnostic::error(message).help(help),
                );
            }
            schedulers.push(SlurmScheduler {
                name: scheduler.name.clone(),
                account: account.unwrap_or_default(),
                partition: scheduler.partition.clone(),
                nodes: scheduler.nodes.unwrap_or(1),
                walltime: scheduler.walltime.clone().unwrap_or_else(|| "01:00:00".into()),
                mem: scheduler.mem.clone(),
                gres: scheduler.gres.clone(),
                qos: scheduler.qos.clone(),
                ntasks_per_node: scheduler.ntasks_per_node,
                tmp: scheduler.tmp.clone(),
                extra: scheduler.extra.clone(),
                serialize_allocations: scheduler.serialize_allocations,
                chain: None,
            });
        }
        schedulers
    }

    /// The actions, with their jobs.
    pub fn actions(&mut self, jobs: &[Job]) -> Vec<Action> {
        let document = &self.spec.document;
        if document.actions.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        let index: HashMap<&str, usize> =
            names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
        let patterns =
            document.actions.iter().flat_map(|action| &action.job_name_regexes).map(String::as_str);
        let found = Names::new(names.clone()).match_all(patterns);
        let mut actions = Vec::new();
        for (number, action) in document.actions.iter().enumerate() {
            let list = At::top("actions");
            let at = list.index(number);
            let mut chosen: Vec<usize> = Vec::new();
            for (position, name) in action.jobs.iter().enumerate() {
                match index.get(name.as_str()) {
                    Some(job) => chosen.push(*job),
                    None if self.may_be_lost("job", name) => {}
                    None => {
                        let help = self.advice.suggest(name, names.iter().copied());
                        let message = format!("there is no job called `{}`", excerpt(name));
                        self.report(
                            &at.key("jobs").index(position),
                            "",
                            Diagnostic::error(message).maybe_help(help),
                        );
                    }
                }
            }
            for (position, pattern) in action.job_name_regexes.iter().enumerate() {
                let list = at.key("job_name_regexes");
                let at = list.index(position);
                match &found[pattern.as_str()] {
                    Ok(matches) if matches.is_empty() && self.lost.contains_key("job") => {}
                    Ok(matches) if matches.is_empty() => {
                        self.report(
                            &at,
                            "",
                            Diagnostic::error(format!("`{}` matches no job", excerpt(pattern))),
                        );
                    }
                    Ok(matches) => chosen.extend(matches.iter().map(|job| *job as usize)),
                    Err(error) => {
                        let message = format!(
                            "cannot use `{}`: {}",
                            excerpt(pattern),
                            error.lines().last().unwrap_or("")
                        );
                        self.report(&at, "", Diagnostic::error(message));
                    }
                }
            }
            chosen.sort_unstable();
            chosen.dedup();
            if action.is_local() {
                continue;
            }
            let what = self.action_kind(document, action, &at);
            actions.push(Action {
                trigger: action.trigger_type,
                jobs: chosen,
                what,
                persistent: action.persistent,
            });
        }
        actions
    }

    fn action_kind(&mut self, document: &Document, action: &ActionSpec, at: &At<'_>) -> ActionKind {
        if action.action_type == "run_commands" {
            let commands = action.commands.iter().enumerate();
            let commands = commands
                .map(|(index, text)| self.plain(text, &at.key("commands").index(index)))
                .collect();
            return ActionKind::RunCommands { commands };
        }
        let scheduler = action.scheduler.clone().unwrap_or_default();
        let known: Vec<&str> = document.slurm_schedulers.iter().map(|s| s.name.as_str()).collect();
        if !known.contains(&scheduler.as_str()) {
            let help = self.advice.suggest(&scheduler, known.iter().copied());
            let help = help.or_else(|| Some("the workflow defines no `slurm_schedulers`".into()));
            let message = format!("there is no Slurm scheduler called `{}`", excerpt(&scheduler));
            self.report(&at.key("scheduler"), "", Diagnostic::error(message).maybe_help(help));
        }
        ActionKind::ScheduleNodes {
            scheduler,
            scheduler_type: "slurm".into(),
            num_allocations: action.num_allocations.unwrap_or(1),
            start_one_worker_per_node: action.start_one_worker_per_node,
            max_parallel_jobs: action.max_parallel_jobs,
        }
    }
}

fn requirements(document: &Document) -> Vec<Requirements> {
    let default = Requirements::default();
    let filled = |r: &crate::document::RequirementsSpec| Requirements {
        name: r.name.clone(),
        num_cpus: r.num_cpus.unwrap_or(default.num_cpus),
        num_gpus: r.num_gpus.unwrap_or(default.num_gpus),
        num_nodes: r.num_nodes.unwrap_or(default.num_nodes),
        memory: r.memory,
        runtime: r.runtime,
    };
    document.resource_requirements.iter().map(filled).collect()
}

fn monitor(document: &Document) -> ResourceMonitor {
    let spec = &document.resource_monitor;
    let default = ResourceMonitor::default();
    let granularity = spec.granularity.as_deref().or(spec.jobs.granularity.as_deref());
    ResourceMonitor {
        enabled: spec.enabled.or(spec.jobs.enabled).unwrap_or(default.enabled),
        time_series: granularity.map_or(default.time_series, |word| word == "time_series"),
        sample_interval_seconds: spec
            .sample_interval_seconds
            .unwrap_or(default.sample_interval_seconds),
        compute_node: spec.compute_node.enabled.unwrap_or(default.compute_node),
    }
}

fn dynamic(document: &Document) -> DynamicJobs {
    let default = DynamicJobs::default();
    match document.dynamic_jobs {
        None => default,
        Some(spec) => DynamicJobs {
            allowed: spec.allowed.unwrap_or(true),
            max_iterations: spec.max_iterations.unwrap_or(default.max_iterations),
            max_jobs: spec.max_jobs.unwrap_or(default.max_jobs),
        },
    }
}

fn execution(document: &Document) -> Execution {
    let spec = &document.execution_config;
    let default = Execution::default();
    // Read by the front end, which has checked its form.
    let early = spec.srun_termination_signal.as_deref().and_then(|text| text.split_once('@'));
    Execution {
        walltime_signal: early.map(|(signal, _)| signal.to_owned()),
        walltime_lead_seconds: early.and_then(|(_, seconds)| seconds.parse().ok()),
        walltime_headroom_seconds: spec
            .sigkill_headroom_seconds
            .unwrap_or(default.walltime_headroom_seconds),
        limit_resources: spec.limit_resources.unwrap_or(default.limit_resources),
        stdio: spec.stdio.unwrap_or(default.stdio),
        grace_seconds: spec.sigterm_lead_seconds.unwrap_or(default.grace_seconds),
        termination_signal: spec.termination_signal.clone().unwrap_or(default.termination_signal),
        timeout_exit_code: spec.timeout_exit_code.unwrap_or(default.timeout_exit_code),
        oom_exit_code: spec.oom_exit_code.unwrap_or(default.oom_exit_code),
        shell: document.shell.unwrap_or(default.shell),
        enforce_runtime: document.enforce_runtime,
        mode: match spec.mode.as_deref() {
            Some("slurm") => ExecutionMode::Slurm,
            // `auto` chooses the way that costs least.
            _ => ExecutionMode::Direct,
        },
    }
}

fn patience(document: &Document) -> RunnerPatience {
    let default = RunnerPatience::default();
    RunnerPatience {
        idle_seconds: document
            .compute_node_wait_for_new_jobs_seconds
            .unwrap_or(default.idle_seconds),
        ignore_completion: document.compute_node_ignore_workflow_completion,
        min_time_for_new_jobs_seconds: document
            .compute_node_min_time_for_new_jobs_seconds
            .unwrap_or(default.min_time_for_new_jobs_seconds),
        wait_for_server_minutes: document
            .compute_node_wait_for_healthy_database_minutes
            .unwrap_or(default.wait_for_server_minutes),
    }
}

fn auto_recover(document: &Document) -> AutoRecover {
    let default = AutoRecover::default();
    let Some(spec) = &document.auto_recover else { return default };
    AutoRecover {
        enabled: spec.enabled.unwrap_or(true),
        max_retries: spec.max_retries.unwrap_or(default.max_retries),
        max_retries_per_cause: spec.max_retries_per_cause.unwrap_or(default.max_retries_per_cause),
        max_workflow_retries: spec.max_workflow_retries,
        confidence: spec.confidence.unwrap_or(default.confidence),
        max_memory: spec.max_memory,
        max_runtime: spec.max_runtime,
        delay_seconds: spec.delay_seconds.unwrap_or(default.delay_seconds),
        max_delay_seconds: spec.max_delay_seconds.unwrap_or(default.max_delay_seconds),
    }
}
