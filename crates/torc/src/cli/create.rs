//! `torc create`: stores a workflow without running it.

use super::session::Access;
use super::{Context, person, spec};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{escape, human};
use std::path::PathBuf;
use torc_client::{Client, NewWorkflow};
use torc_model::api::{LimitView, Page, WorkflowCreated};

/// Create a workflow from a spec, without running it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc create sweep.yaml                       then `torc run sweep` or `torc runner sweep`
  id=$(torc -f json create sweep.yaml | jq .id)")]
pub struct Args {
    /// Spec file (`-`: standard input)
    spec: PathBuf,

    /// Start the first run at once: jobs become ready for runners
    #[arg(long)]
    initialize: bool,

    /// Initialize although input files are missing
    #[arg(long, requires = "initialize")]
    force: bool,
}

/// How the first run of a new workflow begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Only if all input files are there.
    Careful,
    /// Although input files are missing.
    Force,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let checked = spec::load(context, &self.spec)?;
        context.with_server(Access::Create, async |client| {
            let start = if self.force { Start::Force } else { Start::Careful };
            let created =
                create(context, client, &checked, self.initialize.then_some(start)).await?;
            // Scripts for Torc 1.0.0 read `workflow_id`.
            let mut shown = serde_json::json!(created);
            shown["workflow_id"] = serde_json::json!(created.id);
            let told = context.output.value(&shown, |_| describe(&created));
            told.map_err(|error| error.after(format!("workflow {} was created", created.id)))?;
            Ok(Exit::Success)
        })
    }
}

/// Creates a workflow in one transaction, and starts its first run if wanted. The server's warnings
/// go to the user.
pub async fn create(
    context: &Context,
    client: &Client,
    checked: &spec::Checked,
    start: Option<Start>,
) -> Result<WorkflowCreated> {
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    let body = NewWorkflow {
        spec: &checked.spec,
        user: checked.spec.user().is_none().then(person::name),
        initialize: start.is_some(),
        force: start == Some(Start::Force),
        directory: Some(utf8(&here)?.to_owned()),
        spec_path: checked.path.clone(),
    };
    let mut created =
        client.create_workflow_from(&body).await.map_err(|error| checked.explain(error))?;
    let mut news: Vec<String> =
        created.warnings.iter().filter(|warning| !checked.has_warned(warning)).cloned().collect();
    news.extend(limits(client, checked).await);
    news.iter().for_each(|warning| context.output.warn(escape::line(warning)));
    created.warnings = checked.warnings.iter().cloned().chain(news).collect();
    Ok(created)
}

/// Paths travel as JSON, which is UTF-8: another name could not be found again.
pub fn utf8(dir: &std::path::Path) -> Result<&str> {
    dir.to_str().ok_or_else(|| {
        Error::usage_hint(
            format!("the name of the directory `{}` is not UTF-8", dir.display()),
            "work in a directory whose name is",
        )
    })
}

/// Warnings about limits that jobs take and that are not set, and about those that the server has
/// set otherwise than the spec.
async fn limits(client: &Client, checked: &spec::Checked) -> Vec<String> {
    let wanted = checked.spec.limits();
    if checked.unset_limits.is_empty() && wanted.is_empty() {
        return Vec::new();
    }
    let known = match client.get::<Page<LimitView>>("/limits").await {
        Ok(page) => page.items,
        Err(error) => {
            // The workflow is there; this is no reason to call it a failure.
            tracing::warn!(%error, "the limits could not be looked up");
            return Vec::new();
        }
    };
    let unset =
        checked.unset_limits.iter().filter(|name| known.iter().all(|limit| limit.name != **name));
    let other = known.iter().filter_map(|limit| {
        let asked = wanted.get(&limit.name).filter(|asked| **asked != limit.max)?;
        let (name, max) = (&limit.name, limit.max);
        Some(format!(
            "limit `{name}` is {max} on the server, which counts, and {asked} in the spec (`torc limits set {name} {asked}` \
             changes it)"
        ))
    });
    let unset = unset.map(|name| {
        format!(
            "limit `{name}` is not set, so it has no effect (`torc limits set {name} N` sets it)"
        )
    });
    unset.chain(other).collect()
}

/// ``created workflow 3 `sweep`: 7 jobs``.
pub fn describe(created: &WorkflowCreated) -> String {
    let jobs = human::count(created.job_count, "job");
    format!("created workflow {} `{}`: {jobs}\n", created.id, escape::line(&created.name))
}
