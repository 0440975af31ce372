//! Reservations: claims in a scope are paused until the holder releases it or its time is over. They never touch the queue.
//!
//! Two clocks: `now` (ms since 1970) is what rows and people see, `uptime` (ms that cannot be set) bounds the life of a
//! reservation whatever happens to the other clock.

use crate::Refused;
use std::collections::BTreeMap;
use std::fmt;
use torc_model::api::ErrorCode;
use torc_model::ids::WorkflowId;
use torc_model::status::ReservationStatus;

/// What a reservation pauses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All claims.
    All,
    /// Claims of one workflow.
    Workflow(WorkflowId),
    /// Jobs that use a named limit.
    Limit(String),
}

impl Scope {
    /// `all`, `workflow:ID` or `limit:NAME`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => (text == "all").then_some(Self::All),
            Some(("workflow", id)) => id.parse().ok().map(|id| Self::Workflow(WorkflowId(id))),
            Some(("limit", name)) => (!name.is_empty()).then(|| Self::Limit(name.to_owned())),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Workflow(id) => write!(f, "workflow:{id}"),
            Self::Limit(name) => write!(f, "limit:{name}"),
        }
    }
}

/// An active reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// Its row.
    pub id: i64,
    /// Who holds it.
    pub reserved_by: String,
    /// Hash of the token that renews or releases it.
    pub token_hash: String,
    /// Until when at most, by uptime.
    pub until: i64,
    /// The same in ms since 1970, as its row says.
    pub expires: i64,
}

/// A row to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReservationChange {
    /// A reservation began.
    Began {
        /// Its row.
        id: i64,
        /// What it pauses.
        scope: Scope,
        /// Who holds it.
        reserved_by: String,
        /// Hash of its token.
        token_hash: String,
        /// When, ms since 1970.
        at: i64,
        /// Until when at most.
        expires: i64,
    },
    /// It lasts longer.
    Renewed {
        /// Its row.
        id: i64,
        /// Until when at most, ms since 1970.
        expires: i64,
    },
    /// It is over.
    Ended {
        /// Its row.
        id: i64,
        /// Released or expired.
        status: ReservationStatus,
        /// When, ms since 1970.
        at: i64,
    },
}

/// The time of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// Ms since 1970.
    pub now: i64,
    /// Ms by the clock that cannot be set.
    pub uptime: i64,
}

/// All active reservations, one per scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservations {
    active: BTreeMap<Scope, Reservation>,
    next: i64,
    /// As they were before they ended or got more time, as long as that is not on disk.
    before_commit: Vec<Reservation>,
}

impl Default for Reservations {
    fn default() -> Self {
        Self::new([], 1)
    }
}

impl Reservations {
    /// What a restart finds; `next` is the next free row.
    pub fn new(active: impl IntoIterator<Item = (Scope, Reservation)>, next: i64) -> Self {
        Self { active: active.into_iter().collect(), next, before_commit: Vec::new() }
    }

    /// As read from rows after what they said was taken back: one that was known before ends when
    /// it would have, whatever happened to the clock of its row.
    pub fn with_times_of(mut self, known: Self) -> Self {
        for reservation in self.active.values_mut() {
            let is_same = |known: &&Reservation| {
                (known.id, known.expires) == (reservation.id, reservation.expires)
            };
            // Its end, or the time it was given, may be what was taken back.
            if let Some(known) = known.active.values().chain(&known.before_commit).find(is_same) {
                reservation.until = known.until;
            }
        }
        // The rows may be those of a transaction that goes on, and fails as a whole in the end.
        self.before_commit = known.before_commit;
        self
    }

    /// What was done so far is on disk.
    pub fn committed(&mut self) {
        self.before_commit.clear();
    }

    /// A reservation is about to end or to get more time, which may be taken back.
    fn keep_times(&mut self, scope: &Scope) {
        let kept = self.active.get(scope).filter(|r| !self.before_commit.contains(r)).cloned();
        self.before_commit.extend(kept);
    }

