//! Looks at the machine as a whole: CPUs, memory, GPUs and disk, every few seconds, into a file of
//! samples. A thread of its own, because `nvidia-smi` and a network file system may take seconds.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use torc_model::ids::WorkflowId;

/// A driver that hangs must not keep a process for each sample.
const GPU_PATIENCE: Duration = Duration::from_secs(10);

/// Ends the looks when dropped.
pub struct NodeMonitor {
    _stop: Sender<()>,
}

/// What to look at, and where to write it.
#[derive(Clone, Debug)]
pub struct NodeWatch {
    /// Samples, one line each.
    pub path: PathBuf,
    /// Workflows may share a directory.
    pub workflow_id: WorkflowId,
    /// Name of the machine.
    pub host: String,
    /// Its file system is looked at.
    pub disk: PathBuf,
    /// Between two looks.
    pub interval: Duration,
}

impl NodeMonitor {
    /// Begins to look.
    pub fn start(watch: NodeWatch) -> io::Result<Self> {
        let (stop, stopped) = channel();
        std::thread::Builder::new()
            .name("torc-node".into())
            .stack_size(512 << 10)
            .spawn(move || look_until(&watch, &stopped))?;
        Ok(Self { _stop: stop })
    }
}

fn look_until(watch: &NodeWatch, stopped: &Receiver<()>) {
    let mut cpu = CpuTimes::now();
    let mut gpus = Gpus::default();
    // The first look comes soon: an allocation may be shorter than the interval.
    let mut pause = watch.interval.min(Duration::from_secs(1));
    loop {
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        pause = watch.interval;
        let now = CpuTimes::now();
        let line = serde_json::json!({
            "timestamp_ms": crate::time::now_ms(),
            "workflow_id": watch.workflow_id,
            "host": watch.host,
            "cpu_percent": now.percent_since(&cpu),
            "num_cpus": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            "memory": memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            "disk": disk(&watch.disk),
            "gpus": gpus.look(),
        });
        cpu = now;
        let file = torc_fs::append_log(&watch.path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            tracing::warn!(path = %watch.path.display(), %error, "cannot keep what this machine uses");
        }
    }
}

/// Clock ticks of all CPUs since the machine started.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct CpuTimes {
    busy: u64,
    all: u64,
}

impl CpuTimes {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; guests count as user
    /// already.
    fn parse(text: &str) -> Self {
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("cpu ")) else {
            return Self::default();
        };
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|n| n.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - idle, all }
    }

    /// Use of all CPUs together, 100 is every one of them; `None` where no time has passed.
    fn percent_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(earlier.busy);
        Some((busy as f64 / all as f64 * 1000.0).round() / 10.0)
    }
}

fn memory(meminfo: &str) -> Option<serde_json::Value> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    let (total, available) = (bytes("MemTotal:")?, bytes("MemAvailable:")?);
    Some(serde_json::json!({
        "total_bytes": total, "used_bytes": total.saturating_sub(available),
    }))
}

fn disk(path: &Path) -> Option<serde_json::Value> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(serde_json::json!({
        "total_bytes": found.f_blocks.saturating_mul(found.f_frsize),
        "free_bytes": found.f_bavail.saturating_mul(found.f_frsize),
    }))
}

/// NVIDIA's program, where there is one.
#[derive(Default)]
struct Gpus {
    /// It is not there, or does not end.
    is_given_up: bool,
}

impl Gpus {
    fn look(&mut self) -> Vec<serde_json::Value> {
        if self.is_given_up {
            return Vec::new();
        }
        match ask_nvidia() {
            Ok(text) => text.lines().filter_map(parse_gpu).collect(),
            Err(error) => {
                self.is_given_up = true;
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "`nvidia-smi` does not answer; GPUs are not watched");
                }
                Vec::new()
            }
        }
    }
}

fn ask_nvidia() -> io::Result<String> {
    let query = "--query-gpu=index,utilization.gpu,memory.used,memory.total";
    let mut child = Command::new("nvidia-smi")
        .args([query, "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (answer, answered) = channel();
    let mut output = child.stdout.take().ok_or_else(|| io::Error::other("it has no pipe"))?;
    // Its end is the end of its output; a thread waits for that, so that this one can give up.
    std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        let mut text = Vec::new();
        let read = output.read_to_end(&mut text).map(|_| text);
        // The other side has given up.
        let _ = answer.send(read);
    })?;
    let Ok(read) = answered.recv_timeout(GPU_PATIENCE) else {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
    };
    let status = child.wait()?;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&read?).into_owned()),
        false => Err(io::Error::other(format!("it ended with {status}"))),
    }
}

/// `0, 37, 1024, 81920`; what a card does not tell is `[N/A]`.
fn parse_gpu(line: &str) -> Option<serde_json::Value> {
    let mut parts = line.split(',').map(str::trim);
    let index: u32 = parts.next()?.parse().ok()?;
    let mut number = || parts.next().and_then(|part| part.parse::<f64>().ok());
    let (percent, used, total) = (number(), number(), number());
    let bytes = |mebibytes: f64| (mebibytes * f64::from(1 << 20)) as u64;
    Some(serde_json::json!({
        "index": index,
        "percent": percent,
        "memory_used_bytes": used.map(bytes),
        "memory_total_bytes": total.map(bytes),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn use_is_what_was_not_idle_between_two_looks() {
        let before = CpuTimes::parse("cpu  100 0 100 700 100 0 0 0 5 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, CpuTimes { busy: 200, all: 1000 });
        let after = CpuTimes::parse("cpu  150 0 125 720 105 0 0 0 9 0\n");
        assert_eq!(after.percent_since(&before), Some(75.0));
        assert_eq!(after.percent_since(&after), None);
        assert_eq!(CpuTimes::parse(""), CpuTimes::default());
    }

    #[test]
    fn cards_are_read_as_far_as_they_tell() {
        let card = parse_gpu("1, 37, 1024, 81920").expect("a card");
        assert_eq!((card["index"].as_i64(), card["percent"].as_f64()), (Some(1), Some(37.0)));
        assert_eq!(card["memory_used_bytes"], 1_u64 << 30);
        let old = parse_gpu("0, [N/A], 5, 10").expect("a card");
        assert!(old["percent"].is_null() && old["memory_used_bytes"] == 5 << 20);
        assert_eq!(parse_gpu("No devices were found"), None);
    }

    #[test]
    fn a_machine_is_looked_at_until_the_monitor_is_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nodes_k.jsonl");
        let interval = Duration::from_millis(20);
        let (host, disk) = ("here".to_owned(), dir.path().to_owned());
        let watch =
            NodeWatch { path: path.clone(), workflow_id: WorkflowId(1), host, disk, interval };
        let monitor = NodeMonitor::start(watch).expect("a thread");
        let deadline = Instant::now() + Duration::from_secs(30);
        let lines = || fs::read_to_string(&path).unwrap_or_default();
        while lines().lines().count() < 3 && Instant::now() < deadline {
            std::thread::sleep(interval);
        }
        drop(monitor);
        let text = lines();
        let last: serde_json::Value =
            serde_json::from_str(text.lines().nth(2).expect("three samples")).expect("JSON");
        assert!(last["memory"]["used_bytes"].as_u64() > Some(0), "{last}");
        assert!(last["disk"]["total_bytes"].as_u64() > Some(0), "{last}");
        assert_eq!(last["host"], "here");
    }
}
