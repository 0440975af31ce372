//! Maps, their items and their limits.

use super::*;
use torc_model::status::{Cause, JobStatus};
use torc_model::steps::Tolerate;

/// A map of two items (jobs 1 and 2), of which so many may fail, and a job after it.
fn mapped(map: MapJob) -> Chronicle {
    let mut c = Chronicle::plain(vec![job(&[1, 2]), job(&[]), job(&[]), job(&[0])]);
    c.flow.set_map(ix(0), map);
    for item in [1, 2] {
        c.flow.set_item(ix(item), ix(0), false);
    }
    c.flow.settle();
    c.flow.initialize(0);
    c
}

fn tolerating(count: u64) -> MapJob {
    MapJob { tolerate: Tolerate::Count(count), ..MapJob::default() }
}

/// The first item fails, the other one succeeds.
fn with_a_failed_item(map: MapJob) -> Chronicle {
    let mut c = mapped(map);
    assert_eq!(c.take(1, 2), [1, 2]);
    c.end(1, Some(Cause::Exit), 1);
    c.end(2, None, 0);
    c
}

fn status(c: &Chronicle, at: usize) -> JobStatus {
    c.flow.job(ix(at)).status()
}

#[test]
fn to_retry_a_failed_map_is_to_run_its_failed_items_again() {
    let mut c = with_a_failed_item(tolerating(0));
    assert_eq!((status(&c, 0), status(&c, 3)), (JobStatus::Failed, JobStatus::Canceled));
    c.flow.retry(ix(0), 1, 9, c.now).expect("it failed");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Blocked, Ready, Completed, Blocked]);
    assert_eq!(c.take(1, 2), [1]);
    c.end(1, None, 0);
    assert_eq!(statuses(&c.flow), [Completed, Completed, Completed, Ready]);
}

#[test]
fn without_its_failed_item_a_failed_map_completes_and_what_waits_for_it_goes_ahead() {
    let mut c = with_a_failed_item(tolerating(0));
    c.flow.drop_items(&[ix(1)], c.now).expect("it ended badly");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Completed, Disabled, Completed, Ready]);
    assert_eq!(c.flow.tally(ix(0)).total, 1, "a dropped item does not count");
}

#[test]
fn what_ran_over_the_results_of_a_map_runs_again_when_an_item_of_it_is_dropped() {
    let mut c = with_a_failed_item(tolerating(1));
    assert_eq!(c.take(1, 1), [3]);
    c.end(3, None, 0);
    c.flow.drop_items(&[ix(1)], c.now).expect("it ended badly");
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Completed, Disabled, Completed, Ready]);
}

#[test]
fn what_waits_for_a_map_and_for_another_job_still_waits_for_that_when_an_item_is_dropped() {
    let mut c = Chronicle::plain(vec![job(&[1, 2]), job(&[]), job(&[]), job(&[0, 4]), job(&[])]);
    c.flow.set_map(ix(0), tolerating(1));
    [1, 2].into_iter().for_each(|item| c.flow.set_item(ix(item), ix(0), false));
    c.flow.settle();
    c.flow.initialize(0);
    assert_eq!(c.take(1, 3), [1, 2, 4]);
    c.end(1, Some(Cause::Exit), 1);
    c.end(2, None, 0);
    assert_eq!((status(&c, 0), c.flow.job(ix(3)).unmet), (JobStatus::Completed, 1));
    c.flow.drop_items(&[ix(1)], c.now).expect("it ended badly");
    assert_eq!((status(&c, 0), status(&c, 3)), (JobStatus::Completed, JobStatus::Blocked));
    c.end(4, None, 0);
    assert_eq!(status(&c, 3), JobStatus::Ready);
}

/// A map (job 0) that looks for its items, and a job (1) of ten milliseconds.
fn searching(handlers: Vec<CompiledHandler>) -> Chronicle {
    let handler = (!handlers.is_empty()).then(|| HandlerIx::new(0));
    let map = but(job(&[]), |job| (job.handler, job.own_ms) = (handler, Some(1_000)));
    let short = but(job(&[]), |job| job.own_ms = Some(10));
    let mut c = Chronicle::new(Default::default(), handlers, vec![map, short]);
    c.flow.set_map(ix(0), MapJob { is_dynamic: true, ..tolerating(9) });
    c.flow.initialize(0);
    c
}

fn one_item() -> FoundItems {
    let new = vec![NewItem { name: "item".into(), extra: None }];
    FoundItems { new, kept: Vec::new(), changed: Vec::new(), gone: Vec::new() }
}

