//! Times that no schedule can beat.

use super::instances::Instance;
use super::lists::levels;
use torc_model::api::Capacity;
use torc_model::class::Class;

/// Moments that the energetic bound looks at on each side.
const MOMENTS: usize = 40;

/// What machines have of a resource, and what a job needs of it.
type Resource = (fn(&Capacity) -> i64, fn(&Class) -> f64);

/// Jobs of a workflow with the longest chains before and after them.
struct Windows {
    time: Vec<f64>,
    head: Vec<f64>,
    tail: Vec<f64>,
}

/// The largest of the bounds: the critical path, the work of each resource, work between the longest
/// chains before and after it, and the energetic bound.
pub fn bound(instance: &Instance, machines: &[Capacity]) -> f64 {
    let time: Vec<f64> = instance.tasks.iter().map(|task| f64::from(task.ms)).collect();
    let level = levels(instance, &|index| time[index]);
    let path = level.iter().copied().fold(0.0, f64::max);
    let tail: Vec<f64> = level.iter().zip(&time).map(|(level, time)| level - time).collect();
    let windows = Windows { head: heads(instance, &time), tail, time };
    let resources: [Resource; 3] = [
        (|c| c.num_cpus, |c| f64::from(c.cpus)),
        (|c| c.memory_bytes, |c| c.memory.unwrap_or(0) as f64),
        (|c| c.num_gpus, |c| f64::from(c.gpus)),
    ];
    let mut best = path;
    for (have, need) in resources {
        let have: f64 = machines.iter().map(|machine| have(machine) as f64).sum();
        let need: Vec<f64> = instance.tasks.iter().map(|task| need(&task.class)).collect();
        if have <= 0.0 || need.iter().all(|need| *need == 0.0) {
            continue;
        }
        best = best.max(windows.work(&need, have));
        best = windows.energetic(&need, have, best);
    }
    best
}

fn heads(instance: &Instance, time: &[f64]) -> Vec<f64> {
    let children = instance.children();
    let mut open: Vec<usize> = instance.tasks.iter().map(|task| task.parents.len()).collect();
    let mut done: Vec<usize> = (0..open.len()).filter(|index| open[*index] == 0).collect();
    let mut heads = vec![0.0f64; open.len()];
    while let Some(index) = done.pop() {
        for child in &children[index] {
            let child = *child as usize;
            heads[child] = heads[child].max(heads[index] + time[index]);
            open[child] -= 1;
            if open[child] == 0 {
                done.push(child);
            }
        }
    }
    heads
}

impl Windows {
    /// Work over capacity, for the jobs with the longest heads and for those with the longest tails.
    fn work(&self, need: &[f64], have: f64) -> f64 {
        let mut best = 0.0f64;
        for (outer, inner) in [(&self.tail, &self.head), (&self.head, &self.tail)] {
            let mut order: Vec<usize> = (0..need.len()).filter(|i| need[*i] > 0.0).collect();
            order.sort_by(|a, b| outer[*b].total_cmp(&outer[*a]));
            let (mut work, mut least) = (0.0, f64::INFINITY);
            for index in order {
                work += self.time[index] * need[index];
                least = f64::min(least, inner[index]);
                best = best.max(outer[index] + work / have + least);
            }
        }
        best
    }

    /// The least end for which no interval holds more work than fits (destructive bound).
    fn energetic(&self, need: &[f64], have: f64, from: f64) -> f64 {
        let (mut low, mut high) = (from, from * 2.0);
        if self.is_too_early(need, have, high) {
            return high;
        }
        if !self.is_too_early(need, have, low * 1.0005) {
            return low;
        }
        for _ in 0..14 {
            let middle = f64::midpoint(low, high);
            if self.is_too_early(need, have, middle) { low = middle } else { high = middle }
        }
        low
    }

    fn is_too_early(&self, need: &[f64], have: f64, end: f64) -> bool {
        let moments = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all.dedup();
            let step = (all.len() / MOMENTS).max(1);
            all.into_iter().step_by(step).collect::<Vec<f64>>()
        };
        let begins = moments(self.head.clone());
        let ends = moments(self.tail.iter().map(|tail| end - tail).collect());
        for a in &begins {
            for b in ends.iter().filter(|b| **b > *a) {
                let mut work = 0.0;
                for (index, need) in need.iter().enumerate() {
                    let (time, first) = (self.time[index], self.head[index]);
                    let last = end - self.tail[index] - time;
                    let inside = time.min(b - a).min(first + time - a).min(b - last);
                    work += inside.max(0.0) * need;
                }
                if work > have * (b - a) * (1.0 + 1e-9) {
                    return true;
                }
            }
        }
        false
    }
}
