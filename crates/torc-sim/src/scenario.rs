//! What a seed plays: workflows, runners, and how much goes wrong.

use std::collections::BTreeMap;
use torc_engine::{
    Class, CompiledHandler, HandlerIx, JobIx, LimitUse, Limits, MapJob, NewAction, NewJob,
    limit_name,
};
use torc_model::api::Capacity;
use torc_model::chance::Rng;
use torc_model::ids::{ActionId, JobId};
use torc_model::plan::{Backoff, Rule, Settings};
use torc_model::status::{ActionState, Cause, Trigger};
use torc_model::steps::Tolerate;

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
    /// Jobs that are maps; those of a map that does not look for its items are in `items`.
    pub maps: BTreeMap<JobIx, MapJob>,
    /// Items that are known from the start, with their maps.
    pub items: BTreeMap<JobIx, JobIx>,
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
    /// Until this time everything fails here at once.
    pub bad_until: i64,
}

/// How much goes wrong, until faults stop. Rates are per mille of messages or commits, intervals in
/// ms (0: never).
#[derive(Clone, Debug)]
pub struct FaultRates {
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
    /// The workflows that are played.
    pub flows: Vec<Flow>,
    /// Places for runners.
    pub slots: Vec<Slot>,
    /// Named limits, nothing used.
    pub limits: Limits,
    /// What goes wrong.
    pub faults: FaultRates,
    /// Its workflows have actions, and people reserve. In some histories only: both take time from
    /// everything else.
    pub has_extras: bool,
    /// Typical duration of a process in ms.
    pub duration: i64,
    /// Processes that fail, per mille.
    pub failing: u32,
    /// Jobs have steps, of which they tell while they run.
    pub has_steps: bool,
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
            has_steps: rng.chance(400),
        }
    }

    /// How many may use a named limit at once.
    pub fn limit(&self, name: &str) -> i64 {
        let of_map = |flow: &Flow| {
            let bound = |(index, map): (&JobIx, &MapJob)| {
                let is_it = limit_name(flow.jobs[index.at()].id) == name;
                map.max_parallel.filter(|_| is_it)
            };
            flow.maps.iter().find_map(bound)
        };
        let own = self.limits.get(name).map(|limit| limit.max);
        own.or_else(|| self.flows.iter().find_map(of_map).map(i64::from)).unwrap_or(0)
    }

    /// The workflow and the index of an action.
    pub fn place_of_action(&self, id: ActionId) -> Option<(usize, usize)> {
        let at = |flow: &Flow| flow.actions.iter().position(|action| action.id == id);
        self.flows.iter().enumerate().find_map(|(flow, f)| Some((flow, at(f)?)))
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
    let mut jobs: Vec<NewJob> = jobs;
    let (maps, items) = maps(rng, &mut jobs, first_id);
    let handlers =
        vec![CompiledHandler::new("handler", &rules).expect("the simulator's rules are valid")];
    let may_trigger = |index: &JobIx| {
        // A map with a list of items is never ready, and what it stands for may never run.
        !maps.contains_key(index)
    };
    let about: Vec<JobIx> = JobIx::range(0..count).filter(may_trigger).collect();
    let actions = if has_extras { actions(rng, &about, first_action) } else { Vec::new() };
    Flow { settings, handlers, rules, jobs, actions, maps, items }
}

type Maps = (BTreeMap<JobIx, MapJob>, BTreeMap<JobIx, JobIx>);

/// Makes some jobs maps. The items of those that have a list of them are jobs from the start.
fn maps(rng: &mut Rng, jobs: &mut Vec<NewJob>, first_id: &mut i64) -> Maps {
    let (mut maps, mut items) = Maps::default();
    if !rng.chance(350) {
        return (maps, items);
    }
    for _ in 0..rng.range(1, 2) {
        let index = JobIx::new(rng.below(jobs.len() as u64) as usize);
        if maps.contains_key(&index) || items.contains_key(&index) {
            continue;
        }
        let map = MapJob {
            tolerate: rng.pick(&[Tolerate::Count(0), Tolerate::Count(1), Tolerate::Percent(50.0)]),
            fail_fast: rng.chance(300),
            is_dynamic: rng.chance(600),
            max_parallel: rng.chance(400).then(|| rng.range(1, 2) as u32),
            ..MapJob::default()
        };
        let count = if map.is_dynamic { 0 } else { rng.range(1, 4) };
        for _ in 0..count {
            let mut item = jobs[index.at()].clone();
            item.id = JobId(*first_id);
            if map.max_parallel.is_some() {
                item.class.uses.push(limit_name(jobs[index.at()].id));
            }
            *first_id += 1;
            items.insert(JobIx::new(jobs.len()), index);
            jobs.push(item);
        }
        maps.insert(index, map);
    }
    (maps, items)
}

fn actions(rng: &mut Rng, jobs: &[JobIx], first_id: &mut i64) -> Vec<NewAction> {
    let count = rng.pick(&[0, 0, 0, 1, 2]);
    let triggers = [Trigger::OnWorkflowStart, Trigger::OnJobsReady, Trigger::OnJobsComplete];
    (0..count)
        .map(|_| {
            let trigger = match jobs.is_empty() {
                true => Trigger::OnWorkflowStart,
                false => rng.pick(&triggers),
            };
            let about = match trigger {
                Trigger::OnWorkflowStart => Vec::new(),
                _ => vec![rng.pick(jobs)],
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
    let bad_until = rng.pick(&[0, 0, 0, 0, 60_000, 300_000]);
    Slot { flow, capacity, sight, prefetch: rng.pick(&[0, 0, 1, 3]), bad_until }
}

fn faults(rng: &mut Rng) -> FaultRates {
    if rng.chance(30) {
        // A quiet world, so that the normal path is proved too.
        return FaultRates {
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
    FaultRates {
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
