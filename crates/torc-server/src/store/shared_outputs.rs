//! Two workflows that write the same file at once: the second is refused while the first runs.

use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{journal, lookups};
use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};
use torc_model::api::ErrorCode;
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;

/// The output files of a workflow that is not stored yet.
pub fn of_plan(plan: &Plan, directory: Option<&str>) -> HashSet<PathBuf> {
    let outputs: BTreeSet<usize> =
        plan.jobs.iter().flat_map(|job| job.output_files.iter().copied()).collect();
    outputs.into_iter().filter_map(|file| place(directory, &plan.files[file].path)).collect()
}

/// The output files of jobs that have not ended.
fn of_workflow(tx: &Tx<'_>, id: WorkflowId) -> Result<HashSet<PathBuf>, Failed> {
    let directory = super::people::directory(tx, id)?;
    let paths = journal::files::awaited_paths(tx.db, id)?.into_iter();
    Ok(paths.filter_map(|path| place(directory.as_deref(), &path)).collect())
}

/// Where a file is, if that can be told: a path may have a part that only the shell knows.
fn place(directory: Option<&str>, path: &str) -> Option<PathBuf> {
    if path.contains('$') || path.starts_with('~') {
        return None;
    }
    let whole = Path::new(directory.unwrap_or("")).join(path);
    if !whole.is_absolute() {
        return None;
    }
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    Some(plain)
}

/// Workflows other than this one that have a runner and something left to do.
fn running(tx: &mut Tx<'_>, id: Option<WorkflowId>) -> Result<Vec<WorkflowId>, Failed> {
    let runners = tx.state.engine.runners();
    let has_runner = |other: &WorkflowId| runners.of(*other).any(|(_, runner)| !runner.leaving);
    let mut with_runners = runners.workflows();
    with_runners.retain(|other| Some(*other) != id && has_runner(other));
    let mut running = Vec::new();
    for other in with_runners {
        if !tx.workflow(other)?.is_complete() {
            running.push(other);
        }
    }
    Ok(running)
}

/// Refuses to begin a workflow whose outputs a running one writes, too.
pub fn refuse(
    tx: &mut Tx<'_>,
    id: Option<WorkflowId>,
    user: &str,
    own: impl FnOnce(&Tx<'_>) -> Result<HashSet<PathBuf>, Failed>,
) -> Result<(), Failed> {
    let others = running(tx, id)?;
    if others.is_empty() {
        return Ok(());
    }
    let own = own(tx)?;
    if own.is_empty() {
        return Ok(());
    }
    for other in others {
        let theirs = of_workflow(tx, other)?;
        let mut shared: Vec<&PathBuf> = own.intersection(&theirs).collect();
        shared.sort();
        let Some(first) = shared.first() else { continue };
        let Some((name, whose)) = lookups::name_and_user(tx.db, other)? else { continue };
        let more = match shared.len() {
            1 => String::new(),
            count => format!(" (and {} more of the same files)", count - 1),
        };
        if whose != user {
            let message = format!(
                "a workflow of another user is running and writes `{}` too{more}",
                first.display()
            );
            let hint = "write elsewhere, wait, or begin all the same with `--force`";
            return Err(Refusal::conflict(ErrorCode::OutputsShared, message).hint(hint).into());
        }
        let message = format!(
            "workflow {other} `{name}` is running and writes `{}` too{more}",
            first.display()
        );
        let hint = format!(
            "wait for it with `torc watch {other}`, stop it with `torc cancel {other}`, or begin all the same with `--force`"
        );
        return Err(Refusal::conflict(ErrorCode::OutputsShared, message).hint(hint).into());
    }
    Ok(())
}

/// The same for a stored workflow.
pub fn refuse_stored(tx: &mut Tx<'_>, id: WorkflowId) -> Result<(), Failed> {
    let user = lookups::name_and_user(tx.db, id)?.map(|(_, user)| user).unwrap_or_default();
    refuse(tx, Some(id), &user, |tx| of_workflow(tx, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_compared_without_dots_and_unknown_ones_not_at_all() {
        let at = |directory, path| place(directory, path).map(|path| path.display().to_string());
        assert_eq!(at(Some("/a/b"), "./c/../d.txt").as_deref(), Some("/a/b/d.txt"));
        assert_eq!(at(Some("/a/b"), "../x").as_deref(), Some("/a/x"));
        assert_eq!(at(None, "/abs/x").as_deref(), Some("/abs/x"));
        assert_eq!(at(None, "x"), None);
        assert_eq!(at(Some("/a"), "$HOME/x"), None);
    }
}
