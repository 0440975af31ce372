//! An edited spec: everything in it is taken over, or nothing is.

use super::*;
use torc_model::api::{ActionReport, ApplyOptions, ErrorCode, UpdateJob};
use torc_model::plan::{Action, ActionKind, JobExtra, Requirements, SlurmScheduler, UserData};
use torc_model::recovery::Change;
use torc_model::status::Trigger;
use torc_model::units::{Memory, Runtime};

const MIB: u64 = 1 << 20;

fn needs(name: &str, memory: Option<u64>, runtime: u64) -> Requirements {
    let (memory, runtime) = (memory.map(|m| Memory(m * MIB)), Some(Runtime(runtime)));
    Requirements { name: name.into(), memory, runtime, ..Requirements::default() }
}

fn handler(name: &str, max_retries: u32) -> FailureHandler {
    FailureHandler {
        name: name.into(),
        rules: vec![Rule { exit_codes: vec![3], max_retries, ..Rule::default() }],
    }
}

fn scheduler(name: &str, account: &str) -> SlurmScheduler {
    SlurmScheduler {
        name: name.into(),
        account: account.into(),
        nodes: 1,
        ..SlurmScheduler::default()
    }
}

fn one_job() -> Plan {
    Plan {
        name: "w".into(),
        resource_requirements: vec![needs("small", Some(50), 60)],
        failure_handlers: vec![handler("h1", 1)],
        slurm_schedulers: vec![scheduler("s1", "old")],
        jobs: vec![Job {
            resource_requirements: Some(0),
            failure_handler: Some(0),
            ..job("a", &[])
        }],
        ..Plan::default()
    }
}

fn again(mut plan: Plan) -> Plan {
    plan.jobs[0].command = "echo again".into();
    plan
}

async fn take(
    f: &Fixture,
    plan: Plan,
    dry_run: bool,
) -> Result<torc_model::api::ResetView, Refusal> {
    let how = ApplyOptions { dry_run, ..ApplyOptions::default() };
    Ok(super::growth::apply(f, plan, how).await?.into())
}

async fn text(f: &Fixture, sql: &'static str) -> String {
    f.store
        .writer
        .call(move |tx| Ok(tx.db.query_row(sql, [], |row| row.get(0))?))
        .await
        .expect("a text")
}

/// One job that succeeded, after a recovery had given it 75 MiB.
async fn recovered(plan: Plan) -> Fixture {
    let mut f = Fixture::new(plan).await;
    let update = UpdateJob { memory: Some(Memory(75 * MIB)), ..UpdateJob::default() };
    f.store.update_job(JobId(1), update).await.expect("raised");
    let work = f.claim(vec![]).await;
    f.claim(vec![ended(&work.attempts[0], 0)]).await;
    f
}

#[tokio::test]
async fn what_a_recovery_gave_stays_unless_the_spec_asks_for_as_much() {
    // What the spec asks for, and what the job gets then.
    for (asked, given) in [
        (Some(500), Some(500)),
        (Some(75), Some(75)),
        (Some(60), Some(75)),
        (Some(50), Some(75)),
        (None, None),
    ] {
        let mut f = recovered(one_job()).await;
        let plan =
            Plan { resource_requirements: vec![needs("small", asked, 60)], ..again(one_job()) };
        take(&f, plan, false).await.expect("taken over");
        let work = f.claim(vec![]).await;
        assert_eq!(work.attempts[0].memory_bytes.map(|m| m >> 20), given, "asked for {asked:?}");
    }
}

#[tokio::test]
async fn a_longer_timeout_of_a_recovery_stays() {
    let timed = |seconds: u64, command: &str| {
        let extra = JobExtra { timeout: Some(Runtime(seconds)), ..JobExtra::default() };
        let job = Job { extra: extra.into(), command: command.into(), ..job("a", &[]) };
        Plan { name: "w".into(), jobs: vec![job], ..Plan::default() }
    };
    for (asked, given) in [(10, 15), (12, 15), (30, 30)] {
        let mut f = Fixture::new(timed(10, "true")).await;
        let id = f.id;
        let change = Change::new(torc_model::status::Adjustable::Timeout, Some(10), 15);
        f.store
            .writer
            .call(move |tx| {
                let because = torc_engine::Because { attempt: 1, why: "too slow", by: "recover" };
                super::super::remedies::adjust(tx, id, JobId(1), &[change], because)
            })
            .await
            .expect("raised");
        let work = f.claim(vec![]).await;
        f.claim(vec![ended(&work.attempts[0], 0)]).await;
        take(&f, timed(asked, "echo again"), false).await.expect("taken over");
        assert_eq!(f.scalar("SELECT extra ->> 'timeout' IS NOT NULL FROM job").await, 1);
        let extra: JobExtra =
            serde_json::from_str(&text(&f, "SELECT extra FROM job").await).expect("extra");
        assert_eq!(extra.timeout, Some(Runtime(given)), "asked for {asked}");
    }
}

