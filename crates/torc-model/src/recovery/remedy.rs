//! What would repair a failure: more memory, more time, the same again, or nothing that a machine
//! may decide.

use super::diagnosis::Diagnosis;
use super::kind::Kind;
use super::nature::Nature;
use super::view::NodeShape;
use crate::status::Adjustable;
use crate::units::{Memory, Runtime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A use this far beyond the limit is no matter of measuring: the limit was not enforced.
const BEYOND: f64 = 1.25;

/// What passes by itself is tried again at this confidence: one more attempt costs little.
const WORTH_A_TRY: f64 = 0.5;

/// Multipliers beyond this are a slip of the finger.
pub const LARGEST_MULTIPLIER: f64 = 100.0;

/// Memory grows to this many times what it was where nothing tells how much is needed. Of the needs
/// of real programs that had too little, five of six are below.
const MEMORY_STEP: f64 = 2.0;

/// It grows by no less than this. A job with a small limit is cheap to give more, and what it needs
/// is mostly a part that does not grow with its limit: an interpreter, its modules, one array.
const LEAST_MORE_MEMORY: u64 = 112 << 20;

/// Time grows to this many times what it was where nothing tells how much is needed. A limit that
/// is too high costs nothing while the job ends before it; a second timeout costs all of its time.
const TIME_STEP: f64 = 4.0;

/// A plan grows by this: what is asked of the batch system makes jobs wait.
const PLANNED_STEP: f64 = 1.5;

/// By how much an estimate from progress is exceeded to be safe.
const TIME_MARGIN: f64 = 1.3;

/// What jobs like it needed is exceeded by this to be safe.
const KNOWN_MARGIN: f64 = 1.2;

/// An estimate may raise time at least and at most to this many times what it was.
const ESTIMATED: (f64, f64) = (2.0, 20.0);

/// How far recovery may go.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Policy {
    /// Memory after an out-of-memory kill, times this; else by what was measured.
    pub memory_multiplier: Option<f64>,
    /// Time after a timeout, times this; else by what was measured.
    pub runtime_multiplier: Option<f64>,
    /// Failures without a known remedy are tried again as they are.
    pub retry_unknown: bool,
    /// The outcomes of earlier retries do not count.
    pub no_memory: bool,
}

/// The most there is to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caps {
    /// Memory of the largest node known.
    pub memory_bytes: Option<u64>,
    /// The longest time known to be available.
    pub runtime_seconds: Option<u64>,
}

impl Caps {
    /// What these kinds of nodes offer to a job: more memory where its time is allowed, more time
    /// where its memory is. Other limits stay where no node fits.
    pub fn within(
        self,
        shapes: &[NodeShape],
        num_cpus: i64,
        num_gpus: i64,
        current: &Current,
    ) -> Self {
        let fits = |s: &&NodeShape| s.num_cpus >= num_cpus && s.num_gpus >= num_gpus;
        let unsigned = |v: i64| u64::try_from(v).unwrap_or(0);
        let allows_time = |s: &&NodeShape| {
            s.max_runtime_seconds
                .is_none_or(|max| unsigned(max) >= current.runtime_seconds.unwrap_or(0))
        };
        let allows_memory =
            |s: &&NodeShape| unsigned(s.memory_bytes) >= current.memory_bytes.unwrap_or(0);
        let memory =
            shapes.iter().filter(fits).filter(allows_time).map(|s| unsigned(s.memory_bytes)).max();
        let times: Vec<_> = shapes
            .iter()
            .filter(fits)
            .filter(allows_memory)
            .map(|s| s.max_runtime_seconds)
            .collect();
        let runtime =
            times.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
        Self {
            memory_bytes: memory.or(self.memory_bytes),
            runtime_seconds: runtime.map(unsigned).or(self.runtime_seconds),
        }
    }
}

/// What the job has now.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Current {
    /// Memory for its next attempt.
    pub memory_bytes: Option<u64>,
    /// Runtime for its next attempt.
    pub runtime_seconds: Option<u64>,
    /// Its own `timeout`, which ends an attempt whatever `runtime` says.
    pub timeout_seconds: Option<u64>,
    /// `runtime` ends an attempt, too.
    pub enforces_runtime: bool,
    /// How long the failed attempt ran.
    pub exec_seconds: Option<f64>,
    /// Highest memory use of the failed attempt.
    pub peak_memory_bytes: Option<u64>,
    /// Memory that jobs like it, or earlier runs of it, needed to succeed.
    pub known_bytes: Option<u64>,
    /// The time that those took.
    pub known_seconds: Option<f64>,
}

