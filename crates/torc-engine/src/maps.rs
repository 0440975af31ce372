//! Maps: a job that is done when its items are. Items are ordinary jobs; this is only what ties
//! them together.
//!
//! A map whose items were written in the spec waits for them from the start. One that has to look
//! for its items first runs like any job; its success adds the items and sends it back to blocked,
//! where it waits for them.

use super::change::Change;
use super::claim::{LimitUse, Limits};
use super::index::JobIx;
use super::jobs::NewJob;
use super::machine::JobEvent;
use super::workflow::{Refused, Workflow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::ids::JobId;
use torc_model::status::{JobStatus, Origin, StatusReason};
use torc_model::steps::Tolerate;

/// What ties a map to its items.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MapJob {
    /// Failed items that it bears.
    pub tolerate: Tolerate,
    /// Items that have not started are canceled once too many have failed.
    pub fail_fast: bool,
    /// It looks for its items when it runs.
    pub is_dynamic: bool,
    /// Its items are known.
    pub is_expanded: bool,
    /// Items at once.
    pub max_parallel: Option<u32>,
    /// Its items, by index.
    pub items: BTreeSet<JobIx>,
    /// Those among them that no longer exist.
    pub gone: BTreeSet<JobIx>,
}

/// All maps of a workflow.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Maps {
    maps: BTreeMap<JobIx, MapJob>,
    item_of: BTreeMap<JobIx, JobIx>,
    /// Maps that have ended in the move that is under way.
    ended: Vec<JobIx>,
}

/// How the items of a map stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// All that exist.
    pub total: u64,
    /// Completed.
    pub successful: u64,
    /// Ended badly.
    pub failed: u64,
    /// Not final.
    pub open: u64,
}

/// What an item of a map has of its own. The engine passes the texts on to its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewItem {
    /// Its name.
    pub name: String,
    /// The rest of its row, as JSON.
    pub extra: Option<String>,
}

/// What a map found when it looked for its items.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundItems {
    /// New items.
    pub new: Vec<NewItem>,
    /// Items that are what they were.
    pub kept: Vec<JobIx>,
    /// Items whose value is another, with the rest of their rows as JSON.
    pub changed: Vec<(JobIx, Option<String>)>,
    /// Items that no longer exist.
    pub gone: Vec<JobIx>,
}

/// The named limit that bounds how many items of a map run at once.
pub fn limit_name(map: JobId) -> String {
    format!("map:{map}")
}

impl Workflow {
    /// Makes a job a map.
    pub fn set_map(&mut self, index: JobIx, map: MapJob) {
        self.maps.maps.insert(index, map);
    }

    /// Makes a job a map with other settings, which keeps its items, or no map.
    pub(super) fn change_map(&mut self, index: JobIx, map: Option<MapJob>) {
        let known = self.maps.maps.remove(&index);
        if let Some(map) = map {
            let kept = known.map_or_else(
                || map.clone(),
                |known| MapJob {
                    is_expanded: known.is_expanded,
                    items: known.items,
                    gone: known.gone,
                    ..map.clone()
                },
            );
            self.maps.maps.insert(index, kept);
        }
    }

    /// A job that is taken out is no item of a map any more, and no map.
    pub(super) fn untie(&mut self, index: JobIx) {
        if let Some(of) = self.maps.item_of.remove(&index)
            && let Some(map) = self.maps.maps.get_mut(&of)
        {
            map.items.remove(&index);
            map.gone.remove(&index);
        }
        if let Some(map) = self.maps.maps.remove(&index) {
            map.items.iter().for_each(|item| _ = self.maps.item_of.remove(item));
        }
    }

    /// Makes a job an item of a map.
    pub fn set_item(&mut self, index: JobIx, of: JobIx, is_gone: bool) {
        let Some(map) = self.maps.maps.get_mut(&of) else { return };
        map.items.insert(index);
        if is_gone {
            map.gone.insert(index);
        } else {
            map.gone.remove(&index);
        }
        self.maps.item_of.insert(index, of);
    }

    /// Whether an item was canceled because others failed.
    pub(super) fn is_given_up(&self, index: JobIx) -> bool {
        self.jobs[index].reason() == Some(StatusReason::GivenUp)
    }

