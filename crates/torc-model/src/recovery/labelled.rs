//! Failures with the answer known beforehand; the table of hits is printed (`cargo test labelled --
//! --nocapture`).

use super::{Caps, Current, Facts, Kind, Policy, Remedy, diagnose};
use crate::api::Evidence;
use crate::recovery::Action;
use crate::status::{Cause, EndDetail, EvidenceSource};

const MIB: i64 = 1 << 20;

/// One failure: what its runner reported and what it wrote.
struct Case {
    name: &'static str,
    expected: Kind,
    acts: bool,
    cause: Cause,
    code: i64,
    signal: Option<i64>,
    evidence: &'static [(EvidenceSource, &'static str)],
    detail: Option<EndDetail>,
    error: &'static str,
    stderr: &'static str,
    /// Peak and limit in MiB.
    memory: Option<(i64, i64)>,
    /// Seconds it ran, and its limit.
    time: Option<(f64, i64)>,
}

const fn exit(name: &'static str, expected: Kind, code: i64, stderr: &'static str) -> Case {
    Case {
        name,
        expected,
        acts: false,
        cause: Cause::Exit,
        code,
        signal: None,
        evidence: &[],
        detail: None,
        error: "",
        stderr,
        memory: None,
        time: None,
    }
}

const fn killed(name: &'static str, expected: Kind, signal: i64, stderr: &'static str) -> Case {
    Case {
        cause: Cause::Signal,
        code: 128 + signal,
        signal: Some(signal),
        ..exit(name, expected, 0, stderr)
    }
}

const fn told(
    name: &'static str,
    expected: Kind,
    cause: Cause,
    evidence: &'static [(EvidenceSource, &'static str)],
) -> Case {
    Case { cause, code: -128, evidence, ..exit(name, expected, 0, "") }
}

const fn acting(case: Case) -> Case {
    Case { acts: true, ..case }
}

const fn with_memory(case: Case, peak: i64, limit: i64) -> Case {
    Case { memory: Some((peak, limit)), ..case }
}

const fn with_time(case: Case, seconds: f64, limit: i64) -> Case {
    Case { time: Some((seconds, limit)), ..case }
}

const fn with_error(case: Case, error: &'static str) -> Case {
    Case { error, ..case }
}

const KEY_ERROR: &str = "Traceback (most recent call last):\n  File \"/w/run.py\", line 12, in <module>\n    main()\n  File \"/w/run.py\", line 8, in main\n    print(d['x'])\nKeyError: 'x'\n";