    /// Makes a reservation, unless its scope has one. One whose time is over gives way.
    pub fn begin(
        &mut self,
        scope: Scope,
        (reserved_by, token_hash): (&str, String),
        ttl_ms: i64,
        clocks: Clocks,
    ) -> Result<Vec<ReservationChange>, Refused> {
        let mut changes = Vec::new();
        if let Some(old) = self.active.get(&scope) {
            if old.until > clocks.uptime {
                let message =
                    format!("reservation {} of {} holds `{scope}`", old.id, old.reserved_by);
                let left = (old.until - clocks.uptime) / 1000;
                return Err(Refused::new(ErrorCode::Reserved, message)
                    .hint(format!("it ends in {left} s at the latest")));
            }
            let status = ReservationStatus::Expired;
            changes.push(ReservationChange::Ended { id: old.id, status, at: clocks.now });
            self.keep_times(&scope);
        }
        let id = self.next;
        self.next += 1;
        let reservation = Reservation {
            id,
            reserved_by: reserved_by.to_owned(),
            token_hash: token_hash.clone(),
            until: clocks.uptime + ttl_ms,
            expires: clocks.now + ttl_ms,
        };
        self.active.insert(scope.clone(), reservation);
        changes.push(ReservationChange::Began {
            id,
            scope,
            reserved_by: reserved_by.to_owned(),
            token_hash,
            at: clocks.now,
            expires: clocks.now + ttl_ms,
        });
        Ok(changes)
    }

    /// Gives a reservation that is still active more time.
    pub fn renew(
        &mut self,
        id: i64,
        token_hash: &str,
        ttl_ms: i64,
        clocks: Clocks,
    ) -> Result<ReservationChange, Refused> {
        let scope = self.held(id, Some(token_hash), clocks.uptime)?;
        self.keep_times(&scope);
        if let Some(reservation) = self.active.get_mut(&scope) {
            reservation.until = clocks.uptime + ttl_ms;
            reservation.expires = clocks.now + ttl_ms;
        }
        Ok(ReservationChange::Renewed { id, expires: clocks.now + ttl_ms })
    }

    /// Ends a reservation by its token; without one for any holder.
    pub fn release(
        &mut self,
        id: i64,
        token_hash: Option<&str>,
        clocks: Clocks,
    ) -> Result<ReservationChange, Refused> {
        let scope = self.held(id, token_hash, clocks.uptime)?;
        self.keep_times(&scope);
        self.active.remove(&scope);
        Ok(ReservationChange::Ended { id, status: ReservationStatus::Released, at: clocks.now })
    }

    /// The scope of an active reservation, for the holder of its token; without a token for all.
    fn held(&self, id: i64, token_hash: Option<&str>, uptime: i64) -> Result<Scope, Refused> {
        match self.active.iter().find(|(_, r)| r.id == id) {
            Some((_, r)) if token_hash.is_some_and(|hash| hash != r.token_hash) => {
                Err(Refused::new(
                    ErrorCode::WrongToken,
                    format!("the token is not that of reservation {id}"),
                ))
            }
            Some((scope, r)) if r.until > uptime => Ok(scope.clone()),
            Some(_) | None => Err(Refused::new(
                ErrorCode::ReservationEnded,
                format!("reservation {id} has ended"),
            )
            .hint("make a new one")),
        }
    }

    /// Those whose time is over, or all.
    pub fn due(&self, uptime: i64, all: bool) -> Vec<(i64, Scope)> {
        let is_due = |r: &Reservation| all || r.until <= uptime;
        self.active.iter().filter(|(_, r)| is_due(r)).map(|(s, r)| (r.id, s.clone())).collect()
    }

    /// Ends those whose time is over, or all.
    pub fn expire(&mut self, clocks: Clocks, all: bool) -> Vec<ReservationChange> {
        let due = self.due(clocks.uptime, all);
        due.into_iter()
            .map(|(id, scope)| {
                self.keep_times(&scope);
                self.active.remove(&scope);
                let status = ReservationStatus::Expired;
                ReservationChange::Ended { id, status, at: clocks.now }
            })
            .collect()
    }

    /// What pauses the claims of a workflow.
    pub fn pausing(&self, workflow: WorkflowId, uptime: i64) -> Option<&Reservation> {
        [Scope::All, Scope::Workflow(workflow)]
            .iter()
            .find_map(|scope| self.active.get(scope).filter(|r| r.until > uptime))
    }

    /// A named limit is reserved.
    pub fn pauses_limit(&self, name: &str) -> bool {
        self.active.keys().any(|scope| matches!(scope, Scope::Limit(limit) if limit == name))
    }

