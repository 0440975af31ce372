//! What is of the whole server: named limits, reservations, numbers of jobs, and time.

use crate::engine::{Command, Engine, Turn, Wakes};
use crate::{Change, Refused, ReservationChange, Scope, remove_limit, set_limit};
use std::collections::BTreeSet;
use torc_model::ids::{JobId, WorkflowId};

/// Commands that need no workflow.
macro_rules! shared {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    } -> $reply:ty = |$turn:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$life>)? Command for $name $(<$life>)? {
            type Reply = $reply;

            fn needs(&self, _: &Engine) -> Option<WorkflowId> {
                None
            }

            fn carry_out(self, $turn: &mut Turn<'_>) -> Result<$reply, Refused> {
                let Self { $($field,)* } = self;
                $body
            }
        }
    )*};
}

shared! {
    /// Sets a named limit. What runs already is counted.
    SetLimit<'a> {
        /// Of what.
        name: &'a str,
        /// At most so many at once.
        max: i64,
    } -> () = |turn| {
        let Engine { limits, reservations, workflows, .. } = &mut *turn.engine;
        let change = set_limit(limits, reservations, workflows.values(), name, max);
        turn.record_shared(Change::Limit(change));
        turn.wake(Wakes::All);
        Ok(())
    };

    /// Removes a named limit. False: there is none.
    RemoveLimit<'a> {
        /// Which.
        name: &'a str,
    } -> bool = |turn| {
        let Engine { limits, workflows, .. } = &mut *turn.engine;
        let Some(change) = remove_limit(limits, workflows.values(), name) else {
            return Ok(false);
        };
        turn.record_shared(Change::Limit(change));
        turn.wake(Wakes::All);
        Ok(true)
    };

    /// Makes a reservation, unless its scope has one.
    Reserve<'a> {
        /// What it pauses.
        scope: Scope,
        /// Who holds it.
        by: &'a str,
        /// Hash of its token.
        token_hash: String,
        /// How long it lasts at most.
        ttl_ms: i64,
    } -> () = |turn| {
        let begun = turn.engine.reservations.begin(scope, (by, token_hash), ttl_ms, turn.at)?;
        turn.reserved(begun);
        Ok(())
    };

    /// Gives a reservation more time.
    RenewReservation<'a> {
        /// Its row.
        id: i64,
        /// Hash of its token.
        token_hash: &'a str,
        /// How long it lasts from now at most.
        ttl_ms: i64,
    } -> () = |turn| {
        let renewed = turn.engine.reservations.renew(id, token_hash, ttl_ms, turn.at)?;
        turn.reserved(vec![renewed]);
        Ok(())
    };

    /// Ends a reservation, for the holder of its token, or without one for anyone who may.
    ReleaseReservation<'a> {
        /// Its row.
        id: i64,
        /// Hash of its token.
        token_hash: Option<&'a str>,
    } -> () = |turn| {
        let released = turn.engine.reservations.release(id, token_hash, turn.at)?;
        turn.reserved(vec![released]);
        Ok(())
    };

    /// Ends the reservations whose time has come.
    ExpireReservations {
        /// All of them: the server has begun, and their holders were cut off.
        all: bool,
    } -> () = |turn| {
        let expired = turn.engine.reservations.expire(turn.at, all);
        turn.reserved(expired);
        Ok(())
    };

    /// Takes numbers for new jobs; answers with the first.
    TakeJobIds {
        /// So many.
        count: usize,
    } -> JobId = |turn| {
        let first = turn.take_job_ids(count);
        let next = turn.engine.next_job();
        turn.record_shared(Change::JobIdsTaken(next));
        Ok(first)
    };

    /// Takes a row for an attempt that is no work of the engine's: one that was imported.
    TakeAttemptRow {} -> i64 = |turn| Ok(turn.take_attempt_row());

    /// Moves delayed attempts whose time has come to where claims look. Answers with their workflows.
    WakeDelayed {} -> BTreeSet<WorkflowId> = |turn| {
        let now = turn.at.now;
        let workflows = turn.engine.workflows.values_mut();
        let due = workflows.filter(|workflow| workflow.next_due().is_some_and(|due| due <= now));
        Ok(due.map(|workflow| { workflow.wake_delayed(now); workflow.id }).collect())
    };
}

impl Turn<'_> {
    /// Something happened to reservations: limits learn of it, and claims that waited for an end look
    /// again.
    fn reserved(&mut self, changes: Vec<ReservationChange>) {
        let Engine { reservations, limits, .. } = &mut *self.engine;
        reservations.pause_limits(limits);
        if changes.iter().any(|change| matches!(change, ReservationChange::Ended { .. })) {
            self.wake(Wakes::All);
        }
        changes.into_iter().for_each(|change| self.record_shared(Change::Reservation(change)));
    }
}
