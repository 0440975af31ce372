//! A wire between a runner and the server that can be cut, slowed down, made deaf in one direction,
//! made to repeat what it carries, or torn in the middle of an answer.

use crate::space::NetworkSpace;
use socket2::SockRef;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a wire does to what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nothing gets through; what was sent arrives when it is over.
    Partition,
    /// Requests are lost, and the connection with them.
    LostRequests,
    /// Requests arrive and are carried out; answers are lost.
    LostAnswers,
    /// Everything arrives late.
    Delay,
    /// Every request arrives twice, over two connections.
    Duplicate,
    /// The connection is reset in the middle of an answer.
    Reset,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Partition,
        Self::LostRequests,
        Self::LostAnswers,
        Self::Delay,
        Self::Duplicate,
        Self::Reset,
    ];

    /// For the figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::LostRequests => "lost requests",
            Self::LostAnswers => "lost answers",
            Self::Delay => "delay",
            Self::Duplicate => "duplicates",
            Self::Reset => "resets",
        }
    }
}

/// How late, when everything is late.
const LATE: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

/// Longer than the lease, and than the shortest deadline after which a runner is given up.
pub const LONG: Duration = Duration::from_secs(65);

#[derive(Clone, Copy)]
struct Now {
    trouble: Trouble,
    until: Instant,
    is_long: bool,
}

#[derive(Default)]
struct State {
    /// What is wrong, and until when.
    trouble: Mutex<Option<Now>>,
    changed: Condvar,
}

impl State {
    fn now(&self) -> Option<Trouble> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.filter(|now| Instant::now() < now.until).map(|now| now.trouble)
    }

    /// Waits until nothing is held back any more.
    fn pass(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Now { trouble: Trouble::Partition, until, .. }) = *trouble {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(trouble, left);
            trouble = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Where the server listens.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its network.
    pub space: NetworkSpace,
    /// Its port.
    pub port: u16,
}

impl Server {
    fn connect(&self) -> io::Result<TcpStream> {
        self.space.inside(|| TcpStream::connect(("127.0.0.1", self.port)))
    }
}

/// The wire of one runner.
pub struct Wire {
    /// Where the runner finds the server.
    pub port: u16,
    state: Arc<State>,
}

impl Wire {
    /// Leads from one network to a port of the server's, until the process ends.
    pub fn start(from: &NetworkSpace, server: Server) -> io::Result<Self> {
        let listener = from.inside(|| TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let ours = state.clone();
        std::thread::Builder::new().name("wire".into()).spawn(move || {
            for runner in listener.incoming().flatten() {
                let (state, server) = (ours.clone(), server.clone());
                // A connection that breaks is what this is for.
                std::thread::spawn(move || connect(runner, &server, &state));
            }
        })?;
        Ok(Self { port, state })
    }

    /// Something is wrong with it for a while. False when something is wrong already that lasts longer
    /// than every lease: that goes on.
    pub fn trouble(&self, trouble: Trouble, lasts: Duration) -> bool {
        let mut now = self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_some_and(|now| now.is_long && Instant::now() < now.until) {
            return false;
        }
        *now = Some(Now { trouble, until: Instant::now() + lasts, is_long: lasts >= LONG });
        drop(now);
        self.state.changed.notify_all();
        true
    }

    /// Something is wrong with it that lasts longer than every lease.
    pub fn has_long_trouble(&self) -> bool {
        let now = self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        now.is_some_and(|now| now.is_long && Instant::now() < now.until)
    }

    /// It is whole again.
    pub fn mend(&self) {
        *self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.state.changed.notify_all();
    }
}

fn connect(runner: TcpStream, server: &Server, state: &Arc<State>) -> io::Result<()> {
    state.pass();
    let to_server = server.connect()?;
    let (answers, to_runner) = (to_server.try_clone()?, runner.try_clone()?);
    let (theirs, again) = (state.clone(), server.clone());
    let back = std::thread::spawn(move || {
        let _ = pump(answers, to_runner, Direction::Answers, &again, &theirs);
    });
    let result = pump(runner, to_server, Direction::Requests, server, state);
    let _ = back.join();
    result
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    direction: Direction,
    server: &Server,
    state: &State,
) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    let mut twin: Option<TcpStream> = None;
    loop {
        let n = from.read(&mut buffer)?;
        state.pass();
        let data = &buffer[..n];
        if n == 0 {
            return to.shutdown(Shutdown::Write);
        }
        match (state.now(), direction) {
            (Some(Trouble::LostRequests), Direction::Requests)
            | (Some(Trouble::LostAnswers), Direction::Answers) => return cut(&from, &to),
            (Some(Trouble::Reset), Direction::Answers) => {
                to.write_all(&data[..n / 2])?;
                return cut(&from, &to);
            }
            (Some(Trouble::Delay), _) => std::thread::sleep(LATE),
            (Some(Trouble::Duplicate), Direction::Requests) => {
                if twin.is_none() {
                    twin = Some(second(server)?);
                }
                if let Some(twin) = &mut twin {
                    // The server may end the second connection when it likes.
                    let _ = twin.write_all(data);
                }
            }
            _ => twin = None,
        }
        to.write_all(data)?;
    }
}

