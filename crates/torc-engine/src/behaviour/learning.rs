//! What ends teach about the times of jobs and of their families.

use super::*;
use torc_model::status::EstimateSource;

/// Jobs of families: so many of each, and one more that waits for all of them.
struct Lesson {
    flow: Workflow,
    next: Vec<usize>,
    now: i64,
}

impl Lesson {
    fn new(families: &[usize]) -> Self {
        Self::with_waiting(families, 1)
    }

    fn with_waiting(families: &[usize], waiting: usize) -> Self {
        let mut jobs = Vec::new();
        let mut next = Vec::new();
        for (family, count) in families.iter().enumerate() {
            next.push(jobs.len());
            let of_family = but(job(&[]), |job| job.family = family as u32);
            jobs.resize(jobs.len() + count, of_family);
        }
        jobs.resize(jobs.len() + waiting, but(job(&[]), |job| job.family = 99));
        let mut flow = Chronicle::plain(jobs).flow;
        flow.initialize(0);
        flow.take_changes();
        Self { flow, next, now: 1_000_000 }
    }

    /// The next jobs of a family end, all now; answers with the times that were taken over.
    fn end(&mut self, family: usize, times: &[u32]) -> Vec<(u32, FamilyTime)> {
        for ms in times {
            self.flow.learn(ix(self.next[family]), *ms, self.now);
            self.next[family] += 1;
        }
        self.changed()
    }

    fn changed(&mut self) -> Vec<(u32, FamilyTime)> {
        let changes = self.flow.take_changes().into_iter();
        let times = changes.filter_map(|change| match change {
            Change::Times { families, .. } => {
                assert!(!families.is_empty(), "no change is written for nothing");
                Some(families)
            }
            _ => None,
        });
        times.flatten().collect()
    }

    fn after(&mut self, ms: i64) -> &mut Self {
        self.now += ms;
        self
    }
}

/// A family's time in the first run.
fn time(family: u32, ms: u32) -> (u32, FamilyTime) {
    (family, FamilyTime { ms, run: 1 })
}

/// Times are kept in steps of 5%.
fn is_about(taken: &[(u32, FamilyTime)], family: u32, ms: f64) -> bool {
    matches!(taken, [(of, time)] if *of == family && (f64::from(time.ms) / ms - 1.0).abs() < 0.03)
}

#[test]
fn a_jobs_own_time_is_the_geometric_mean_of_what_was_known_and_what_it_took_and_never_zero() {
    let mut lesson = Lesson::new(&[1]);
    let own = |flow: &Workflow| flow.estimate(ix(0)).map(|known| (known.ms, known.source));
    for (took, known) in [(0, 1), (4, 2), (0, 1), (100, 10), (1_000, 100)] {
        lesson.flow.learn(ix(0), took, 0);
        assert_eq!(own(&lesson.flow), Some((known, EstimateSource::Own)), "after {took}");
    }
    lesson.flow.learn(ix(0), 0, 0);
    assert_eq!(own(&lesson.flow).map(|(ms, _)| ms), Some(10), "0 ms count as 1");
}

#[test]
fn three_ends_make_the_median_the_time_of_the_family_and_two_do_not() {
    let mut lesson = Lesson::new(&[4, 4]);
    assert_eq!(lesson.end(1, &[500, 500]), []);
    let taken = lesson.end(0, &[2_000, 1_000, 2_000]);
    assert!(is_about(&taken, 0, 2_000.0), "{taken:?}");
    assert_eq!(lesson.flow.estimate(ix(7)), None, "two ends of the other family are too few");
    // The other family's ends were not forgotten meanwhile.
    let taken = lesson.after(100).end(1, &[500]);
    assert!(is_about(&taken, 1, 500.0), "{taken:?}");
    let source = lesson.flow.estimate(ix(3)).map(|known| known.source);
    assert_eq!(source, Some(EstimateSource::Family));
}

#[test]
fn a_familys_time_may_be_one_millisecond_and_grow_from_there() {
    let mut lesson = Lesson::new(&[6]);
    assert_eq!(lesson.end(0, &[0, 1, 1]), [time(0, 1)]);
    assert_eq!(lesson.flow.estimate(ix(5)).map(|known| known.ms), Some(1));
    assert_eq!(lesson.after(100).end(0, &[2, 2]), []);
    assert_eq!(Lesson::new(&[6]).end(0, &[1, 1, 1]), [time(0, 1)]);
    let mut lesson = Lesson::new(&[6]);
    lesson.end(0, &[1, 1, 2]);
    assert_eq!(lesson.after(100).end(0, &[2, 2]), [time(0, 2)], "twice as long is much");
}