    /// An item that was gone exists again.
    pub fn return_item(&mut self, index: JobIx) {
        let Some(of) = self.map_of(index) else { return };
        if self.is_gone(index, of) {
            self.set_item(index, of, false);
            self.record(Change::ItemGone(self.jobs[index].id, false));
        }
    }

    /// Adds the edge by which a map waits for a new item that was found while it ran.
    pub fn link_item(&mut self, index: JobIx, of: JobIx) {
        self.edges.link(index, of);
        self.relevel([index]);
    }

    /// A map has looked for its items: new ones become jobs, and those that changed, that failed or
    /// that are back run again. They start when the map's own attempt has ended.
    /// The ids of new items begin with `first`.
    pub fn find_items(&mut self, index: JobIx, first: JobId, found: FoundItems, now: i64) {
        let family = self.family_of(index);
        // What a person changed while the map looked for its items holds for them: their rows are
        // copies of the map's row, which says what its next attempt needs.
        let mut class = self.next_class_of(index).clone();
        if self.map(index).is_some_and(|map| map.max_parallel.is_some()) {
            class.uses.push(limit_name(self.jobs[index].id));
        }
        for nth in 0..found.new.len() as i64 {
            let map = &self.jobs[index];
            let new = NewJob {
                id: JobId(first.0 + nth),
                priority: map.priority,
                position: map.position,
                family,
                own_ms: None,
                class: class.clone(),
                handler: map.handler,
                cancel_on_failure: map.cancel_on_failure,
                max_lost: map.max_lost,
                parents: Vec::new(),
            };
            let item = self.add_job(new);
            self.set_item(item, index, false);
            self.link_item(item, index);
        }
        if !found.new.is_empty() {
            let map = self.jobs[index].id;
            self.record(Change::ItemsAdded { map, first, items: found.new });
        }
        for item in found.kept {
            let was_gone = self.is_gone(item, index);
            self.return_item(item);
            // One that ended badly has given nothing to keep.
            if was_gone || self.jobs[item].status().is_bad_end() {
                self.renew_item(item, now);
            }
        }
        for (item, value) in found.changed {
            self.record(Change::ItemChanged(self.jobs[item].id, value));
            self.return_item(item);
            self.renew_item(item, now);
        }
        for item in found.gone {
            if !self.is_gone(item, index) {
                self.remove_item(item, now);
            }
        }
    }

    /// A map and its items.
    pub fn map(&self, index: JobIx) -> Option<&MapJob> {
        self.maps.maps.get(&index)
    }

    /// The map that a job is an item of.
    pub fn map_of(&self, index: JobIx) -> Option<JobIx> {
        self.maps.item_of.get(&index).copied()
    }

    /// How the items of a map stand.
    pub fn tally(&self, index: JobIx) -> Tally {
        let mut tally = Tally::default();
        let Some(map) = self.map(index) else { return tally };
        for item in map.items.difference(&map.gone) {
            let status = self.jobs[*item].status();
            // A dropped item is no longer counted.
            if status == JobStatus::Disabled {
                continue;
            }
            tally.total += 1;
            match status {
                JobStatus::Completed => tally.successful += 1,
                status if status.is_bad_end() => tally.failed += 1,
                _ => tally.open += 1,
            }
        }
        tally
    }

    /// The limits that maps set on their items.
    pub fn add_map_limits(&self, limits: &mut Limits) {
        for (index, map) in &self.maps.maps {
            if let Some(max) = map.max_parallel {
                let name = limit_name(self.jobs[*index].id);
                limits
                    .entry(name)
                    .or_insert(LimitUse { max: i64::from(max), ..LimitUse::default() });
            }
        }
    }

    /// How many items of the map may run at once that sets the limit of this name.
    pub(super) fn map_limit(&self, name: &str) -> Option<i64> {
        let is_it = |index: &JobIx| limit_name(self.jobs[*index].id) == name;
        let map = self.maps.maps.iter().find(|(index, _)| is_it(index));
        map.and_then(|(_, map)| map.max_parallel).map(i64::from)
    }

    /// Adds the limits of maps that may have changed: what is in use stays counted.
    pub fn set_map_limits(&self, limits: &mut Limits) {
        for (index, map) in &self.maps.maps {
            if let Some(max) = map.max_parallel {
                let name = limit_name(self.jobs[*index].id);
                limits.entry(name).or_default().max = i64::from(max);
            }
        }
    }

