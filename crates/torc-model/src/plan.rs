//! A plan: a workflow with every parameter expanded, every name resolved and every rule checked.
//!
//! The spec crate makes plans out of text; only a plan can be stored. References are indexes into
//! the plan's own lists, so a plan cannot name something that does not exist.

use crate::api::WorkflowNotes;
use crate::sparse::Sparse;
use crate::status::{DispatchOrder, Trigger};
use crate::units::{Memory, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A whole workflow, ready to be stored.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// The workflow's name.
    pub name: String,
    /// Who it belongs to, if the spec says so.
    pub user: Option<String>,
    /// What its user notes about it.
    pub notes: WorkflowNotes,
    /// Settings that the engine and the runners obey.
    pub settings: Settings,
    /// The jobs, in the order of the file and of their expansion: the order of dispatch within a
    /// priority.
    pub jobs: Vec<Job>,
    /// The files that jobs read or write.
    pub files: Vec<File>,
    /// The pieces of user data that jobs read or write.
    pub user_data: Vec<UserData>,
    /// What jobs need to run.
    pub resource_requirements: Vec<Requirements>,
    /// Lists of rules that jobs point to.
    pub failure_handlers: Vec<FailureHandler>,
    /// How to ask Slurm for nodes.
    pub slurm_schedulers: Vec<SlurmScheduler>,
    /// What happens at which trigger.
    pub actions: Vec<Action>,
    /// Groups of users who may see and change it, besides its owner.
    pub access_groups: Vec<String>,
    /// Named limits that the server gets unless it has them.
    pub limits: BTreeMap<String, i64>,
    /// Names of the families, by number; see [`crate::family`].
    pub families: Vec<String>,
    /// The canonical spec this plan was made from as JSON text, for export and for re-reading.
    pub spec: String,
}

/// Workflow-wide settings; the database keeps them as one JSON text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Failures that no rule covers wait as `pending_failed` for a verdict.
    pub use_pending_failed: bool,
    /// `torc run` writes an RO-Crate when it is complete.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_ro_crate: bool,
    /// Index of the failure handler for jobs that name none.
    pub default_failure_handler: Option<usize>,
    /// Environment for every job; a job's own wins.
    pub env: BTreeMap<String, String>,
    /// Seconds of silence after which a runner without proof of death is given up.
    pub disown_seconds: u64,
    /// An exit code that means "state saved, start me again".
    pub checkpoint_exit_code: Option<i32>,
    /// Input files are compared by what they contain, not by their time.
    pub compare_contents: bool,
    /// How the runner watches resources.
    pub resource_monitor: ResourceMonitor,
    /// How the runner treats output and limits.
    pub execution: Execution,
    /// The order of ready jobs of one priority.
    pub order: DispatchOrder,
    /// Whether jobs may add jobs.
    pub dynamic_jobs: DynamicJobs,
    /// Any `sbatch` option by its long name, for every allocation.
    pub slurm_defaults: BTreeMap<String, Value>,
    /// How long runners wait and stay.
    #[serde(flatten)]
    pub runners: RunnerPatience,
    /// The agent program that `claude:` steps call.
    pub agent: Option<Value>,
    /// What is done about failures.
    #[serde(flatten)]
    pub recovery: RecoverySettings,
}

/// How long the runners of a workflow wait and stay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RunnerPatience {
    /// A runner without work leaves after this many seconds (Slurm runners).
    pub idle_seconds: u64,
    /// Runners stay although the workflow is complete.
    pub ignore_completion: bool,
    /// A runner takes no new job when less time than this is left (queue mode).
    pub min_time_for_new_jobs_seconds: u64,
    /// Keep trying to reach the server for this long before giving up new work.
    pub wait_for_server_minutes: u64,
}

impl Default for RunnerPatience {
    fn default() -> Self {
        Self {
            idle_seconds: 90,
            ignore_completion: false,
            min_time_for_new_jobs_seconds: 300,
            wait_for_server_minutes: 20,
        }
    }
}

/// What is done about failures that no rule of the workflow covers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoverySettings {
    /// Confidence below which an agent's verdict waits for a person.
    pub classification_threshold: f64,
    /// What the server does about failures by itself.
    pub auto_recover: AutoRecover,
    /// What is known about the failures of its programs, before what Torc knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recovery_rules: Vec<crate::recovery::RuleSpec>,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        Self {
            classification_threshold: 0.8,
            auto_recover: AutoRecover::default(),
            recovery_rules: Vec::new(),
        }
    }
}

