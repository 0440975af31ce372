//! Who waits for whom, in two flat lists: a workflow may have a million jobs and millions of edges.

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
    all: Vec<u32>,
    changed: HashMap<u32, Vec<u32>>,
}

impl Lists {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn of(&self, index: u32) -> &[u32] {
        if !self.changed.is_empty()
            && let Some(changed) = self.changed.get(&index)
        {
            return changed;
        }
        let Some(start) = self.starts.get(index as usize) else { return &[] };
        let end = self.starts.get(index as usize + 1).map_or(self.all.len(), |end| *end as usize);
        &self.all[*start as usize..end]
    }

    /// The list of the next job.
    fn push(&mut self, list: &[u32]) {
        self.starts.push(self.all.len() as u32);
        self.all.extend_from_slice(list);
    }

    fn insert(&mut self, index: u32, value: u32) {
        if !self.changed.contains_key(&index) {
            self.changed.insert(index, self.of(index).to_vec());
        }
        self.changed.entry(index).or_default().push(value);
    }

    fn remove(&mut self, index: u32, value: u32) {
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
    pub fn add(&mut self, parents: &[u32]) {
        let index = self.parents.len() as u32;
        self.parents.push(parents);
        // Before the first settling no caller asks for children, and there they are counted together.
        if self.is_settled {
            parents.iter().for_each(|parent| self.children.insert(*parent, index));
        }
    }

    /// Adds an edge between jobs that are there.
    pub fn link(&mut self, parent: u32, child: u32) {
        self.parents.insert(child, parent);
        self.children.insert(parent, child);
    }

    /// Gives a job other parents.
    pub fn set_parents(&mut self, index: u32, parents: &[u32]) {
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
        for index in 0..jobs as u32 {
            self.parents.of(index).iter().for_each(|parent| starts[*parent as usize] += 1);
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        let mut all = vec![0u32; sum as usize];
        let mut next = starts.clone();
        for index in 0..jobs as u32 {
            for parent in self.parents.of(index) {
                let place = &mut next[*parent as usize];
                all[*place as usize] = index;
                *place += 1;
            }
        }
        self.children = Lists { starts, all, changed: HashMap::new() };
    }

    /// The jobs that a job waits for.
    pub fn parents(&self, index: u32) -> &[u32] {
        self.parents.of(index)
    }

    /// The jobs that wait for a job.
    pub fn children(&self, index: u32) -> &[u32] {
        self.children.of(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_other_parents_is_a_child_of_those_only() {
        let mut edges = Edges::default();
        edges.settle();
        for parents in [&[][..], &[], &[0, 0]] {
            edges.add(parents);
        }
        assert_eq!((edges.children(0), edges.children(1)), (&[2, 2][..], &[][..]));
        edges.set_parents(2, &[1]);
        assert_eq!((edges.children(0), edges.children(1)), (&[][..], &[2][..]));
        edges.settle();
        assert_eq!((edges.children(0), edges.children(1)), (&[][..], &[2][..]));
        assert_eq!(edges.parents(2), [1]);
    }

    #[test]
    fn both_directions_tell_the_same() {
        let mut edges = Edges::default();
        for parents in [&[1][..], &[], &[0, 1], &[], &[2, 0]] {
            edges.add(parents);
        }
        edges.settle();
        let children =
            |edges: &Edges| (0..6).map(|index| edges.children(index).to_vec()).collect::<Vec<_>>();
        assert_eq!(children(&edges), [vec![2, 4], vec![0, 2], vec![4], vec![], vec![], vec![]]);

        // Items that a map found while it ran.
        edges.add(&[3, 0]);
        edges.link(5, 4);
        assert_eq!(
            children(&edges),
            [vec![2, 4, 5], vec![0, 2], vec![4], vec![5], vec![], vec![4]]
        );
        assert_eq!((edges.parents(4), edges.parents(5)), (&[2, 0, 5][..], &[3, 0][..]));
        let before = children(&edges);
        edges.settle();
        assert_eq!(children(&edges), before);
        assert_eq!(edges.parents(4), [2, 0, 5]);
    }
}
