//! `cargo xtask team`: a server under the load of a team. Simulated users with workflows, clients that ask
//! for status and write values, and pool runners that start no processes but keep every rule of real ones.
//! All of it runs beside the server on the same machine, so what the load itself used is told with the rest.
//!
//! Three questions are answered: how long a status takes (p99), how fairly the runners were shared between
//! users (Jain's index of CPU time), and whether anything that the server acknowledged was lost.

mod runners;

use crate::Result;
use crate::bench::machine;
use crate::bench::world::{Arena, Server};
use runners::PoolRunner;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use torc_client::{Client, Query};
use torc_model::api::{CreateToken, CreateWorkflow, Role, TokenCreated};
use torc_model::ids::WorkflowId;

/// Load a server as a team would, and judge its answers
#[derive(clap::Args)]
pub struct Args {
    /// Users with workflows
    #[arg(long, default_value_t = 20)]
    users: usize,
    /// Clients that ask for status about once a second
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// Pool runners with one CPU each
    #[arg(long, default_value_t = 1000)]
    runners: usize,
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How long jobs take on average; those of one user take up to four times as long as another's
    #[arg(long, default_value_t = 5.0)]
    job_seconds: f64,
    /// The slowest hundredth of status answers may take this long
    #[arg(long, default_value_t = 50.0)]
    max_p99_ms: f64,
    /// Jain's index must be at least this
    #[arg(long, default_value_t = 0.95)]
    min_fairness: f64,
    /// The program under test [default: a release build of this tree]
    #[arg(long)]
    torc: Option<PathBuf>,
}

/// A user, and what is known of their workflows.
struct User {
    client: Client,
    workflows: Vec<WorkflowId>,
    /// Values that clients write, by id.
    values: Vec<i64>,
    job_seconds: f64,
    /// CPU time that runners gave them, in ms, after the beginning.
    used_ms: AtomicU64,
    /// Ends that the server acknowledged.
    acknowledged: AtomicU64,
}

struct Team {
    users: Vec<User>,
    owner_of: HashMap<WorkflowId, usize>,
    /// Since then everything is counted: the beginning is crowded.
    counted_from: Instant,
    over: watch::Receiver<bool>,
    /// Requests of all kinds.
    requests: AtomicU64,
    /// Runners that pool runners started for a workflow.
    registered: AtomicU64,
    /// What should not happen, the first few.
    faults: Mutex<Vec<String>>,
}

impl Team {
    fn fault(&self, text: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < 20 {
            faults.push(text);
        }
    }

    fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Sleeps so long, or until it is over.
    async fn sleep(&self, time: Duration) {
        let mut over = self.over.clone();
        // The sender lives until all tasks have ended.
        let _ = tokio::time::timeout(time, over.wait_for(|over| *over)).await;
    }
}

impl Args {
    /// Runs the load and prints what came of it.
    pub fn execute(self) -> Result<()> {
        let torc = match &self.torc {
            Some(torc) => torc.clone(),
            None => crate::build(&crate::root()?, &["--release", "-p", "torc"])?,
        };
        raise_file_limit()?;
        let arena = Arena::new(torc, None, false)?;
        let server = arena.server()?;
        let outcome = arena.runtime.block_on(self.load(&server))?;
        println!("{}", serde_json::to_string_pretty(&outcome)?);
        let p99 = outcome["status_p99_ms"].as_f64().unwrap_or(f64::INFINITY);
        let fairness = outcome["fairness"].as_f64().unwrap_or(0.0);
        let faults = outcome["faults"].as_array().map_or(1, Vec::len);
        if p99 > self.max_p99_ms || fairness < self.min_fairness || faults > 0 {
            return Err(format!(
                "not good enough: p99 {p99:.1} ms (at most {}), fairness {fairness:.3} (at least {}), {faults} faults",
                self.max_p99_ms, self.min_fairness
            )
            .into());
        }
        Ok(())
    }