    /// Whether `job` is a map and `parent` one of its items; then whether it waits for it now.
    pub(super) fn item_edge(&self, parent: JobIx, job: JobIx) -> Option<bool> {
        (self.map_of(parent) == Some(job)).then(|| self.gathers(job))
    }

    /// It waits for its items, and for nothing else that it would have to run for.
    pub(super) fn gathers(&self, index: JobIx) -> bool {
        self.map(index).is_some_and(|map| !map.is_dynamic || map.is_expanded)
    }

    /// An item whose map has not looked for its items yet: it does not run on its own.
    pub(super) fn is_dormant(&self, index: JobIx) -> bool {
        self.map_of(index).is_some_and(|map| !self.gathers(map))
    }

    /// Remembers a map that has ended, for the end of the move.
    pub(super) fn note_ended_map(&mut self, index: JobIx) {
        if self.maps.maps.contains_key(&index) {
            self.maps.ended.push(index);
        }
    }

    /// A map that has ended without looking for its items again runs none of those that it found
    /// before. Left as they are, they would keep the workflow from ever being complete.
    pub(super) fn cancel_dormant_items(&mut self) {
        for map in std::mem::take(&mut self.maps.ended) {
            self.cancel_items_of(map);
        }
    }

    /// The same for all maps: which of them have ended is looked up, not remembered.
    pub(super) fn cancel_all_dormant_items(&mut self) {
        self.maps.ended = self.maps.maps.keys().copied().collect();
        self.cancel_dormant_items();
    }

    fn cancel_items_of(&mut self, index: JobIx) {
        if !self.jobs[index].status().is_final() || self.gathers(index) {
            return;
        }
        let waits = |item: &JobIx| self.jobs[*item].status() == JobStatus::Uninitialized;
        let items = self.map(index).into_iter().flat_map(|map| map.items.iter().copied());
        for item in items.filter(waits).collect::<Vec<_>>() {
            self.shift(item, JobEvent::Canceled, Some(StatusReason::DependencyFailed));
        }
    }

    /// A map runs again from the start: it looks for its items anew.
    pub(super) fn forget_items(&mut self, index: JobIx) {
        if let Some(map) = self.maps.maps.get_mut(&index).filter(|map| map.is_expanded) {
            map.is_expanded = false;
            self.record(Change::MapExpanded(self.jobs[index].id, false));
        }
    }

    /// All items of a map are final: so is the map.
    pub(super) fn gather(&mut self, index: JobIx) {
        let Some(tolerate) = self.map(index).map(|map| map.tolerate) else { return };
        let tally = self.tally(index);
        let is_good = tolerate.bears(tally.failed, tally.total);
        let facts = json!({
            "run_id": self.run, "total": tally.total, "successful": tally.successful, "failed": tally.failed,
            "tolerate": tolerate,
        });
        if is_good {
            self.shift(index, JobEvent::Succeeded, None);
            self.event(EventKind::JobCompleted, Some(index), facts);
        } else {
            self.shift(index, JobEvent::FailedForGood, Some(StatusReason::TooManyItemsFailed));
            self.event(EventKind::JobFailed, Some(index), facts);
        }
    }

    /// An item ended badly: the items that a map gives up because of it.
    pub(super) fn give_up_items(&mut self, index: JobIx, now: i64) -> Vec<JobIx> {
        let Some(map) = self.map(index).filter(|map| map.fail_fast) else { return Vec::new() };
        let tally = self.tally(index);
        if map.tolerate.bears(tally.failed, tally.total) {
            return Vec::new();
        }
        let waiting: Vec<JobIx> =
            map.items.iter().copied().filter(|item| self.is_waiting(*item)).collect();
        for item in &waiting {
            self.drop_queued(*item, StatusReason::GivenUp.text(), now);
            self.shift(*item, JobEvent::Canceled, Some(StatusReason::GivenUp));
        }
        waiting
    }

    /// An item that failed runs again: so do those that its map gave up, unless enough others
    /// failed to give them up for.
    pub(super) fn take_up_items(&mut self, item: JobIx, origin: Origin, now: i64) {
        let waits =
            |map: &JobIx| self.gathers(*map) && self.jobs[*map].status() == JobStatus::Blocked;
        let Some(index) = self.map_of(item).filter(waits) else { return };
        let Some(map) = self.map(index) else { return };
        let given_up: Vec<JobIx> =
            map.items.iter().copied().filter(|item| self.is_given_up(*item)).collect();
        let tally = self.tally(index);
        let failed = tally.failed.saturating_sub(given_up.len() as u64);
        if given_up.is_empty() || !map.tolerate.bears(failed, tally.total) {
            return;
        }
        for item in given_up {
            self.open_item(item, origin, now);
        }
        // All at once: each alone would count all items.
        self.jobs[index].unmet = self.count_unmet(index);
    }

