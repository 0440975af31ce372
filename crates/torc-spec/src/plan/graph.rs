//! Cycles: found by taking jobs away in order, shown as a path with the reason for each step.

use super::Planner;
use super::catalog::Catalog;
use crate::diagnostic::{Diagnostic, excerpt};
use crate::node::At;
use torc_model::plan::Job;

impl Planner<'_> {
    /// Reports one cycle, if there is any.
    pub fn check_cycles(&mut self, jobs: &[Job], catalog: &Catalog, origins: &[usize]) {
        let Some(cycle) = find_cycle(jobs) else { return };
        let step = |from: usize, to: usize| {
            format!("`{}` {}", excerpt(&jobs[to].name), reason(jobs, catalog, from, to))
        };
        let shown: Vec<String> = cycle
            .iter()
            .zip(cycle.iter().cycle().skip(1))
            .map(|(from, to)| step(*from, *to))
            .collect();
        let message = match cycle.as_slice() {
            [own] => {
                format!(
                    "job `{}` waits for itself {}",
                    excerpt(&jobs[*own].name),
                    reason(jobs, catalog, *own, *own)
                )
            }
            _ => {
                let most = 12;
                let dots = if shown.len() > most { " -> ..." } else { "" };
                let path = shown[..shown.len().min(most)].join(" -> ");
                format!(
                    "the jobs wait for each other: `{}` -> {path}{dots}",
                    excerpt(&jobs[cycle[0]].name)
                )
            }
        };
        let mut diagnostic = Diagnostic::error(message).label("the cycle begins here");
        for job in cycle.iter().skip(1).take(4) {
            let place = self.spec.place(&At::top("jobs").index(origins[*job]).key("name"), "");
            diagnostic = diagnostic
                .remark_at(format!("`{}` is part of it", excerpt(&jobs[*job].name)), place);
        }
        let help =
            "`a -> b` reads: a must succeed before b starts; remove one of these dependencies";
        self.report(
            &At::top("jobs").index(origins[cycle[0]]).key("name"),
            "",
            diagnostic.help(help),
        );
    }
}

/// Why `to` waits for `from`.
fn reason(jobs: &[Job], catalog: &Catalog, from: usize, to: usize) -> String {
    let common = |outputs: &[usize], inputs: &[usize]| {
        outputs.iter().copied().find(|item| inputs.contains(item))
    };
    if let Some(file) = common(&jobs[from].output_files, &jobs[to].input_files) {
        return format!("(through file `{}`)", excerpt(&catalog.files[file].name));
    }
    if let Some(data) = common(&jobs[from].output_user_data, &jobs[to].input_user_data) {
        return format!("(through user data `{}`)", excerpt(&catalog.user_data[data].name));
    }
    "(depends_on)".into()
}

/// A cycle in the direction of the work: each job must succeed before the next starts, the last
/// before the first.
fn find_cycle(jobs: &[Job]) -> Option<Vec<usize>> {
    let order = topological(jobs);
    if order.len() == jobs.len() {
        return None;
    }
    let mut left = vec![true; jobs.len()];
    order.iter().for_each(|job| left[*job] = false);
    // Every job that is left waits for another that is left: walking back must meet a job twice.
    let mut seen = vec![usize::MAX; jobs.len()];
    let mut walk = Vec::new();
    let mut at = left.iter().position(|left| *left)?;
    while seen[at] == usize::MAX {
        seen[at] = walk.len();
        walk.push(at);
        at = *jobs[at].depends_on.iter().find(|parent| left[**parent])?;
    }
    let mut cycle = walk.split_off(seen[at]);
    cycle.reverse();
    let first = cycle.iter().enumerate().min_by_key(|(_, job)| **job).map_or(0, |(at, _)| at);
    cycle.rotate_left(first);
    Some(cycle)
}

/// The jobs in an order in which each comes after those it depends on; shorter than all jobs if
/// there is a cycle.
pub fn topological(jobs: &[Job]) -> Vec<usize> {
    let (starts, children) = children(jobs);
    let mut waits: Vec<usize> = jobs.iter().map(|job| job.depends_on.len()).collect();
    let mut order: Vec<usize> = (0..jobs.len()).filter(|job| waits[*job] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        let job = order[next];
        next += 1;
        for child in &children[starts[job]..starts[job + 1]] {
            waits[*child as usize] -= 1;
            if waits[*child as usize] == 0 {
                order.push(*child as usize);
            }
        }
    }
    order
}

/// The dependents of each job, as ranges of one list.
pub fn children(jobs: &[Job]) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0usize; jobs.len() + 1];
    for job in jobs {
        job.depends_on.iter().for_each(|parent| starts[parent + 1] += 1);
    }
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let mut filled = starts.clone();
    let mut list = vec![0u32; *starts.last().unwrap_or(&0)];
    for (index, job) in jobs.iter().enumerate() {
        for parent in &job.depends_on {
            list[filled[*parent]] = index as u32;
            filled[*parent] += 1;
        }
    }
    (starts, list)
}
