//! Maps and their items.

use super::*;
use torc_model::steps::Tolerate;

fn item(name: &str) -> NewItem {
    NewItem { name: name.into(), extra: Some(format!("{{\"{name}\":1}}")) }
}

fn found(new: &[&str]) -> FoundItems {
    FoundItems {
        new: new.iter().map(|name| item(name)).collect(),
        kept: Vec::new(),
        changed: Vec::new(),
        gone: Vec::new(),
    }
}

fn tallies(c: &mut Chronicle, map: usize) {
    say!(c, format!("   {:?}", c.flow.tally(ix(map))));
}

/// A map that looks for its items, and a job that reduces them.
#[test]
fn a_map_finds_items_runs_them_and_looks_again() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0])]);
    c.flow.set_map(
        ix(0),
        MapJob {
            is_dynamic: true,
            tolerate: Tolerate::Count(1),
            max_parallel: Some(2),
            ..MapJob::default()
        },
    );
    c.flow.add_map_limits(&mut c.limits);
    c.flow.add_map_limits(&mut c.limits);
    say!(c, format!("{:?} {}", c.limits, limit_name(JobId(1))));
    c.initialize();
    c.claim(1, 1);
    c.flow.find_items(ix(0), JobId(3), found(&["a", "b", "c"]), c.now);
    c.note("found");
    c.succeed(0, 2.0);
    tallies(&mut c, 0);
    let ranks: Vec<u16> = c.flow.indexes().map(|index| c.flow.rank(index)).collect();
    say!(c, format!("ranks {ranks:?}"));
    c.claim(1, 9);
    c.succeed(2, 1.0);
    c.end(3, Some(Cause::Exit), 1);
    tallies(&mut c, 0);
    c.claim(1, 9);
    c.succeed(4, 1.0);
    tallies(&mut c, 0);
    c.claim(1, 9);
    c.succeed(1, 1.0);
    say!(c, format!("{:?}", c.flow.map(ix(0)).map(|map| (&map.items, &map.gone))));
    say!(c, refused(c.flow.retry_items(&[ix(2)], c.now)));
    say!(c, refused(c.flow.drop_items(&[ix(2)], c.now)));
    c.flow.retry_items(&[ix(3)], c.now).expect("it ended badly");
    c.note("an item again");
    c.claim(1, 9);
    c.end(3, Some(Cause::Exit), 1);
    c.claim(1, 9);
    c.succeed(1, 1.0);
    c.flow.drop_items(&[ix(3)], c.now).expect("it ended badly");
    c.note("dropped");
    tallies(&mut c, 0);
    // It looks again: one is kept, one has another value, one is gone, one comes back.
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
    say!(c, format!("{plan:?}"));
    c.flow.reset(&plan, c.now);
    c.note("reset");
    c.initialize();
    say!(c, refused(c.flow.retry_items(&[ix(2)], c.now)));
    c.claim(1, 1);
    let again = FoundItems {
        kept: vec![ix(2)],
        changed: vec![(ix(3), Some("{}".into()))],
        gone: vec![ix(4)],
        ..found(&["d"])
    };
    c.flow.find_items(ix(0), JobId(6), again, c.now);
    c.note("found again");
    tallies(&mut c, 0);
    c.succeed(0, 2.0);
    c.claim(1, 9);
    let again = FoundItems { kept: vec![ix(4)], gone: vec![ix(4)], ..found(&[]) };
    c.flow.return_item(ix(4));
    c.note("it is back");
    c.flow.return_item(ix(4));
    c.flow.return_item(ix(1));
    c.note("it was there");
    c.flow.find_items(ix(0), JobId(7), again, c.now);
    c.note("and gone");
    c.flow.set_map_limits(&mut c.limits);
    say!(c, format!("{:?}", c.limits));
    c.is(include_str!("maps_found.txt"));
}

/// Items of a spec, of which one failure is one too many.
#[test]
fn items_are_given_up_when_too_many_failed_and_come_back_with_those() {
    let jobs = vec![job(&[1, 2, 3, 4]), job(&[]), job(&[]), job(&[]), job(&[]), job(&[0])];
    let mut c = Chronicle::plain(jobs);
    c.flow.set_map(
        ix(0),
        MapJob { fail_fast: true, tolerate: Tolerate::Percent(30.0), ..MapJob::default() },
    );
    for at in 1..5 {
        c.flow.set_item(ix(at), ix(0), false);
    }
    c.initialize();
    c.claim(1, 2);
    c.end(1, Some(Cause::Exit), 1);
    tallies(&mut c, 0);
    c.end(2, Some(Cause::Exit), 1);
    tallies(&mut c, 0);
    say!(c, refused(c.flow.enable(ix(3), c.now)));
    c.flow.retry_items(&[ix(1)], c.now).expect("it ended badly");
    c.note("one again");
    tallies(&mut c, 0);
    c.claim(1, 9);
    c.end(1, Some(Cause::Exit), 1);
    // To run the map again is to run what failed of it.
    c.flow.retry(ix(0), 1, 9, c.now).map_or_else(|e| say!(c, e.message.clone()), |()| ());
    c.note("the map again");
    c.flow.remove_item(ix(4), c.now);
    c.note("an item is gone");
    say!(c, refused(c.flow.enable(ix(4), c.now)));
    c.flow.cancel(c.now);
    c.note("canceled");
    say!(c, refused(c.flow.drop_items(&[ix(1)], c.now)));
    say!(c, refused(c.flow.retry_items(&[ix(1)], c.now)));
    c.is(include_str!("maps_given_up.txt"));
}

/// A running item that is gone is stopped; a map without items is done at once.
#[test]
fn a_map_without_items_succeeds_and_one_that_is_gone_is_stopped() {
    let mut c = Chronicle::plain(vec![job(&[1]), job(&[]), job(&[]), job(&[2])]);
    c.flow.set_map(ix(0), MapJob::default());
    c.flow.set_map(ix(2), MapJob::default());
    c.flow.set_item(ix(1), ix(0), false);
    c.initialize();
    c.claim(1, 1);
    c.flow.remove_item(ix(1), c.now);
    c.note("gone while it runs");
    c.flow.renew_item(ix(1), c.now);
    c.note("it runs, so that nothing is renewed");
    c.end(1, Some(Cause::Signal), 143);
    tallies(&mut c, 0);
    c.is(include_str!("maps_empty.txt"));
}
