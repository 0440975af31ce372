//! How other threads and tasks send messages to the thread that has the state.

use crate::sys::{Poller, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// The sending side; cheap to clone.
pub struct Mailbox<T> {
    sender: mpsc::Sender<T>,
    flag: Arc<WakeFlag>,
}

struct WakeFlag {
    wake: Wake,
    /// Set and not yet seen by the owner: one system call serves all messages of a moment.
    is_set: AtomicBool,
}

/// The receiving side.
pub struct Inbox<T> {
    receiver: mpsc::Receiver<T>,
    flag: Arc<WakeFlag>,
    /// What the poller says when the flag was set.
    key: u64,
}

/// Makes both sides. The owner joins a poller with [`Inbox::join`] and is known there by `key`.
pub fn mailbox<T>(key: u64) -> io::Result<(Mailbox<T>, Inbox<T>)> {
    let (sender, receiver) = mpsc::channel();
    let flag = Arc::new(WakeFlag { wake: Wake::new()?, is_set: AtomicBool::new(false) });
    Ok((Mailbox { sender, flag: flag.clone() }, Inbox { receiver, flag, key }))
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), flag: self.flag.clone() }
    }
}

impl<T> Mailbox<T> {
    /// Leaves a message that the owner finds when it next looks for another reason.
    pub fn send_quietly(&self, message: T) {
        let _ = self.sender.send(message);
    }

    /// Leaves a message. When the owner has gone the message is dropped.
    pub fn send(&self, message: T) {
        if self.sender.send(message).is_ok() && !self.flag.is_set.swap(true, Ordering::AcqRel) {
            self.flag.wake.signal();
        }
    }
}

impl<T> Inbox<T> {
    /// From now on the poller wakes up for messages.
    pub fn join(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.flag.wake, self.key)
    }

    /// Takes all messages that are there; `ready` is what the poller has just said.
    ///
    /// The flag counts as seen only by the thread that the poller told: as long as one has yet to
    /// be told, no sender need wake it again.
    pub fn take(&self, ready: &[u64], messages: &mut Vec<T>) {
        if ready.contains(&self.key) {
            // Before looking, so that a sender after the look wakes the owner again.
            self.flag.is_set.store(false, Ordering::Release);
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
    fn no_message_is_missed_whatever_the_order_of_waking_and_looking() {
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
            // Waking up for nothing is fine: a sender may be overtaken by the owner's look. Not waking up
            // is not.
            let ready = wait(&poller, Duration::from_secs(10));
            inbox.take(&ready, &mut messages);
            assert!(begun.elapsed() < Duration::from_secs(60), "stuck at {}", messages.len());
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        // A sender that was overtaken has woken the owner by now.
        inbox.take(&wait(&poller, Duration::ZERO), &mut messages);
        assert!(
            wait(&poller, Duration::ZERO).is_empty(),
            "the poller reports although there is nothing"
        );
    }

    #[test]
    fn a_wake_after_its_message_was_found_is_seen_once_and_the_next_one_too() {
        let (sender, inbox) = mailbox::<u32>(7).unwrap();
        let poller = Poller::new().unwrap();
        inbox.join(&poller).unwrap();
        let mut messages = Vec::new();
        // A sender that is held up just before it wakes the owner, while the owner is up for another reason.
        sender.sender.send(1).unwrap();
        sender.flag.is_set.store(true, Ordering::SeqCst);
        inbox.take(&[], &mut messages);
        assert_eq!(messages, [1]);
        sender.flag.wake.signal();
        let ready = wait(&poller, Duration::ZERO);
        assert_eq!(ready, [7]);
        inbox.take(&ready, &mut messages);
        assert!(wait(&poller, Duration::ZERO).is_empty());
        sender.send(2);
        assert_eq!(wait(&poller, Duration::ZERO), [7]);
    }
}
