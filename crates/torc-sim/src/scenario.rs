//! What a seed plays: workflows, runners, and how much goes wrong.

use torc_engine::{Class, CompiledHandler, HandlerIx, JobIx, LimitUse, Limits, NewAction, NewJob};
use torc_model::api::Capacity;
use torc_model::chance::Rng;
use torc_model::ids::{ActionId, JobId};
use torc_model::plan::{Backoff, Rule, Settings};
use torc_model::status::{ActionState, Cause, Trigger};

/// A workflow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its settings.
    pub settings: Settings,
    /// Its failure handlers.
    pub handlers: Vec<CompiledHandler>,
    /// The rules of the only handler.
    pub rules: Vec<Rule>,
    /// Its jobs; their ids follow each other.
    pub jobs: Vec<NewJob>,
    /// What it does at triggers; their ids follow each other over all workflows.
    pub actions: Vec<NewAction>,
}

impl Flow {
    /// Ms of silence after which a runner is given up.
    pub fn disown(&self) -> i64 {
        self.settings.disown_seconds as i64 * 1000
    }
}

/// How the server can learn that a runner is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// It is on the server's host.
    Local,
    /// It is elsewhere: there is never evidence.
    Remote,
    /// The batch system tells, after a while, when it wants to.
    Slurm,
}

/// A place where one runner after another lives.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its workflow.
    pub flow: usize,
    /// What a runner has here.
    pub capacity: Capacity,
    /// Who could see it die.
    pub sight: Sight,
    /// Attempts it keeps for later.
    pub prefetch: usize,
}

/// How much goes wrong, until faults stop. Rates are per mille of messages or commits, intervals in
/// ms (0: never).
#[derive(Clone, Debug)]
pub struct Faults {
    /// Messages that vanish.
    pub drop: u32,
    /// Messages that come twice.
    pub repeat: u32,
    /// Messages that come much later.
    pub late: u32,
    /// Commits that fail as a whole.
    pub commit: u32,
    /// Requests whose own part of a transaction fails.
    pub savepoint: u32,
    /// Commits during which the server dies, before or after they reach the disk.
    pub crash_at_commit: u32,
    /// Between crashes of the server.
    pub server_crash: i64,
    /// Between crashes of runners.
    pub runner_crash: i64,
    /// Between cuts of a runner's network.
    pub cut: i64,
    /// Between jumps of the server's clock.
    pub clock_jump: i64,
    /// Between stalls of a runner.
    pub stall: i64,
    /// Between departures of runners.
    pub leave: i64,
    /// Between interventions of people.
    pub people: i64,
    /// Faults stop at this time.
    pub until: i64,
}

/// Everything that a seed decides beforehand.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Workflows.
    pub flows: Vec<Flow>,
    /// Places for runners.
    pub slots: Vec<Slot>,
    /// Named limits, nothing used.
    pub limits: Limits,
    /// What goes wrong.
    pub faults: Faults,
    /// Its workflows have actions, and people reserve. In some histories only: both take time from
    /// everything else.
    pub has_extras: bool,
    /// Typical duration of a process in ms.
    pub duration: i64,
    /// Processes that fail, per mille.
    pub failing: u32,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(rng: &mut Rng, has_extras: bool) -> Self {
        let flows = if rng.chance(150) { 2 } else { 1 };
        let limited = rng.chance(500);
        let (mut first_id, mut first_action) = (1, 1);
        let flows: Vec<Flow> = (0..flows)
            .map(|_| flow(rng, &mut first_id, &mut first_action, limited, has_extras))
            .collect();
        let most = rng.pick(&[1, 2, 3, 4, 4, 6, 8, 20]);
        let slots = (0..most.max(flows.len())).map(|i| slot(rng, i % flows.len())).collect();
        let limits = Limits::from([(
            "licence".to_owned(),
            LimitUse { max: rng.range(1, 2), ..LimitUse::default() },
        )]);
        Self {
            flows,
            slots,
            limits,
            faults: faults(rng),
            has_extras,
            duration: rng.pick(&[200, 2_000, 10_000, 40_000, 150_000]),
            failing: rng.pick(&[0, 100, 300, 600]),
        }
    }

    /// The workflow and the index of an action.
    pub fn place_of_action(&self, id: ActionId) -> Option<(usize, usize)> {
        let at = |flow: &Flow| flow.actions.iter().position(|action| action.id == id);
        self.flows.iter().enumerate().find_map(|(flow, f)| Some((flow, at(f)?)))
    }

    /// The workflow and the index of a job.
    pub fn place(&self, job: JobId) -> Option<(usize, usize)> {
        self.flows.iter().enumerate().find_map(|(flow, f)| {
            let first = f.jobs.first()?.id.0;
            let index = usize::try_from(job.0 - first).ok()?;
            (index < f.jobs.len()).then_some((flow, index))
        })
    }
}