/// A second connection whose answers are thrown away.
fn second(server: &Server) -> io::Result<TcpStream> {
    let stream = server.connect()?;
    let mut answers = stream.try_clone()?;
    std::thread::spawn(move || io::copy(&mut answers, &mut io::sink()));
    Ok(stream)
}

/// Ends both sides at once, with a reset where the kernel can send one.
fn cut(one: &TcpStream, other: &TcpStream) -> io::Result<()> {
    for stream in [one, other] {
        SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
        // Wakes the thread of the other direction; what is lost is lost by the reset.
        let _ = stream.shutdown(Shutdown::Read);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every byte that it gets with `12`.
    fn server() -> (u16, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(0));
        let ours = heard.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let heard = ours.clone();
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap_or(0) == 1 {
                        *heard.lock().unwrap() += 1;
                        let _ = stream.write_all(b"12");
                    }
                });
            }
        });
        (port, heard)
    }

    fn ask(wire: &Wire) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", wire.port))?;
        stream.write_all(b"?")?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map(|_| answer)
    }

    #[test]
    fn each_trouble_does_what_its_name_says() {
        let long = Duration::from_secs(60);
        let (port, heard) = server();
        let here = NetworkSpace::default();
        let wire = Wire::start(&here, Server { space: here.clone(), port }).unwrap();
        let count = || *heard.lock().unwrap();
        assert_eq!(ask(&wire).unwrap(), b"12");
        assert_eq!(count(), 1);
        wire.trouble(Trouble::LostRequests, long);
        assert!(ask(&wire).unwrap_or_default().is_empty());
        assert_eq!(count(), 1, "the request was lost");
        wire.trouble(Trouble::LostAnswers, long);
        assert!(ask(&wire).unwrap_or_default().is_empty());
        assert_eq!(count(), 2, "it was carried out");
        wire.trouble(Trouble::Reset, long);
        assert_ne!(ask(&wire).unwrap_or_default(), b"12");
        assert_eq!(count(), 3);
        wire.trouble(Trouble::Duplicate, long);
        assert_eq!(ask(&wire).unwrap(), b"12");
        let deadline = Instant::now() + long;
        while count() < 5 {
            assert!(Instant::now() < deadline, "the second one does not arrive");
            std::thread::yield_now();
        }
        let lasts = Duration::from_millis(300);
        let begin = Instant::now();
        wire.trouble(Trouble::Partition, lasts);
        assert_eq!(ask(&wire).unwrap(), b"12", "what was sent arrives when it is over");
        assert!(begin.elapsed() >= lasts);
        wire.trouble(Trouble::Partition, long);
        wire.mend();
        assert_eq!(ask(&wire).unwrap(), b"12");
        assert!(wire.trouble(Trouble::Partition, LONG) && wire.has_long_trouble());
        assert!(!wire.trouble(Trouble::Delay, lasts), "what lasts longest is not cut short");
        assert_eq!(wire.state.now(), Some(Trouble::Partition));
    }
}