#[test]
fn the_end_of_an_item_does_not_start_a_map_that_waits_to_look_for_its_items() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0])]);
    c.flow.set_map(ix(1), MapJob { is_dynamic: true, ..tolerating(9) });
    c.flow.initialize(0);
    assert_eq!(c.take(1, 1), [0]);
    c.end(0, None, 0);
    assert_eq!(c.take(1, 1), [1]);
    c.flow.find_items(ix(1), JobId(3), one_item(), c.now);
    c.end(1, None, 0);
    assert_eq!(c.take(1, 1), [2]);
    c.end(2, Some(Cause::Exit), 1);
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("all has ended");
    c.flow.reset(&plan, c.now);
    c.flow.initialize(c.now);
    use JobStatus::*;
    assert_eq!(statuses(&c.flow), [Ready, Blocked, Uninitialized]);
    c.flow.cancel_job(ix(2), c.now).expect("it waits");
    assert_eq!(statuses(&c.flow), [Ready, Blocked, Canceled]);
    assert_eq!(c.flow.job(ix(1)).unmet, 1);
}

#[test]
fn an_item_that_was_found_is_ranked_by_its_own_expected_time() {
    let mut c = searching(Vec::new());
    assert_eq!(c.take(1, 1), [0]);
    c.flow.find_items(ix(0), JobId(3), one_item(), c.now);
    assert!(c.flow.rank(ix(2)) > c.flow.rank(ix(1)));
    c.end(0, None, 0);
    assert_eq!(c.take(1, 1), [2], "the longer one goes first");
}

#[test]
fn an_item_that_changes_while_the_run_goes_on_has_all_retries_of_its_rule_again() {
    let twice =
        torc_model::plan::Rule { match_all_exit_codes: true, max_retries: 2, ..Default::default() };
    let mut c = searching(vec![handler(&[twice])]);
    // The other job runs all the time, so that all of this is one run.
    assert_eq!(c.take(1, 2), [0, 1]);
    let mut found = one_item();
    for life in 1..=3 {
        c.flow.find_items(ix(0), JobId(3), found, c.now);
        c.end(0, None, 0);
        assert_eq!(c.take(1, 2), [2]);
        c.end(2, Some(Cause::Exit), 1);
        assert_eq!(c.take(1, 2), [2], "its rule tries it again, life {life}");
        c.end(2, None, 0);
        let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("the map has ended");
        assert_eq!(plan.len(), 1, "{plan:?}");
        c.flow.reset(&plan, c.now);
        c.flow.initialize(c.now);
        assert_eq!((c.take(1, 2), c.flow.run), (vec![0], 1));
        found = FoundItems { new: Vec::new(), changed: vec![(ix(2), None)], ..one_item() };
    }
}

#[test]
fn an_item_of_a_disabled_map_does_not_keep_its_workflow_open() {
    let mut c = searching(Vec::new());
    assert_eq!(c.take(1, 2), [0, 1]);
    c.flow.find_items(ix(0), JobId(3), one_item(), c.now);
    c.end(0, None, 0);
    assert_eq!(c.take(1, 2), [2]);
    c.end(2, Some(Cause::Exit), 1);
    c.end(1, None, 0);
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("all has ended");
    c.flow.reset(&plan, c.now);
    c.flow.initialize(c.now);
    c.flow.disable(ix(0), c.now).expect("it waits");
    assert_eq!((status(&c, 2), c.flow.is_complete()), (JobStatus::Canceled, true));
    // A person resets the item. Its map never looks for it.
    c.flow.reset(&[(ix(2), Reason::Asked)], c.now);
    c.flow.initialize(c.now);
    assert_eq!((status(&c, 2), c.flow.is_complete()), (JobStatus::Canceled, true));
}

#[test]
fn a_map_with_a_dropped_item_still_waits_for_its_other_items() {
    let mut c = mapped(tolerating(1));
    assert_eq!(c.take(1, 1), [1]);
    c.end(1, Some(Cause::Exit), 1);
    c.flow.drop_items(&[ix(1)], c.now).expect("it ended badly");
    assert_eq!((status(&c, 0), c.flow.job(ix(0)).unmet), (JobStatus::Blocked, 1));
    assert_eq!(c.take(1, 1), [2]);
    c.end(2, None, 0);
    assert_eq!(status(&c, 0), JobStatus::Completed);
}

#[test]
fn an_item_that_comes_back_counts_again() {
    let mut c = mapped(tolerating(0));
    c.flow.set_item(ix(1), ix(0), true);
    assert_eq!(c.flow.tally(ix(0)).total, 1);
    c.flow.set_item(ix(1), ix(0), false);
    assert_eq!(c.flow.tally(ix(0)).total, 2);
}

