//! New revisions of a live workflow, and jobs that add jobs.

use super::*;
use torc_model::status::RunningJobs;

fn changed(index: usize, parents: Option<&[usize]>) -> ChangedJob {
    ChangedJob {
        index: ix(index),
        priority: 4,
        family: 1,
        class: Class { cpus: 2, nodes: 1, ..Class::default() },
        handler: None,
        cancel_on_failure: false,
        max_lost: 7,
        parents: parents.map(|list| list.iter().copied().map(JobIx::new).collect()),
    }
}

fn new(id: i64, parents: &[usize]) -> NewJob {
    but(job(parents), |job| (job.id, job.position) = (JobId(id), id - 1))
}

#[test]
fn a_live_workflow_follows_its_new_revision() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0]), job(&[1]), job(&[0]), job(&[])]);
    let accepted = Revision { accepted: vec![ix(4)], ..Revision::default() };
    c.flow.revise(accepted, c.now).expect("it has not begun");
    c.note("one counts as done");
    c.initialize();
    c.claim(1, 1);
    c.succeed(0, 1.0);
    c.claim(1, 1);
    // The second runs: it is changed, and stopped for it. The third has other parents.
    let revision = Revision {
        added: vec![new(6, &[3]), new(7, &[1, 5])],
        changed: vec![changed(1, None), changed(2, Some(&[3]))],
        again: vec![ix(1)],
        running: RunningJobs::Stop,
        ..Revision::default()
    };
    let added = c.flow.revise(revision, c.now).expect("it is live");
    c.note(format!("added {added:?}"));
    let job = c.flow.job(ix(1));
    say!(
        c,
        format!(
            "{:?} {:?} {} {} {}",
            c.flow.next_class_of(ix(1)),
            c.flow.class_of(ix(1)),
            job.priority,
            job.max_lost,
            job.cancel_on_failure
        )
    );
    say!(c, format!("{} {:?}", c.flow.family_of(ix(2)), c.flow.parents_of(ix(2))));
    c.end(1, Some(Cause::Signal), 143);
    c.claim(1, 9);
    let revision =
        Revision { removed: vec![ix(3), ix(5)], again: vec![ix(0), ix(1)], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("one that runs and one that waits are removed, the first runs again");
    say!(c, format!("{:?} {:?}", c.flow.counts(), c.flow.len()));
    c.end(3, None, 0);
    c.claim(1, 9);
    c.end(0, Some(Cause::Exit), 1);
    c.end(1, None, 0);
    c.finish();
    // It is over: what is added is the next run.
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
    let again = plan.into_iter().map(|(index, _)| index).collect();
    let revision = Revision { added: vec![new(8, &[0])], again, ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is over");
    c.note("the next run");
    let revision = Revision { changed: vec![changed(0, Some(&[]))], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("changed alone");
    c.claim(1, 9);
    c.flow.cancel(c.now);
    c.note("canceled");
    say!(c, refused(c.flow.add_jobs(vec![new(9, &[])], c.now)));
    c.is(include_str!("revisions.txt"));
}

#[test]
fn what_ended_badly_holds_back_what_is_added_behind_it() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0]), job(&[])]);
    c.initialize();
    c.claim(1, 1);
    c.end(0, Some(Cause::Exit), 1);
    c.flow.add_jobs(vec![new(4, &[0]), new(5, &[2])], c.now).expect("it is live");
    c.note("added");
    // The second no longer waits for what failed.
    let revision = Revision { changed: vec![changed(1, Some(&[2]))], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("other parents");
    let revision = Revision { removed: vec![ix(0)], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("what failed is removed");
    let revision = Revision { changed: vec![changed(4, Some(&[1, 3]))], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("one that waits waits for others");
    let revision = Revision { changed: vec![changed(2, Some(&[3]))], ..Revision::default() };
    c.flow.revise(revision, c.now).expect("it is live");
    c.note("one that is ready waits");
    c.is(include_str!("revisions_failed.txt"));
}

#[test]
fn a_running_job_adds_jobs_and_what_waits_for_it_waits_for_them() {
    let mut c = Chronicle::plain(vec![job(&[]), job(&[0]), job(&[])]);
    c.initialize();
    say!(c, refused(c.flow.may_add(ix(0))));
    c.claim(1, 1);
    say!(c, refused(c.flow.may_add(ix(0))));
    let added = c.flow.add_jobs(vec![new(4, &[0]), new(5, &[])], c.now).expect("it is live");
    c.flow.hold_dependents(ix(0), &added, c.now);
    c.flow.tell_added(ix(0), added.len());
    c.note(format!("what waits for it waits for {added:?}"));
    say!(c, format!("{:?} {:?}", c.flow.parents_of(ix(1)), c.flow.level_ms(ix(3))));
    c.flow.cancel_job(ix(0), c.now).expect("it runs");
    say!(c, refused(c.flow.may_add(ix(0))));
    c.is(include_str!("revisions_added.txt"));
}
