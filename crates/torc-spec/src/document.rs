//! The canonical spec as plain types, with constants put in and parameters not yet expanded.

use crate::node::{JOBS, Kind, Node, Owned};
use crate::packed::Packed;
use serde::Deserialize;
use serde::de::{self, value::MapDeserializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use torc_model::plan::{JobSettings, Rule, Shell, Stdio, Strictness};
use torc_model::sparse::{Sparse, StaticDefault};
use torc_model::status::Trigger;
use torc_model::units::{Memory, Runtime};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Document {
    pub name: String,
    pub user: Option<String>,
    pub description: Option<String>,
    pub project: Option<String>,
    pub access_groups: Vec<String>,
    pub metadata: Option<Value>,
    pub env: BTreeMap<String, String>,
    pub shell: Option<Shell>,
    pub enforce_runtime: bool,
    pub parameters: Map<String, Value>,
    pub parameter_mode: Mode,
    pub use_pending_failed: bool,
    pub enable_ro_crate: bool,
    pub auto_recover: Option<AutoRecoverSpec>,
    pub recovery_rules: Vec<torc_model::recovery::RuleSpec>,
    pub default_failure_handler: Option<String>,
    pub checkpoint_exit_code: Option<i32>,
    pub compare_files_by: Option<String>,
    pub order: Option<String>,
    pub disown_seconds: Option<u64>,
    pub classification_threshold: Option<f64>,
    pub agent: Option<Value>,
    pub resource_monitor: MonitorSpec,
    pub execution_config: ExecutionSpec,
    pub dynamic_jobs: Option<DynamicSpec>,
    pub compute_node_wait_for_new_jobs_seconds: Option<u64>,
    pub compute_node_ignore_workflow_completion: bool,
    pub compute_node_wait_for_healthy_database_minutes: Option<u64>,
    pub compute_node_min_time_for_new_jobs_seconds: Option<u64>,
    pub slurm_defaults: BTreeMap<String, Value>,
    pub limits: BTreeMap<String, i64>,
    pub resource_requirements: Vec<RequirementsSpec>,
    pub failure_handlers: Vec<HandlerSpec>,
    pub slurm_schedulers: Vec<SchedulerSpec>,
    pub files: Vec<FileSpec>,
    pub user_data: Vec<UserDataSpec>,
    #[serde(rename = "jobs")]
    listed: Vec<JobSpec>,
    /// The jobs, if there are so many that they stay as they are and are read one at a time.
    #[serde(skip)]
    packed: Option<Arc<Packed>>,
    pub actions: Vec<ActionSpec>,
}

impl Document {
    /// From a canonical tree.
    pub fn read(tree: &Node) -> Result<Self, de::value::Error> {
        let Kind::Map(entries) = &tree.kind else { return Self::deserialize(tree) };
        let packed: Option<Arc<Packed>> =
            entries.iter().find_map(|entry| match &entry.value.kind {
                Kind::Long(jobs) if entry.key == JOBS => Some(jobs.clone()),
                _ => None,
            });
        let is_packed = packed.is_some();
        let plain = entries.iter().filter(|entry| !is_packed || entry.key != JOBS);
        let plain = MapDeserializer::new(plain.map(|entry| (&*entry.key, &entry.value)));
        Ok(Self { packed, ..Self::deserialize(plain)? })
    }

    /// The definitions of jobs, in order.
    pub fn jobs(&self) -> impl Iterator<Item = Cow<'_, JobSpec>> + '_ {
        let packed = self.packed.iter().flat_map(|jobs| jobs.iter());
        self.listed.iter().map(Cow::Borrowed).chain(packed.map(|job| Cow::Owned(unpacked(job))))
    }

    /// How many there are.
    pub fn job_count(&self) -> usize {
        self.packed.as_ref().map_or(self.listed.len(), |jobs| jobs.len())
    }

    /// One of them.
    pub fn job(&self, index: usize) -> Option<Cow<'_, JobSpec>> {
        match &self.packed {
            Some(jobs) => jobs.get(index).map(|job| Cow::Owned(unpacked(job))),
            None => self.listed.get(index).map(Cow::Borrowed),
        }
    }
}

/// A canonical job is one that can be read.
fn unpacked(job: Node) -> JobSpec {
    let read = JobSpec::deserialize(Owned(job));
    debug_assert!(read.is_ok(), "{read:?}");
    read.unwrap_or_default()
}

/// What the server does about failures by itself. What is not set stays as it is by default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AutoRecoverSpec {
    pub enabled: Option<bool>,
    pub max_retries: Option<u32>,
    pub max_retries_per_cause: Option<u32>,
    pub max_workflow_retries: Option<u32>,
    pub confidence: Option<f64>,
    pub max_memory: Option<Memory>,
    pub max_runtime: Option<Runtime>,
    pub delay_seconds: Option<f64>,
    pub max_delay_seconds: Option<f64>,
}

/// How parameters combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Product,
    Zip,
}

/// The smallest size that `non_empty` and `min_size` allow an output file.
pub(crate) fn least_size(non_empty: bool, min_size: Option<Memory>) -> u64 {
    min_size.map_or(0, |size| size.0).max(u64::from(non_empty))
}

/// The keys that make one entry many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParametersSpec<'a> {
    pub parameters: &'a Map<String, Value>,
    pub parameter_mode: Option<Mode>,
    pub use_parameters: &'a [String],
}

impl ParametersSpec<'_> {
    /// The key that the values come from.
    pub fn source(self) -> &'static str {
        if self.parameters.is_empty() { "use_parameters" } else { "parameters" }
    }
}

