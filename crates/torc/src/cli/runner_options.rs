//! What a runner may use, and where its logs go: the options that `run`, `exec` and `runner` share.

use super::run::title;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use torc_client::Client;
use torc_model::api::{Capacity, WorkflowView};
use torc_model::labels;
use torc_model::units::{Memory, Runtime};

/// Directory of logs inside the workflow's directory.
const OUTPUT_DIR: &str = "output";

/// What a runner may use.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Runner options")]
pub struct RunnerOptions {
    /// Run at most N jobs at once, as long as there are CPUs and memory for them
    #[arg(short = 'j', long, aliases = ["max-jobs", "jobs", "parallel"], value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_parallel_jobs: Option<i64>,

    /// Start jobs whatever CPUs, memory and GPUs they ask for
    #[arg(long)]
    pub ignore_resources: bool,

    /// CPUs that jobs may use [default: all of this machine]
    #[arg(long, visible_alias = "cpus", value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub num_cpus: Option<i64>,

    /// Memory that jobs may use, such as `16g` [default: all of this machine]
    #[arg(long, value_name = "SIZE", value_parser = Memory::parse)]
    pub memory: Option<Memory>,

    /// Memory that jobs may use, in GiB
    #[arg(long, value_name = "N", conflicts_with = "memory", value_parser = gigabytes, allow_negative_numbers = true)]
    pub memory_gb: Option<Memory>,

    /// GPUs that jobs may use [default: all of this machine]
    #[arg(long, visible_alias = "gpus", value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub num_gpus: Option<i64>,

    /// Directory for logs [default: `output` beside the workflow]
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,

    /// Directory that jobs start in [default: where the workflow was created from]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,

    /// Stop after this long, such as `2h`; what runs goes back into the queue
    #[arg(long, value_name = "TIME", value_parser = Runtime::parse)]
    pub time_limit: Option<Runtime>,

    /// Take jobs whose labels are all among these, and no others
    #[arg(long = "label", value_name = "LABEL", value_delimiter = ',')]
    pub labels: Vec<String>,
}

fn not_a_directory(dir: &Path) -> Error {
    Error::usage(format!("`{}` is not a directory on this machine", dir.display()))
}

/// `1.5`: so many GiB.
fn gigabytes(text: &str) -> std::result::Result<Memory, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    let memory = number.and_then(|number| Memory::parse(&format!("{number}g")).ok());
    memory.ok_or_else(|| "expected a number of GiB, more than 0".into())
}

impl RunnerOptions {
    /// Refuses what would stop the runner at its start, before there is anything for it to do.
    pub fn check(&self) -> Result<()> {
        if let Some(dir) = self.work_dir.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(not_a_directory(dir));
        }
        match &self.output_dir {
            Some(dir) => std::fs::create_dir_all(dir).map_err(Error::io("make", dir)),
            None => Ok(()),
        }
    }

    /// Where this workflow's jobs start on this machine: where it was created from, unless the
    /// caller names another place. In any other directory they would find other files, so a missing
    /// one is an error before anything starts.
    pub fn working_dir(&self, workflow: &WorkflowView) -> Result<PathBuf> {
        let here = || std::env::current_dir().map_err(Error::io("find", "."));
        let dir = match (&self.work_dir, &workflow.origin.directory) {
            (Some(dir), _) => here()?.join(dir),
            (None, Some(dir)) => PathBuf::from(dir),
            (None, None) => here()?,
        };
        if dir.is_dir() {
            return Ok(dir);
        }
        let title = title(workflow);
        Err(match self.work_dir {
            Some(_) => not_a_directory(&dir),
            None => Error::usage_hint(
                format!(
                    "the directory that {title} was created from is not on this machine: `{}`",
                    dir.display()
                ),
                "make it again, or name another directory for its jobs with `--work-dir DIR`",
            ),
        })
    }

    /// A runner for this workflow.
    pub fn config(&self, client: &Client, workflow: &WorkflowView) -> Result<torc_runner::Config> {
        let here = std::env::current_dir().map_err(Error::io("find", "."))?;
        let working_dir = self.working_dir(workflow)?;
        let output_dir = match &self.output_dir {
            Some(dir) => here.join(dir),
            None => working_dir.join(OUTPUT_DIR),
        };
        let mut config = torc_runner::Config::new(client.clone(), workflow.id, output_dir);
        config.working_dir = working_dir;
        let this_program = std::env::current_exe().ok();
        config.guard =
            this_program.map(|program| vec![program.into(), torc_runner::guard::WORD.into()]);
        config.label = self.joined_labels();
        config.limits.time_left =
            self.time_limit.map(|limit| std::time::Duration::from_secs(limit.0));
        config.capacity = self.capacity(config.capacity);
        Ok(config)
    }

    /// What jobs may use of what the machine has.
    pub fn capacity(&self, mut capacity: Capacity) -> Capacity {
        capacity.max_parallel_jobs = self.max_parallel_jobs;
        capacity.ignore_resources = self.ignore_resources;
        capacity.num_cpus = self.num_cpus.unwrap_or(capacity.num_cpus);
        capacity.num_gpus = self.num_gpus.unwrap_or(capacity.num_gpus);
        if let Some(memory) = self.memory.or(self.memory_gb) {
            capacity.memory_bytes = i64::try_from(memory.0).unwrap_or(i64::MAX);
        }
        capacity
    }

    /// The labels as one text.
    pub fn joined_labels(&self) -> Option<String> {
        labels::joined(self.labels.iter().map(String::as_str))
    }

    /// The same options as arguments of another call.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                args.push(format!("--{name}={value}"));
            }
        };
        add("max-parallel-jobs", self.max_parallel_jobs.map(|n| n.to_string()));
        add("num-cpus", self.num_cpus.map(|n| n.to_string()));
        add("memory", self.memory.or(self.memory_gb).map(|m| m.to_string()));
        add("num-gpus", self.num_gpus.map(|n| n.to_string()));
        add("output-dir", self.output_dir.as_ref().map(|dir| dir.display().to_string()));
        add("work-dir", self.work_dir.as_ref().map(|dir| dir.display().to_string()));
        add("time-limit", self.time_limit.map(|t| t.to_string()));
        add("label", self.joined_labels());
        if self.ignore_resources {
            args.push("--ignore-resources".into());
        }
        args
    }
}
