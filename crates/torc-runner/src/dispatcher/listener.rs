//! The long poll by which the server tells of new work, cancels and actions.

use super::HASTY;
use std::time::{Duration, Instant};

/// The longest pause after a listener that was answered too soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether the listener is out, and when it may be sent again.
pub(super) struct Listener {
    is_out: bool,
    sent_at: Instant,
    not_before: Option<Instant>,
    /// How long to wait after the next answer that comes too soon.
    pause: Duration,
}

impl Listener {
    pub fn new(now: Instant) -> Self {
        Self { is_out: false, sent_at: now, not_before: None, pause: HASTY }
    }

    /// When a listener may be sent that has to wait.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.is_out)
    }

    /// True if a listener is to be sent now; it counts as sent then.
    pub fn send_if_due(&mut self, now: Instant) -> bool {
        if self.is_out || self.not_before.is_some_and(|at| now < at) {
            return false;
        }
        (self.is_out, self.sent_at) = (true, now);
        true
    }

    /// The server has answered. A server that has nothing and does not wait either must not be
    /// asked in a circle: the pauses after such answers grow.
    pub fn on_answer(&mut self, has_news: bool, now: Instant) {
        self.is_out = false;
        if has_news || self.sent_at + HASTY <= now {
            (self.not_before, self.pause) = (None, HASTY);
        } else {
            self.not_before = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }
}