    /// Opens an item that was canceled. False: a job that it depends on has ended badly, so that it
    /// stays canceled. Its map must not hear of an end that the map does not wait for.
    fn open_item(&mut self, index: JobIx, origin: Origin, now: i64) -> bool {
        if self.jobs[index].cancel_on_failure && self.has_bad_parent(index) {
            return false;
        }
        self.renew_item(index, now);
        self.make_ready(index, JobEvent::InitializedReady, origin, now);
        self.block_if_unmet(index, now);
        true
    }

    fn is_waiting(&self, index: JobIx) -> bool {
        matches!(
            self.jobs[index].status(),
            JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready
        )
    }

    /// A map has found its items, and they were added: they may run, and it waits for them.
    pub(super) fn start_items(&mut self, index: JobIx, now: i64) {
        let Some(map) = self.maps.maps.get_mut(&index) else { return };
        map.is_expanded = true;
        let items: Vec<JobIx> = map.items.difference(&map.gone).copied().collect();
        self.record(Change::MapExpanded(self.jobs[index].id, true));
        // How long it takes to look for items is known now, and it waits again: without this its
        // items would be ranked otherwise after a restart.
        self.relevel([index]);
        for item in &items {
            if self.jobs[*item].status() != JobStatus::Uninitialized {
                continue;
            }
            // No runner claims jobs of a canceled workflow: they would wait for ever.
            if self.canceled {
                let by_user = Some(StatusReason::CanceledByUser);
                self.shift(*item, JobEvent::Canceled, by_user);
            } else {
                self.make_ready(*item, JobEvent::InitializedReady, Origin::Initial, now);
            }
        }
        self.jobs[index].unmet = self.count_unmet(index);
        if self.jobs[index].unmet == 0 {
            self.gather(index);
            self.propagate(index, now);
        }
    }

    /// An item is not what it was: what it gave before counts no more.
    pub fn renew_item(&mut self, index: JobIx, now: i64) {
        if self.jobs[index].status().is_held()
            || self.jobs[index].status() == JobStatus::Uninitialized
        {
            return;
        }
        self.drop_queued(index, "its item changed", now);
        // The counters first: the move writes them down.
        let job = &mut self.jobs[index];
        job.tries.renew();
        self.shift(index, JobEvent::Reset, None);
        self.handlers.forget(|job| job == index);
    }

    /// A map whose items are why it failed. To run it again is to run them again.
    pub(super) fn is_failed_by_items(&self, index: JobIx) -> bool {
        self.jobs[index].status() == JobStatus::Failed && self.gathers(index)
    }

    fn is_gone(&self, item: JobIx, map: JobIx) -> bool {
        self.map(map).is_some_and(|map| map.gone.contains(&item))
    }

    /// Whether a disabled job can be switched on: an item that no longer exists cannot.
    pub(super) fn may_enable(&self, index: JobIx) -> bool {
        !self.map_of(index).is_some_and(|map| self.is_gone(index, map))
    }

    /// An item is no longer there.
    pub fn remove_item(&mut self, index: JobIx, now: i64) {
        if let Some(map) = self.map_of(index).and_then(|map| self.maps.maps.get_mut(&map)) {
            map.gone.insert(index);
            self.record(Change::ItemGone(self.jobs[index].id, true));
        }
        if self.jobs[index].status().is_held() {
            self.stop_one(index, now);
            return;
        }
        self.renew_item(index, now);
        self.shift(index, JobEvent::Disabled, Some(StatusReason::ItemGone));
    }