const CASES: &[Case] = &[
    // --- memory
    acting(with_memory(
        told(
            "cgroup kill of a child, shell exits 137",
            Kind::Oom,
            Cause::Oom,
            &[
                (
                    EvidenceSource::Kernel,
                    "the kernel killed 1 of its processes for exceeding the limit; highest use 536870912 bytes",
                ),
                (EvidenceSource::Exit, "exit code 137"),
            ],
        ),
        512,
        512,
    )),
    acting(with_memory(
        told(
            "monitor killed it at its limit",
            Kind::Oom,
            Cause::Oom,
            &[
                (EvidenceSource::Journal, "we sent SIGKILL after 3.1 s"),
                (EvidenceSource::Node, "700000000 bytes were in use; the limit is 536870912"),
            ],
        ),
        668,
        512,
    )),
    acting(told(
        "machine ran out of memory",
        Kind::Oom,
        Cause::Oom,
        &[(
            EvidenceSource::Kernel,
            "the machine's count of out-of-memory kills rose when it died of SIGKILL",
        )],
    )),
    acting(with_memory(killed("SIGKILL at 99% of its memory", Kind::Oom, 9, ""), 507, 512)),
    acting(with_memory(killed("SIGKILL at 20% of its memory", Kind::Killed, 9, ""), 100, 512)),
    acting(killed("SIGKILL, memory not known", Kind::Killed, 9, "")),
    acting(with_memory(
        exit(
            "shell saw SIGKILL at the limit",
            Kind::Oom,
            137,
            "bash: line 1: 4711 Killed                  ./hog\n",
        ),
        510,
        512,
    )),
    acting(with_memory(
        exit(
            "shell saw SIGKILL far from the limit",
            Kind::Killed,
            137,
            "bash: line 1: 4711 Killed       ./hog\n",
        ),
        40,
        512,
    )),
    exit("prints Killed and exits 1", Kind::ProgramError, 1, "step 3\nKilled\n"),
    acting(with_memory(
        exit(
            "python MemoryError",
            Kind::Oom,
            1,
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    x = [0] * 10**12\nMemoryError\n",
        ),
        480,
        512,
    )),
    with_memory(
        exit(
            "numpy asks for more than any machine has",
            Kind::Oom,
            1,
            "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array: MemoryError\n",
        ),
        30,
        512,
    ),
    killed(
        "C++ bad_alloc aborts",
        Kind::Oom,
        6,
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
    ),
    exit(
        "java heap",
        Kind::Oom,
        1,
        "Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space\n\tat A.main(A.java:4)\n",
    ),
    exit(
        "R vector",
        Kind::Oom,
        1,
        "Error: cannot allocate vector of size 14.9 Gb\nExecution halted\n",
    ),
    killed("rust allocation", Kind::Oom, 6, "memory allocation of 68719476736 bytes failed\n"),
    exit(
        "out of memory was survived, then its own bug",
        Kind::ProgramError,
        1,
        "cache: cannot allocate memory, using disk\nTraceback (most recent call last):\n  File \"a.py\", line 9, in <module>\nValueError: bad shape\n",
    ),
    exit(
        "torch GPU memory",
        Kind::GpuOom,
        1,
        "Traceback (most recent call last):\n  File \"t.py\", line 40, in <module>\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ),
    exit(
        "a word about memory in a warning",
        Kind::ProgramError,
        2,
        "WARNING: out of memory on device 3, falling back\nerror: config value `x` is invalid\n",
    ),
    acting(killed(
        "slurm's word about memory",
        Kind::Oom,
        9,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.batch. Some of the step tasks have been OOM Killed.\n",
    )),
    // --- time
    acting(with_time(
        told(
            "ran longer than its limit",
            Kind::Timeout,
            Cause::Timeout,
            &[(EvidenceSource::Journal, "we sent SIGTERM after 60.0 s")],
        ),
        60.0,
        60,
    )),
    with_time(
        exit("fails by itself at 95% of its runtime", Kind::ProgramError, 1, KEY_ERROR),
        57.0,
        60,
    ),
    with_time(exit("fails silently at 95% of its runtime", Kind::Unknown, 1, ""), 57.0, 60),
    acting(told(
        "its allocation's walltime",
        Kind::Walltime,
        Cause::Walltime,
        &[(EvidenceSource::Scheduler, "TIMEOUT")],
    )),
    acting(with_error(
        told(
            "its runner's time",
            Kind::Walltime,
            Cause::Walltime,
            &[(EvidenceSource::Journal, "we sent SIGTERM after 600.0 s")],
        ),
        "the runner's time was over before the job's end",
    )),
    acting(killed(
        "slurm's word about time",
        Kind::Timeout,
        15,
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
    )),
    killed("a CPU time ulimit", Kind::ProcessLimit, 24, "Cputime limit exceeded\n"),
    exit("152 from the program itself", Kind::ProcessLimit, 152, ""),
    // --- losses
    acting(told(
        "runner gone",
        Kind::Lost,
        Cause::Lost,
        &[(EvidenceSource::Journal, "process 77 on here is gone")],
    )),
    acting(told(
        "preempted",
        Kind::Preempted,
        Cause::Preempted,
        &[(EvidenceSource::Scheduler, "PREEMPTED")],
    )),
    acting(told(
        "node failed",
        Kind::NodeFail,
        Cause::NodeFail,
        &[(EvidenceSource::Scheduler, "NODE_FAIL")],
    )),
    acting(killed(
        "slurm's word about preemption",
        Kind::Preempted,
        15,
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n",
    )),
    acting(told(
        "runner stopped",
        Kind::Stopped,
        Cause::Stopped,
        &[(EvidenceSource::Journal, "we sent SIGTERM after 1.0 s")],
    )),
    acting(told(
        "checkpoint",
        Kind::Checkpoint,
        Cause::Checkpoint,
        &[(EvidenceSource::Exit, "exit code 85")],
    )),
    // --- people
    told(
        "canceled",
        Kind::Canceled,
        Cause::Canceled,
        &[(EvidenceSource::Journal, "we sent SIGTERM after 2.0 s")],
    ),
    with_memory(
        told(
            "canceled while near its limit, with SIGKILL",
            Kind::Canceled,
            Cause::Canceled,
            &[(EvidenceSource::Journal, "we sent SIGKILL after 12.0 s")],
        ),
        511,
        512,
    ),
    acting(killed("SIGTERM from outside", Kind::Killed, 15, "")),
    acting(killed("SIGHUP from outside", Kind::Killed, 1, "")),
    // --- crashes
    killed("segfault", Kind::Crash, 11, ""),
    exit(
        "segfault of a child",
        Kind::Crash,
        139,
        "bash: line 1: 99 Segmentation fault      (core dumped) ./a.out\n",
    ),
    killed("assertion", Kind::Crash, 6, "a.out: a.c:3: main: Assertion `x > 0' failed.\n"),
    killed("bus error", Kind::Crash, 7, ""),
    killed("illegal instruction", Kind::Crash, 4, ""),
    killed("division by zero", Kind::Crash, 8, ""),
    exit(
        "fortran segfault message",
        Kind::Crash,
        174,
        "forrtl: severe (174): SIGSEGV, segmentation fault occurred\n",
    ),
    // --- environment
    exit(
        "no such command",
        Kind::CommandNotFound,
        127,
        "bash: line 1: samtools: command not found\n",
    ),
    exit("127 without a word", Kind::CommandNotFound, 127, ""),
    exit("not executable", Kind::Permission, 126, "bash: line 1: ./run.sh: Permission denied\n"),
    exit(
        "no python module",
        Kind::MissingModule,
        1,
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import torch\nModuleNotFoundError: No module named 'torch'\n",
    ),
    exit(
        "no shared library",
        Kind::MissingModule,
        127,
        "./solver: error while loading shared libraries: libhdf5.so.200: cannot open shared object file: No such file or directory\n",
    ),
    exit(
        "no R package",
        Kind::MissingModule,
        1,
        "Error in library(dplyr) : there is no package called 'dplyr'\nExecution halted\n",
    ),
    exit(
        "missing input",
        Kind::MissingFile,
        1,
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nFileNotFoundError: [Errno 2] No such file or directory: 'in.csv'\n",
    ),
    exit("cat of a missing file", Kind::MissingFile, 1, "cat: in.txt: No such file or directory\n"),
    exit("unreadable input", Kind::Permission, 1, "cat: /etc/shadow: Permission denied\n"),
    with_error(
        Case {
            cause: Cause::SpawnError,
            detail: Some(EndDetail::StartNotFound),
            ..exit("working directory is gone", Kind::CommandNotFound, 127, "")
        },
        "cannot start `bash`: No such file or directory (os error 2)",
    ),
    with_error(
        Case {
            cause: Cause::SpawnError,
            detail: Some(EndDetail::StartLimit),
            ..exit("no more processes", Kind::ProcessLimit, 126, "")
        },
        "cannot start `bash`: Resource temporarily unavailable (os error 11)",
    ),
    with_error(
        Case {
            cause: Cause::SpawnError,
            detail: Some(EndDetail::StartDiskFull),
            ..exit("log disk is full", Kind::DiskFull, 126, "")
        },
        "cannot open the log file: No space left on device (os error 28)",
    ),
    // --- disks, networks, licences
    exit(
        "disk full",
        Kind::DiskFull,
        1,
        "dd: error writing '/scratch/x': No space left on device\n1+0 records in\n0+0 records out\n",
    ),
    exit(
        "python disk full",
        Kind::DiskFull,
        1,
        "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\nOSError: [Errno 28] No space left on device\n",
    ),
    exit("quota", Kind::Quota, 1, "cp: error writing 'b': Disk quota exceeded\n"),
    killed("file size limit", Kind::Quota, 25, ""),
    acting(exit(
        "connection refused",
        Kind::Network,
        7,
        "curl: (7) Failed to connect to localhost port 9200 after 0 ms: Connection refused\n",
    )),
    exit("connection refused, then its own bug", Kind::ProgramError, 1, concat_refused()),
    acting(exit(
        "name resolution",
        Kind::Network,
        6,
        "curl: (6) Could not resolve host: data.example\n",
    )),
    acting(exit(
        "requests, raised from a refused connection",
        Kind::Network,
        1,
        "Traceback (most recent call last):\n  File \"u.py\", line 1, in f\nConnectionRefusedError: [Errno 111] Connection refused\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"r.py\", line 3, in <module>\nRuntimeError: download failed\n",
    )),
    exit(
        "retries that helped, then a bug",
        Kind::ProgramError,
        1,
        "connection refused, retrying in 1 s\nconnected\nAssertionError: 3 != 4\n",
    ),
    acting(exit(
        "stale file handle",
        Kind::FileSystem,
        1,
        "ls: cannot access 'x': Stale file handle\n",
    )),
    acting(exit("input/output error", Kind::FileSystem, 1, "cat: data.bin: Input/output error\n")),
    exit(
        "too many open files",
        Kind::ProcessLimit,
        1,
        "OSError: [Errno 24] Too many open files: 'a'\n",
    ),
    acting(exit(
        "no licence",
        Kind::License,
        1,
        "ANSYS: License checkout failed: no licenses available for feature `solver`\n",
    )),
    // --- programs
    exit("python traceback", Kind::ProgramError, 1, KEY_ERROR),
    exit(
        "python error while handling another",
        Kind::ProgramError,
        1,
        "Traceback (most recent call last):\n  File \"a\", line 1, in f\nConnectionError: x\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"a\", line 2, in <module>\nTypeError: y\n",
    ),
    exit(
        "rust panic",
        Kind::ProgramError,
        101,
        "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds: the len is 3 but the index is 7\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
    ),
    exit(
        "go panic",
        Kind::ProgramError,
        2,
        "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/a/main.go:5 +0x1b\nexit status 2\n",
    ),
    exit(
        "java exception with a cause",
        Kind::DiskFull,
        1,
        "Exception in thread \"main\" java.lang.RuntimeException: save\n\tat A.main(A.java:3)\nCaused by: java.io.IOException: No space left on device\n\tat B.w(B.java:1)\n\t... 1 more\n",
    ),
    exit(
        "make tells of a failed part",
        Kind::MissingFile,
        2,
        "cp: cannot stat 'x.c': No such file or directory\nmake: *** [Makefile:2: a] Error 1\n",
    ),
    exit(
        "mpi abort without a reason",
        Kind::MpiAbort,
        1,
        "--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
    ),
    exit(
        "mpi abort after a reason",
        Kind::DiskFull,
        1,
        "rank 2: write error: No space left on device\n--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
    ),
    exit("code 3 without a word", Kind::Unknown, 3, ""),
    exit("only progress on stderr", Kind::Unknown, 1, "epoch 1\nepoch 2\nepoch 3\n"),
    exit("binary noise on stderr", Kind::Unknown, 1, "\u{fffd}\u{fffd}\u{1}\u{2}\n"),
    exit("the command is echoed", Kind::Unknown, 4, "+ echo 'No space left on device'\n+ exit 4\n"),
    with_error(
        told(
            "missing output",
            Kind::MissingOutput,
            Cause::MissingOutput,
            &[(EvidenceSource::Output, "missing: `out.txt` (o)")],
        ),
        "exit code 0, but output files are missing: `out.txt` (o)",
    ),
];

const fn concat_refused() -> &'static str {
    "db: connection refused\nTraceback (most recent call last):\n  File \"/w/run.py\", line 12, in <module>\n    main()\nKeyError: 'x'\n"
}

