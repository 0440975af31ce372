//! Specs that become workflows or change them. Planning and looking at files take a while, so that both are
//! done before the transaction.

use super::{
    Creation, Maker, Refusal, Store, access_groups, create, difference, facts, import, people,
    revise, shared_outputs,
};
use crate::blocking::blocking;
use crate::slow_files;
use std::path::Path;
use torc_model::api::{
    ApplyOptions, ApplyView, ErrorCode, Past, ReinitializeRequest, ResetView, WorkflowCreated,
};
use torc_model::ids::WorkflowId;
use torc_model::words::count;

impl Store {
    /// Creates a workflow out of a spec: one transaction, all or nothing.
    pub async fn create_workflow(
        &self,
        request: impl Into<Creation>,
    ) -> Result<WorkflowCreated, Refusal> {
        let mut request: Creation = request.into();
        let (spec, directory) = (std::mem::take(&mut request.spec), request.directory.clone());
        let (plan, warnings, mut files) = planned(move || {
            let (plan, warnings) = plan(spec)?;
            let files = facts::of_plan(&plan);
            Ok((plan, warnings, files))
        })
        .await?;
        if request.initialize {
            files = look_at(files, directory.clone()).await?;
            refuse_missing(&files, directory.as_deref(), request.force)?;
        } else {
            // Initialize looks at them when it comes.
            files.clear();
        }
        self.writer.call(move |tx| create::create(tx, &request, plan, &files, warnings)).await
    }

    /// Creates a workflow with what happened to it elsewhere: one transaction, all or nothing.
    pub async fn import_workflow(
        &self,
        mut request: Creation,
        past: Past,
        keeps_paths: bool,
    ) -> Result<WorkflowCreated, Refusal> {
        let spec = std::mem::take(&mut request.spec);
        let (plan, warnings) = planned(move || plan(spec)).await?;
        self.writer
            .call(move |tx| import::import(tx, &request, plan, &past, keeps_paths, warnings))
            .await
    }

    /// Makes every uninitialized job blocked or ready.
    pub async fn initialize(&self, id: WorkflowId, force: bool) -> Result<ResetView, Refusal> {
        let (files, _) = self.look_at_files(id, force).await?;
        self.writer
            .call(move |tx| {
                if !force {
                    shared_outputs::refuse_stored(tx, id)?;
                }
                people::initialize(tx, id, &files)
            })
            .await
    }

    /// Applies a spec to a workflow that exists, or tells what that would do.
    pub async fn apply(
        &self,
        id: WorkflowId,
        spec: Option<torc_spec::Raw>,
        how: ApplyOptions,
    ) -> Result<ApplyView, Refusal> {
        self.apply_by(id, spec, how, None).await
    }

    /// The same in the name of a person, who may share the workflow if it is theirs.
    pub async fn apply_by(
        &self,
        id: WorkflowId,
        spec: Option<torc_spec::Raw>,
        mut how: ApplyOptions,
        by: Option<Maker>,
    ) -> Result<ApplyView, Refusal> {
        // Planning and looking at files takes a while: another caller may be faster meanwhile.
        let (head, directory) = self
            .writer
            .call(move |tx| Ok((difference::Head::read(tx.db, id)?, people::directory(tx, id)?)))
            .await?;
        how.revision = how.revision.or(Some(head.revision));
        let other = match spec {
            Some(spec) => planned(move || plan_other(spec, &head.spec)).await?,
            None => None,
        };
        let (prepared, warnings) = match other {
            Some((plan, warnings)) => {
                let files = look_at(facts::of_plan(&plan), directory.clone()).await?;
                refuse_missing(&files, directory.as_deref(), how.force)?;
                (revise::Prepared::Other(Box::new(plan), files), warnings)
            }
            None => {
                let (files, uses) = self.look_at_files(id, how.force).await?;
                (revise::Prepared::Same(files, uses), Vec::new())
            }
        };
        let (mut view, compared) = self
            .writer
            .call(move |tx| {
                // First: it only writes rows, which are taken back with the rest if that is refused.
                let shared = match &prepared {
                    revise::Prepared::Other(plan, _) if !how.dry_run => {
                        access_groups::share_again(tx, id, &plan.access_groups, by.as_ref())?
                    }
                    _ => Vec::new(),
                };
                let (mut view, compared) = revise::apply(tx, id, prepared, &how)?;
                view.warnings.extend(shared);
                Ok((view, compared))
            })
            .await?;
        tokio::task::spawn_blocking(move || drop(compared));
        view.warnings.extend(warnings);
        Ok(view)
    }

