//! A workflow that grows: what is added in one transaction runs like everything else, also after a
//! restart.

use super::super::job_rows::{Addition, add};
use super::*;
use std::collections::{BTreeMap, HashMap};
use torc_model::api::{ApplyOptions, ApplyView, PlannedChange};
use torc_model::plan::{File, Requirements};
use torc_model::status::RunningJobs;

/// Applies a plan as a request does.
pub async fn apply(f: &Fixture, plan: Plan, how: ApplyOptions) -> Result<ApplyView, Refusal> {
    let id = f.id;
    let files = facts::of_plan(&plan);
    let prepared = super::super::revise::Prepared::Other(Box::new(plan), files);
    let applied =
        f.store.writer.call(move |tx| super::super::revise::apply(tx, id, prepared, &how));
    applied.await.map(|(view, _)| view)
}

/// The engine's copy says what the rows say.
async fn same_as_rows(f: &Fixture) {
    let id = f.id;
    f.store
        .writer
        .call(move |tx| {
            let stored = load::workflow(tx.db, id)?.expect("it is there");
            let kept = tx.workflow(id)?;
            let seen = |workflow: &torc_engine::Workflow| {
                let jobs = workflow.indexes();
                jobs.map(|at| {
                    let job = workflow.job(at);
                    let mut parents = workflow.parents_of(at).to_vec();
                    parents.sort_unstable();
                    let state = (job.status(), job.reason(), job.unmet(), job.live());
                    let place = (job.id(), state, parents);
                    (place, workflow.class_of(at).clone(), job.handler(), job.afterwards())
                })
                .collect::<Vec<_>>()
            };
            assert_eq!(seen(kept), seen(&stored));
            assert_eq!((kept.run, kept.counts()), (stored.run, stored.counts()));
            Ok(())
        })
        .await
        .expect("looked");
    // A list holds every job that it says there are, whether the writer has counted them or the rows were.
    let reader = read::Reader::open(&f.directory.path().join("torc.db")).expect("a reader");
    for text in ["", "-status:completed", "status:disabled"] {
        let matching = torc_model::filter::Filter::parse(text).expect("a filter");
        let filter =
            read::JobFilter { workflow_id: Some(id.0), matching, ..read::JobFilter::default() };
        let known = f.store.progress(id).map(|(progress, _)| progress.listed());
        let told = reader.list_jobs(filter.clone(), Default::default(), known).await.expect("jobs");
        let rows = reader.list_jobs(filter, Default::default(), None).await.expect("jobs");
        assert_eq!(told, rows, "{text}");
    }
}

async fn added(
    f: &Fixture,
    mut plan: Plan,
    after: Vec<(usize, JobId)>,
) -> Result<Vec<JobId>, Refusal> {
    let id = f.id;
    f.store
        .writer
        .call(move |tx| {
            let present = HashMap::from([("a".to_owned(), JobId(1))]);
            let addition = Addition {
                plan: &mut plan,
                present: &present,
                also_after: &after,
                added_by: Some(JobId(2)),
            };
            add(tx, id, addition)
        })
        .await
}

fn more() -> Plan {
    let mut plan = Plan {
        name: "more".into(),
        jobs: vec![job("a", &[]), job("e", &[0]), job("f", &[1])],
        files: vec![File { name: "out".into(), path: "out.txt".into(), min_size: 0 }],
        resource_requirements: vec![Requirements {
            num_cpus: 2,
            name: "two".into(),
            ..Requirements::default()
        }],
        ..Plan::default()
    };
    plan.jobs[1].output_files = vec![0];
    plan.jobs[2].input_files = vec![0];
    plan.jobs[2].resource_requirements = Some(0);
    plan
}

#[tokio::test]
async fn jobs_that_are_added_to_a_live_workflow_run_after_what_they_depend_on() {
    let mut f = Fixture::new(diamond()).await;
    let a = f.claim(vec![]).await;
    // `e` depends on `a`, which runs; `f` on `e` and on `d`, which waits.
    let new = added(&f, more(), vec![(2, JobId(4))]).await.expect("added");
    assert_eq!(new, [JobId(5), JobId(6)]);
    same_as_rows(&f).await;
    assert_eq!(f.scalar("SELECT job_count FROM workflow").await, 6);
    assert_eq!(f.scalar("SELECT count(*) FROM job WHERE added_by = 2").await, 2);
    f.restart();
    f.register("r2").await;
    let mut order = vec![vec!["a".to_owned()]];
    let mut done = vec![ended(&a.attempts[0], 0)];
    f.runner = RunnerId(1);
    loop {
        let work = f.claim(std::mem::take(&mut done)).await;
        same_as_rows(&f).await;
        if work.attempts.is_empty() {
            break;
        }
        let mut names: Vec<String> = work.attempts.iter().map(|p| p.job_name.clone()).collect();
        names.sort();
        order.push(names);
        done.extend(work.attempts.iter().map(|packet| ended(packet, 0)));
    }
    assert_eq!(order, [vec!["a"], vec!["b", "c", "e"], vec!["d"], vec!["f"]]);
    // To what is over, more jobs are the next run.
    let mut again = more();
    again.jobs.truncate(2);
    again.jobs[1].name = "g".into();
    added(&f, again, vec![]).await.expect("added");
    same_as_rows(&f).await;
    assert_eq!(f.scalar("SELECT run_id FROM workflow").await, 2);
    let work = f.claim(vec![]).await;
    assert_eq!(work.attempts.iter().map(|p| p.job_name.as_str()).collect::<Vec<_>>(), ["g"]);
}

