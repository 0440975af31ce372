//! A new revision of a workflow's spec: what applying it does to each job, and why.

use crate::ids::{JobId, WorkflowId};
use crate::status::{JobStatus, RunningJobs, words};
use crate::words::{grouped, label, message};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

words! {
    /// What is new about a job, or why it runs again. Each job has one: the first that applies.
    PlannedChange {
        /// The workflow has no such job yet.
        New = "new",
        /// Its command is another, after expansion.
        Command = "command",
        /// Its steps are others.
        Steps = "steps",
        /// Its variables are others.
        Env = "env",
        /// It declares other input files.
        InputFiles = "input_files",
        /// It declares other output files.
        OutputFiles = "output_files",
        /// It declares other user data, or a value that it reads has changed.
        UserData = "user_data",
        /// It asks for other GPUs or nodes.
        Requirements = "requirements",
        /// What counts as its success is another: `shell`, `tolerate_oom`, `accept_existing_outputs`.
        Success = "success",
        /// It is over other items.
        Map = "map",
        /// It depends on a job that it did not depend on.
        Dependencies = "dependencies",
        /// A declared file that its command names was modified.
        Script = "script",
        /// An input file was modified.
        InputModified = "input_modified",
        /// An input file contains something else.
        InputContent = "input_content",
        /// An input file has appeared.
        InputAppeared = "input_appeared",
        /// An input file is gone.
        InputGone = "input_gone",
        /// An input file that a job writes was changed after that job had written it.
        InputOverwritten = "input_overwritten",
        /// An output file is missing.
        OutputMissing = "output_missing",
        /// The user asked for it.
        Asked = "asked",
        /// It did not succeed.
        Ended = "ended",
        /// A job that it depends on runs again.
        Upstream = "upstream",
        /// Its outputs are accepted as they are: it does not run.
        Accepted = "accepted",
        /// The spec no longer has it.
        Removed = "removed",
    }
}

/// How a plan counts a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChangeGroup {
    /// It is new.
    New,
    /// The spec changes it.
    Changed,
    /// What it reads has changed.
    Inputs,
    /// What it wrote is missing.
    Outputs,
    /// It did not succeed.
    Ended,
    /// The user asked for it.
    Asked,
    /// It follows another.
    Upstream,
    /// It does not run although it would.
    Accepted,
    /// It is taken out.
    Removed,
}

impl PlannedChange {
    /// How a plan counts it.
    pub const fn group(self) -> ChangeGroup {
        match self {
            Self::New => ChangeGroup::New,
            Self::Command
            | Self::Steps
            | Self::Env
            | Self::InputFiles
            | Self::OutputFiles
            | Self::UserData
            | Self::Requirements
            | Self::Success
            | Self::Map
            | Self::Dependencies => ChangeGroup::Changed,
            Self::Script
            | Self::InputModified
            | Self::InputContent
            | Self::InputAppeared
            | Self::InputGone
            | Self::InputOverwritten => ChangeGroup::Inputs,
            Self::OutputMissing => ChangeGroup::Outputs,
            Self::Asked => ChangeGroup::Asked,
            Self::Ended => ChangeGroup::Ended,
            Self::Upstream => ChangeGroup::Upstream,
            Self::Accepted => ChangeGroup::Accepted,
            Self::Removed => ChangeGroup::Removed,
        }
    }

    /// The job runs because of it.
    pub const fn runs(self) -> bool {
        !matches!(self, Self::Accepted | Self::Removed)
    }