#[test]
fn a_familys_time_is_compared_again_when_half_as_many_have_ended_as_before() {
    let mut lesson = Lesson::new(&[6]);
    lesson.end(0, &[1_000, 2_000, 2_000]);
    // The median of four would be 1 s.
    assert_eq!(lesson.after(100).end(0, &[1_000]), []);
    let taken = lesson.after(100).end(0, &[1_000]);
    assert!(is_about(&taken, 0, 1_000.0), "{taken:?}");
}

#[test]
fn a_familys_time_that_differs_by_less_than_a_quarter_is_kept_and_holds_no_other_family_up() {
    let mut lesson = Lesson::new(&[6, 4]);
    lesson.end(0, &[1_000, 1_000, 1_200]);
    lesson.after(100).end(1, &[100, 100]);
    assert_eq!(lesson.end(0, &[1_200, 1_200]), [], "20% more");
    assert_eq!(lesson.after(50).end(1, &[100]).len(), 1, "nothing was ranked just before");
}

#[test]
fn a_time_of_an_earlier_run_is_taken_anew_even_when_it_is_the_same() {
    let mut lesson = Lesson::new(&[4]);
    lesson.flow.restore_times(None, vec![FamilyTime { ms: 1_020, run: 0 }]);
    let source = |flow: &Workflow| flow.estimate(ix(3)).map(|known| known.source);
    assert_eq!(source(&lesson.flow), Some(EstimateSource::FamilyEarlier));
    let taken = lesson.end(0, &[1_000, 1_000, 1_000]);
    assert!(is_about(&taken, 0, 1_000.0), "{taken:?}");
    assert_eq!(source(&lesson.flow), Some(EstimateSource::Family));
}

#[test]
fn what_was_learned_during_the_pause_is_taken_over_after_it() {
    let mut lesson = Lesson::new(&[4, 4, 4]);
    assert_eq!(lesson.end(0, &[1_000; 3]).len(), 1);
    assert_eq!(lesson.end(1, &[50; 3]), [], "at the same moment");
    assert_eq!(lesson.after(99).end(2, &[70; 3]), []);
    let taken: Vec<u32> =
        lesson.after(1).end(0, &[1_000]).into_iter().map(|(family, _)| family).collect();
    assert_eq!(taken, [1, 2]);
}

#[test]
fn a_time_that_came_back_during_the_pause_is_not_written() {
    let mut lesson = Lesson::new(&[10, 4]);
    lesson.end(0, &[1_000, 1_000, 2_000]);
    lesson.after(100).end(1, &[100; 3]);
    assert_eq!(lesson.end(0, &[2_000, 2_000]), [], "the pause after the other family");
    assert_eq!(lesson.end(0, &[1_000; 3]), []);
    assert_eq!(lesson.after(100).end(0, &[1_000]), []);
}

#[test]
fn the_pause_grows_with_the_number_of_jobs() {
    // A tenth of a millisecond per job.
    let mut lesson = Lesson::with_waiting(&[4, 4], 3_000 - 8);
    lesson.end(0, &[1_000; 3]);
    assert_eq!(lesson.after(299).end(1, &[100; 3]), []);
    assert_eq!(lesson.after(1).end(1, &[100]).len(), 1);
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_the_learning() {
    let mut lesson = Lesson::new(&[4, 4]);
    lesson.end(0, &[1_000; 3]);
    assert_eq!(lesson.after(-50_000).end(1, &[100; 3]).len(), 1);
}

#[test]
fn times_are_not_taken_over_when_no_job_waits_for_a_place() {
    let mut c = Chronicle::plain(vec![job(&[]); 3]);
    c.flow.initialize(0);
    assert_eq!(c.take(1, 3), [0, 1, 2]);
    c.flow.take_changes();
    for at in 0..3 {
        c.flow.learn(ix(at), 1_000, 5_000);
    }
    assert_eq!(c.flow.take_changes(), []);
}
