//! What is known of times, and the order that follows.

use super::*;
use torc_model::status::DispatchOrder;

fn table(c: &mut Chronicle) {
    for index in c.flow.indexes() {
        say!(
            c,
            format!(
                "{index}: {:?} expected {} level {} rank {}",
                c.flow.estimate(index),
                c.flow.expected_ms(index),
                c.flow.level_ms(index),
                c.flow.rank(index)
            )
        );
    }
    say!(c, format!("typical {} families {:?}", c.flow.typical_ms(), c.flow.family_times()));
}

#[test]
fn levels_ranks_and_estimates_are_exact() {
    let known = |parents: &[usize], ms: u32| but(job(parents), |job| job.own_ms = Some(ms));
    let jobs = || {
        vec![
            known(&[], 0),
            known(&[0], 3_000),
            but(job(&[0]), |job| job.class.runtime = Some(30)),
            but(job(&[1, 2]), |job| (job.class.cpus, job.class.nodes) = (4, 2)),
            but(job(&[3]), |job| (job.class.gpus, job.class.memory) = (2, Some(1 << 36))),
            but(job(&[]), |job| job.class.memory = Some(1 << 36)),
        ]
    };
    let mut c = Chronicle::plain(jobs());
    table(&mut c);
    let mut other = Chronicle::new(
        Settings { order: DispatchOrder::Submission, ..Settings::default() },
        Vec::new(),
        jobs(),
    );
    table(&mut other);
    c.text += &other.text;
    let long = but(job(&[]), |job| job.class.runtime = Some(u64::from(u32::MAX)));
    let mut none = Chronicle::plain(vec![long, but(job(&[]), |job| job.class.runtime = Some(0))]);
    table(&mut none);
    c.text += &none.text;
    let mut none = Chronicle::plain(vec![job(&[]), job(&[0])]);
    table(&mut none);
    c.text += &none.text;
    c.is(include_str!("order.txt"));
}

#[test]
fn families_learn_their_time_from_the_third_end_on() {
    let of = |family: u32| but(job(&[]), |job| job.family = family);
    let mut jobs: Vec<NewJob> = (0..10).map(|_| of(0)).collect();
    jobs.extend((0..4).map(|_| of(1)));
    jobs.push(but(job(&[13]), |job| job.family = 2));
    let mut c = Chronicle::plain(jobs);
    c.initialize();
    c.claim(1, 10);
    let at = |c: &mut Chronicle, job: usize, seconds: f64, later: i64| {
        c.now += later;
        c.succeed(job, seconds);
        let rank = |at: usize| c.flow.rank(ix(at));
        say!(
            c,
            format!(
                "   {:?} {:?} {:?} {} {} {}",
                c.flow.estimate(ix(9)),
                c.flow.family_quantile(0, 0.5),
                c.flow.family_quantile(0, 0.9),
                rank(9),
                rank(13),
                rank(14)
            )
        );
    };
    at(&mut c, 0, 2.0, 0);
    at(&mut c, 1, 2.0, 0);
    at(&mut c, 2, 2.1, 0);
    // Too soon to rank anew, and then not different enough.
    at(&mut c, 3, 2.2, 10);
    at(&mut c, 4, 9.0, 0);
    at(&mut c, 5, 9.0, 0);
    at(&mut c, 6, 9.0, 0);
    at(&mut c, 7, 9.0, 200);
    at(&mut c, 8, 9.0, 200);
    table(&mut c);
    // The same job again: its own time is between what it took.
    let plan = c.flow.plan_reset(&Seeds::Named(vec![ix(0)])).expect("nothing runs");
    c.flow.reset(&plan, c.now);
    c.initialize();
    c.claim(2, 1);
    say!(c, format!("{:?} {:?}", c.flow.estimate(ix(0)), c.flow.estimate(ix(9))));
    c.flow.restore_end(3, 70);
    say!(c, format!("{:?}", c.flow.family_quantile(3, 0.5)));
    c.is(include_str!("learned.txt"));
}