    /// The reason in one clause; `what` names the file, the job or the status that it is about.
    pub fn sentence(self, what: Option<&str>) -> String {
        let what = what.unwrap_or("?");
        message(match self {
            Self::New => "it is new".to_owned(),
            Self::Command => "its command is another".into(),
            Self::Steps => "its steps are others".into(),
            Self::Env => "its `env` is another".into(),
            Self::InputFiles => "it declares other input files".into(),
            Self::OutputFiles => "it declares other output files".into(),
            Self::UserData => "its user data has changed".into(),
            Self::Requirements => "it asks for other GPUs or nodes".into(),
            Self::Success => "what counts as its success has changed".into(),
            Self::Map => "its items are others".into(),
            Self::Dependencies => format!("it depends on `{what}` now"),
            Self::Script => format!("`{what}`, which its command names, was modified"),
            Self::InputModified => format!("its input `{what}` was modified"),
            Self::InputContent => format!("its input `{what}` contains something else"),
            Self::InputAppeared => format!("its input `{what}` appeared"),
            Self::InputGone => format!("its input `{what}` is gone"),
            Self::InputOverwritten => {
                format!("its input `{what}` was changed after it had been written")
            }
            Self::OutputMissing => format!("its output `{what}` is missing"),
            Self::Asked => "asked for".into(),
            Self::Ended => match JobStatus::parse(what) {
                Some(status) => format!("it {}", status.clause()),
                None => format!("it is {what}"),
            },
            Self::Upstream => format!("job `{what}`, which it depends on, runs again"),
            Self::Accepted => "its outputs are accepted as they are".into(),
            Self::Removed => "the spec no longer has it".into(),
        })
    }
}

/// Asks to apply a spec to a workflow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApplyRequest {
    /// The whole spec as JSON, in the form of a spec file; none: the one that the workflow has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec: Option<Value>,
    /// Options of the application.
    #[serde(flatten)]
    pub how: ApplyOptions,
}

/// How to apply a spec.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ApplyOptions {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Go on although input files are missing.
    pub force: bool,
    /// The revision that the caller has seen; refused when another caller has applied one since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The run that the caller has seen; refused when another caller has begun the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i64>,
    /// Where the workflow is over, let jobs that did not succeed run again.
    pub failed: bool,
    /// Let these jobs run again too: names, regular expressions, or `all`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rerun: Vec<String>,
    /// Accept outputs that exist as they are instead of running the jobs that would make them.
    pub touch: bool,
    /// What to do with running attempts of jobs that change or are removed.
    pub running: RunningJobs,
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file that the spec was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_path: Option<String>,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self {
            dry_run: false,
            force: false,
            revision: None,
            run_id: None,
            failed: false,
            rerun: Vec::new(),
            touch: false,
            running: RunningJobs::Finish,
            user: None,
            spec_path: None,
        }
    }
}

/// What applying a spec did or would do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApplyView {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Nothing was changed.
    pub dry_run: bool,
    /// The revision after it; of a dry run the present one.
    pub revision: i64,
    /// The run after it; of a dry run the present one.
    pub run_id: i64,
    /// Applying it changes something.
    pub is_change: bool,
    /// Every job of the workflow is final, before anything is applied.
    pub is_complete: bool,
    /// How many jobs are what.
    pub counts: PlanCounts,
    /// The jobs that change, run again, are accepted or are removed, each with its reason.
    pub jobs: Vec<PlannedJob>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl From<ApplyView> for super::ResetView {
    fn from(view: ApplyView) -> Self {
        let runs = view.jobs.into_iter().filter(|job| job.change.runs());
        let jobs = runs.map(|job| super::ResetJob {
            job_id: job.job_id.unwrap_or(JobId(0)),
            name: job.name,
            from: job.status,
            reason: job.reason,
        });
        Self {
            workflow_id: view.workflow_id,
            dry_run: view.dry_run,
            run_id: view.run_id,
            jobs: jobs.collect(),
            warnings: view.warnings,
        }
    }
}

/// A job that a plan is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedJob {
    /// The job, if there is one already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: JobStatus,
    /// What happens to it, and why.
    pub change: PlannedChange,
    /// The file, the job or the status that the reason is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The reason in one clause.
    pub reason: String,
}

