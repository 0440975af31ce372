//! How other threads and tasks speak to the thread that owns all state.

use crate::sys::Wake;
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
}

/// Makes both sides.
pub fn mailbox<T>() -> io::Result<(Mailbox<T>, Inbox<T>)> {
    let (sender, receiver) = mpsc::channel();
    let bell = Arc::new(Bell { wake: Wake::new()?, is_rung: AtomicBool::new(false) });
    Ok((Mailbox { sender, bell: bell.clone() }, Inbox { receiver, bell }))
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

    /// Leaves a message. When the owner has gone there is nobody left whom it could concern.
    pub fn send(&self, message: T) {
        if self.sender.send(message).is_ok() && !self.bell.is_rung.swap(true, Ordering::AcqRel) {
            self.bell.wake.ring();
        }
    }
}

impl<T> Inbox<T> {
    /// Readable when there are messages.
    pub fn wake(&self) -> &Wake {
        &self.bell.wake
    }

    /// Takes all messages that are there. Call it until it gives nothing before waiting for [`Inbox::wake`].
    pub fn take(&self, messages: &mut Vec<T>) {
        if self.bell.is_rung.load(Ordering::Acquire) {
            self.bell.wake.clear();
            // Before looking, so that whoever comes after the look rings again.
            self.bell.is_rung.store(false, Ordering::Release);
        }
        messages.extend(self.receiver.try_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Poller;

    #[test]
    fn no_message_is_missed_whatever_the_order_of_ringing_and_hearing() {
        let (sender, inbox) = mailbox::<u32>().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(inbox.wake(), 0).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..5000).for_each(|n| sender.send(n)))
            })
            .collect();
        let mut messages = Vec::new();
        let begun = std::time::Instant::now();
        while messages.len() < 20_000 {
            poller.wait(Some(std::time::Duration::from_secs(10)), &mut Vec::new()).unwrap();
            // Waking up for nothing is fine: who rings may be overtaken by who looks. Not waking up is not.
            inbox.take(&mut messages);
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "stuck at {}", messages.len());
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