/// A number that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// What is changed.
    pub field: Adjustable,
    /// Before, in bytes or seconds or as a number; absent when there was no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// After, in bytes or seconds or as a number.
    pub to: i64,
}

impl Change {
    /// From one value to another, in bytes or seconds.
    pub fn new(field: Adjustable, from: Option<u64>, to: u64) -> Self {
        let signed = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
        Self { field, from: from.map(signed), to: signed(to) }
    }

    /// A value of this field as people write it.
    pub fn written(&self, value: i64) -> String {
        let value = value.max(0).unsigned_abs();
        match self.field {
            Adjustable::Memory => Memory(value).to_string(),
            Adjustable::Runtime | Adjustable::Timeout => Runtime(value).friendly(),
            Adjustable::Cpus | Adjustable::Gpus => value.to_string(),
        }
    }
}

/// What is done about a failed job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Another attempt with more memory.
    MoreMemory,
    /// Another attempt with more time.
    MoreTime,
    /// Another attempt, nothing changed.
    Again,
    /// Nothing, unless a user asks for it.
    Skip,
    /// Nothing can be done.
    Impossible,
}

impl Action {
    /// The job runs again.
    pub const fn is_retry(self) -> bool {
        matches!(self, Self::MoreMemory | Self::MoreTime | Self::Again)
    }

    /// As the table of `torc recover` writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MoreMemory => "more memory",
            Self::MoreTime => "more time",
            Self::Again => "again",
            Self::Skip => "skip",
            Self::Impossible => "impossible",
        }
    }
}

/// What is done about a failed job, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remedy {
    /// What is done.
    pub action: Action,
    /// What changes for its next attempts.
    pub changes: Vec<Change>,
    /// One sentence.
    pub why: String,
}

impl Remedy {
    fn new(action: Action, why: impl Into<String>) -> Self {
        Self { action, changes: Vec::new(), why: why.into() }
    }

    /// Chooses what to do about a diagnosed failure.
    pub fn choose(diagnosis: &Diagnosis, current: &Current, caps: &Caps, policy: &Policy) -> Self {
        match diagnosis.kind {
            _ if diagnosis.nature == Nature::Memory && diagnosis.is_sure() => {
                more_memory(diagnosis, current, caps, policy)
            }
            _ if diagnosis.nature == Nature::Time && diagnosis.is_sure() => {
                more_time(diagnosis, current, caps, policy)
            }
            Kind::Walltime => more_planned_time(current, caps, policy),
            Kind::Lost | Kind::Preempted | Kind::NodeFail | Kind::Stopped | Kind::Checkpoint => {
                Self::new(Action::Again, format!("not its fault: {}", diagnosis.kind.title()))
            }
            Kind::Canceled => Self::new(Action::Skip, "a user canceled it on purpose"),
            _ if diagnosis.nature == Nature::Transient && diagnosis.confidence >= WORTH_A_TRY => {
                Self::new(Action::Again, format!("this passes: {}", diagnosis.kind.title()))
            }
            Kind::Oom
            | Kind::Timeout
            | Kind::GpuOom
            | Kind::MissingOutput
            | Kind::CommandNotFound
            | Kind::Permission
            | Kind::SpawnError
            | Kind::RecoveryScript
            | Kind::Step
            | Kind::Killed
            | Kind::Crash
            | Kind::DiskFull
            | Kind::Quota
            | Kind::Network
            | Kind::FileSystem
            | Kind::ProcessLimit
            | Kind::License
            | Kind::MissingModule
            | Kind::MissingFile
            | Kind::MpiAbort
            | Kind::ProgramError
            | Kind::Unknown => match policy.retry_unknown {
                true => Self::new(
                    Action::Again,
                    "no known remedy; tried again because that was asked for",
                ),
                false => Self::new(
                    Action::Skip,
                    format!("no known remedy for: {}", diagnosis.kind.title()),
                ),
            },
        }
    }
}