    /// Runs items again that ended badly; their map and what reduces it follow.
    pub fn retry_items(&mut self, items: &[JobIx], now: i64) -> Result<(), Refused> {
        // Attempts belong to a run, and the first run begins with the initialization. An attempt of
        // run 0 would be counted again by run 1.
        if self.run == 0 {
            let message = "the workflow is not initialized; its items have not run yet";
            return Err(Refused::new(ErrorCode::NotInitialized, message)
                .hint("reset them with `reset-status`, then initialize the workflow"));
        }
        for item in items {
            if self.is_dormant(*item) {
                let message = format!(
                    "the map of job {} has to look for its items first",
                    self.jobs[*item].id
                );
                return Err(Refused::new(ErrorCode::WrongStatus, message));
            }
            let job = &self.jobs[*item];
            if !job.status().is_bad_end() {
                let message = format!(
                    "job {} is {}; only an item that ended badly can be retried",
                    job.id,
                    job.status()
                );
                return Err(Refused::new(ErrorCode::WrongStatus, message));
            }
        }
        self.refuse_canceled()?;
        self.run_items_again(items, Origin::Manual, now);
        Ok(())
    }

    /// Runs all items of a map again that ended badly.
    pub(super) fn run_bad_items_again(&mut self, index: JobIx, origin: Origin, now: i64) {
        self.run_items_again(&self.bad_items(index), origin, now);
    }

    /// The items of a map that ended badly.
    pub(super) fn bad_items(&self, index: JobIx) -> Vec<JobIx> {
        let Some(map) = self.map(index) else { return Vec::new() };
        let is_bad = |item: &JobIx| self.jobs[*item].status().is_bad_end();
        map.items.difference(&map.gone).copied().filter(is_bad).collect()
    }

    /// The items of a map that looks for them when it runs, as far as they have not ended. To run
    /// the map again is to look again: until then it is not known whether they are still wanted.
    pub(super) fn unfinished_items(&self, index: JobIx) -> Vec<JobIx> {
        let Some(map) = self.map(index).filter(|map| map.is_dynamic) else { return Vec::new() };
        let is_open = |item: &JobIx| !self.jobs[*item].status().is_final();
        map.items.difference(&map.gone).copied().filter(is_open).collect()
    }

    fn run_items_again(&mut self, items: &[JobIx], origin: Origin, now: i64) {
        for item in items {
            match self.jobs[*item].status() {
                JobStatus::Failed | JobStatus::Terminated => self.again(*item, origin, now),
                // It came back with another.
                status if !status.is_bad_end() => {}
                _ => {
                    if self.open_item(*item, origin, now) {
                        self.reopen_dependents(*item, now);
                        self.take_up_items(*item, origin, now);
                    }
                }
            }
        }
        // Only now is it known which maps wait again: one that a user canceled stays canceled, and
        // what has run after it would wait for an end that does not come.
        let maps: BTreeSet<JobIx> = items.iter().filter_map(|item| self.map_of(*item)).collect();
        for map in maps {
            if !self.jobs[map].status().is_final() {
                self.renew_children(map, now);
            }
        }
        self.finish();
    }

    /// What has run over the old results of a map runs over the new ones. A dependent may be an item
    /// of another map, which then waits again and has new results in its turn.
    fn renew_children(&mut self, map: JobIx, now: i64) {
        let mut maps = vec![map];
        while let Some(map) = maps.pop() {
            for child in self.children_of(map).to_vec() {
                match self.jobs[child].status() {
                    JobStatus::Completed | JobStatus::Failed | JobStatus::Terminated => {
                        let is_over = |map: &JobIx| self.jobs[*map].status().is_final();
                        let ended = self.map_of(child).filter(is_over);
                        self.renew_item(child, now);
                        self.jobs[child].unmet = self.count_unmet(child);
                        self.shift(child, JobEvent::InitializedBlocked, None);
                        self.reopen_dependents(child, now);
                        maps.extend(ended.filter(|map| !self.jobs[*map].status().is_final()));
                    }
                    // It counts the map as ended, and the map ends once more.
                    JobStatus::Blocked => self.jobs[child].unmet = self.count_unmet(child),
                    _ => {}
                }
            }
        }
    }