#[tokio::test]
async fn a_job_takes_other_requirements_handlers_and_schedulers() {
    let mut f = recovered(one_job()).await;
    let mut plan = Plan {
        resource_requirements: vec![
            Requirements { num_cpus: 2, ..needs("big", Some(700), 180) },
            needs("small", Some(50), 60),
        ],
        // The new one comes first in the file, and last in the database.
        failure_handlers: vec![handler("h0", 3), handler("h1", 2)],
        slurm_schedulers: vec![scheduler("s0", "acct"), scheduler("s1", "new")],
        ..again(one_job())
    };
    plan.jobs[0].scheduler = Some(0);
    plan.jobs[0].cancel_on_blocking_job_failure = false;
    take(&f, plan, false).await.expect("taken over");
    let told = "SELECT r.name || ' ' || r.num_cpus || ' ' || h.name || ' ' || s.name || ' ' || j.cancel_on_blocking_job_failure
                FROM job j JOIN resource_requirements r ON r.id = j.resource_requirements_id
                JOIN failure_handler h ON h.id = j.failure_handler_id JOIN slurm_scheduler s ON s.id = j.scheduler_id";
    assert_eq!(text(&f, told).await, "big 2 h0 s0 0");
    assert_eq!(
        text(&f, "SELECT definition ->> 'account' FROM slurm_scheduler WHERE name = 's1'").await,
        "new"
    );
    assert_eq!(
        f.scalar("SELECT rules ->> '$[0].max_retries' FROM failure_handler WHERE name = 'h1'")
            .await,
        2
    );
    f.store
        .writer
        .call(|tx| Ok(tx.db.execute("UPDATE job SET scheduler_id = NULL", [])?))
        .await
        .expect("any runner");
    f.restart();
    let mut attempts = 0;
    let mut work = f.claim(vec![]).await.attempts;
    while let Some(packet) = work.first() {
        attempts += 1;
        assert_eq!((packet.num_cpus, packet.memory_bytes), (2, Some(700 << 20)));
        work = f.claim(vec![ended(packet, 3)]).await.attempts;
    }
    assert_eq!(attempts, 3, "the new handler's rule");
}

#[tokio::test]
async fn the_default_handler_is_the_one_that_the_spec_names() {
    let plan = |handlers: Vec<FailureHandler>, default: usize, command: &str| {
        let settings = torc_model::plan::Settings {
            default_failure_handler: Some(default),
            ..Default::default()
        };
        let job = Job { command: command.into(), ..job("a", &[]) };
        Plan {
            name: "w".into(),
            settings,
            failure_handlers: handlers,
            jobs: vec![job],
            ..Plan::default()
        }
    };
    let mut f = Fixture::new(plan(vec![handler("h1", 1)], 0, "true")).await;
    let work = f.claim(vec![]).await;
    f.claim(vec![ended(&work.attempts[0], 0)]).await;
    take(&f, plan(vec![handler("h0", 4), handler("h1", 1)], 0, "echo again"), false)
        .await
        .expect("taken over");
    let work = f.claim(vec![]).await;
    let retried = f.claim(vec![ended(&work.attempts[0], 3)]).await;
    assert_eq!(retried.attempts.len(), 1, "`h0` tries again, `h1` would not");
}