#[test]
fn labelled_failures_are_diagnosed() {
    let mut table = String::new();
    let mut misses = Vec::new();
    for case in CASES {
        let evidence: Vec<Evidence> =
            case.evidence.iter().map(|(s, t)| Evidence { source: *s, text: (*t).into() }).collect();
        let facts = Facts {
            cause: Some(case.cause),
            return_code: Some(case.code),
            signal: case.signal,
            detail: case.detail,
            error: (!case.error.is_empty()).then_some(case.error),
            evidence: &evidence,
            exec_seconds: case.time.map(|(s, _)| s),
            time_limit_seconds: case.time.map(|(_, l)| l),
            peak_memory_bytes: case.memory.map(|(p, _)| p * MIB),
            memory_bytes: case.memory.map(|(_, l)| l * MIB),
            stderr_tail: case.stderr,
            ..Facts::default()
        };
        let diagnosis = diagnose(&facts).expect("a failure has a diagnosis");
        let current = Current {
            memory_bytes: Some(512 << 20),
            runtime_seconds: Some(60),
            ..Current::default()
        };
        let action =
            Remedy::choose(&diagnosis, &current, &Caps::default(), &Policy::default()).action;
        let hit = diagnosis.kind == case.expected && action.is_retry() == case.acts;
        table += &format!(
            "{}  {:<48} {:<18} {:.2}  {}\n",
            if hit { "ok  " } else { "MISS" },
            case.name,
            diagnosis.kind,
            diagnosis.confidence,
            action.as_str()
        );
        if !hit {
            misses.push(format!(
                "{}: {diagnosis:?} {action:?}, expected {} (acts: {})",
                case.name, case.expected, case.acts
            ));
        }
        let ranks: Vec<i64> = diagnosis.proof.iter().map(|p| p.rank).collect();
        assert!(ranks.is_sorted(), "{}: proof is not ordered: {ranks:?}", case.name);
        for proof in diagnosis.proof.iter().filter(|p| p.start.is_some()) {
            let range = proof.start.unwrap() as usize..proof.end.unwrap() as usize;
            assert!(
                case.stderr[range].contains(proof.text.trim_end_matches('…')),
                "{}: {proof:?}",
                case.name
            );
        }
    }
    println!("{table}{} of {} diagnosed as labelled", CASES.len() - misses.len(), CASES.len());
    assert!(CASES.len() >= 60, "{}", CASES.len());
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}