fn more_memory(diagnosis: &Diagnosis, current: &Current, caps: &Caps, policy: &Policy) -> Remedy {
    // Without enforcement an attempt may have used much more than it asked for; then that is what
    // it needs at least.
    let peak = current
        .peak_memory_bytes
        .filter(|peak| *peak as f64 > current.memory_bytes.unwrap_or(0) as f64 * BEYOND);
    let base = peak.or(current.memory_bytes).filter(|b| *b > 0);
    let Some(base) = base else {
        return Remedy::new(
            Action::Impossible,
            "cannot be recovered because it asks for no memory and nothing tells how much it used",
        );
    };
    let factor = policy.memory_multiplier.unwrap_or(MEMORY_STEP);
    let by_measure = policy.memory_multiplier.is_none();
    let mut wanted = Memory(base).scaled(factor).0.max(base);
    let mut why = format!("out of memory; {} x {factor}", Memory(base));
    if by_measure && wanted - base < LEAST_MORE_MEMORY {
        wanted = base + LEAST_MORE_MEMORY;
        why = format!("out of memory; {} more than {}", Memory(LEAST_MORE_MEMORY), Memory(base));
    }
    let asked = diagnosis.needs.memory_bytes.and_then(|n| u64::try_from(n).ok());
    if let Some(asked) = asked.filter(|_| by_measure) {
        let enough = Memory(asked).scaled(1.2).0;
        if enough > wanted {
            (wanted, why) =
                (enough, format!("out of memory; it asked for {} in all", Memory(asked)));
        }
    }
    let known = current.known_bytes.filter(|known| by_measure && *known as f64 > base as f64);
    if let Some(known) = known {
        let enough = Memory(known).scaled(KNOWN_MARGIN).0.max(Memory(base).scaled(1.25).0);
        (wanted, why) =
            (enough, format!("out of memory; others like it needed {}", Memory(known).scaled(1.0)));
    }
    let had = current.memory_bytes;
    let (to, why) = match caps.memory_bytes {
        Some(cap) if base >= cap => {
            let why = format!(
                "cannot be recovered because it needs more than {} and the largest node known has {}",
                Memory(base),
                Memory(cap)
            );
            return Remedy::new(Action::Impossible, why);
        }
        Some(cap) if wanted > cap => {
            (cap, format!("out of memory; the largest node known has {}", Memory(cap)))
        }
        Some(_) | None => (wanted, why),
    };
    if had.is_some_and(|had| to <= had) {
        let why =
            format!("cannot be recovered because a multiplier of {factor} gives no more memory");
        return Remedy::new(Action::Impossible, why);
    }
    Remedy {
        action: Action::MoreMemory,
        changes: vec![Change::new(Adjustable::Memory, had, to)],
        why,
    }
}

/// After the end of its runner's time: a job that ran as long as it was planned for needs a plan
/// that is longer, or it begins in too short an allocation again.
fn more_planned_time(current: &Current, caps: &Caps, policy: &Policy) -> Remedy {
    let again = || Remedy::new(Action::Again, "its runner's time was over, not its own");
    let (Some(planned), Some(ran)) = (current.runtime_seconds, current.exec_seconds) else {
        return again();
    };
    if ran < planned as f64 {
        return again();
    }
    let factor = policy.runtime_multiplier.unwrap_or(PLANNED_STEP);
    let wanted = Runtime(planned.max(ran as u64)).scaled(factor).0;
    let to = caps.runtime_seconds.map_or(wanted, |cap| wanted.min(cap));
    if to <= planned {
        return again();
    }
    let why = format!(
        "its runner's time was over, and it had run for longer than its `runtime` of {}",
        Runtime(planned).friendly()
    );
    let changes = vec![Change::new(Adjustable::Runtime, Some(planned), to)];
    Remedy { action: Action::MoreTime, changes, why }
}