#[tokio::test]
async fn a_name_that_is_there_is_refused_and_nothing_is_added() {
    let f = Fixture::new(diamond()).await;
    let mut plan = more();
    plan.jobs[2].name = "d".into();
    let refused = added(&f, plan, vec![]).await.expect_err("there is a job of this name");
    assert_eq!(refused.code, ErrorCode::NameTaken);
    assert_eq!(f.scalar("SELECT count(*) FROM job").await, 4);
    assert_eq!(f.scalar("SELECT count(*) FROM file").await, 0);
    same_as_rows(&f).await;
}

/// A source of numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A workflow of a random spec, and what its jobs have written.
struct Growing {
    f: Fixture,
    dice: Dice,
    plan: Plan,
    /// What each job wrote last.
    written: BTreeMap<String, String>,
    /// What runners have: the job, its packet, and what it will write.
    held: Vec<(torc_model::api::AttemptPacket, String)>,
    /// Jobs that the last revision called up to date.
    up_to_date: Vec<String>,
}

impl Growing {
    /// Some of the jobs a to h, each with a command of three and some parents before it.
    fn spec(dice: &mut Dice) -> Plan {
        let mut plan = Plan { name: "grows".into(), ..Plan::default() };
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            if dice.roll(4) == 0 {
                continue;
            }
            let parents: Vec<usize> = (0..plan.jobs.len()).filter(|_| dice.roll(3) == 0).collect();
            let command = format!("version {}", dice.roll(3));
            plan.jobs.push(Job { command, ..job(name, &parents) });
        }
        if plan.jobs.is_empty() {
            plan.jobs.push(job("a", &[]));
        }
        // What a plan is compared by.
        plan.spec = format!("{:?}", plan.jobs);
        plan
    }

    /// What a job writes: its command, and what its parents have written.
    fn output(&self, name: &str, command: &str) -> String {
        let at = self.plan.jobs.iter().position(|job| job.name == name);
        let parents = at.map_or(&[][..], |at| &self.plan.jobs[at].depends_on);
        let read: Vec<&str> = parents
            .iter()
            .map(|at| self.written.get(&self.plan.jobs[*at].name).map_or("nothing", String::as_str))
            .collect();
        format!("{command}({})", read.join(","))
    }

    async fn change(&mut self, plan: Plan) {
        let running = match self.dice.roll(2) {
            0 => RunningJobs::Finish,
            _ => RunningJobs::Stop,
        };
        let how = ApplyOptions { failed: true, running, ..ApplyOptions::default() };
        let dry = ApplyOptions { dry_run: true, ..how.clone() };
        let planned = apply(&self.f, plan.clone(), dry).await.expect("planned");
        let done = apply(&self.f, plan.clone(), how).await.expect("applied");
        assert_eq!((planned.jobs, planned.counts), (done.jobs.clone(), done.counts.clone()));
        self.plan = plan;
        for job in done.jobs.iter().filter(|job| job.change == PlannedChange::Removed) {
            self.written.remove(&job.name);
        }
        let statuses = self.f.statuses().await;
        let is_done = |name: &str| statuses.iter().any(|(n, status, _)| n == name && *status == 5);
        let names = self.plan.jobs.iter().map(|job| job.name.clone());
        self.up_to_date = names.filter(|name| is_done(name)).collect();
        same_as_rows(&self.f).await;
    }

    async fn claim(&mut self) -> bool {
        let work = self.f.claim(vec![]).await;
        for packet in &work.attempts {
            let name = &packet.job_name;
            assert!(!self.up_to_date.contains(name), "`{name}` was up to date and runs again");
            let output = self.output(name, &packet.command);
            self.held.push((packet.clone(), output));
        }
        !work.attempts.is_empty()
    }

    async fn end(&mut self, at: usize, code: i64) {
        let (packet, output) = self.held.swap_remove(at);
        let report = ended(&packet, code);
        let at = AttemptRef { id: packet.id, token: packet.token.clone() };
        let batch = CompletionBatch { runner_id: self.f.runner, items: vec![report] };
        let told = self.f.store.complete(batch).await.expect("told");
        assert_eq!(told.results[0].id, at.id);
        if code == 0 {
            self.written.insert(packet.job_name, output);
        }
    }

    async fn step(&mut self) {
        match self.dice.roll(10) {
            0..=2 => _ = self.claim().await,
            3..=6 if !self.held.is_empty() => {
                let at = self.dice.roll(self.held.len() as u64) as usize;
                let code = i64::from(self.dice.roll(5) == 0);
                self.end(at, code).await;
            }
            7 => {
                self.f.restart();
                same_as_rows(&self.f).await;
            }
            _ => {
                let plan = Self::spec(&mut self.dice);
                self.change(plan).await;
            }
        }
    }

    /// Everything that is left runs and succeeds.
    async fn drain(&mut self) {
        loop {
            while !self.held.is_empty() {
                self.end(0, 0).await;
            }
            if !self.claim().await {
                return;
            }
        }
    }
}