macro_rules! parameters_of {
    ($($name:ident),*) => {$(
        impl $name {
            pub fn parameters(&self) -> ParametersSpec<'_> {
                ParametersSpec {
                    parameters: &self.parameters,
                    parameter_mode: self.parameter_mode,
                    use_parameters: &self.use_parameters,
                }
            }
        }
    )*};
}
parameters_of!(JobSpec, FileSpec, UserDataSpec);

/// A job. What most of them have takes room in each; the rest only where it is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobSpec {
    pub name: String,
    pub command: Option<String>,
    pub depends_on: Vec<String>,
    #[serde(flatten, deserialize_with = "sparse")]
    pub settings: Sparse<JobSettings>,
    #[serde(flatten)]
    pub strictness: Strictness,
    #[serde(flatten, deserialize_with = "sparse")]
    rest: Sparse<RareJobKeys>,
}

impl std::ops::Deref for JobSpec {
    type Target = RareJobKeys;

    fn deref(&self) -> &RareJobKeys {
        &self.rest
    }
}

torc_model::plain!(RareJobKeys);

fn sparse<'de, D, T>(deserializer: D) -> Result<Sparse<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + StaticDefault,
{
    T::deserialize(deserializer).map(Sparse::from)
}

/// What few jobs have.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RareJobKeys {
    pub steps: Option<Value>,
    pub map: Option<Value>,
    pub reduce: Option<String>,
    pub on_failure: Option<Value>,
    pub on_success: Option<Value>,
    pub resume: Option<Value>,
    pub dir: Option<Value>,
    pub invocation_script: Option<String>,
    pub parameters: Map<String, Value>,
    pub parameter_mode: Option<Mode>,
    pub use_parameters: Vec<String>,
    pub depends_on_regexes: Vec<String>,
    pub input_files: Vec<String>,
    pub input_file_regexes: Vec<String>,
    pub output_files: Vec<String>,
    pub output_file_regexes: Vec<String>,
    pub input_user_data: Vec<String>,
    pub input_user_data_regexes: Vec<String>,
    pub output_user_data: Vec<String>,
    pub output_user_data_regexes: Vec<String>,
    pub resource_requirements: Option<String>,
    pub cpus: Option<u32>,
    pub gpus: Option<u32>,
    pub memory: Option<Memory>,
    pub time: Option<Runtime>,
    pub failure_handler: Option<String>,
    pub retries: u32,
    pub non_empty: bool,
    pub min_size: Option<Memory>,
    pub scheduler: Option<String>,
    pub cancel_on_blocking_job_failure: Option<bool>,
    pub priority: i64,
    pub env: BTreeMap<String, String>,
    pub timeout: Option<Runtime>,
    pub uses: Vec<String>,
    pub label: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FileSpec {
    pub name: String,
    pub path: String,
    pub non_empty: bool,
    pub min_size: Option<Memory>,
    pub parameters: Map<String, Value>,
    pub parameter_mode: Option<Mode>,
    pub use_parameters: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UserDataSpec {
    pub name: String,
    pub data: Option<Value>,
    pub is_ephemeral: bool,
    pub parameters: Map<String, Value>,
    pub parameter_mode: Option<Mode>,
    pub use_parameters: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequirementsSpec {
    pub name: String,
    pub num_cpus: Option<u32>,
    pub num_gpus: Option<u32>,
    pub num_nodes: Option<u32>,
    pub memory: Option<Memory>,
    pub runtime: Option<Runtime>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HandlerSpec {
    pub name: String,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SchedulerSpec {
    pub name: String,
    pub account: Option<String>,
    pub partition: Option<String>,
    pub nodes: Option<u32>,
    pub walltime: Option<String>,
    pub mem: Option<String>,
    pub gres: Option<String>,
    pub qos: Option<String>,
    pub ntasks_per_node: Option<u32>,
    pub tmp: Option<String>,
    pub extra: Option<String>,
    pub serialize_allocations: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ActionSpec {
    pub trigger_type: Trigger,
    pub action_type: String,
    #[serde(default)]
    pub jobs: Vec<String>,
    #[serde(default)]
    pub job_name_regexes: Vec<String>,
    #[serde(default)]
    pub commands: Vec<String>,
    #[serde(default)]
    pub scheduler: Option<String>,
    #[serde(default)]
    pub scheduler_type: Option<String>,
    #[serde(default)]
    pub num_allocations: Option<u32>,
    #[serde(default)]
    pub start_one_worker_per_node: bool,
    #[serde(default)]
    pub max_parallel_jobs: Option<u32>,
    #[serde(default)]
    pub persistent: bool,
}

impl ActionSpec {
    /// It asks for runners of this machine, which users start themselves: nothing is to be done.
    pub fn is_local(&self) -> bool {
        self.action_type == "schedule_nodes" && self.scheduler_type.as_deref() == Some("local")
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MonitorSpec {
    pub enabled: Option<bool>,
    pub granularity: Option<String>,
    pub sample_interval_seconds: Option<f64>,
    pub jobs: MonitorJobsSpec,
    pub compute_node: MonitorNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MonitorNodeSpec {
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MonitorJobsSpec {
    pub enabled: Option<bool>,
    pub granularity: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DynamicSpec {
    pub allowed: Option<bool>,
    pub max_iterations: Option<u32>,
    pub max_jobs: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExecutionSpec {
    pub mode: Option<String>,
    pub limit_resources: Option<bool>,
    pub termination_signal: Option<String>,
    pub sigterm_lead_seconds: Option<f64>,
    pub sigkill_headroom_seconds: Option<f64>,
    pub srun_termination_signal: Option<String>,
    pub timeout_exit_code: Option<i32>,
    pub oom_exit_code: Option<i32>,
    pub stdio: Option<Stdio>,
}