fn more_time(diagnosis: &Diagnosis, current: &Current, caps: &Caps, policy: &Policy) -> Remedy {
    let runtime = current.runtime_seconds.filter(|_| current.enforces_runtime);
    let limit = runtime.into_iter().chain(current.timeout_seconds).min().filter(|s| *s > 0);
    let Some(limit) = limit else {
        return Remedy::new(Action::Again, "it ran too long, but has no limit of its own to raise");
    };
    let known = current.known_seconds.filter(|seconds| *seconds > limit as f64);
    let (factor, why) = match (policy.runtime_multiplier, diagnosis.needs.seconds.or(known)) {
        (Some(factor), _) => {
            (factor, format!("ran too long; {} x {factor}", Runtime(limit).friendly()))
        }
        (None, Some(seconds)) => {
            let factor = (seconds * TIME_MARGIN / limit as f64).clamp(ESTIMATED.0, ESTIMATED.1);
            let needs = Runtime(seconds.ceil() as u64).friendly();
            let by = match diagnosis.needs.seconds {
                Some(_) => "by its progress it needs",
                None => "others like it took",
            };
            (factor, format!("ran too long; {by} about {needs}"))
        }
        (None, None) => {
            (TIME_STEP, format!("ran too long; {} x {TIME_STEP}", Runtime(limit).friendly()))
        }
    };
    let wanted = Runtime(limit).scaled(factor).0;
    let (to, why) = match caps.runtime_seconds {
        Some(cap) if limit >= cap => {
            let why = format!(
                "cannot be recovered because it needs more than {} and no more than {} is to be had",
                Runtime(limit).friendly(),
                Runtime(cap).friendly()
            );
            return Remedy::new(Action::Impossible, why);
        }
        Some(cap) if wanted > cap => {
            (cap, format!("ran too long; no more than {} is to be had", Runtime(cap).friendly()))
        }
        Some(_) | None => (wanted, why),
    };
    if to <= limit {
        let why =
            format!("cannot be recovered because a multiplier of {factor} gives no more time");
        return Remedy::new(Action::Impossible, why);
    }
    // Whichever limit is in the way is raised, and none is ever lowered.
    let raise = |field: Adjustable, had: Option<u64>| {
        had.filter(|had| *had < to).map(|had| Change::new(field, Some(had), to))
    };
    let changes = raise(Adjustable::Runtime, runtime)
        .into_iter()
        .chain(raise(Adjustable::Timeout, current.timeout_seconds));
    Remedy { action: Action::MoreTime, changes: changes.collect(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn oom(confidence: f64) -> Diagnosis {
        Diagnosis {
            kind: Kind::Oom,
            nature: Nature::Memory,
            confidence,
            summary: String::new(),
            rule: None,
            needs: Default::default(),
            proof: vec![],
            doubts: vec![],
        }
    }

    fn choose(diagnosis: &Diagnosis, current: Current, caps: Caps) -> Remedy {
        Remedy::choose(diagnosis, &current, &caps, &Policy::default())
    }

    fn memory(current: Option<u64>, peak: Option<u64>, cap: Option<u64>) -> Remedy {
        let current =
            Current { memory_bytes: current, peak_memory_bytes: peak, ..Current::default() };
        choose(&oom(0.99), current, Caps { memory_bytes: cap, runtime_seconds: None })
    }

    fn to(remedy: &Remedy) -> Option<i64> {
        remedy.changes.first().map(|c| c.to)
    }

    #[test]
    fn memory_doubles_and_is_never_lowered() {
        let gib = GIB as i64;
        assert_eq!(to(&memory(Some(4 * GIB), Some(4 * GIB), None)), Some(8 * gib));
        // The sampled peak is lower than what was asked for: the request still counts.
        assert_eq!(to(&memory(Some(10 * GIB), Some(4 * GIB), None)), Some(20 * gib));
        // It used more than it asked for.
        assert_eq!(to(&memory(Some(GIB), Some(3 * GIB), None)), Some(6 * gib));
        assert_eq!(to(&memory(None, Some(2 * GIB), None)), Some(4 * gib));
        assert_eq!(memory(None, None, None).action, Action::Impossible);
    }

    #[test]
    fn a_small_limit_grows_by_more_than_itself_unless_a_multiplier_was_given() {
        const MIB: u64 = 1 << 20;
        assert_eq!(to(&memory(Some(64 * MIB), None, None)), Some(176 << 20));
        assert_eq!(to(&memory(Some(112 * MIB), None, None)), Some(224 << 20));
        assert_eq!(to(&memory(Some(200 * MIB), None, None)), Some(400 << 20));
        assert_eq!(to(&memory(Some(64 * MIB), None, Some(100 * MIB))), Some(100 << 20), "the cap");
        let current = Current { memory_bytes: Some(64 * MIB), ..Current::default() };
        let policy = Policy { memory_multiplier: Some(1.5), ..Policy::default() };
        let asked = Remedy::choose(&oom(0.99), &current, &Caps::default(), &policy);
        assert_eq!(to(&asked), Some(96 << 20));
    }

    #[test]
    fn no_node_gives_more_than_it_has() {
        let gib = GIB as i64;
        assert_eq!(
            to(&memory(Some(6 * GIB), None, Some(8 * GIB))),
            Some(8 * gib),
            "as much as there is"
        );
        let full = memory(Some(8 * GIB), None, Some(8 * GIB));
        assert_eq!(full.action, Action::Impossible);
        assert_eq!(
            full.why,
            "cannot be recovered because it needs more than 8g and the largest node known has 8g"
        );
    }

    #[test]
    fn the_limit_that_was_in_the_way_is_raised() {
        let timeout = Diagnosis { kind: Kind::Timeout, nature: Nature::Time, ..oom(0.99) };
        let current = Current {
            runtime_seconds: Some(3600),
            timeout_seconds: Some(10),
            ..Current::default()
        };
        let remedy = choose(&timeout, current, Caps::default());
        assert_eq!(remedy.changes, [Change::new(Adjustable::Timeout, Some(10), 40)]);
        let both = Current {
            runtime_seconds: Some(60),
            timeout_seconds: Some(50),
            enforces_runtime: true,
            ..Current::default()
        };
        let remedy = choose(&timeout, both, Caps::default());
        assert_eq!(
            remedy.changes,
            [
                Change::new(Adjustable::Runtime, Some(60), 200),
                Change::new(Adjustable::Timeout, Some(50), 200)
            ]
        );
    }

    #[test]
    fn a_runtime_that_only_plans_is_not_raised_after_a_timeout_but_after_a_walltime() {
        let current = Current {
            runtime_seconds: Some(60),
            timeout_seconds: Some(50),
            exec_seconds: Some(70.5),
            ..Current::default()
        };
        let timeout = Diagnosis { kind: Kind::Timeout, nature: Nature::Time, ..oom(0.99) };
        let remedy = choose(&timeout, current, Caps::default());
        assert_eq!(remedy.changes, [Change::new(Adjustable::Timeout, Some(50), 200)]);
        let walltime = Diagnosis { kind: Kind::Walltime, nature: Nature::Transient, ..oom(0.99) };
        let remedy = choose(&walltime, current, Caps::default());
        assert_eq!(remedy.changes, [Change::new(Adjustable::Runtime, Some(60), 105)]);
        assert_eq!(remedy.action, Action::MoreTime);
        let early = Current { exec_seconds: Some(30.0), ..current };
        assert_eq!(choose(&walltime, early, Caps::default()).action, Action::Again);
        let capped = Caps { runtime_seconds: Some(60), ..Caps::default() };
        assert_eq!(choose(&walltime, current, capped).action, Action::Again);
    }

    #[test]
    fn what_is_not_sure_is_left_alone() {
        let current = Current { memory_bytes: Some(GIB), ..Current::default() };
        let policy = Policy { retry_unknown: true, ..Policy::default() };
        assert_eq!(
            Remedy::choose(&oom(0.5), &current, &Caps::default(), &Policy::default()).action,
            Action::Skip
        );
        let asked = Remedy::choose(&oom(0.5), &current, &Caps::default(), &policy);
        assert_eq!((asked.action, asked.changes.len()), (Action::Again, 0));
    }

    #[test]
    fn every_kind_has_an_answer_and_a_cancel_is_never_undone() {
        let policy = Policy { retry_unknown: true, ..Policy::default() };
        for kind in Kind::ALL {
            let diagnosis = Diagnosis { kind: *kind, nature: Nature::Permanent, ..oom(0.99) };
            let current = Current {
                memory_bytes: Some(GIB),
                runtime_seconds: Some(60),
                ..Current::default()
            };
            let remedy = Remedy::choose(&diagnosis, &current, &Caps::default(), &policy);
            assert_eq!(remedy.action.is_retry(), *kind != Kind::Canceled, "{kind}");
            assert!(!remedy.why.is_empty());
        }
    }

    #[test]
    fn a_partition_limits_what_its_own_nodes_can_give() {
        let shape = |gib: u64, gpus: i64, hours: Option<i64>| NodeShape {
            num_cpus: 8,
            memory_bytes: (gib * GIB) as i64,
            num_gpus: gpus,
            max_runtime_seconds: hours.map(|h| h * 3600),
        };
        let shapes = [shape(64, 0, Some(48)), shape(256, 0, Some(4)), shape(32, 4, Some(10))];
        let job = |gib: u64, hours: u64| Current {
            memory_bytes: Some(gib * GIB),
            runtime_seconds: Some(hours * 3600),
            ..Current::default()
        };
        let caps = |gpus: i64, job: &Current| {
            let caps = Caps::default().within(&shapes, 4, gpus, job);
            (caps.memory_bytes.map(|b| b / GIB), caps.runtime_seconds.map(|s| s / 3600))
        };
        assert_eq!(caps(0, &job(8, 1)), (Some(256), Some(48)));
        assert_eq!(
            caps(0, &job(8, 12)),
            (Some(64), Some(48)),
            "the large nodes allow only four hours"
        );
        assert_eq!(
            caps(0, &job(100, 1)),
            (Some(256), Some(4)),
            "only the large nodes have the memory"
        );
        assert_eq!(caps(2, &job(8, 1)), (Some(32), Some(10)), "only one kind has GPUs");
        let unlimited = [shape(64, 0, None), shape(32, 0, Some(4))];
        assert_eq!(Caps::default().within(&unlimited, 4, 0, &job(8, 1)).runtime_seconds, None);
        let given = Caps { memory_bytes: Some(7), runtime_seconds: None };
        assert_eq!(
            given.within(&shapes, 99, 0, &job(8, 1)),
            given,
            "no node fits: what is known otherwise stays"
        );
    }
}