    /// Runs again what has changed.
    pub async fn reinitialize(
        &self,
        id: WorkflowId,
        request: ReinitializeRequest,
    ) -> Result<ResetView, Refusal> {
        let run = self.writer.call(move |tx| Ok(tx.workflow(id)?.run)).await?;
        if run == 0 {
            return Err(Refusal::conflict(
                ErrorCode::NotInitialized,
                format!("workflow {id} was never initialized"),
            )
            .hint("use `initialize`"));
        }
        let how = ApplyOptions {
            dry_run: request.dry_run,
            force: request.force,
            run_id: request.run_id.or(Some(run)),
            ..ApplyOptions::default()
        };
        let view = self.apply(id, request.spec.map(Into::into), how).await?;
        Ok(view.into())
    }

    /// The files of a workflow as they are. Without `force`, none that a job reads may be missing.
    async fn look_at_files(
        &self,
        id: WorkflowId,
        force: bool,
    ) -> Result<(Vec<facts::FileFact>, facts::Uses), Refusal> {
        let (directory, files, uses) = self
            .writer
            .call(move |tx| {
                let directory = people::directory(tx, id)?;
                let uses = facts::uses(tx.db, id)?;
                Ok((directory, facts::list(tx.db, id, &uses)?, uses))
            })
            .await?;
        let files = look_at(files, directory.clone()).await?;
        refuse_missing(&files, directory.as_deref(), force)?;
        Ok((files, uses))
    }
}

type Planned = (torc_model::plan::Plan, Vec<String>);

async fn planned<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    blocking(work).await.map_err(|_| Refusal::internal("the spec could not be planned"))?
}

pub fn plan(spec: torc_spec::Raw) -> Result<Planned, Refusal> {
    let parsed = torc_spec::Spec::from_raw(spec).map_err(wrong_spec)?;
    plan_parsed(parsed)
}

fn plan_parsed(parsed: torc_spec::Parsed) -> Result<Planned, Refusal> {
    let torc_spec::Parsed { spec, mut warnings } = parsed;
    let (plan, more) = spec.into_plan().map_err(wrong_spec)?;
    warnings.extend(more);
    Ok((plan, warnings.iter().map(|w| w.message.clone()).collect()))
}

pub fn wrong_spec(problems: torc_spec::Diagnostics) -> Refusal {
    let mut refusal = Refusal::invalid("spec", problems.render(false));
    refusal.code = ErrorCode::InvalidSpec;
    refusal
}

/// Plans a spec, unless it is the one that the workflow has: that needs no plan.
fn plan_other(spec: torc_spec::Raw, known: &str) -> Result<Option<Planned>, Refusal> {
    let parsed = torc_spec::Spec::from_raw(spec).map_err(wrong_spec)?;
    if parsed.spec.to_json() == known {
        return Ok(None);
    }
    plan_parsed(parsed).map(Some)
}

/// Looks at files that a spec names. A hundred thousand of them take minutes on a slow file system.
async fn look_at(
    mut files: Vec<facts::FileFact>,
    directory: Option<String>,
) -> Result<Vec<facts::FileFact>, Refusal> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(550);
    let Some(first) = files.first() else { return Ok(files) };
    let place = facts::place(directory.as_deref(), &first.path);
    let place = place.parent().map(Path::to_owned).unwrap_or_default();
    let looked = slow_files::look_for(PATIENCE, place, move || {
        facts::look(&mut files, directory.as_deref());
        files
    });
    looked.await.map_err(|hangs| Refusal::unavailable(format!("{hangs}: files of this workflow")))
}

fn refuse_missing(
    files: &[facts::FileFact],
    directory: Option<&str>,
    force: bool,
) -> Result<(), Refusal> {
    let missing = facts::missing_inputs(files);
    if force || missing.is_empty() {
        return Ok(());
    }
    let name = |file: &&facts::FileFact| {
        format!("`{}` ({})", file.name, facts::place(directory, &file.path).display())
    };
    let names: Vec<_> = missing.iter().take(10).map(name).collect();
    let verb = if missing.len() == 1 { "does" } else { "do" };
    let message =
        format!("{} {verb} not exist: {}", count(missing.len(), "input file"), names.join(", "));
    Err(Refusal::conflict(ErrorCode::MissingFiles, message)
        .hint("create them, or use `--force` to run anyway"))
}