#[test]
fn a_new_limit_of_a_map_leaves_what_is_in_use_counted() {
    let map = |max| MapJob { max_parallel: Some(max), ..tolerating(0) };
    let mut c = mapped(map(2));
    let name = limit_name(JobId(1));
    c.flow.set_map_limits(&mut c.limits);
    assert_eq!(c.limits[&name], LimitUse { max: 2, ..LimitUse::default() });
    let used = LimitUse { max: 2, used: 1, ..LimitUse::default() };
    c.limits.insert(name.clone(), used);
    c.flow.set_map(ix(0), map(5));
    c.flow.set_map_limits(&mut c.limits);
    assert_eq!(c.limits[&name], LimitUse { max: 5, ..used });
}

#[test]
fn a_revised_map_keeps_its_items_and_may_stop_being_a_map() {
    let mut c = mapped(tolerating(0));
    let revise = |c: &mut Chronicle, map| {
        let maps = vec![(ix(0), map)];
        c.flow.revise(Revision { maps, ..Revision::default() }, 0).expect("it is live");
    };
    revise(&mut c, Some(tolerating(2)));
    let map = c.flow.map(ix(0)).expect("a map");
    assert_eq!((map.tolerate, map.items.len()), (Tolerate::Count(2), 2));
    revise(&mut c, None);
    assert_eq!(c.flow.map(ix(0)), None);
}

#[test]
fn a_revision_adds_items_to_a_map() {
    let mut c = mapped(tolerating(0));
    let item = but(job(&[]), |job| (job.id, job.position) = (JobId(9), 9));
    let changed = ChangedJob {
        index: ix(0),
        priority: 0,
        family: 0,
        class: Class { cpus: 1, nodes: 1, ..Class::default() },
        handler: None,
        cancel_on_failure: true,
        max_lost: 1,
        parents: Some(vec![ix(1), ix(2), ix(4)]),
    };
    let (added, items) = (vec![item], vec![(ix(4), ix(0))]);
    let revision = Revision { added, items, changed: vec![changed], ..Revision::default() };
    assert_eq!(c.flow.revise(revision, 0).expect("it is live"), [ix(4)]);
    assert_eq!((c.flow.map_of(ix(4)), c.flow.tally(ix(0)).total), (Some(ix(0)), 3));
    assert_eq!(c.take(1, 9), [1, 2, 4]);
}

#[test]
fn a_removed_item_is_no_item_and_a_removed_map_has_none() {
    let mut c = mapped(tolerating(0));
    let remove = |c: &mut Chronicle, at: usize| {
        let removed = vec![ix(at)];
        c.flow.revise(Revision { removed, ..Revision::default() }, 0).expect("it is live");
    };
    remove(&mut c, 1);
    assert_eq!((c.flow.map_of(ix(1)), c.flow.tally(ix(0)).total), (None, 1));
    assert_eq!(c.flow.map(ix(0)).map(|map| map.items.len()), Some(1));
    remove(&mut c, 0);
    assert_eq!((c.flow.map_of(ix(2)), c.flow.map(ix(0))), (None, None));
}

#[test]
fn an_item_that_is_found_again_runs_again_only_if_it_failed_or_was_gone_or_changed() {
    // A map that looks for its items, and four that it found before.
    let mut c = Chronicle::plain(vec![job(&[])]);
    c.flow.set_map(ix(0), MapJob { is_dynamic: true, ..tolerating(9) });
    c.flow.initialize(0);
    let found = |count: usize| FoundItems {
        new: vec![NewItem { name: "item".into(), extra: None }; count],
        kept: Vec::new(),
        changed: Vec::new(),
        gone: Vec::new(),
    };
    assert_eq!(c.take(1, 1), [0]);
    c.flow.find_items(ix(0), JobId(2), found(4), c.now);
    c.end(0, None, 0);
    assert_eq!(c.take(1, 9), [1, 2, 3, 4]);
    c.end(1, Some(Cause::Exit), 1);
    [2, 3, 4].into_iter().for_each(|at| c.end(at, None, 0));
    let again = |c: &mut Chronicle, found: FoundItems| {
        let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
        c.flow.reset(&plan, c.now);
        c.flow.initialize(c.now);
        assert_eq!(c.take(1, 1), [0]);
        c.flow.find_items(ix(0), JobId(9), found, c.now);
        c.end(0, None, 0);
        c.take(1, 9)
    };
    let kept = vec![ix(1), ix(2)];
    let changed = vec![(ix(3), None)];
    let given = again(&mut c, FoundItems { kept, changed, gone: vec![ix(4)], ..found(0) });
    assert_eq!(given, [1, 3], "the one that failed and the one with another value");
    assert_eq!(c.flow.tally(ix(0)).total, 3);
    [1, 3].into_iter().for_each(|at| c.end(at, None, 0));
    let kept = (1..=4).map(ix).collect();
    assert_eq!(again(&mut c, FoundItems { kept, ..found(0) }), [4], "the one that was gone");
}