/// What the server does about failures by itself, as soon as they are reported, and how often.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AutoRecover {
    /// It does something at all.
    pub enabled: bool,
    /// Retries of one job in a run.
    pub max_retries: u32,
    /// Retries of one job in a run for the same cause.
    pub max_retries_per_cause: u32,
    /// Retries of all jobs together in a run; unless set, one for each job and at least 50.
    pub max_workflow_retries: Option<u32>,
    /// A diagnosis must be at least this sure.
    pub confidence: f64,
    /// Memory is raised to this at most; unless set, to that of the largest machine seen.
    pub max_memory: Option<Memory>,
    /// Time is raised to this at most.
    pub max_runtime: Option<Runtime>,
    /// Before the first retry of what passes by itself, in seconds; three times as long before each
    /// further one.
    pub delay_seconds: f64,
    /// The longest wait.
    pub max_delay_seconds: f64,
}

impl Default for AutoRecover {
    fn default() -> Self {
        Self {
            enabled: false,
            max_retries: 6,
            max_retries_per_cause: 3,
            max_workflow_retries: None,
            confidence: 0.8,
            max_memory: None,
            max_runtime: None,
            delay_seconds: 10.0,
            max_delay_seconds: 600.0,
        }
    }
}

impl AutoRecover {
    /// Retries of all jobs together in a run of a workflow of this size.
    pub fn workflow_budget(&self, jobs: usize) -> u32 {
        const AT_LEAST: u32 = 50;
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        self.max_workflow_retries.unwrap_or(jobs.max(AT_LEAST))
    }

    /// Milliseconds before the `n`th retry of what passes by itself: anything up to a bound that
    /// grows (full jitter; `unit` in 0..1 decides), and not before a service asked for it.
    pub fn wait_ms(&self, n: u32, unit: f64, asked_seconds: Option<f64>) -> i64 {
        let bound = self.delay_seconds * 3f64.powi(n.saturating_sub(1).min(20) as i32);
        let bound = bound.min(self.max_delay_seconds).max(0.0);
        // What was asked for is a promise, not a guess: only a little is added to spread the jobs.
        let seconds = match asked_seconds {
            Some(asked) => asked + unit * bound.min(asked * 0.2 + 1.0),
            None => unit * bound,
        };
        (seconds * 1000.0) as i64
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            use_pending_failed: false,
            enable_ro_crate: false,
            default_failure_handler: None,
            env: BTreeMap::new(),
            disown_seconds: 12 * 3600,
            checkpoint_exit_code: None,
            compare_contents: false,
            resource_monitor: ResourceMonitor::default(),
            execution: Execution::default(),
            order: DispatchOrder::CriticalPath,
            dynamic_jobs: DynamicJobs::default(),
            slurm_defaults: BTreeMap::new(),
            runners: RunnerPatience::default(),
            agent: None,
            recovery: RecoverySettings::default(),
        }
    }
}

/// Whether jobs may add jobs while they run, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DynamicJobs {
    /// The tokens of running jobs are good for it.
    pub allowed: bool,
    /// How often jobs of one lineage may add jobs in a run.
    pub max_iterations: u32,
    /// How many jobs may be added in a run.
    pub max_jobs: u32,
}

impl Default for DynamicJobs {
    fn default() -> Self {
        Self { allowed: false, max_iterations: 1000, max_jobs: 100_000 }
    }
}

/// How the runner watches resources.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceMonitor {
    /// Peaks and averages are recorded.
    pub enabled: bool,
    /// Every sample is kept as well.
    pub time_series: bool,
    /// Time between samples.
    pub sample_interval_seconds: f64,
    /// Machines are looked at as well, as a whole.
    pub compute_node: bool,
}

impl Default for ResourceMonitor {
    fn default() -> Self {
        Self {
            enabled: true,
            time_series: false,
            sample_interval_seconds: 5.0,
            compute_node: false,
        }
    }
}

