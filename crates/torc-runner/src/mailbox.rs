//! How other threads and tasks send messages to the thread that has the state.

use crate::sys::{Poller, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// The sending side; cheap to clone.
pub struct Mailbox<T> {
    sender: mpsc::Sender<T>,
    bell: Arc<Bell>,
}

struct Bell {
    wake: Wake,
    /// Rung and not yet heard: one system call serves all messages of a moment.
    is_rung: AtomicBool,
}

/// The receiving side.
pub struct Inbox<T> {
    receiver: mpsc::Receiver<T>,
    bell: Arc<Bell>,
    /// What the poller says when the bell rings.
    key: u64,
}

/// Makes both sides. The owner joins a poller with [`Inbox::join`] and is known there by `key`.
pub fn mailbox<T>(key: u64) -> io::Result<(Mailbox<T>, Inbox<T>)> {
    let (sender, receiver) = mpsc::channel();
    let bell = Arc::new(Bell { wake: Wake::new()?, is_rung: AtomicBool::new(false) });
    Ok((Mailbox { sender, bell: bell.clone() }, Inbox { receiver, bell, key }))
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<T> Mailbox<T> {
    /// Leaves a message that the owner finds when it next looks for another reason.
    pub fn send_quietly(&self, message: T) {
        let _ = self.sender.send(message);
    }

    /// Leaves a message. When the owner has gone the message is dropped.
    pub fn send(&self, message: T) {
        if self.sender.send(message).is_ok() && !self.bell.is_rung.swap(true, Ordering::AcqRel) {
            self.bell.wake.ring();
        }
    }
}

impl<T> Inbox<T> {
    /// From now on the poller wakes up for messages.
    pub fn join(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.bell.wake, self.key)
    }

    /// Takes all messages that are there; `ready` is what the poller has just said.
    ///
    /// The bell counts as heard only by the thread that the poller told: as long as one has yet to
    /// be told, no sender need ring again.
    pub fn take(&self, ready: &[u64], messages: &mut Vec<T>) {
        if ready.contains(&self.key) {
            // Before looking, so that a sender after the look rings again.
            self.bell.is_rung.store(false, Ordering::Release);
        }
        messages.extend(self.receiver.try_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn wait(poller: &Poller, time: Duration) -> Vec<u64> {
        let mut ready = Vec::new();
        poller.wait(Some(time), &mut ready).unwrap();
        ready
    }

    #[test]
    fn no_message_is_missed_whatever_the_order_of_ringing_and_hearing() {
        let (sender, inbox) = mailbox::<u32>(7).unwrap();
        let poller = Poller::new().unwrap();
        inbox.join(&poller).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..5000).for_each(|n| sender.send(n)))
            })
            .collect();
        let mut messages = Vec::new();
        let begun = std::time::Instant::now();
        while messages.len() < 20_000 {
            // Waking up for nothing is fine: who rings may be overtaken by who looks. Not waking up
            // is not.
            let ready = wait(&poller, Duration::from_secs(10));
            inbox.take(&ready, &mut messages);
            assert!(begun.elapsed() < Duration::from_secs(60), "stuck at {}", messages.len());
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        // A sender that was overtaken has rung by now.
        inbox.take(&wait(&poller, Duration::ZERO), &mut messages);
        assert!(wait(&poller, Duration::ZERO).is_empty(), "it rings although there is nothing");
    }

    #[test]
    fn a_bell_that_rings_after_its_message_was_found_is_heard_once_and_rings_again() {
        let (sender, inbox) = mailbox::<u32>(7).unwrap();
        let poller = Poller::new().unwrap();
        inbox.join(&poller).unwrap();
        let mut messages = Vec::new();
        // A sender that is held up just before it rings, while the owner is up for another reason.
        sender.sender.send(1).unwrap();
        sender.bell.is_rung.store(true, Ordering::SeqCst);
        inbox.take(&[], &mut messages);
        assert_eq!(messages, [1]);
        sender.bell.wake.ring();
        let ready = wait(&poller, Duration::ZERO);
        assert_eq!(ready, [7]);
        inbox.take(&ready, &mut messages);
        assert!(wait(&poller, Duration::ZERO).is_empty());
        sender.send(2);
        assert_eq!(wait(&poller, Duration::ZERO), [7]);
    }
}
