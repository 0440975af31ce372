//! The process layer with real shells.

use super::*;
use crate::cgroup::Cgroups;
use crate::mailbox::{Inbox, mailbox};
use crate::process::Sink;
use crate::procfs;
use std::collections::HashSet;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// Drives a supervisor until something has happened.
struct Bench {
    supervisor: Supervisor,
    tasks: Arc<Tasks>,
    inbox: Inbox<Done>,
    dir: TempDir,
    key: String,
    events: Vec<ProcessEvent>,
    next_id: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(Duration::from_secs(20), None, |_| None)
    }

    fn with(
        grace: Duration,
        sample_interval: Option<Duration>,
        cgroups: impl FnOnce(&str) -> Option<Cgroups>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = format!("test{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        sys::become_subreaper().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (answers, inbox) = mailbox(0).unwrap();
        let tasks = Arc::new(Tasks::default());
        let setup = Setup::new(&key, dir.path().into(), cgroups(&key)).unwrap();
        let rules = Rules::uniform(grace, Signal::TERM, sample_interval);
        let supervisor = Supervisor::new(setup, rules, tasks.clone(), answers).unwrap();
        inbox.join(supervisor.poller()).unwrap();
        Self { supervisor, tasks, inbox, dir, key, events: Vec::new(), next_id: 1 }
    }

    fn order(&mut self, text: &str) -> ProcessOrder {
        let id = self.next_id;
        self.next_id += 1;
        ProcessOrder {
            id,
            tag: format!("{}/{id}", self.key),
            text: text.into(),
            argv: Vec::new(),
            dir: None,
            stdin: None,
            env: Vec::new(),
            stdout: Sink::Create(self.path(&format!("{id}.o"))),
            stderr: Sink::Create(self.path(&format!("{id}.e"))),
            time_limit: None,
            memory_limit: None,
            shell: Default::default(),
            rest: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn step(&mut self, timeout: Duration) {
        let timeout = if self.tasks.is_empty() { timeout } else { Duration::ZERO };
        self.tasks.run_all();
        let now = Instant::now();
        let due = self.supervisor.next_alarm().map(|at| at.saturating_duration_since(now));
        let mut ready = Vec::new();
        self.supervisor
            .poller()
            .wait(Some(due.unwrap_or(timeout).min(timeout)), &mut ready)
            .unwrap();
        let mut done = Vec::new();
        self.inbox.take(&ready, &mut done);
        let now = Instant::now();
        for message in done {
            self.supervisor.on_done(message, now, &mut self.events);
        }
        for key in ready.into_iter().filter(|key| *key != 0) {
            self.supervisor.on_ready(key, now, &mut self.events);
        }
        self.supervisor.on_time(now, &mut self.events);
    }

    fn until(&mut self, what: &str, mut reached: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reached(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            self.step(Duration::from_millis(50));
        }
    }

    fn exit(&mut self, id: u64) -> ProcessExit {
        let find = |b: &Self| {
            b.events.iter().find_map(|e| match e {
                ProcessEvent::Ended(exit) if exit.id == id => Some((**exit).clone()),
                _ => None,
            })
        };
        self.until("the end of a process", |b| find(b).is_some());
        find(self).unwrap()
    }

    fn run(&mut self, order: ProcessOrder) -> ProcessExit {
        let id = order.id;
        self.supervisor.start(order, Instant::now());
        self.exit(id)
    }

    /// Waits for a file that a process makes to say that it is ready.
    fn until_file(&mut self, name: &str) {
        let path = self.path(name);
        self.until(name, |_| path.exists());
    }

    /// Living processes that carry a tag of this bench.
    fn tagged(&self) -> Vec<i32> {
        let table = ProcessTable::read().unwrap();
        let owner = torc_fence::RunnerOwner::new(&self.key);
        let ours = |p: &procfs::Process| !p.is_zombie && owner.owns(p.pid);
        table
            .descendants([i32::try_from(std::process::id()).unwrap()])
            .iter()
            .filter(|p| ours(p))
            .map(|p| p.pid)
            .collect()
    }
}

fn is_alive(pid: i32) -> bool {
    procfs::find_process(pid).is_some_and(|p| !p.is_zombie)
}

/// Runs a test in a process of its own: orphans without a tag would be swept by the supervisors of
/// other tests.
fn alone(name: &str, test: impl FnOnce()) {
    const MARK: &str = "ALONE_IN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([&format!("supervisor::tests::{name}"), "--exact", "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn an_exit_code_and_both_streams_are_kept() {
    let mut bench = Bench::new();
    let order = bench.order("echo out; echo err >&2; cat; exit 3");
    let exit = bench.run(order);
    assert_eq!(exit.how, How::Code(3));
    assert_eq!((bench.text("1.o"), bench.text("1.e")), ("out\n".into(), "err\n".into()));
    assert!(exit.stop.is_none() && exit.journal.is_empty() && exit.memory.is_none());
    assert!(exit.ended_ms >= exit.started_ms && exit.wall > Duration::ZERO);
    assert!(bench.supervisor.live.is_empty());
}

#[test]
fn a_signal_that_we_did_not_send_is_told_apart() {
    let mut bench = Bench::new();
    let order = bench.order("kill -SEGV $$");
    let exit = bench.run(order);
    assert_eq!((exit.how, exit.journal.len()), (How::Signal(11), 0));
}

#[test]
fn cpu_time_counts_children_and_grandchildren() {
    let mut bench = Bench::new();
    let order = bench.order("bash -c 'for i in {1..200000}; do :; done'; true");
    let exit = bench.run(order);
    assert!(exit.cpu > Duration::from_millis(50), "{:?}", exit.cpu);
}

#[test]
fn the_environment_is_given_and_ours_is_not() {
    let mut bench = Bench::new();
    let mut order = bench.order("echo \"$A $TORC_ATTEMPT_TAG\"; env | grep ^TORC_ | sort");
    order.env = vec![
        ("A".into(), "first".into()),
        ("A".into(), "x y".into()),
        ("TORC_JOB_ID".into(), "5".into()),
    ];
    let tag = order.tag.clone();
    bench.run(order);
    assert_eq!(bench.text("1.o"), format!("x y {tag}\nTORC_ATTEMPT_TAG={tag}\nTORC_JOB_ID=5\n"));
}

#[test]
fn streams_may_be_combined_or_dropped() {
    let mut bench = Bench::new();
    let mut order = bench.order("echo 1; echo 2 >&2; echo 3");
    order.stderr = Sink::SameAsStdout;
    bench.run(order);
    assert_eq!(bench.text("1.o"), "1\n2\n3\n");
    let mut order = bench.order("echo 4; echo 5 >&2");
    order.stdout = Sink::Null;
    order.stderr = Sink::Append(bench.path("1.o"));
    bench.run(order);
    assert_eq!(bench.text("1.o"), "1\n2\n3\n5\n");
}

#[test]
fn what_cannot_be_started_is_told_and_harms_no_other_process() {
    let mut bench = Bench::new();
    let mut order = bench.order("true");
    order.stdout = Sink::Create(bench.path("no/such/dir/1.o"));
    let exit = bench.run(order);
    let How::NotStarted(error) = exit.how else { panic!("{:?}", exit.how) };
    assert_eq!(error.return_code, 127);
    assert!(error.message.contains("no/such/dir"), "{}", error.message);

    let order = bench.order(&"x".repeat(200_000));
    let How::NotStarted(error) = bench.run(order).how else { panic!("started") };
    assert!(error.message.contains("too long"), "{}", error.message);

    let order = bench.order("a\0b");
    assert!(matches!(bench.run(order).how, How::NotStarted(_)));

    let order = bench.order("exit 0");
    assert_eq!(bench.run(order).how, How::Code(0));
}

#[test]
fn a_device_in_place_of_a_log_fails_the_process_and_not_the_runner() {
    let mut bench = Bench::new();
    let mut order = bench.order("echo hello");
    order.stdout = Sink::Append("/dev/full".into());
    let How::NotStarted(error) = bench.run(order).how else { panic!("it was started") };
    assert!(error.message.contains("not a regular file"), "{}", error.message);
    let order = bench.order("echo hello > /dev/full || exit 9");
    assert_eq!(bench.run(order).how, How::Code(9));
}

#[test]
fn a_timeout_ends_a_tree_that_ignores_the_signal() {
    let mut bench = Bench::with(Duration::from_millis(300), None, |_| None);
    let script = "trap '' TERM; (trap '' TERM; sleep 100) & setsid bash -c 'trap \"\" TERM; sleep 100; true' & \
                  touch ready; wait; sleep 100; true";
    let mut order = bench.order(script);
    order.time_limit = Some(Duration::from_millis(400));
    let exit = bench.run(order);
    assert_eq!(exit.stop, Some(StopReason::Timeout { limit: Duration::from_millis(400) }));
    assert_eq!(exit.how, How::Signal(9));
    let signals: Vec<i32> = exit.journal.iter().map(|s| s.signal).collect();
    assert_eq!(signals[..2], [15, 9]);
    assert!(exit.journal[0].after >= Duration::from_millis(400), "{:?}", exit.journal);
    assert!(exit.wall < Duration::from_secs(10), "{:?}", exit.wall);
    assert_eq!(bench.tagged(), [0; 0]);
    assert!(exit.survivors.is_empty());
}

#[test]
fn grandchildren_keep_the_grace_when_the_leader_ends_first() {
    let mut bench = Bench::new();
    // The leader dies of the signal at once; its child needs a moment to save its work.
    let script = "bash -c 'trap \"sleep 0.3; touch saved; exit 0\" TERM; touch ready; while :; do sleep 0.01; done' & wait";
    let order = bench.order(script);
    let id = order.id;
    bench.supervisor.start(order, Instant::now());
    bench.until_file("ready");
    bench.supervisor.stop(&[id], &StopReason::Canceled, Instant::now());
    let exit = bench.exit(id);
    assert_eq!((exit.how, exit.stop), (How::Signal(15), Some(StopReason::Canceled)));
    assert!(bench.path("saved").exists());
    assert_eq!(exit.journal.len(), 1);
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn the_grace_of_grandchildren_ends_too() {
    let mut bench = Bench::with(Duration::from_millis(200), None, |_| None);
    let order =
        bench.order("bash -c 'trap \"\" TERM; touch ready; while :; do sleep 0.01; done' & wait");
    let id = order.id;
    bench.supervisor.start(order, Instant::now());
    bench.until_file("ready");
    bench.supervisor.stop(&[id], &StopReason::Stopped, Instant::now());
    let exit = bench.exit(id);
    assert_eq!(exit.how, How::Signal(15));
    assert_eq!(exit.journal.iter().map(|s| s.signal).collect::<Vec<_>>(), [15, 9]);
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn a_second_word_ends_the_grace() {
    let mut bench = Bench::new();
    let order = bench.order("trap '' TERM; touch ready; while :; do sleep 0.01; done");
    let id = order.id;
    bench.supervisor.start(order, Instant::now());
    bench.until_file("ready");
    bench.supervisor.stop(&[id], &StopReason::Stopped, Instant::now());
    bench.step(Duration::from_millis(50));
    bench.supervisor.kill(&[id], &StopReason::Stopped, Instant::now());
    assert_eq!(bench.exit(id).how, How::Signal(9));
}

#[test]
fn a_stop_that_comes_before_the_start_is_not_forgotten() {
    let mut bench = Bench::new();
    let order = bench.order("sleep 100");
    let id = order.id;
    bench.supervisor.start(order, Instant::now());
    bench.supervisor.stop(&[id], &StopReason::Canceled, Instant::now());
    let exit = bench.exit(id);
    assert_eq!((exit.how, exit.stop), (How::Signal(15), Some(StopReason::Canceled)));
}

#[test]
fn what_ended_by_itself_was_not_ended_by_us() {
    let mut bench = Bench::new();
    let order = bench.order("exit 0");
    let id = order.id;
    bench.supervisor.start(order, Instant::now());
    bench.until("the start", |b| !b.events.is_empty());
    let ProcessEvent::Started { pid, .. } = bench.events[0] else { panic!("not started") };
    sys::wait_for_end(pid);
    bench.supervisor.stop(&[id], &StopReason::Canceled, Instant::now());
    let exit = bench.exit(id);
    assert_eq!((exit.how, exit.stop), (How::Code(0), None));
}

#[test]
fn children_left_in_the_group_die_with_the_leader() {
    let mut bench = Bench::new();
    let order =
        bench.order("sleep 100 & (trap '' TERM HUP; sleep 100; true) & echo $! > pid; exit 0");
    let exit = bench.run(order);
    assert_eq!(exit.how, How::Code(0));
    let pid: i32 = bench.text("pid").trim().parse().unwrap();
    assert!(!is_alive(pid));
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn escapees_of_a_long_process_are_gone_before_its_end_is_told() {
    let mut bench = Bench::new();
    let order = bench.order("setsid bash -c 'setsid sleep 100 & sleep 100' & sleep 0.2; exit 0");
    let exit = bench.run(order);
    assert_eq!(exit.how, How::Code(0));
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn escapees_of_a_short_process_are_swept_soon() {
    let mut bench = Bench::new();
    let order = bench.order("setsid sleep 100 >/dev/null 2>&1 & exit 0");
    let exit = bench.run(order);
    assert_eq!(exit.how, How::Code(0));
    let ended = Instant::now();
    bench.until("the sweep", |b| b.tagged().is_empty());
    assert!(ended.elapsed() < Duration::from_secs(2), "{:?}", ended.elapsed());
}

/// Leaves its group, its session and its tag behind, and says where it is.
const ORPHAN: &str = "(env -i setsid bash -c 'echo $$ > orphan; exec sleep 100' >/dev/null 2>&1 &); \
                      while [ ! -s orphan ]; do sleep 0.01; done; ";

#[test]
fn an_orphan_without_a_tag_goes_when_everything_has_ended_that_it_could_belong_to() {
    alone("an_orphan_without_a_tag_goes_when_everything_has_ended_that_it_could_belong_to", || {
        let mut bench = Bench::new();
        let order = bench.order(&format!("{ORPHAN} exit 0"));
        bench.run(order);
        let pid: i32 = bench.text("orphan").trim().parse().unwrap();
        let last = bench.order("true");
        bench.run(last);
        bench.until("the second sweep", |_| !is_alive(pid));
    });
}

#[test]
fn a_background_helper_of_a_living_process_is_left_alone() {
    alone("a_background_helper_of_a_living_process_is_left_alone", || {
        let mut bench = Bench::new();
        let long =
            bench.order(&format!("{ORPHAN} touch ready; while [ ! -e go ]; do sleep 0.02; done"));
        let long_id = long.id;
        bench.supervisor.start(long, Instant::now());
        bench.until_file("ready");
        let pid: i32 = bench.text("orphan").trim().parse().unwrap();
        for _ in 0..3 {
            let quick = bench.order("true");
            bench.run(quick);
            bench.until("a sweep", |b| {
                b.supervisor.sweeping.ended.is_empty() && !b.supervisor.sweeping.is_under_way
            });
        }
        assert!(is_alive(pid));
        std::fs::write(bench.path("go"), "").unwrap();
        bench.exit(long_id);
        bench.supervisor.sweep_now();
        bench.until("the end of the orphan", |_| !is_alive(pid));
    });
}

#[test]
fn a_child_that_another_part_of_the_program_awaits_is_neither_ended_nor_reaped() {
    alone("a_child_that_another_part_of_the_program_awaits_is_neither_ended_nor_reaped", || {
        let mut bench = Bench::new();
        let last = bench.order("true");
        bench.run(last);
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let awaited = torc_fence::Awaited::new(pid);
        let none = HashSet::new();
        assert_eq!(cleanup::is_clean(&none), procfs::own_children().is_some());
        let leader = bench.order(&format!("{ORPHAN} exit 0"));
        bench.run(leader);
        bench.supervisor.sweep_now();
        assert!(is_alive(pid));
        drop(child.stdin.take());
        sys::wait_for_end(pid);
        bench.supervisor.sweep_now();
        assert!(child.wait().unwrap().success(), "its status is left to its starter");
        drop(awaited);
    });
}

#[test]
fn the_last_look_goes_through_the_whole_table_only_if_a_process_is_left() {
    alone("the_last_look_goes_through_the_whole_table_only_if_a_process_is_left", || {
        let mut bench = Bench::new();
        let none = HashSet::new();
        let order = bench.order("true");
        bench.run(order);
        assert_eq!(cleanup::is_clean(&none), procfs::own_children().is_some());
        let order = bench.order(&format!("{ORPHAN} exit 0"));
        bench.run(order);
        let pid: i32 = bench.text("orphan").trim().parse().unwrap();
        assert!(!cleanup::is_clean(&none) && is_alive(pid));
        assert_eq!(
            cleanup::is_clean(&HashSet::from([pid])),
            procfs::own_children().is_some(),
            "this one is known"
        );
        bench.supervisor.sweep_now();
        bench.until("the end of the orphan", |_| !is_alive(pid));
    });
}

#[test]
fn memory_beyond_the_limit_is_noticed_by_sampling() {
    let mut bench = Bench::new();
    let mut order = bench.order("x=$(head -c 100000000 /dev/zero | tr '\\0' x); sleep 100; true");
    order.memory_limit = Some(50_000_000);
    let exit = bench.run(order);
    let Some(StopReason::Memory { used_bytes, limit_bytes }) = exit.stop else {
        panic!("{exit:?}")
    };
    assert!(used_bytes > 50_000_000 && limit_bytes == 50_000_000);
    assert_eq!(exit.how, How::Signal(9));
    assert!(exit.peak_memory_bytes >= used_bytes);
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn memory_beyond_the_limit_is_stopped_by_the_kernel_where_it_can() {
    let mut bench = Bench::with(Duration::from_secs(5), None, |key| Cgroups::detect(key, 0));
    if bench.supervisor.setup.cgroups.is_none() {
        eprintln!("skipped: no control group can be made here");
        return;
    }
    let mut order = bench.order(
        "cat /proc/self/cgroup; x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo survived",
    );
    order.memory_limit = Some(50_000_000);
    let tag = format!("torc-{}/p{}", bench.key, order.id);
    let exit = bench.run(order);
    let output = bench.text("1.o");
    assert!(output.contains(&tag) && !output.contains("survived"), "{output}");
    assert!(exit.stop.is_none(), "{:?}", exit.stop);
    assert!(
        exit.memory.is_some_and(|m| m.oom_kills >= 1 && m.peak_bytes > Some(40_000_000)),
        "{:?}",
        exit.memory
    );
    assert_ne!(exit.how, How::Code(0));

    let mut order = bench.order("setsid sleep 100 & exit 4");
    order.memory_limit = Some(50_000_000);
    let exit = bench.run(order);
    assert_eq!(exit.how, How::Code(4));
    assert!(exit.memory.is_some_and(|m| m.oom_kills == 0), "{:?}", exit.memory);
    assert_eq!(bench.tagged(), [0; 0]);
}

#[test]
fn many_processes_at_once_all_end() {
    let mut bench = Bench::new();
    let orders: Vec<ProcessOrder> =
        (0..200).map(|n| bench.order(&format!("exit {}", n % 7))).collect();
    for order in orders {
        bench.supervisor.start(order, Instant::now());
    }
    bench.until("all of them", |b| b.supervisor.live.is_empty());
    let mut codes = [0; 7];
    for event in &bench.events {
        if let ProcessEvent::Ended(exit) = event {
            let How::Code(code) = exit.how else { panic!("{exit:?}") };
            codes[usize::try_from(code).unwrap()] += 1;
        }
    }
    assert_eq!(codes, [29, 29, 29, 29, 28, 28, 28]);
}

#[test]
fn output_without_a_newline_costs_no_memory() {
    let mut bench = Bench::new();
    let order = bench.order("head -c 300000000 /dev/zero");
    let before =
        procfs::find_process(i32::try_from(std::process::id()).unwrap()).unwrap().rss_pages;
    assert_eq!(bench.run(order).how, How::Code(0));
    let after = procfs::find_process(i32::try_from(std::process::id()).unwrap()).unwrap().rss_pages;
    assert_eq!(std::fs::metadata(bench.path("1.o")).unwrap().len(), 300_000_000);
    assert!((after.saturating_sub(before)) * procfs::page_size() < 64 << 20);
}