/// How the runner treats output and limits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// `memory` is a limit, not only a wish.
    pub limit_resources: bool,
    /// Where output goes unless a job says otherwise.
    pub stdio: Stdio,
    /// Seconds between TERM and KILL.
    pub grace_seconds: f64,
    /// Name of the signal that asks a job to end.
    pub termination_signal: String,
    /// Name of the signal that comes before the end of an allocation instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walltime_signal: Option<String>,
    /// So many seconds after that signal SIGKILL follows; `grace_seconds` unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walltime_lead_seconds: Option<f64>,
    /// SIGKILL comes so many seconds before the end of an allocation.
    pub walltime_headroom_seconds: f64,
    /// Return code recorded for a timeout.
    pub timeout_exit_code: i32,
    /// Return code recorded for memory use beyond the limit.
    pub oom_exit_code: i32,
    /// How shell text is run unless a job says otherwise.
    pub shell: Shell,
    /// `runtime` ends attempts unless a job says otherwise.
    pub enforce_runtime: bool,
    /// How jobs are started in a Slurm allocation.
    #[serde(skip_serializing_if = "ExecutionMode::is_direct")]
    pub mode: ExecutionMode,
}

/// How jobs are started in a Slurm allocation; the same everywhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// By the runner itself.
    #[default]
    Direct,
    /// Each in a step of its own, which Slurm shows and accounts.
    Slurm,
}

impl ExecutionMode {
    /// By the runner itself.
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
}

impl Execution {
    /// How long before the end of an allocation jobs are asked to end.
    pub fn seconds_before_walltime(&self) -> f64 {
        self.walltime_lead_seconds.unwrap_or(self.grace_seconds) + self.walltime_headroom_seconds
    }

    /// Whether `runtime` ends the attempts of a job.
    pub fn enforces_runtime(&self, job: &JobExtra) -> bool {
        job.settings.enforce_runtime.unwrap_or(self.enforce_runtime)
    }
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            limit_resources: true,
            stdio: Stdio::default(),
            grace_seconds: 10.0,
            termination_signal: "SIGTERM".into(),
            walltime_signal: None,
            walltime_lead_seconds: None,
            walltime_headroom_seconds: 10.0,
            timeout_exit_code: 152,
            oom_exit_code: 137,
            shell: Shell::Default,
            enforce_runtime: false,
            mode: ExecutionMode::Direct,
        }
    }
}

/// Where a job's output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stdio {
    /// Which files there are.
    pub mode: StdioMode,
    /// Remove them when the attempt succeeds.
    pub delete_on_success: bool,
}

/// Which output files an attempt writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdioMode {
    /// `.o` and `.e`.
    #[default]
    Separate,
    /// One `.log` for both.
    Combined,
    /// Only `.e`.
    NoStdout,
    /// Only `.o`.
    NoStderr,
    /// Output is not kept.
    None,
}

/// One job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Job {
    /// Unique in the workflow.
    pub name: String,
    /// The shell text; empty when the job has steps.
    pub command: String,
    /// Index into [`Plan::resource_requirements`].
    pub resource_requirements: Option<usize>,
    /// Index into [`Plan::failure_handlers`].
    pub failure_handler: Option<usize>,
    /// Index into [`Plan::slurm_schedulers`].
    pub scheduler: Option<usize>,
    /// Canceled when a dependency ends badly (otherwise it runs all the same).
    pub cancel_on_blocking_job_failure: bool,
    /// Higher runs first.
    pub priority: i64,
    /// Index into [`Plan::families`].
    pub family: u32,
    /// Everything a runner must know that few jobs set.
    pub extra: Sparse<JobExtra>,
    /// What takes no room in a job that stands alone; its fields can be used like the job's own.
    pub rest: Sparse<JobRest>,
}

/// What a job has to do with others, and how it runs if not by a command alone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobRest {
    /// Text put before the command.
    pub invocation_script: Option<String>,
    /// The step tree, in the canonical JSON form, instead of a command.
    pub steps: Option<Value>,
    /// Indexes of the jobs that must succeed first: named, by regex, by file and by user data.
    pub depends_on: Vec<usize>,
    /// Indexes into [`Plan::files`].
    pub input_files: Vec<usize>,
    /// Indexes into [`Plan::files`].
    pub output_files: Vec<usize>,
    /// Indexes into [`Plan::user_data`].
    pub input_user_data: Vec<usize>,
    /// Indexes into [`Plan::user_data`].
    pub output_user_data: Vec<usize>,
}

crate::plain!(JobRest);

impl std::ops::Deref for Job {
    type Target = JobRest;

    fn deref(&self) -> &JobRest {
        &self.rest
    }
}

impl std::ops::DerefMut for Job {
    fn deref_mut(&mut self) -> &mut JobRest {
        &mut self.rest
    }
}