    /// Takes items that ended badly out of the count.
    pub fn drop_items(&mut self, items: &[JobIx], now: i64) -> Result<(), Refused> {
        self.refuse_canceled()?;
        for item in items {
            let job = &self.jobs[*item];
            if !job.status().is_bad_end() {
                let message = format!(
                    "job {} is {}; only an item that ended badly can be dropped",
                    job.id,
                    job.status()
                );
                return Err(Refused::new(ErrorCode::WrongStatus, message));
            }
        }
        let mut maps = BTreeSet::new();
        for item in items {
            self.renew_item(*item, now);
            self.shift(*item, JobEvent::Disabled, Some(StatusReason::Dropped));
            self.event(EventKind::ItemDropped, Some(*item), json!({}));
            maps.extend(self.map_of(*item));
        }
        for map in maps {
            // A map that had ended with them is looked at again.
            match self.jobs[map].status() {
                status @ (JobStatus::Failed | JobStatus::Completed)
                    if self.gathers(map) && self.tally(map).open == 0 =>
                {
                    self.shift(map, JobEvent::ItemReopened, Some(StatusReason::WaitsForItems));
                    if status == JobStatus::Completed {
                        self.renew_children(map, now);
                    } else {
                        self.reopen_dependents(map, now);
                    }
                    self.gather(map);
                    self.propagate(map, now);
                }
                JobStatus::Blocked => self.jobs[map].unmet = self.count_unmet(map),
                _ => {}
            }
        }
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Class, NewJob, Reason, Seeds};
    use super::*;
    use torc_model::ids::WorkflowId;
    use torc_model::plan::Settings;

    const fn ix(at: usize) -> JobIx {
        JobIx::new(at)
    }

    fn jobs(number: i64) -> Workflow {
        jobs_after(number, ix(0), &[], true)
    }

    /// So many jobs, of which these wait for a parent, and whether its failure cancels them.
    fn jobs_after(
        number: i64,
        parent: JobIx,
        waiting: &[i64],
        cancel_on_failure: bool,
    ) -> Workflow {
        let mut workflow = Workflow::new(WorkflowId(1), Settings::default(), Vec::new());
        for id in 1..=number {
            workflow.add_job(NewJob {
                id: JobId(id),
                priority: 0,
                position: id,
                family: 0,
                own_ms: None,
                class: Class::default(),
                handler: None,
                cancel_on_failure,
                max_lost: 3,
                parents: if waiting.contains(&id) { vec![parent] } else { Vec::new() },
            });
        }
        workflow.settle();
        workflow
    }

    /// A map of these items, which are known from the beginning.
    fn set_items(workflow: &mut Workflow, map: JobIx, items: &[JobIx], tolerate: Tolerate) {
        workflow.set_map(map, MapJob { tolerate, ..MapJob::default() });
        for item in items {
            workflow.set_item(*item, map, false);
            workflow.link_item(*item, map);
        }
    }

    fn succeed(workflow: &mut Workflow, index: JobIx) {
        workflow.drop_queued(index, "it is claimed", 1);
        workflow.shift(index, JobEvent::Claimed, None);
        workflow.shift(index, JobEvent::Succeeded, None);
        workflow.propagate(index, 1);
    }

    /// A map that has found its one item, the item, and a job beside them.
    fn workflow() -> Workflow {
        let mut workflow = jobs(3);
        workflow
            .set_map(ix(0), MapJob { is_dynamic: true, is_expanded: true, ..MapJob::default() });
        workflow.set_item(ix(1), ix(0), false);
        workflow.link_item(ix(1), ix(0));
        workflow.initialize(0);
        workflow
    }

    #[test]
    fn a_limit_that_is_removed_leaves_a_map_its_own() {
        let mut workflow = jobs(1);
        workflow.set_map(ix(0), MapJob { max_parallel: Some(2), ..MapJob::default() });
        let (mut limits, name) = (Limits::default(), limit_name(JobId(1)));
        workflow.add_map_limits(&mut limits);
        let (none, all) = (crate::Reservations::default(), || std::iter::once(&workflow));
        crate::set_limit(&mut limits, &none, all(), &name, 9);
        assert_eq!(limits[&name].max, 9);
        crate::remove_limit(&mut limits, all(), &name).expect("it was there");
        assert_eq!(limits[&name].max, 2);
    }