    /// When the next one is over, by uptime.
    pub fn next_end(&self, uptime: i64) -> Option<i64> {
        self.active.values().map(|r| r.until).filter(|until| *until > uptime).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::words;

    fn at(now: i64) -> Clocks {
        Clocks { now: 1_000_000 + now, uptime: now }
    }

    fn code<T>(result: Result<T, Refused>) -> Option<ErrorCode> {
        result.err().map(|refused| refused.code)
    }

    #[test]
    fn a_scope_is_held_once_and_only_by_its_token() {
        let mut all = Reservations::default();
        let begun = all.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        assert!(matches!(begun[..], [ReservationChange::Began { id: 1, expires: 1_000_500, .. }]));
        let other = all.begin(Scope::All, ("bob", "i".into()), 500, at(499));
        assert_eq!(code(other), Some(ErrorCode::Reserved));
        assert_eq!(code(all.release(1, Some("i"), at(1))), Some(ErrorCode::WrongToken));
        assert_eq!(code(all.release(2, Some("h"), at(1))), Some(ErrorCode::ReservationEnded));
        assert!(
            all.pausing(WorkflowId(7), 499).is_some() && all.pausing(WorkflowId(7), 500).is_none()
        );
        all.renew(1, "h", 500, at(400)).expect("its holder's");
        assert_eq!(all.next_end(400), Some(900));
        assert_eq!(code(all.renew(1, "h", 500, at(900))), Some(ErrorCode::ReservationEnded));
        let next =
            all.begin(Scope::All, ("bob", "i".into()), 500, at(900)).expect("its time is over");
        assert!(matches!(
            next[..],
            [
                ReservationChange::Ended { id: 1, status: ReservationStatus::Expired, .. },
                ReservationChange::Began { id: 2, .. }
            ]
        ));
        assert!(all.release(2, Some("i"), at(901)).is_ok());
        assert_eq!(all.due(901, true), []);
    }

    #[test]
    fn a_reservation_that_is_read_again_ends_when_it_would_have_ended() {
        let mut known = Reservations::default();
        known.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        let row = |expires, until| Reservation {
            id: 1,
            reserved_by: "ann".into(),
            token_hash: "h".into(),
            until,
            expires,
        };
        // The wall clock was set back by an hour since, so that the row seems to have long to go.
        let read = |expires| Reservations::new([(Scope::All, row(expires, 3_600_400))], 2);
        assert_eq!(read(1_000_500).with_times_of(known.clone()), known);
        // One of which nothing is known has the time that its row says.
        let other = read(1_000_400).with_times_of(known);
        assert_eq!(other.next_end(0), Some(3_600_400));
    }

    /// The wall clock was set back by an hour since the reservation began, so that its row seems to
    /// have that much more.
    #[track_caller]
    fn assert_ends_in_time(change: impl FnOnce(&mut Reservations)) {
        let mut known = Reservations::default();
        known.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        known.committed();
        change(&mut known);
        let row = Reservation {
            id: 1,
            reserved_by: "ann".into(),
            token_hash: "h".into(),
            until: 3_600_500,
            expires: 1_000_500,
        };
        let read = || Reservations::new([(Scope::All, row.clone())], 2);
        // The part of a request is taken back, then the whole transaction.
        let again = read().with_times_of(known);
        assert_eq!(again.next_end(0), Some(500));
        assert_eq!(read().with_times_of(again).next_end(0), Some(500));
    }

    #[test]
    fn a_reservation_whose_end_is_taken_back_ends_no_later_for_a_clock_that_was_set() {
        assert_ends_in_time(|all| assert_eq!(all.expire(at(500), false).len(), 1));
        assert_ends_in_time(|all| assert_eq!(all.expire(at(10), true).len(), 1));
        assert_ends_in_time(|all| assert!(all.release(1, None, at(10)).is_ok()));
        assert_ends_in_time(|all| assert!(all.renew(1, "h", 9_000, at(10)).is_ok()));
        assert_ends_in_time(|all| {
            let next = all.begin(Scope::All, ("bob", "i".into()), 9_000, at(600));
            assert_eq!(next.map(|changes| changes.len()), Ok(2));
        });
    }

    #[test]
    fn a_reservation_that_got_more_time_and_is_read_again_ends_when_it_would_have_ended() {
        let mut known = Reservations::default();
        known.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        known.renew(1, "h", 9_000, at(10)).expect("its holder's");
        known.committed();
        let row = Reservation { until: 3_600_500, ..known.active[&Scope::All].clone() };
        assert_eq!(row.expires, 1_009_010, "as its row says");
        let read = Reservations::new([(Scope::All, row)], 2).with_times_of(known);
        assert_eq!(read.next_end(0), Some(9_010));
    }

    #[test]
    fn what_is_on_disk_is_not_remembered_of_a_reservation() {
        let mut all = Reservations::default();
        all.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        all.release(1, None, at(1)).expect("it is active");
        assert_ne!(all, Reservations::new([], 2));
        all.committed();
        assert_eq!(all, Reservations::new([], 2));
    }

    #[test]
    fn scopes_are_written_as_they_are_read() {
        for text in ["all", "workflow:7", "limit:a:b"] {
            assert_eq!(Scope::parse(text).map(|scope| scope.to_string()).as_deref(), Some(text));
        }
        for wrong in ["", "none", "workflow:x", "limit:", "host:a"] {
            assert_eq!(Scope::parse(wrong), None, "{wrong}");
        }
        let mut limits = Reservations::default();
        limits.begin(Scope::Limit("gpu".into()), ("a", String::new()), 5, at(0)).expect("free");
        assert!(limits.pauses_limit("gpu") && !limits.pauses_limit("cpu"));
        assert!(limits.pausing(WorkflowId(1), 0).is_none(), "it pauses no workflow");
    }

    #[test]
    fn reservations_end_at_their_time_and_free_their_scope() {
        let mut all = Reservations::default();
        all.begin(Scope::All, ("ann", "h".into()), 500, at(0)).expect("free");
        all.begin(Scope::Workflow(WorkflowId(7)), ("bob", "i".into()), 300, at(0)).expect("free");
        let refused = all.begin(Scope::All, ("bob", "i".into()), 1, at(0)).expect_err("held");
        assert_eq!(refused.message, words::message("reservation 1 of ann holds `all`"));
        assert_eq!(refused.hint.as_deref(), Some("it ends in 0 s at the latest"));
        let ids = |due: Vec<(i64, Scope)>| due.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(all.due(299, false)), [0; 0]);
        assert_eq!((ids(all.due(300, false)), ids(all.due(0, true))), (vec![2], vec![1, 2]));
        assert_eq!((all.next_end(0), all.next_end(300)), (Some(300), Some(500)));
        let ended =
            |id| ReservationChange::Ended { id, status: ReservationStatus::Expired, at: 1_000_300 };
        assert_eq!(all.expire(at(300), false), [ended(2)]);
        assert_eq!(all.expire(at(300), false), []);
        assert_eq!(all.pausing(WorkflowId(7), 300).map(|r| r.id), Some(1));
        assert_eq!(all.expire(at(300), true), [ended(1)]);
        assert_eq!(all.pausing(WorkflowId(7), 300), None);
        let begun = all.begin(Scope::All, ("ann", "h".into()), 50, at(400)).expect("free");
        let began = ReservationChange::Began {
            id: 3,
            scope: Scope::All,
            reserved_by: "ann".into(),
            token_hash: "h".into(),
            at: 1_000_400,
            expires: 1_000_450,
        };
        assert_eq!(begun, [began]);
        let renewed = ReservationChange::Renewed { id: 3, expires: 1_000_430 };
        assert_eq!(all.renew(3, "h", 20, at(410)), Ok(renewed));
        assert_eq!(all.next_end(410), Some(430));
        let released =
            ReservationChange::Ended { id: 3, status: ReservationStatus::Released, at: 1_000_411 };
        assert_eq!(all.release(3, None, at(411)), Ok(released));
        all.committed();
        assert_eq!(all, Reservations::new([], 4));
        all.begin(Scope::All, ("ann", "h".into()), 9_000, at(500)).expect("free");
        let refused = all.begin(Scope::All, ("bob", "i".into()), 1, at(4_500)).expect_err("held");
        assert_eq!(refused.hint.as_deref(), Some("it ends in 5 s at the latest"));
    }
}
