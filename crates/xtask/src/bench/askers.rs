//! People who look at a workflow all the time: a steady stream of questions over a few connections.
//!
//! They share the processors with what is measured, so they are as cheap as can be: one thread, no
//! parsing. Each connection has one question under way; its answer is taken when it is that
//! connection's turn again.

use crate::Result;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use torc_client::discovery;
use torc_model::ids::WorkflowId;

/// When the next question comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moments {
    /// At random, as those who know nothing of each other do.
    Random,
    /// On an even beat. One of a millisecond keeps step with the ticks of the kernel's clock: how
    /// that beat happens to lie decides what it costs.
    Beat,
}

impl Moments {
    fn pause(self, usual: Duration) -> Duration {
        match self {
            // So long no request comes, if they come independently of each other.
            Self::Random => usual.mul_f64(-(1.0 - fastrand::f64()).ln()),
            Self::Beat => usual,
        }
    }
}

const CONNECTIONS: usize = 10;
/// An answer that takes longer will never come.
const PATIENCE: Duration = Duration::from_secs(10);

/// They ask until they are told to stop.
pub struct Askers {
    since: Instant,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Askers {
    /// Asks the server of a directory for the status of a workflow, once in each `pause` on
    /// average.
    pub fn start(dir: &Path, id: WorkflowId, moments: Moments, pause: Duration) -> Result<Self> {
        let file = discovery::read_server_file(&dir.join(discovery::STATE_DIR))?;
        let host = file.url.split('/').nth(2).ok_or("the server's address has no host")?.to_owned();
        let path = format!("/torc-service/v1/workflows/{id}/status");
        let question = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
            file.token
        );
        let connections =
            (0..CONNECTIONS).map(|_| AskerConnection::open(&host)).collect::<Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            ask(connections, question.as_bytes(), || moments.pause(pause), &stopped)
        });
        Ok(Self { since: Instant::now(), stop, thread })
    }

    /// How many answers there were in each second.
    pub fn stop(self) -> Result<f64> {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.thread.join().map_err(|_| "those who ask broke down")??;
        Ok(answers as f64 / self.since.elapsed().as_secs_f64())
    }
}

fn ask(
    mut connections: Vec<AskerConnection>,
    question: &[u8],
    pause: impl Fn() -> Duration,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut answers = 0;
    let mut next = Instant::now();
    for turn in (0..CONNECTIONS).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // A client that is late does not ask less.
        next += pause();
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        answers += u64::from(connections[turn].take_answer()?);
        connections[turn].ask(question)?;
    }
    for connection in &mut connections {
        answers += u64::from(connection.take_answer()?);
    }
    Ok(answers)
}

struct AskerConnection {
    stream: TcpStream,
    is_asked: bool,
    answer: Vec<u8>,
}

impl AskerConnection {
    fn open(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, is_asked: false, answer: Vec::new() })
    }

    fn ask(&mut self, question: &[u8]) -> Result<()> {
        self.stream.write_all(question)?;
        self.is_asked = true;
        Ok(())
    }

    /// Takes the whole answer, if one is due. Anything but a good one is an error.
    fn take_answer(&mut self) -> Result<bool> {
        if !std::mem::take(&mut self.is_asked) {
            return Ok(false);
        }
        self.answer.clear();
        let mut part = [0; 4096];
        while whole(&self.answer).is_none_or(|length| self.answer.len() < length) {
            match self.stream.read(&mut part)? {
                0 => return Err("the server closed a connection".into()),
                read => self.answer.extend_from_slice(&part[..read]),
            }
        }
        if !self.answer.starts_with(b"HTTP/1.1 200 ") {
            return Err(
                format!("the server answered {}", String::from_utf8_lossy(&self.answer)).into()
            );
        }
        Ok(true)
    }
}

/// How long an answer is in all, as soon as its head is there.
fn whole(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let length = text.lines().filter_map(|line| line.split_once(':'));
    let length = length
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, n)| n.trim().parse::<usize>().ok());
    Some(head + length?)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn the_length_of_an_answer_is_known_with_its_head() {
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"), None);
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{"), Some(40));
    }
}
