//! Open pages, without their browsers: those are on other machines, and would take the processors
//! from what is measured here. Each reads the pulse and asks for what its place shows, as often as
//! `crates/torc-server/page` does.

use crate::Result;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use torc_client::discovery;
use torc_model::ids::WorkflowId;

/// How often a thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// An answer that takes longer will never come.
const PATIENCE: Duration = Duration::from_secs(30);
/// One page each: what it asks for, and how often, in ms. The jobs are loaded anew with each frame of
/// the pulse.
const PLACES: [(u64, &[&str]); 5] = [
    (5000, &["families", "resources", "failures", "forecast", "NODES"]),
    (500, &["JOBS"]),
    (4000, &["failures"]),
    (5000, &["timeline", "families"]),
    (5000, &["graph", "critical_path", "resources"]),
];

/// Pages that are open until they are closed.
pub struct Pages {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64>>>,
}

impl Pages {
    /// How many there are.
    pub const COUNT: usize = PLACES.len();

    /// Opens them on a workflow of the server of a directory.
    pub fn open(dir: &Path, id: WorkflowId) -> Result<Self> {
        let file = discovery::read_server_file(&dir.join(discovery::STATE_DIR))?;
        let host = file.url.split('/').nth(2).ok_or("the server's address has no host")?.to_owned();
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (every, names) in PLACES {
            let path = |name: &&str| match *name {
                "JOBS" => format!("jobs?workflow_id={id}&limit=100&sort_by=id&include_last=true"),
                "NODES" => format!("compute_nodes?workflow_id={id}&is_active=true&limit=20"),
                other => format!("workflows/{id}/{other}"),
            };
            let asks = names.iter().map(path).map(|path| request(&host, &file.token, &path));
            let asks: Vec<String> = asks.collect();
            let (to, stopped) = (host.clone(), stop.clone());
            let every = Duration::from_millis(every);
            threads.push(std::thread::spawn(move || poll(&to, &asks, every, &stopped)));
            let pulse = request(&host, &file.token, &format!("workflows/{id}/pulse"));
            let (to, stopped) = (host.clone(), stop.clone());
            threads.push(std::thread::spawn(move || follow(&to, &pulse, &stopped)));
        }
        Ok(Self { stop, threads })
    }

    /// Closes them. How many bytes they got.
    pub fn close(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut bytes = 0;
        for thread in self.threads {
            bytes += thread.join().map_err(|_| "a page broke down")??;
        }
        Ok(bytes)
    }
}

fn request(host: &str, token: &str, path: &str) -> String {
    format!(
        "GET /torc-service/v1/{path} HTTP/1.1\r\nHost: {host}\r\nX-Torc-Token: {token}\r\nConnection: close\r\n\r\n"
    )
}

fn asked(host: &str, request: &str, patience: Duration) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Asks for everything in turn, then waits.
fn poll(host: &str, requests: &[String], every: Duration, stop: &AtomicBool) -> Result<u64> {
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        for request in requests {
            let mut answer = Vec::new();
            asked(host, request, PATIENCE)?.read_to_end(&mut answer)?;
            if !answer.starts_with(b"HTTP/1.1 200") {
                let head = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
                return Err(format!("a page was refused: {request}{head}").into());
            }
            bytes += answer.len() as u64;
        }
        while begun.elapsed() < every && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK.min(every));
        }
    }
    Ok(bytes)
}

/// Reads the stream to its end.
fn follow(host: &str, request: &str, stop: &AtomicBool) -> Result<u64> {
    let mut stream = asked(host, request, LOOK)?;
    let mut piece = [0; 16 << 10];
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => return Err("the pulse has ended".into()),
            Ok(length) => bytes += length as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