    #[test]
    fn a_new_run_does_not_forget_that_items_were_found() {
        let mut workflow = workflow();
        // It found them at its second attempt.
        workflow.jobs[ix(0)].tries.number = 2;
        workflow.take_changes();
        workflow.reset(&[(ix(2), Reason::Asked)], 1);
        let reasons = workflow.take_changes().into_iter().filter_map(|change| match change {
            Change::Job { id: JobId(1), status, reason, .. } => Some((status, reason)),
            _ => None,
        });
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            [(JobStatus::Blocked, Some(StatusReason::WaitsForItems))]
        );
    }

    #[test]
    fn an_item_that_is_gone_and_comes_back_counts_again() {
        let mut workflow = workflow();
        workflow.remove_item(ix(1), 1);
        assert_eq!(
            (workflow.jobs[ix(1)].status(), workflow.tally(ix(0)).total),
            (JobStatus::Disabled, 0)
        );
        assert_eq!(workflow.jobs[ix(1)].reason(), Some(StatusReason::ItemGone));
        let refused = workflow.enable(ix(1), 1).expect_err("there is nothing to run");
        assert!(refused.message.contains(StatusReason::ItemGone.text()), "{}", refused.message);
        assert_eq!(workflow.plan_reset(&Seeds::Named(vec![ix(1)])).expect("a plan"), []);
        workflow.set_item(ix(1), ix(0), false);
        workflow.renew_item(ix(1), 2);
        assert_eq!(
            (workflow.jobs[ix(1)].status(), workflow.tally(ix(0)).total),
            (JobStatus::Uninitialized, 1)
        );
    }

    fn fail(workflow: &mut Workflow, item: JobIx) {
        workflow.drop_queued(item, "it failed", 1);
        workflow.shift(item, JobEvent::Claimed, None);
        workflow.shift(item, JobEvent::FailedForGood, None);
    }

    /// Items 3 and 4 were given up because 1 and 2 failed.
    #[test]
    fn items_that_were_given_up_come_back_when_those_run_again_that_they_were_given_up_for() {
        let mut workflow = jobs(5);
        workflow.set_map(ix(0), MapJob { fail_fast: true, ..MapJob::default() });
        for item in JobIx::range(1..5) {
            workflow.set_item(item, ix(0), false);
            workflow.link_item(item, ix(0));
        }
        workflow.initialize(0);
        fail(&mut workflow, ix(1));
        fail(&mut workflow, ix(2));
        workflow.propagate(ix(1), 1);
        workflow.propagate(ix(2), 1);
        let statuses =
            |workflow: &Workflow| workflow.jobs.iter().map(|job| job.status()).collect::<Vec<_>>();
        use JobStatus::{Blocked, Canceled, Failed, Ready};
        assert_eq!(statuses(&workflow), [Failed, Failed, Failed, Canceled, Canceled]);
        assert_eq!(
            (workflow.jobs[ix(3)].reason(), workflow.jobs[ix(1)].reason()),
            (Some(StatusReason::GivenUp), None)
        );

        workflow.again(ix(1), Origin::Recovered, 2);
        assert_eq!(statuses(&workflow), [Blocked, Ready, Failed, Canceled, Canceled]);
        workflow.again(ix(2), Origin::Recovered, 2);
        assert_eq!(statuses(&workflow), [Blocked, Ready, Ready, Ready, Ready]);
        assert_eq!((workflow.jobs[ix(0)].unmet, workflow.is_given_up(ix(3))), (4, false));
    }

    /// The map of [`workflow`] has to look for its items again and ends badly instead.
    fn failed_search() -> Workflow {
        let mut workflow = workflow();
        fail(&mut workflow, ix(1));
        workflow.propagate(ix(1), 1);
        let chosen = workflow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
        workflow.reset(&chosen, 2);
        workflow.initialize(3);
        workflow.cancel_job(ix(0), 4).expect("it waits");
        workflow
    }

    #[test]
    fn items_of_a_map_that_ended_without_looking_again_do_not_keep_the_workflow_open() {
        let mut workflow = failed_search();
        let item = &workflow.jobs[ix(1)];
        assert_eq!(
            (item.status(), item.reason()),
            (JobStatus::Canceled, Some(StatusReason::DependencyFailed))
        );
        workflow.cancel_job(ix(2), 5).expect("it waits");
        assert!(workflow.is_complete());
    }

    #[test]
    fn dropping_items_does_not_complete_a_map_that_has_not_looked_for_them() {
        let mut workflow = failed_search();
        workflow.drop_items(&[ix(1)], 5).expect("it ended badly");
        assert_eq!(workflow.jobs[ix(0)].status(), JobStatus::Canceled);
    }

    #[test]
    fn a_map_that_looks_again_takes_its_waiting_items_back() {
        let mut workflow = workflow();
        assert_eq!(workflow.jobs[ix(1)].status(), JobStatus::Ready);
        let chosen = workflow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
        assert!(chosen.contains(&(ix(1), Reason::Upstream(ix(0)))), "{chosen:?}");
        workflow.reset(&chosen, 1);
        assert_eq!(workflow.jobs[ix(1)].status(), JobStatus::Uninitialized);
    }

    #[test]
    fn nothing_of_a_canceled_workflow_is_run_again_or_started() {
        let mut workflow = workflow();
        // As in a workflow that was canceled while the map was looking for its items.
        workflow.canceled = true;
        let code = |refused: Result<(), Refused>| refused.expect_err("it is canceled").code;
        assert_eq!(code(workflow.retry_items(&[], 2)), ErrorCode::WorkflowCanceled);
        assert_eq!(code(workflow.drop_items(&[], 2)), ErrorCode::WorkflowCanceled);
        // The search was not stopped in time and has found its item.
        workflow.renew_item(ix(1), 3);
        workflow.start_items(ix(0), 3);
        assert_eq!(
            workflow.jobs[ix(1)].reason(),
            Some(StatusReason::CanceledByUser),
            "no runner would claim it"
        );
    }

    #[test]
    fn items_are_not_run_again_before_the_first_run() {
        let mut workflow = jobs(2);
        set_items(&mut workflow, ix(0), &[ix(1)], Tolerate::default());
        workflow.cancel_job(ix(1), 1).expect("it waits");
        let refused = workflow.retry_items(&[ix(1)], 2).expect_err("there is no run");
        assert_eq!(refused.code, ErrorCode::NotInitialized);
        assert_eq!(workflow.jobs[ix(1)].tries.number, 0, "an attempt of run 0");
    }

    #[test]
    fn what_ran_after_a_canceled_map_does_not_wait_for_it_when_its_items_run_again() {
        let mut workflow = jobs_after(3, ix(0), &[3], false);
        set_items(&mut workflow, ix(0), &[ix(1)], Tolerate::default());
        workflow.initialize(0);
        workflow.cancel_job(ix(0), 1).expect("it waits");
        workflow.cancel_job(ix(1), 1).expect("it waits");
        succeed(&mut workflow, ix(2));
        workflow.retry_items(&[ix(1)], 2).expect("it ended badly");
        let statuses: Vec<_> = workflow.jobs.iter().map(|job| job.status()).collect();
        use JobStatus::{Canceled, Completed, Ready};
        assert_eq!(statuses, [Canceled, Ready, Completed]);
    }

    #[test]
    fn a_map_does_not_wait_for_an_item_that_cannot_run_again() {
        let mut workflow = jobs_after(3, ix(0), &[3], true);
        set_items(&mut workflow, ix(1), &[ix(2)], Tolerate::default());
        workflow.initialize(0);
        fail(&mut workflow, ix(0));
        workflow.propagate(ix(0), 1);
        workflow.retry_items(&[ix(2)], 2).expect("it ended badly");
        let statuses: Vec<_> = workflow.jobs.iter().map(|job| job.status()).collect();
        use JobStatus::{Canceled, Failed};
        assert_eq!(statuses, [Failed, Failed, Canceled]);
    }

    /// Item 3 of map 2 has run over the results of map 0, of which an item is dropped.
    #[test]
    fn a_map_waits_again_for_an_item_that_runs_over_new_results() {
        let mut workflow = jobs_after(5, ix(0), &[4], true);
        set_items(&mut workflow, ix(0), &[ix(1)], Tolerate::Percent(100.0));
        set_items(&mut workflow, ix(2), &[ix(3), ix(4)], Tolerate::default());
        workflow.initialize(0);
        fail(&mut workflow, ix(1));
        workflow.propagate(ix(1), 1);
        succeed(&mut workflow, ix(3));
        assert_eq!(workflow.jobs[ix(2)].unmet, 1);
        workflow.drop_items(&[ix(1)], 2).expect("it ended badly");
        assert_eq!(workflow.jobs[ix(3)].status(), JobStatus::Ready);
        assert_eq!(workflow.jobs[ix(2)].unmet, 2);

        succeed(&mut workflow, ix(3));
        succeed(&mut workflow, ix(4));
        assert_eq!(workflow.jobs[ix(2)].status(), JobStatus::Completed);
    }
}
