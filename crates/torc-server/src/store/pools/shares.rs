//! Who comes next in a pool: weighted fair queueing over the owners of workflows.
//!
//! Each owner has an account per pool: CPU seconds that were used, divided by the owner's weight. The
//! owner with the lowest account comes first. What an owner holds now counts as if it ran on for a
//! while, so that many free CPUs are not all given to the first in the queue. An owner who was away
//! begins where the others are: time without work is neither saved up nor held against them.

use std::collections::HashMap;
use std::sync::Arc;

/// A pool: all runners with tokens of one user; None: with that of the server's owner.
pub type Pool = Option<Arc<str>>;

/// What is held counts as if it ran on for so many seconds: much longer than short jobs take, so that
/// places are shared, and short enough that what was used counts soon.
const HORIZON_SECONDS: f64 = 10.0;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// CPU seconds that were used, divided by the weight.
    used: f64,
    /// CPUs that are held.
    held: f64,
    /// When `used` was brought up to date, in ms.
    at: i64,
    /// The owner has work, or holds something.
    is_active: bool,
}

/// The accounts of all pools.
#[derive(Default, Debug)]
pub struct Shares {
    accounts: HashMap<Pool, HashMap<Arc<str>, Account>>,
    /// How far each pool has come: where owners begin who were away.
    clocks: HashMap<Pool, f64>,
    weights: HashMap<String, f64>,
}

impl Shares {
    /// The weights that owners were given.
    pub fn set_weights(&mut self, weights: HashMap<String, f64>) {
        self.weights = weights;
    }

    fn weight(&self, owner: &str) -> f64 {
        self.weights.get(owner).copied().unwrap_or(1.0)
    }

    /// The place of an owner with work in the queue of a pool: the lowest comes first.
    pub fn place(&mut self, pool: &Pool, owner: &Arc<str>, now: i64) -> f64 {
        let weight = self.weight(owner);
        let clock = self.clocks.get(pool).copied().unwrap_or(0.0);
        let account = self.account(pool, owner);
        account.settle(weight, now);
        if !account.is_active {
            account.is_active = true;
            account.used = account.used.max(clock);
        }
        account.used + account.held * HORIZON_SECONDS / weight
    }

    /// How far an owner must be behind another one to be given a place at the cost of a new process. Little
    /// for one who has nothing; else more than a CPU and a tenth of what the owner holds, for so much the
    /// accounts go up and down by themselves while jobs end and begin.
    pub fn slack(&self, pool: &Pool, owner: &Arc<str>) -> f64 {
        const NOTHING_HELD_SECONDS: f64 = 1.0;
        let account = self.accounts.get(pool).and_then(|accounts| accounts.get(owner));
        match account.map_or(0.0, |account| account.held) {
            held if held <= 0.0 => NOTHING_HELD_SECONDS,
            held => HORIZON_SECONDS * (1.5 + held / 10.0) / self.weight(owner),
        }
    }

    /// The owner who came first has used this much: an owner who comes back later begins there.
    pub fn advance(&mut self, pool: &Pool, first: &Arc<str>) {
        let used = self.account(pool, first).used;
        let clock = self.clocks.entry(pool.clone()).or_insert(0.0);
        *clock = clock.max(used);
    }

    /// A runner of the pool holds so many CPUs more (or fewer) of this owner.
    pub fn hold(&mut self, pool: &Pool, owner: &Arc<str>, change: f64, now: i64) {
        let weight = self.weight(owner);
        let account = self.account(pool, owner);
        account.settle(weight, now);
        account.held = (account.held + change).max(0.0);
    }

    /// The owner has no more work that could be given.
    pub fn rest(&mut self, owner: &str) {
        for accounts in self.accounts.values_mut() {
            if let Some(account) = accounts.get_mut(owner)
                && account.held <= 0.0
            {
                account.is_active = false;
            }
        }
    }

    fn account(&mut self, pool: &Pool, owner: &Arc<str>) -> &mut Account {
        // Looked up often and made once: a key is cloned only then.
        if !self.accounts.contains_key(pool) {
            self.accounts.insert(pool.clone(), HashMap::new());
        }
        self.accounts.entry(pool.clone()).or_default().entry(owner.clone()).or_default()
    }
}

impl Account {
    fn settle(&mut self, weight: f64, now: i64) {
        if self.at != 0 {
            self.used += self.held * (now - self.at).max(0) as f64 / 1000.0 / weight;
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One place that is given to the first again and again, for jobs of this many ms per owner.
    fn serve(shares: &mut Shares, jobs: &[(&str, i64)], begin: i64, end: i64) -> Vec<i64> {
        let pool: Pool = None;
        let mut now = begin;
        let mut used = vec![0; jobs.len()];
        while now < end {
            let owners: Vec<Arc<str>> = jobs.iter().map(|(owner, _)| (*owner).into()).collect();
            let places: Vec<f64> =
                owners.iter().map(|owner| shares.place(&pool, owner, now)).collect();
            let first = (0..jobs.len()).min_by(|a, b| places[*a].total_cmp(&places[*b])).unwrap();
            shares.advance(&pool, &owners[first]);
            shares.hold(&pool, &owners[first], 1.0, now);
            now += jobs[first].1;
            shares.hold(&pool, &owners[first], -1.0, now);
            used[first] += jobs[first].1;
        }
        used
    }

    #[test]
    fn owners_get_the_same_time_whatever_their_jobs_take() {
        let mut shares = Shares::default();
        let used = serve(&mut shares, &[("alice", 10), ("bob", 1000)], 1, 100_000);
        let ratio = used[0] as f64 / used[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{used:?}");
    }

    #[test]
    fn weights_count() {
        let mut shares = Shares::default();
        shares.set_weights([("alice".to_owned(), 3.0)].into());
        let used = serve(&mut shares, &[("alice", 10), ("bob", 10)], 1, 100_000);
        let ratio = used[0] as f64 / used[1] as f64;
        assert!((2.9..3.1).contains(&ratio), "{used:?}");
    }

    #[test]
    fn an_owner_who_comes_late_or_comes_back_neither_waits_nor_takes_all() {
        let mut shares = Shares::default();
        serve(&mut shares, &[("alice", 10)], 1, 1_000_000);
        shares.rest("alice");
        let used = serve(&mut shares, &[("bob", 10), ("alice", 10)], 2_000_000, 2_010_000);
        let ratio = used[0] as f64 / used[1] as f64;
        assert!((0.9..1.1).contains(&ratio), "{used:?}");
    }

    #[test]
    fn free_places_are_shared_at_once() {
        let (mut shares, pool): (Shares, Pool) = Default::default();
        let owners: [Arc<str>; 2] = ["alice".into(), "bob".into()];
        let mut given = [0; 2];
        for _ in 0..100 {
            let places = [0, 1].map(|i| shares.place(&pool, &owners[i], 5));
            let first = usize::from(places[1] < places[0]);
            shares.hold(&pool, &owners[first], 1.0, 5);
            given[first] += 1;
        }
        assert_eq!(given, [50, 50]);
    }
}