#[test]
fn a_killed_child_of_a_success_is_a_warning() {
    let evidence = [Evidence {
        source: EvidenceSource::Kernel,
        text: "the kernel killed 1 of its processes".into(),
    }];
    let odd = diagnose(&Facts { evidence: &evidence, return_code: Some(0), ..Facts::default() })
        .expect("a warning");
    assert!(!odd.is_sure() && odd.doubts.len() == 1, "{odd:?}");
    assert_eq!(diagnose(&Facts { return_code: Some(0), ..Facts::default() }), None);
}

#[test]
fn a_kill_we_sent_is_never_taken_for_lack_of_memory() {
    // At its limit by measure, killed by SIGKILL, words about memory: but we did it.
    let evidence =
        [Evidence { source: EvidenceSource::Journal, text: "we sent SIGKILL after 9.0 s".into() }];
    for cause in [
        Cause::Canceled,
        Cause::Stopped,
        Cause::Timeout,
        Cause::Preempted,
        Cause::NodeFail,
        Cause::Walltime,
    ] {
        let facts = Facts {
            cause: Some(cause),
            return_code: Some(137),
            signal: Some(9),
            evidence: &evidence,
            peak_memory_bytes: Some(512 * MIB),
            memory_bytes: Some(512 * MIB),
            stderr_tail: "MemoryError\n",
            ..Facts::default()
        };
        let diagnosis = diagnose(&facts).expect("a diagnosis");
        assert_ne!(diagnosis.kind, Kind::Oom, "{cause}");
        let current = Current { memory_bytes: Some(512 << 20), ..Current::default() };
        let action =
            Remedy::choose(&diagnosis, &current, &Caps::default(), &Policy::default()).action;
        assert_ne!(action, Action::MoreMemory, "{cause}");
    }
}