/// The rarer settings of a job; one JSON text in the database, absent when all are default.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobExtra {
    /// Environment of this job, before the workflow's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// An attempt is ended after this long; does not influence scheduling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Runtime>,
    /// Named limits it takes one unit of while it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// Only runners with this label may take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Settings that are stored as the spec writes them.
    #[serde(flatten)]
    pub settings: JobSettings,
    /// What counts as success.
    #[serde(flatten)]
    pub strictness: Strictness,
    /// Paths that `${files.input.NAME.list}` stands for, one list per place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<Vec<String>>,
    /// The parameter values it was made from.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Map and reduce settings, in the canonical JSON form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<Value>,
}

/// Settings of a job that are stored as the spec writes them: no parameter goes into them. The reader of
/// specs takes this struct as it is, so that a new setting is a field here and a key of the spec.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSettings {
    /// How often the job is started again after its runner was lost; 3 unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lost_retries: Option<u32>,
    /// Where its output goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// `runtime` ends its attempts; the workflow's setting unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce_runtime: Option<bool>,
}

/// What counts as success of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Strictness {
    /// How shell text is run; the workflow's setting unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Shell>,
    /// The job may succeed although the kernel killed a process of it at its memory limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tolerate_oom: bool,
    /// Output files that were there before the attempt count as made by it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accept_existing_outputs: bool,
}

impl Strictness {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How shell text is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// `bash -c`, or `sh -c` where there is no bash.
    #[default]
    Default,
    /// The same after `set -euo pipefail`; only with bash.
    Strict,
}

crate::plain!(JobExtra, JobSettings);

impl JobExtra {
    /// How often the job is started again after its runner was lost.
    pub fn max_lost(&self) -> u32 {
        self.settings.max_lost_retries.unwrap_or(3)
    }

    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A file that jobs read or write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct File {
    /// Unique in the workflow.
    pub name: String,
    /// As written; relative to the directory the workflow runs in.
    pub path: String,
    /// Who writes it must write at least so many bytes.
    pub min_size: u64,
}

/// A piece of JSON that jobs read or write.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UserData {
    /// Unique in the workflow.
    pub name: String,
    /// Its value, unless a job is to produce it.
    pub data: Option<Value>,
    /// Cleared by reinitialize.
    pub is_ephemeral: bool,
}

/// What a job needs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Requirements {
    /// Unique in the workflow.
    pub name: String,
    /// CPUs on each node.
    pub num_cpus: u32,
    /// GPUs on each node.
    pub num_gpus: u32,
    /// Number of nodes.
    pub num_nodes: u32,
    /// Memory; a limit when the workflow limits resources. None: not counted, not limited.
    pub memory: Option<Memory>,
    /// How long an attempt is expected to take; ends it only where that is enforced.
    pub runtime: Option<Runtime>,
}

impl Default for Requirements {
    /// What a job gets that asks for nothing.
    fn default() -> Self {
        Self {
            name: "default".into(),
            num_cpus: 1,
            num_gpus: 0,
            num_nodes: 1,
            memory: None,
            runtime: None,
        }
    }
}

/// A named list of rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FailureHandler {
    /// Unique in the workflow.
    pub name: String,
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

/// Which failures it matches, and what follows. Stored as JSON exactly as users write it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Return codes it matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Matches every failure that no precise rule matches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub match_all_exit_codes: bool,
    /// Signals it matches, by name (`SIGSEGV`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// Causes it matches, also by what the diagnosis calls them (`network`, `license`, `transient`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<crate::recovery::FailureName>,
    /// Regexes of which one must match the end of standard error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_matches: Vec<String>,
    /// Runs before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_script: Option<String>,
    /// A retry is allowed while the attempt's number is lower.
    #[serde(default = "Rule::default_max_retries", alias = "max_attempts")]
    pub max_retries: u32,
    /// How long to wait before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The recovery script is killed after this long; 10 minutes unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_timeout: Option<Runtime>,
    /// What a failing recovery script means.
    #[serde(default, skip_serializing_if = "OnScriptFailure::is_default")]
    pub on_script_failure: OnScriptFailure,
}

impl Rule {
    const fn default_max_retries() -> u32 {
        3
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            exit_codes: Vec::new(),
            match_all_exit_codes: false,
            signals: Vec::new(),
            causes: Vec::new(),
            stderr_matches: Vec::new(),
            recovery_script: None,
            max_retries: Self::default_max_retries(),
            backoff: None,
            script_timeout: None,
            on_script_failure: OnScriptFailure::default(),
        }
    }
}

