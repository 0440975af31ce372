//! Schedulers to compare with: lists of jobs by some order, each job on the first machine where it
//! fits. None of this is what Torc runs.

use super::instances::Instance;
use std::collections::{BTreeSet, BinaryHeap};
use torc_model::api::Capacity;
use torc_model::chance::Rng;
use torc_model::class::{Class, Room};

/// The longest chain of times that begins with each job.
pub fn levels(instance: &Instance, time: &dyn Fn(usize) -> f64) -> Vec<f64> {
    let children = instance.children();
    let mut open: Vec<usize> = children.iter().map(Vec::len).collect();
    let mut done: Vec<usize> = (0..open.len()).filter(|index| open[*index] == 0).collect();
    let mut levels = vec![0.0f64; open.len()];
    while let Some(index) = done.pop() {
        levels[index] += time(index);
        for parent in &instance.tasks[index].parents {
            let parent = *parent as usize;
            levels[parent] = levels[parent].max(levels[index]);
            open[parent] -= 1;
            if open[parent] == 0 {
                done.push(parent);
            }
        }
    }
    levels
}

/// When the last job ends, if ready jobs start in the order of `keys` (smaller first) on the first
/// machine where they fit.
pub fn first_fit(instance: &Instance, machines: &[Capacity], keys: &[f64]) -> f64 {
    list(instance, machines, keys, |rooms, _, class| rooms.iter().position(|room| room.fits(class)))
}

/// The same on the machine where the fewest CPUs stay free.
pub fn best_fit(instance: &Instance, machines: &[Capacity], keys: &[f64]) -> f64 {
    list(instance, machines, keys, |rooms, free, class| {
        (0..rooms.len()).filter(|at| rooms[*at].fits(class)).min_by_key(|at| free[*at])
    })
}

fn list(
    instance: &Instance,
    machines: &[Capacity],
    keys: &[f64],
    place_for: impl Fn(&[Room], &[i64], &Class) -> Option<usize>,
) -> f64 {
    let place: Vec<usize> = {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]).then(a.cmp(b)));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, index)| place[*index] = at);
        place
    };
    let children = instance.children();
    let mut open: Vec<usize> = instance.tasks.iter().map(|task| task.parents.len()).collect();
    let mut ready: BTreeSet<(usize, usize)> =
        (0..open.len()).filter(|i| open[*i] == 0).map(|i| (place[i], i)).collect();
    let mut rooms: Vec<Room> = machines.iter().map(Room::of).collect();
    let mut free: Vec<i64> = machines.iter().map(|machine| machine.num_cpus).collect();
    let mut ends: BinaryHeap<std::cmp::Reverse<(u64, usize, usize)>> = BinaryHeap::new();
    let mut now = 0;
    loop {
        let mut started = Vec::new();
        let one = Class { cpus: 1, nodes: 1, ..Default::default() };
        for (at, index) in &ready {
            // Nothing fits where not even one CPU is free.
            if !rooms.iter().any(|room| room.fits(&one)) {
                break;
            }
            let class = &instance.tasks[*index].class;
            if let Some(machine) = place_for(&rooms, &free, class) {
                rooms[machine].take(class);
                free[machine] -= i64::from(class.cpus);
                let end = now + u64::from(instance.tasks[*index].ms);
                ends.push(std::cmp::Reverse((end, *index, machine)));
                started.push((*at, *index));
            }
        }
        for key in started {
            ready.remove(&key);
        }
        let Some(std::cmp::Reverse((end, ..))) = ends.peek().copied() else { return now as f64 };
        now = end;
        while let Some(std::cmp::Reverse((end, index, machine))) = ends.peek().copied() {
            if end > now {
                break;
            }
            ends.pop();
            rooms[machine].give(&instance.tasks[index].class);
            free[machine] += i64::from(instance.tasks[index].class.cpus);
            for child in &children[index] {
                let child = *child as usize;
                open[child] -= 1;
                if open[child] == 0 {
                    ready.insert((place[child], child));
                }
            }
        }
    }
}

/// In the manner of HEFT: jobs strictly by their levels, each on the machine where it can start
/// soonest, without filling gaps.
pub fn heft(instance: &Instance, machines: &[Capacity], levels: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..levels.len()).collect();
    order.sort_by(|a, b| levels[*b].total_cmp(&levels[*a]).then(a.cmp(b)));
    let mut ends = vec![0.0f64; levels.len()];
    // What runs on each machine: when it ends, and which job it is.
    let mut running: Vec<Vec<(f64, usize)>> = vec![Vec::new(); machines.len()];
    let mut last = vec![0.0f64; machines.len()];
    for index in order {
        let task = &instance.tasks[index];
        let from = task.parents.iter().map(|parent| ends[*parent as usize]).fold(0.0, f64::max);
        let mut best: Option<(f64, usize)> = None;
        for (number, machine) in machines.iter().enumerate() {
            if !Room::of(machine).fits(&task.class) {
                continue;
            }
            // Starts on one machine do not go back in time: gaps stay empty.
            let mut at = from.max(last[number]);
            loop {
                let mut room = Room::of(machine);
                let mut next = f64::INFINITY;
                for (end, other) in running[number].iter().filter(|(end, _)| *end > at) {
                    room.take(&instance.tasks[*other].class);
                    next = next.min(*end);
                }
                if room.fits(&task.class) {
                    break;
                }
                at = next;
            }
            if best.is_none_or(|(start, _)| at < start) {
                best = Some((at, number));
            }
        }
        let Some((start, number)) = best else { return f64::INFINITY };
        ends[index] = start + f64::from(task.ms);
        last[number] = start;
        running[number].retain(|(end, _)| *end > start);
        running[number].push((ends[index], index));
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// The best of so many orders by level, each level changed at random by up to a third.
pub fn best_perturbed(
    instance: &Instance,
    machines: &[Capacity],
    levels: &[f64],
    count: u64,
) -> f64 {
    let shares = shares(instance, machines);
    let mut best = f64::INFINITY;
    for seed in 0..count {
        let mut rng = Rng::new(seed + 1);
        let exponent = [0.0, 0.3][(seed % 2) as usize];
        let strength = if seed < 2 { 0.0 } else { 0.3 };
        let keys: Vec<f64> = levels
            .iter()
            .zip(&shares)
            .map(|(level, share)| {
                let unit = (rng.word() >> 11) as f64 / (1u64 << 53) as f64;
                -level * share.powf(exponent) * (1.0 + strength * (2.0 * unit - 1.0))
            })
            .collect();
        best = best.min(first_fit(instance, machines, &keys));
    }
    best
}

/// The largest share of the largest machine that each job needs.
fn shares(instance: &Instance, machines: &[Capacity]) -> Vec<f64> {
    let most =
        |get: fn(&Capacity) -> i64| machines.iter().map(get).max().unwrap_or(1).max(1) as f64;
    let (cpus, memory) = (most(|c| c.num_cpus), most(|c| c.memory_bytes));
    let share = |class: &Class| {
        (f64::from(class.cpus) / cpus).max(class.memory.unwrap_or(0) as f64 / memory)
    };
    instance.tasks.iter().map(|task| share(&task.class).max(1e-6)).collect()
}