fn flow(
    rng: &mut Rng,
    first_id: &mut i64,
    first_action: &mut i64,
    limited: bool,
    has_extras: bool,
) -> Flow {
    let count = rng.pick(&[1, 2, 3, 4, 5, 6, 8, 10, 16]);
    let rules = rules(rng);
    let settings = Settings {
        use_pending_failed: rng.chance(300),
        disown_seconds: rng.pick(&[75, 75, 100, 150, 300, 2400]),
        ..Settings::default()
    };
    let edges = rng.pick(&[0, 300, 700]);
    let jobs = (0..count)
        .map(|i: usize| {
            let mut parents = Vec::new();
            for _ in 0..2 {
                if i > 0 && rng.chance(edges) {
                    parents.push(JobIx::new(rng.below(i as u64) as usize));
                }
            }
            parents.sort_unstable();
            parents.dedup();
            let uses =
                if limited && rng.chance(400) { vec!["licence".to_owned()] } else { Vec::new() };
            let job = NewJob {
                id: JobId(*first_id),
                priority: rng.range(0, 1),
                position: *first_id * 100,
                family: i as u32 % 3,
                own_ms: None,
                class: Class { cpus: rng.range(1, 2) as u32, nodes: 1, uses, ..Class::default() },
                handler: rng.chance(600).then_some(HandlerIx::new(0)),
                cancel_on_failure: rng.chance(800),
                max_lost: rng.range(0, 3) as u32,
                parents,
            };
            *first_id += 1;
            job
        })
        .collect();
    let handlers =
        vec![CompiledHandler::new("handler", &rules).expect("the simulator's rules are valid")];
    let actions = if has_extras { actions(rng, count, first_action) } else { Vec::new() };
    Flow { settings, handlers, rules, jobs, actions }
}

fn actions(rng: &mut Rng, jobs: usize, first_id: &mut i64) -> Vec<NewAction> {
    let count = rng.pick(&[0, 0, 0, 1, 2]);
    let triggers = [Trigger::OnWorkflowStart, Trigger::OnJobsReady, Trigger::OnJobsComplete];
    (0..count)
        .map(|_| {
            let trigger = rng.pick(&triggers);
            let about = match trigger {
                Trigger::OnWorkflowStart => Vec::new(),
                _ => vec![JobIx::new(rng.below(jobs as u64) as usize)],
            };
            let id = ActionId(*first_id);
            *first_id += 1;
            NewAction {
                id,
                trigger,
                jobs: about,
                persistent: false,
                is_recovery: false,
                schedules_nodes: false,
                state: ActionState::Waiting,
                by: None,
            }
        })
        .collect()
}

fn rules(rng: &mut Rng) -> Vec<Rule> {
    let backoff = Backoff { delay_seconds: 5.0, factor: 2.0, max_seconds: Some(30.0), jitter: 0.5 };
    let mut rules = vec![
        Rule {
            exit_codes: vec![1],
            backoff: rng.chance(500).then_some(backoff),
            ..Rule::default()
        },
        Rule {
            exit_codes: vec![2],
            max_retries: 2,
            recovery_script: rng.chance(500).then(|| "repair".into()),
            ..Rule::default()
        },
    ];
    if rng.chance(200) {
        rules.push(Rule { causes: vec![Cause::Lost.into()], max_retries: 2, ..Rule::default() });
    }
    if rng.chance(300) {
        rules.push(Rule { match_all_exit_codes: true, max_retries: 4, ..Rule::default() });
    }
    rules
}

fn slot(rng: &mut Rng, flow: usize) -> Slot {
    let sight = rng.pick(&[Sight::Local, Sight::Remote, Sight::Remote, Sight::Slurm]);
    let capacity = Capacity {
        num_cpus: rng.range(2, 4),
        memory_bytes: 1 << 30,
        num_nodes: 1,
        ..Capacity::default()
    };
    Slot { flow, capacity, sight, prefetch: rng.pick(&[0, 0, 1, 3]) }
}

fn faults(rng: &mut Rng) -> Faults {
    if rng.chance(30) {
        // A quiet world, so that the normal path is proved too.
        return Faults {
            drop: 0,
            repeat: 0,
            late: 0,
            commit: 0,
            savepoint: 0,
            crash_at_commit: 0,
            server_crash: 0,
            runner_crash: 0,
            cut: 0,
            clock_jump: 0,
            stall: 0,
            leave: 0,
            people: 0,
            until: 1,
        };
    }
    Faults {
        drop: rng.pick(&[0, 10, 50, 200]),
        repeat: rng.pick(&[0, 20, 150]),
        late: rng.pick(&[0, 10, 50, 150]),
        commit: rng.pick(&[0, 5, 50]),
        savepoint: rng.pick(&[0, 0, 10, 30]),
        crash_at_commit: rng.pick(&[0, 5, 20]),
        server_crash: rng.pick(&[0, 20_000, 60_000]),
        runner_crash: rng.pick(&[0, 15_000, 60_000]),
        cut: rng.pick(&[0, 0, 30_000, 90_000]),
        clock_jump: rng.pick(&[0, 0, 40_000]),
        stall: rng.pick(&[0, 0, 30_000]),
        leave: rng.pick(&[0, 0, 60_000]),
        people: rng.pick(&[0, 5_000, 20_000, 60_000]),
        until: rng.pick(&[30_000, 60_000, 120_000, 200_000, 500_000]),
    }
}