/// How many jobs of a spec are what.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PlanCounts {
    /// Jobs of the spec.
    pub total: i64,
    /// Jobs by what is new about them; words that no job has are absent.
    #[schema(value_type = BTreeMap<String, i64>)]
    pub changes: BTreeMap<PlannedChange, i64>,
    /// Jobs that have succeeded and need not run.
    pub up_to_date: i64,
    /// Jobs that have not ended and go on.
    pub unfinished: i64,
    /// Jobs that did not succeed and are left as they are.
    pub left: i64,
    /// Jobs that are switched off.
    pub disabled: i64,
}

impl PlanCounts {
    /// Counts one job.
    pub fn add(&mut self, change: PlannedChange) {
        *self.changes.entry(change).or_default() += 1;
    }

    /// Jobs that run because of it.
    pub fn to_run(&self) -> i64 {
        self.changes.iter().filter(|(change, _)| change.runs()).map(|(_, count)| count).sum()
    }

    /// Jobs that are taken out.
    pub fn removed(&self) -> i64 {
        self.changes.get(&PlannedChange::Removed).copied().unwrap_or(0)
    }

    fn of(&self, group: ChangeGroup) -> (i64, Vec<&'static str>) {
        let counted = self.changes.iter().filter(|(change, _)| change.group() == group);
        counted.fold((0, Vec::new()), |(sum, mut words), (change, count)| {
            words.push(change.as_str());
            (sum + count, words)
        })
    }
}

/// `2 new, 1 changed (command), 3 whose inputs changed, 197 up to date, 1 removed`.
impl fmt::Display for PlanCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ChangeGroup as G;
        let mut parts: Vec<String> = Vec::new();
        let mut part = |count: i64, text: &'static str| {
            if count > 0 {
                parts.push(format!("{} {}", grouped(count), label(text)));
            }
        };
        part(self.of(G::New).0, "new");
        let (changed, words) = self.of(G::Changed);
        if changed > 0 {
            parts.push(format!("{} changed ({})", grouped(changed), words.join(", ")));
        }
        let mut part = |count: i64, text: &'static str| {
            if count > 0 {
                parts.push(format!("{} {}", grouped(count), label(text)));
            }
        };
        part(self.of(G::Inputs).0, "whose inputs changed");
        part(self.of(G::Outputs).0, "whose outputs are missing");
        part(self.of(G::Ended).0, "that did not succeed");
        part(self.of(G::Asked).0, "asked for");
        part(self.of(G::Upstream).0, "that follow");
        part(self.of(G::Accepted).0, "accepted");
        part(self.up_to_date, "up to date");
        part(self.unfinished, "unfinished");
        part(self.left, "without success, left as they are");
        part(self.disabled, "disabled");
        part(self.of(G::Removed).0, "removed");
        if parts.is_empty() { f.write_str("no jobs") } else { f.write_str(&parts.join(", ")) }
    }
}

/// A revision of a workflow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// Counted from 1, which is the creation.
    pub revision: i64,
    /// When, ms since 1970.
    pub made_ms: i64,
    /// The user who applied it.
    pub made_by: String,
    /// The run that it began, or that was under way.
    pub run_id: i64,
    /// What it did.
    pub counts: PlanCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_one_line() {
        use PlannedChange as C;
        let changes =
            [(C::New, 2), (C::Command, 1), (C::InputModified, 2), (C::Script, 1), (C::Removed, 1)];
        let counts = PlanCounts {
            total: 203,
            changes: changes.into(),
            up_to_date: 197,
            ..PlanCounts::default()
        };
        assert_eq!(
            counts.to_string(),
            "2 new, 1 changed (command), 3 whose inputs changed, 197 up to date, 1 removed"
        );
        assert_eq!((counts.to_run(), counts.removed()), (6, 1));
    }

    #[test]
    fn every_change_has_a_sentence_of_its_own() {
        let all: std::collections::BTreeSet<String> =
            PlannedChange::ALL.iter().map(|change| change.sentence(Some("x"))).collect();
        assert_eq!(all.len(), PlannedChange::ALL.len());
    }
}
