//! Named limits: how many jobs may use something at once, over all workflows. A person sets and
//! removes them; a map sets one on its items, which comes and goes with its workflow and has no row.

use super::claim::{LimitUse, Limits};
use super::reservations::Reservations;
use super::workflow::Workflow;

/// A row to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitChange {
    /// At most so many at once.
    Set {
        /// Of what.
        name: String,
        /// So many.
        max: i64,
    },
    /// It is bounded no longer.
    Removed(String),
}

/// Sets a limit. What runs already is counted, also where that is more than there may be.
pub fn set_limit<'a>(
    limits: &mut Limits,
    reservations: &Reservations,
    workflows: impl Iterator<Item = &'a Workflow>,
    name: &str,
    max: i64,
) -> LimitChange {
    let used = match limits.get(name) {
        Some(known) => known.used,
        None => workflows.map(|workflow| workflow.uses_of(name)).sum(),
    };
    let paused = reservations.pauses_limit(name);
    limits.insert(name.to_owned(), LimitUse { max, used, paused });
    LimitChange::Set { name: name.to_owned(), max }
}

/// Removes a limit; None: there is none. A map that sets one of this name has its own again.
pub fn remove_limit<'a>(
    limits: &mut Limits,
    workflows: impl Iterator<Item = &'a Workflow>,
    name: &str,
) -> Option<LimitChange> {
    let removed = limits.remove(name)?;
    for workflow in workflows {
        if let Some(max) = workflow.map_limit(name) {
            limits.insert(name.to_owned(), LimitUse { max, ..removed });
        }
    }
    Some(LimitChange::Removed(name.to_owned()))
}

impl Reservations {
    /// Tells the limits which of them are reserved.
    pub fn pause_limits(&self, limits: &mut Limits) {
        for (name, limit) in limits {
            limit.paused = self.pauses_limit(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clocks, Scope};

    #[test]
    fn a_limit_counts_what_runs_and_stays_reserved_when_its_number_changes() {
        let (mut limits, mut reservations) = (Limits::default(), Reservations::default());
        let set = |limits: &mut Limits, reservations: &Reservations, max| {
            set_limit(limits, reservations, std::iter::empty(), "licence", max)
        };
        let change = set(&mut limits, &reservations, 2);
        assert_eq!(change, LimitChange::Set { name: "licence".into(), max: 2 });
        if let Some(limit) = limits.get_mut("licence") {
            limit.used = 2;
        }
        let at = Clocks { now: 0, uptime: 0 };
        let scope = Scope::Limit("licence".into());
        reservations.begin(scope, ("ann", "h".into()), 5, at).expect("it is free");
        reservations.pause_limits(&mut limits);
        set(&mut limits, &reservations, 1);
        assert_eq!(limits["licence"], LimitUse { max: 1, used: 2, paused: true });
        reservations.release(1, Some("h"), at).expect("its holder's");
        reservations.pause_limits(&mut limits);
        assert!(!limits["licence"].paused);
        let removed = remove_limit(&mut limits, std::iter::empty(), "licence");
        assert_eq!(removed, Some(LimitChange::Removed("licence".into())));
        assert_eq!(remove_limit(&mut limits, std::iter::empty(), "licence"), None);
    }
}