    async fn load(&self, server: &Server<'_>) -> Result<Value> {
        let (tell, over) = watch::channel(false);
        let mut users = Vec::new();
        for nth in 0..self.users {
            users.push(self.user(&server.client, nth).await?);
        }
        let owner_of = users
            .iter()
            .enumerate()
            .flat_map(|(nth, user)| user.workflows.iter().map(move |id| (*id, nth)))
            .collect();
        let begun = Instant::now();
        let warm_up = Duration::from_secs((self.seconds / 6).min(30));
        let team = Arc::new(Team {
            users,
            owner_of,
            counted_from: begun + warm_up,
            over,
            requests: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let mut runners = tokio::task::JoinSet::new();
        for nth in 0..self.runners {
            // As from other machines, each with connections of its own.
            let client = Client::new(server.client.url(), server.client.token())?;
            let runner = PoolRunner { client, team: team.clone() };
            runners.spawn(runner.serve(nth));
        }
        let mut clients = tokio::task::JoinSet::new();
        for nth in 0..self.clients {
            clients.spawn(ask(team.clone(), nth));
        }
        let (before, own_before) = (server.usage(), machine::usage(std::process::id()));
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        let cpu = Cpu {
            server: server.usage().since(before).cpu,
            load: machine::usage(std::process::id()).since(own_before).cpu,
        };
        let wall = begun.elapsed();
        tell.send_replace(true);
        let mut answers = Vec::new();
        while let Some(done) = clients.join_next().await {
            answers.extend(done?);
        }
        while let Some(done) = runners.join_next().await {
            done?;
        }
        // What was cut short counts as far as it ran.
        let used =
            team.users.iter().map(|user| user.used_ms.load(Ordering::Relaxed) as f64).collect();
        self.judge(server, &team, used, answers, (wall, cpu)).await
    }

    /// A user with one to three workflows that last longer than the load, and a value per client.
    async fn user(&self, owner: &Client, nth: usize) -> Result<User> {
        let name = format!("user{nth:02}");
        let token = CreateToken {
            user: name.clone(),
            role: Role::Operate,
            name: None,
            expires_seconds: None,
            workflow_id: None,
            access_group_id: None,
        };
        let made: TokenCreated = owner.post("/tokens", &token).await?;
        let client = Client::new(owner.url(), &made.token)?;
        // From 0.4 to 1.6 of the average.
        let spread = nth as f64 / (self.users.max(2) - 1) as f64;
        let job_seconds = self.job_seconds * (0.4 + 1.2 * spread);
        let share = self.runners as f64 / self.users as f64;
        let jobs = (2.0 * share * self.seconds as f64 / job_seconds).max(50.0) as usize;
        let count = nth % 3 + 1;
        let mut user = User {
            client,
            workflows: Vec::new(),
            values: Vec::new(),
            job_seconds,
            used_ms: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        };
        for part in 0..count {
            let values: Vec<Value> = (0..self.clients.div_ceil(self.users))
                .map(|n| json!({"name": format!("value_{n}"), "data": 0}))
                .collect();
            let spec = json!({
                "name": format!("{name}_{part}"),
                "user_data": if part == 0 { values } else { Vec::new() },
                "jobs": [{
                    "name": "j_{i}",
                    "parameters": {"i": format!("1:{}", jobs.div_ceil(count))},
                    "command": "true",
                }],
            });
            let request = CreateWorkflow {
                spec,
                user: None,
                initialize: true,
                force: false,
                key: None,
                directory: None,
                spec_path: None,
            };
            user.workflows.push(user.client.create_workflow(&request).await?.id);
        }
        let query = Query::new().add("workflow_id", user.workflows[0]);
        let values = user.client.list_user_data(&query).await?.items;
        user.values = values.into_iter().map(|value| value.id).collect();
        Ok(user)
    }

    async fn judge(
        &self,
        server: &Server<'_>,
        team: &Team,
        used: Vec<f64>,
        mut answers: Vec<f64>,
        (wall, cpu): (Duration, Cpu),
    ) -> Result<Value> {
        let mut completed = 0;
        for (nth, user) in team.users.iter().enumerate() {
            let mut counted = 0;
            for id in &user.workflows {
                counted += user.client.workflow_status(*id).await?.counts["completed"];
            }
            let acknowledged = user.acknowledged.load(Ordering::Relaxed);
            if counted != i64::try_from(acknowledged)? {
                team.fault(format!(
                    "user {nth}: {acknowledged} ends were acknowledged, {counted} are known"
                ));
            }
            completed += counted;
        }
        answers.sort_by(f64::total_cmp);
        let at = |part: f64| answers.get((answers.len() as f64 * part) as usize).copied();
        let sum: f64 = used.iter().sum();
        let squares: f64 = used.iter().map(|x| x * x).sum();
        let fairness = sum * sum / (used.len() as f64 * squares.max(1e-9));
        let faults = team.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(json!({
            "users": self.users, "clients": self.clients, "runners": self.runners,
            "seconds": wall.as_secs_f64(), "jobs_completed": completed,
            "jobs_per_second": completed as f64 / wall.as_secs_f64(),
            "status_answers": answers.len(), "status_p50_ms": at(0.5), "status_p99_ms": at(0.99),
            "status_max_ms": answers.last(),
            "requests_per_second": team.requests.load(Ordering::Relaxed) as f64 / wall.as_secs_f64(),
            "runners_registered": team.registered.load(Ordering::Relaxed),
            "server_cpu_seconds": cpu.server.as_secs_f64(), "load_cpu_seconds": cpu.load.as_secs_f64(),
            "processors": machine::processors(),
            "fairness": fairness, "cpu_seconds_by_user": used.iter().map(|ms| ms / 1000.0).collect::<Vec<_>>(),
            "server_peak_bytes": server.usage().peak_bytes,
            "faults": faults,
        }))
    }
}

/// CPU time while the load was on.
struct Cpu {
    server: Duration,
    load: Duration,
}

/// Every simulated runner has connections of its own, and the server inherits the limit.
fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

/// A person: asks for the status of their workflows about once a second, and now and then writes a value and
/// reads it again. Answers how long the status took each time, in ms.
async fn ask(team: Arc<Team>, nth: usize) -> Vec<f64> {
    let user = &team.users[nth % team.users.len()];
    let client = user.client.detached();
    let value = user.values.get(nth / team.users.len()).copied();
    let mut answers = Vec::new();
    let mut written = 0;
    // Not all at the same moment.
    team.sleep(Duration::from_millis(fastrand::u64(0..1000))).await;
    for turn in 0.. {
        if team.is_over() {
            break;
        }
        let workflow = user.workflows[turn % user.workflows.len()];
        team.sent();
        let begun = Instant::now();
        match client.workflow_status(workflow).await {
            Ok(_) if begun >= team.counted_from => {
                answers.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            Ok(_) => {}
            Err(error) => team.fault(format!("status: {error}")),
        }
        if turn % 5 == 0
            && let Some(id) = value
        {
            written += 1;
            let body = json!({"data": written});
            team.sent();
            team.sent();
            let put = client.put::<Value>(&format!("/user_data/{id}"), &body).await;
            match (put, client.get_user_data(id).await) {
                (Ok(_), Ok(read)) if read.data == Some(json!(written)) => {}
                (Ok(_), Ok(read)) => {
                    team.fault(format!("value {id}: wrote {written}, read {:?}", read.data));
                }
                (Err(error), _) | (_, Err(error)) => team.fault(format!("value {id}: {error}")),
            }
        }
        team.sleep(Duration::from_millis(fastrand::u64(500..1500))).await;
    }
    answers
}