#[tokio::test]
async fn settings_actions_files_and_user_data_are_taken_over() {
    let action = |command: &str| Action {
        trigger: Trigger::OnWorkflowComplete,
        jobs: Vec::new(),
        what: ActionKind::RunCommands { commands: vec![command.into()] },
        persistent: false,
    };
    let data =
        |value: i64| UserData { name: "u".into(), data: Some(json!(value)), is_ephemeral: false };
    let plan = |path: &str, value: i64, actions: Vec<Action>| {
        let mut plan = Plan { actions, user_data: vec![data(value)], ..one_job() };
        plan.files =
            vec![torc_model::plan::File { name: "f".into(), path: path.into(), min_size: 0 }];
        plan.jobs[0].input_files = vec![0];
        plan.jobs[0].input_user_data = vec![0];
        plan.jobs.push(job("b", &[]));
        plan
    };
    let mut f =
        Fixture::new(plan("one.txt", 1, vec![action("echo old"), action("echo same")])).await;
    let work = f.claim(vec![]).await;
    let last = f.claim(work.attempts.iter().map(|packet| ended(packet, 0)).collect()).await;
    let other = plan("one.txt", 1, vec![action("echo same")]);
    let refused = take(&f, other, false).await.expect_err("a runner is at it");
    assert_eq!(refused.code, ErrorCode::ActionRunning);
    for action in last.actions {
        let report = ActionReport { runner_id: f.runner, return_code: 0, error: None };
        f.store.complete_action(action.id, report).await.expect("reported");
    }
    let kept = f.scalar("SELECT id FROM workflow_action WHERE what LIKE '%same%'").await;

    let mut new = plan("two.txt", 2, vec![action("echo same"), action("echo new")]);
    new.settings.env.insert("LEVEL".into(), "high".into());
    new.limits.insert("licence".into(), 3);
    let dry = take(&f, new.clone(), true).await.expect("planned");
    assert_eq!(
        dry.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(),
        ["a", "b"],
        "its user data differs, and `env` is that of all"
    );
    assert_eq!(
        text(&f, "SELECT path || data FROM file, user_data").await,
        "one.txt1",
        "a dry run changes nothing"
    );
    let taken = take(&f, new, false).await.expect("taken over");
    assert_eq!(taken.jobs, dry.jobs);
    assert_eq!(text(&f, "SELECT path || data FROM file, user_data").await, "two.txt2");
    assert_eq!(text(&f, "SELECT settings ->> '$.env.LEVEL' FROM workflow").await, "high");
    assert_eq!(f.scalar("SELECT max FROM named_limit WHERE name = 'licence'").await, 3);
    assert_eq!(f.scalar("SELECT id FROM workflow_action WHERE what LIKE '%same%'").await, kept);
    assert_eq!(
        text(&f, "SELECT group_concat(what ->> '$.commands[0]') FROM workflow_action").await,
        "echo same,echo new"
    );
    let work = f.claim(vec![]).await;
    assert_eq!(work.attempts[0].env.get("TORC_USER_DATA_u").map(String::as_str), Some("2"));
}

#[tokio::test]
async fn a_job_that_reads_something_else_runs_again() {
    let plan = |reads: usize| {
        let mut plan = one_job();
        plan.files = ["f", "g"]
            .map(|name| torc_model::plan::File {
                name: name.into(),
                path: name.into(),
                min_size: 0,
            })
            .to_vec();
        plan.jobs[0].input_files = vec![reads];
        plan
    };
    let mut f = Fixture::new(plan(0)).await;
    let work = f.claim(vec![]).await;
    f.claim(vec![ended(&work.attempts[0], 0)]).await;
    assert!(take(&f, plan(0), false).await.expect("nothing to do").jobs.is_empty());
    let taken = take(&f, plan(1), false).await.expect("taken over");
    assert_eq!(taken.jobs.len(), 1);
    assert_eq!(
        text(&f, "SELECT f.name FROM job_item i JOIN file f ON f.id = i.item_id").await,
        "g"
    );
}

#[tokio::test]
async fn a_spec_that_is_refused_changes_nothing() {
    let f = recovered(one_job()).await;
    let mut wrong = again(one_job());
    wrong.failure_handlers[0].rules.clear();
    take(&f, wrong, false).await.expect_err("no rules");
    assert_eq!(text(&f, "SELECT command FROM job").await, "true");
    assert_eq!(f.scalar("SELECT memory_bytes / 1048576 FROM resource_requirements").await, 50);
}

#[tokio::test]
async fn items_do_what_the_new_spec_says_of_their_map() {
    let spec = |file: &str, max_parallel: i64| {
        let steps = json!([{"shell": format!("echo \"${{item}}\" >> {file}")}]);
        let map = json!({"items": [1, 2, 3], "max_parallel": max_parallel});
        plan(json!({"name": "m", "jobs": [{"name": "each", "map": map, "steps": steps}]}).into())
            .expect("a plan")
            .0
    };
    let mut f = Fixture::new(spec("old", 1)).await;
    let mut done = 0;
    let mut work = f.claim(vec![]).await.attempts;
    while !work.is_empty() {
        assert_eq!(work.len(), 1, "one at once");
        done += 1;
        work = f.claim(work.iter().map(|packet| ended(packet, 0)).collect()).await.attempts;
    }
    assert_eq!(done, 3);
    assert!(take(&f, spec("old", 2), false).await.expect("nothing runs again").jobs.is_empty());
    assert_eq!(take(&f, spec("new", 2), false).await.expect("taken over").jobs.len(), 4);
    let work = f.claim(vec![]).await.attempts;
    assert_eq!(work.len(), 2, "two at once");
    assert!(work.iter().all(|packet| {
        packet.steps.as_ref().is_some_and(|steps| steps.to_string().contains("new"))
    }));
}
