//! What one attempt prints, shown line by line while it runs. The runner is in this process, so the
//! logs are files of this machine, and the kernel (inotify) tells when they grow.

use super::job_output::Tagger;
use crate::error::{Error, Result};
use crate::output::{self, raw::RawWriter};
use rustix::fs::inotify;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use torc_model::ids::{AttemptId, JobId, WorkflowId};

/// Bytes that are read at once; a longer line is shown in pieces.
const PIECE: usize = 64 << 10;
/// A job that prints all the time is shown this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Where the kernel has no watch left, the size of the logs is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Where the runner of this process keeps the logs of a run.
#[derive(Clone, Debug)]
pub struct StreamPlace {
    pub output_dir: PathBuf,
    pub workflow: WorkflowId,
    pub run: i64,
}

/// The logs of an attempt that runs.
pub struct JobStream {
    pub attempt: AttemptId,
    logs: Vec<StreamLog>,
    growth: Option<Growth>,
    shown_at: Instant,
}

/// Tells when a log has grown, by a thread that reads what the kernel says.
struct Growth {
    kernel: Arc<OwnedFd>,
    watches: Vec<i32>,
    grew: Arc<Notify>,
}

struct StreamLog {
    path: PathBuf,
    file: File,
    /// Bytes that are shown.
    offset: u64,
    sink: LineSink,
    tagger: Tagger,
}

enum LineSink {
    Stdout(RawWriter),
    Stderr,
}

impl JobStream {
    /// `None` if the attempt keeps no log. `number` is the number of the attempt among those of its
    /// job.
    pub fn open(
        place: &StreamPlace,
        (attempt, job, number): (AttemptId, JobId, i64),
        tag: Option<&str>,
    ) -> Option<Self> {
        let mut growth = Growth::begin();
        let mut open = |ending: &str| {
            let of = (job, place.run, number);
            let path = torc_runner::log_path(&place.output_dir, place.workflow, of, ending);
            // A job may replace its log: only a regular file, and never something that blocks.
            let file = torc_fs::open(&path, torc_fs::Trust::Log).ok()?;
            if let Some(growth) = &mut growth {
                // Without a watch the file is read when another one grows, at the latest at its end.
                let watch = inotify::add_watch(&growth.kernel, &path, inotify::WatchFlags::MODIFY);
                growth.watches.extend(watch);
            }
            let sink =
                if ending == ".e" { LineSink::Stderr } else { LineSink::Stdout(RawWriter::new()) };
            let tagger = Tagger::new(tag.map(str::to_owned));
            Some(StreamLog { path, file, offset: 0, sink, tagger })
        };
        let logs: Vec<StreamLog> = [".o", ".log", ".e"].into_iter().filter_map(&mut open).collect();
        // What was printed before the watch began is there now.
        if let Some(growth) = &growth {
            growth.grew.notify_one();
        }
        let shown_at = Instant::now();
        (!logs.is_empty()).then_some(Self { attempt, logs, growth, shown_at })
    }

    /// Waits until something was printed that is not shown. Safe to drop and call again.
    pub async fn grew(&self) {
        tokio::time::sleep_until(self.shown_at + LOOK_EVERY).await;
        match &self.growth {
            Some(growth) if !growth.watches.is_empty() => growth.grew.notified().await,
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }

    /// Shows every whole line that is new.
    pub fn show(&mut self) -> Result<()> {
        self.shown_at = Instant::now();
        self.logs.iter_mut().try_for_each(|log| log.pass_on(false))
    }

    /// The attempt has ended: shows what is left, too.
    pub fn finish(&mut self) -> Result<()> {
        self.logs.iter_mut().try_for_each(|log| log.pass_on(true))
    }
}

impl Growth {
    /// `None` where the user has no watches left (`fs.inotify.max_user_instances`).
    fn begin() -> Option<Self> {
        let kernel = Arc::new(inotify::init(inotify::CreateFlags::CLOEXEC).ok()?);
        let grew = Arc::new(Notify::new());
        let (read, told) = (kernel.clone(), grew.clone());
        let thread = std::thread::Builder::new().name("log growth".into());
        let thread = thread.spawn(move || {
            let mut buffer = [MaybeUninit::uninit(); 1024];
            let mut events = inotify::Reader::new(&*read, &mut buffer);
            // Which log it was does not matter: all of them are read. The kernel says `IGNORED` when a
            // watch is taken away, which is how this thread is told to end.
            while events.next().is_ok_and(|e| !e.events().contains(inotify::ReadFlags::IGNORED)) {
                told.notify_one();
            }
        });
        thread.is_ok().then_some(Self { kernel, watches: Vec::new(), grew })
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        // A thread without a watch would wait for ever: it gets one that is taken away at once.
        let none = inotify::add_watch(&self.kernel, "/", inotify::WatchFlags::DELETE_SELF);
        for watch in self.watches.iter().copied().chain(none) {
            // The file may be gone, and its watch with it.
            let _ = inotify::remove_watch(&self.kernel, watch);
        }
    }
}

impl StreamLog {
    fn pass_on(&mut self, is_end: bool) -> Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = self
                .file
                .read_at(&mut piece, self.offset)
                .map_err(Error::io("read", &self.path))?;
            let new = &piece[..length];
            let lines = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let whole = if is_end || (lines == 0 && length == PIECE) { length } else { lines };
            if whole == 0 {
                break;
            }
            self.offset += whole as u64;
            self.write(whole, &piece)?;
        }
        if is_end {
            if !self.tagger.is_at_begin {
                self.write_bytes(b"\n")?;
            }
            if let LineSink::Stdout(writer) = &mut self.sink {
                writer.finish()?;
            }
        }
        Ok(())
    }

    fn write(&mut self, length: usize, piece: &[u8]) -> Result<()> {
        let tagged = self.tagger.apply(&piece[..length]).into_owned();
        self.write_bytes(&tagged)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.sink {
            LineSink::Stdout(writer) => writer.write(bytes),
            LineSink::Stderr => {
                output::write_talk(bytes);
                Ok(())
            }
        }
    }
}