/// Time between attempts: `delay * factor^(n-1)`, at most `max`, plus or minus `jitter` (a
/// fraction).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// Before the first retry, in seconds.
    pub delay_seconds: f64,
    /// Growth per retry.
    #[serde(default = "Backoff::default_factor")]
    pub factor: f64,
    /// Upper bound in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
    /// 0.1 spreads the wait over 90% to 110%.
    #[serde(default)]
    pub jitter: f64,
}

impl Backoff {
    /// Milliseconds to wait before the `n`th retry by this rule. `unit` in 0..1 decides within the
    /// jitter.
    pub fn wait_ms(&self, n: u32, unit: f64) -> i64 {
        let grown = self.delay_seconds * self.factor.powi(n.saturating_sub(1).min(1000) as i32);
        let capped = grown.min(self.max_seconds.unwrap_or(f64::INFINITY)).min(365.0 * 86_400.0);
        (capped * (1.0 + self.jitter * (2.0 * unit - 1.0)) * 1000.0) as i64
    }

    const fn default_factor() -> f64 {
        2.0
    }
}

/// What a failing recovery script means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnScriptFailure {
    /// The job is tried all the same.
    #[default]
    Continue,
    /// The attempt fails.
    Fail,
}

impl OnScriptFailure {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How to ask Slurm for nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct SlurmScheduler {
    /// Unique in the workflow.
    pub name: String,
    /// Who pays.
    pub account: String,
    /// The partition to ask for; none: the default of the cluster.
    pub partition: Option<String>,
    /// Nodes per allocation.
    pub nodes: u32,
    /// `HH:MM:SS` or `D-HH:MM:SS`.
    pub walltime: String,
    /// Memory per node, as `sbatch` takes it.
    pub mem: Option<String>,
    /// Generic resources.
    pub gres: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Tasks per node.
    pub ntasks_per_node: Option<u32>,
    /// Local disk.
    pub tmp: Option<String>,
    /// Further text for `#SBATCH` lines.
    pub extra: Option<String>,
    /// Run one allocation at a time.
    pub serialize_allocations: bool,
    /// The scheduler whose chain of allocations these join, when it is not this one: what a
    /// regenerate makes goes on with the chain of what it replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// What happens at a trigger.
#[derive(Clone, PartialEq, Debug)]
pub struct Action {
    /// What sets it off.
    pub trigger: Trigger,
    /// Indexes of the jobs that `on_jobs_*` waits for.
    pub jobs: Vec<usize>,
    /// What it does.
    pub what: ActionKind,
    /// Once per worker instead of once.
    pub persistent: bool,
}

/// What an action does; stored as JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "action_type", rename_all = "snake_case")]
pub enum ActionKind {
    /// Runs shell commands one after the other.
    RunCommands {
        /// The commands.
        commands: Vec<String>,
    },
    /// Asks Slurm for nodes.
    ScheduleNodes {
        /// Name of the Slurm scheduler.
        scheduler: String,
        /// Always `slurm` today.
        scheduler_type: String,
        /// How many allocations.
        num_allocations: u32,
        /// One runner on each node instead of one per allocation.
        start_one_worker_per_node: bool,
        /// At most this many jobs at once in each runner.
        max_parallel_jobs: Option<u32>,
    },
}

/// Torc sets this environment variable in jobs, or reads it in the programs that they call: a spec
/// must not. Other names that begin with `TORC_` are the user's.
pub fn is_reserved_variable(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "TORC_API_URL",
        "TORC_JOB_ID",
        "TORC_JOB_NAME",
        "TORC_MCP_TOKEN",
        "TORC_ORCHESTRATOR_LINEAGE_ID",
        "TORC_OUTPUT_DIR",
        "TORC_RETURN_CODE",
        "TORC_RUN_ID",
        "TORC_TLS_CA",
        "TORC_TOKEN",
        "TORC_TOKEN_FILE",
        "TORC_WORKFLOW_ID",
        "TORC_WORKFLOW_SUBMISSION_DIR",
    ];
    const PREFIXES: [&str; 3] = ["TORC_ATTEMPT_", "TORC_LIST_", "TORC_USER_DATA_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The environment variable that tells a job where its `nth` list of input files is, counted from
/// 1.
pub fn list_variable(nth: usize) -> String {
    format!("TORC_LIST_{nth}")
}

/// The environment variable that tells a job the current value of its input user data, as JSON
/// text.
pub fn user_data_variable(name: &str) -> String {
    let word = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    "TORC_USER_DATA_".chars().chain(word).collect()
}
