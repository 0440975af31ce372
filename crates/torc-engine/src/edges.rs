//! Who waits for whom, in two flat lists: a workflow may have a million jobs and millions of edges.

use super::index::JobIx;
use std::collections::HashMap;

/// The dependencies of all jobs in both directions, by index. Duplicates stay as they were given.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Edges {
    parents: Lists,
    /// Covers the jobs that were there at the last [`Edges::settle`], and what was added since.
    children: Lists,
    /// The children were made at least once: from then on they are kept with every change.
    is_settled: bool,
}

/// One list per job: ranges of one long list, and those lists that have changed since it was made.
#[derive(Clone, PartialEq, Debug, Default)]
struct Lists {
    /// Where the list of each job begins; that of the next one is its end.
    starts: Vec<u32>,
    all: Vec<JobIx>,
    changed: HashMap<JobIx, Vec<JobIx>>,
}

impl Lists {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn of(&self, index: JobIx) -> &[JobIx] {
        if !self.changed.is_empty()
            && let Some(changed) = self.changed.get(&index)
        {
            return changed;
        }
        let Some(start) = self.starts.get(index.at()) else { return &[] };
        let end = self.starts.get(index.at() + 1).map_or(self.all.len(), |end| *end as usize);
        &self.all[*start as usize..end]
    }

    /// The list of the next job.
    fn push(&mut self, list: &[JobIx]) {
        self.starts.push(self.all.len() as u32);
        self.all.extend_from_slice(list);
    }

    fn insert(&mut self, index: JobIx, value: JobIx) {
        if !self.changed.contains_key(&index) {
            self.changed.insert(index, self.of(index).to_vec());
        }
        self.changed.entry(index).or_default().push(value);
    }

    fn remove(&mut self, index: JobIx, value: JobIx) {
        let rest = self.of(index).iter().copied().filter(|other| *other != value).collect();
        self.changed.insert(index, rest);
    }
}

impl Edges {
    /// Makes room for jobs to come.
    pub fn reserve(&mut self, jobs: usize) {
        self.parents.starts.reserve_exact(jobs);
    }

    /// Adds the next job. Its parents may come later.
    pub fn add(&mut self, parents: &[JobIx]) {
        let index = JobIx::new(self.parents.len());
        self.parents.push(parents);
        // Before the first settling no caller asks for children, and there they are counted together.
        if self.is_settled {
            parents.iter().for_each(|parent| self.children.insert(*parent, index));
        }
    }

    /// Adds an edge between jobs that are there.
    pub fn link(&mut self, parent: JobIx, child: JobIx) {
        self.parents.insert(child, parent);
        self.children.insert(parent, child);
    }

    /// Gives a job other parents.
    pub fn set_parents(&mut self, index: JobIx, parents: &[JobIx]) {
        for parent in self.parents.of(index).to_vec() {
            self.children.remove(parent, index);
        }
        self.parents.changed.insert(index, parents.to_vec());
        parents.iter().for_each(|parent| self.children.insert(*parent, index));
    }

    /// Makes the children out of the parents.
    pub fn settle(&mut self) {
        self.is_settled = true;
        let jobs = self.parents.len();
        let mut starts = vec![0u32; jobs];
        for index in JobIx::range(0..jobs) {
            self.parents.of(index).iter().for_each(|parent| starts[parent.at()] += 1);
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        let mut all = vec![JobIx::default(); sum as usize];
        let mut next = starts.clone();
        for index in JobIx::range(0..jobs) {
            for parent in self.parents.of(index) {
                let place = &mut next[parent.at()];
                all[*place as usize] = index;
                *place += 1;
            }
        }
        self.children = Lists { starts, all, changed: HashMap::new() };
    }

    /// The jobs that a job waits for.
    pub fn parents(&self, index: JobIx) -> &[JobIx] {
        self.parents.of(index)
    }

    /// The jobs that wait for a job.
    pub fn children(&self, index: JobIx) -> &[JobIx] {
        self.children.of(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(places: &[usize]) -> Vec<JobIx> {
        places.iter().copied().map(JobIx::new).collect()
    }

    fn places(list: &[JobIx]) -> Vec<usize> {
        list.iter().map(|index| index.at()).collect()
    }

    fn children_of(edges: &Edges, at: usize) -> Vec<usize> {
        places(edges.children(JobIx::new(at)))
    }

    fn parents_of(edges: &Edges, at: usize) -> Vec<usize> {
        places(edges.parents(JobIx::new(at)))
    }

    #[test]
    fn a_job_with_other_parents_is_a_child_of_those_only() {
        let mut edges = Edges::default();
        edges.settle();
        for parents in [&[][..], &[], &[0, 0]] {
            edges.add(&list(parents));
        }
        assert_eq!((children_of(&edges, 0), children_of(&edges, 1)), (vec![2, 2], vec![]));
        edges.set_parents(JobIx::new(2), &list(&[1]));
        assert_eq!((children_of(&edges, 0), children_of(&edges, 1)), (vec![], vec![2]));
        edges.settle();
        assert_eq!((children_of(&edges, 0), children_of(&edges, 1)), (vec![], vec![2]));
        assert_eq!(parents_of(&edges, 2), [1]);
    }

    #[test]
    fn both_directions_tell_the_same() {
        let mut edges = Edges::default();
        for parents in [&[1][..], &[], &[0, 1], &[], &[2, 0]] {
            edges.add(&list(parents));
        }
        edges.settle();
        let children =
            |edges: &Edges| (0..6).map(|index| children_of(edges, index)).collect::<Vec<_>>();
        assert_eq!(children(&edges), [vec![2, 4], vec![0, 2], vec![4], vec![], vec![], vec![]]);

        // Items that a map found while it ran.
        edges.add(&list(&[3, 0]));
        edges.link(JobIx::new(5), JobIx::new(4));
        assert_eq!(
            children(&edges),
            [vec![2, 4, 5], vec![0, 2], vec![4], vec![5], vec![], vec![4]]
        );
        assert_eq!((parents_of(&edges, 4), parents_of(&edges, 5)), (vec![2, 0, 5], vec![3, 0]));
        let before = children(&edges);
        edges.settle();
        assert_eq!(children(&edges), before);
        assert_eq!(parents_of(&edges, 4), [2, 0, 5]);
    }
}