/// Whatever is applied in whatever order, while jobs run, fail and the server is started again: in the
/// end the outputs are those of a fresh run of the last spec, and what was up to date did not run.
#[tokio::test]
async fn any_sequence_of_revisions_ends_as_a_fresh_run_of_the_last_one() {
    for seed in 1..=25 {
        let mut dice = Dice(seed);
        let plan = Growing::spec(&mut dice);
        let f = Fixture::new(plan.clone()).await;
        let (written, held) = (BTreeMap::new(), Vec::new());
        let mut world = Growing { f, dice, plan, written, held, up_to_date: Vec::new() };
        for _ in 0..30 {
            world.step().await;
        }
        world.drain().await;
        // What failed on the way runs again, as a second call of the same command lets it.
        world.change(world.plan.clone()).await;
        world.drain().await;
        let mut fresh: BTreeMap<String, String> = BTreeMap::new();
        for job in &world.plan.jobs {
            let read: Vec<&str> = job
                .depends_on
                .iter()
                .map(|at| fresh[&world.plan.jobs[*at].name].as_str())
                .collect();
            fresh.insert(job.name.clone(), format!("{}({})", job.command, read.join(",")));
        }
        // What ran when it was removed may have ended since.
        world.written.retain(|name, _| fresh.contains_key(name));
        assert_eq!(world.written, fresh, "seed {seed}");
        let dry = ApplyOptions { dry_run: true, failed: true, ..ApplyOptions::default() };
        let last = apply(&world.f, world.plan.clone(), dry).await.expect("planned");
        assert_eq!(last.counts.up_to_date, world.plan.jobs.len() as i64, "seed {seed}");
        assert!(last.jobs.is_empty(), "seed {seed}: {:?}", last.jobs);
    }
}

#[tokio::test]
async fn items_need_what_their_map_was_given_while_it_looked_for_them() {
    let map = json!({"items": {"command": "ls"}, "max_parallel": 2});
    let steps = json!([{"shell": "echo \"${item}\""}]);
    let spec = json!({"name": "m", "jobs": [{"name": "each", "map": map, "steps": steps}]});
    let mut f = Fixture::new(plan(spec.into()).expect("a plan").0).await;
    let looks = f.claim(vec![]).await.attempts;
    let update = torc_model::api::UpdateJob {
        memory: Some(torc_model::units::Memory(3 << 30)),
        num_cpus: Some(2),
        ..Default::default()
    };
    f.store.update_job(looks[0].job_id, update).await.expect("changed");
    let found = json!({"items": [{"key": "a", "item": 1}, {"key": "b", "item": 2}]});
    let end = CompletionReport { steps: Some(found), ..ended(&looks[0], 0) };
    let needs = |work: &ClaimResponse| {
        let of = |packet: &torc_model::api::AttemptPacket| (packet.num_cpus, packet.memory_bytes);
        work.attempts.iter().map(of).collect::<Vec<_>>()
    };
    let work = f.claim(vec![end]).await;
    assert_eq!(needs(&work), [(2, Some(3 << 30)); 2]);
    same_as_rows(&f).await;
}

#[tokio::test]
async fn a_request_that_is_refused_after_a_move_leaves_memory_as_the_rows_are() {
    let f = Fixture::new(diamond()).await;
    let id = f.id;
    let refused = f
        .store
        .writer
        .call(move |tx| -> Result<(), super::super::writer::Failed> {
            let job = torc_engine::JobIx::new(0);
            tx.handle(torc_engine::On(id, torc_engine::commands::CancelJob { job }))?;
            Err(Refusal::invalid("status", "a later part of the request").into())
        })
        .await;
    refused.expect_err("refused");
    same_as_rows(&f).await;
    assert_eq!(f.statuses().await[0], ("a".into(), 2, 1), "it is ready still");
}
