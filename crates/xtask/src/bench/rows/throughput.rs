//! How many jobs per second, and at what cost.

use super::super::askers::{Askers, Moments};
use super::super::pages::Pages;
use super::super::report::Figure;
use super::super::world::{Run, Server};
use super::super::{Bench, limit, machine, median, specs};
use crate::Result;
use serde_json::Value;
use std::time::{Duration, Instant};
use torc_model::ids::WorkflowId;

/// More starts than this say nothing new about the limit.
const LIMIT_JOBS: usize = 5_000;
/// 1,000 per second.
const QUESTION_EVERY: Duration = Duration::from_millis(1);

/// The limit, and a workflow against it, round by round.
struct Rounds {
    limits: Vec<f64>,
    runs: Vec<Run>,
}

impl Rounds {
    fn measure(bench: &Bench, jobs: usize, spec: impl Fn() -> Value) -> Result<Self> {
        let mut rounds = Self { limits: Vec::new(), runs: Vec::new() };
        for _ in 0..bench.rounds {
            rounds.limits.push(limit_rate(bench, jobs)?);
            let server = bench.arena.server()?;
            let created = server.create(spec())?;
            rounds.runs.push(server.run(created.id, jobs)?);
        }
        Ok(rounds)
    }

    /// Independent jobs.
    fn flat(bench: &Bench, jobs: usize) -> Result<Self> {
        let jobs = bench.scale(jobs);
        Self::measure(bench, jobs, || specs::flat(jobs, "true"))
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of).collect())
    }

    fn ratio(&self) -> f64 {
        median(self.runs.iter().zip(&self.limits).map(|(run, limit)| run.rate() / limit).collect())
    }

    fn figures(&self) -> Vec<Figure> {
        let jobs = self.runs.first().map_or(1, |run| run.jobs) as f64;
        vec![
            Figure::new("limit", median(self.limits.clone()), "jobs/s"),
            Figure::new("torc", self.median(Run::rate), "jobs/s"),
            Figure::new("ratio to the limit", self.ratio(), "").at_least(0.8),
            Figure::new(
                "CPU of server and runner per job",
                self.median(|r| r.server_ms() + r.runner_ms()),
                "ms",
            )
            .at_most(0.35),
            Figure::new("CPU of the server per job", self.median(Run::server_ms), "ms"),
            Figure::new("CPU of the runner per job", self.median(Run::runner_ms), "ms"),
            Figure::new(
                "peak memory of the server",
                self.median(|r| r.server.peak_bytes as f64 / 1e6),
                "MB",
            ),
            Figure::new(
                "peak memory of the runner",
                self.median(|r| r.runner.usage.peak_bytes as f64 / 1e6),
                "MB",
            ),
            Figure::new(
                "database per job",
                self.median(|r| r.database_bytes as f64 / jobs),
                "bytes",
            ),
            Figure::new(
                "written by the server per job",
                self.median(|r| r.server.written_bytes as f64 / jobs),
                "bytes",
            ),
            Figure::new(
                "written by the runner per job",
                self.median(|r| r.runner.usage.written_bytes as f64 / jobs),
                "bytes",
            ),
        ]
    }
}

fn limit_rate(bench: &Bench, jobs: usize) -> Result<f64> {
    let count = jobs.min(LIMIT_JOBS);
    Ok(count as f64
        / limit::run(&bench.arena.fresh()?, "true", count, machine::processors())?.as_secs_f64())
}

/// 1,000 independent jobs.
pub fn flat_1k(bench: &Bench) -> Result<Vec<Figure>> {
    Ok(Rounds::flat(bench, 1_000)?.figures())
}

/// 10,000 independent jobs.
pub fn flat_10k(bench: &Bench) -> Result<Vec<Figure>> {
    Ok(Rounds::flat(bench, 10_000)?.figures())
}

/// 10,000 independent jobs by one process.
pub fn run_flat(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(10_000);
    let (mut limits, mut rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cpu, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let limit = limit_rate(bench, jobs)?;
        let dir = bench.arena.workflow(&specs::flat(jobs, "true"))?;
        let run = bench.arena.run(&dir)?;
        let rate = jobs as f64 / run.wall.as_secs_f64();
        limits.push(limit);
        rates.push(rate);
        ratios.push(rate / limit);
        cpu.push(run.usage.cpu.as_secs_f64() * 1e3 / jobs as f64);
        peaks.push(run.usage.peak_bytes as f64 / 1e6);
    }
    Ok(vec![
        Figure::new("limit", median(limits), "jobs/s"),
        Figure::new("torc", median(rates), "jobs/s"),
        Figure::new("ratio to the limit", median(ratios), "").at_least(0.8),
        Figure::new("CPU of server and runner per job", median(cpu), "ms").at_most(0.35),
        Figure::new("peak memory of both", median(peaks), "MB"),
    ])
}

/// Jobs that need no shell.
pub fn direct(bench: &Bench) -> Result<Vec<Figure>> {
    const PROGRAM: &str = "/bin/true";
    let jobs = bench.scale(10_000);
    let (mut by_shell, mut bare, mut rates, mut ratios) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let count = jobs.min(LIMIT_JOBS);
        let rate = |wall: Duration| count as f64 / wall.as_secs_f64();
        by_shell.push(rate(limit::run(
            &bench.arena.fresh()?,
            PROGRAM,
            count,
            machine::processors(),
        )?));
        let wall = limit::run_program(
            &bench.arena.fresh()?,
            &[PROGRAM.as_ref()],
            count,
            machine::processors(),
        )?;
        bare.push(rate(wall));
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, PROGRAM))?;
        rates.push(server.run(created.id, jobs)?.rate());
        ratios.extend(rates.last().zip(by_shell.last()).map(|(rate, limit)| rate / limit));
    }
    Ok(vec![
        Figure::new("limit with a shell", median(by_shell), "jobs/s"),
        Figure::new("limit without", median(bare), "jobs/s"),
        Figure::new("torc", median(rates), "jobs/s"),
        Figure::new("ratio to the limit with a shell", median(ratios), ""),
    ])
}

/// 100,000 independent jobs, and a tenth of them for comparison.
pub fn flat_100k(bench: &Bench) -> Result<Vec<Figure>> {
    let few = Rounds::flat(bench, 10_000)?;
    let many = Rounds::flat(bench, 100_000)?;
    let mut figures = many.figures();
    for figure in &mut figures {
        if figure.name == "peak memory of the server" {
            *figure = figure.clone().at_most(150.0);
        }
    }
    figures.push(
        Figure::new("ratio against that of 10,000 jobs", many.ratio() / few.ratio(), "")
            .at_least(0.85),
    );
    Ok(figures)
}

/// Against independent jobs, round by round.
fn against_flat(bench: &Bench, jobs: usize, spec: impl Fn() -> Value) -> Result<Vec<Figure>> {
    let (mut flat, mut own, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        for (spec, rates) in [(specs::flat(jobs, "true"), &mut flat), (spec(), &mut own)] {
            let server = bench.arena.server()?;
            let created = server.create(spec)?;
            let run = server.run(created.id, jobs)?;
            rates.push(run.rate());
            cpu.push(run.server_ms() + run.runner_ms());
        }
    }
    let ratio = median(own.iter().zip(&flat).map(|(own, flat)| own / flat).collect());
    let cpu = median(cpu.into_iter().skip(1).step_by(2).collect());
    Ok(vec![
        Figure::new("independent", median(flat), "jobs/s"),
        Figure::new("torc", median(own), "jobs/s"),
        Figure::new("ratio to independent jobs", ratio, "").at_least(0.8),
        Figure::new("CPU of server and runner per job", cpu, "ms"),
    ])
}

/// One job, then many, then one.
pub fn fan(bench: &Bench) -> Result<Vec<Figure>> {
    let width = bench.scale(5_000);
    against_flat(bench, width + 2, || specs::fan(width))
}

/// Layers, each after all of the one before.
pub fn layers(bench: &Bench) -> Result<Vec<Figure>> {
    let count = if bench.is_quick { 10 } else { 100 };
    against_flat(bench, count * 100, || specs::layers(count, 100))
}

/// The same workflow ten times in one database.
pub fn history(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(10_000);
    let server = bench.arena.server()?;
    let mut rates = Vec::new();
    let mut limits = Vec::new();
    for _ in 0..10 {
        limits.push(limit_rate(bench, jobs.min(2_000))?);
        let created = server.create(specs::flat(jobs, "true"))?;
        rates.push(server.run(created.id, jobs)?.rate());
    }
    // The machine itself is not equally fast all the time; the limit beside each run takes that
    // out.
    let ratio =
        |range: std::ops::Range<usize>| median(range.map(|n| rates[n] / limits[n]).collect());
    Ok(vec![
        Figure::new("first run", rates[0], "jobs/s"),
        Figure::new("tenth run", rates[9], "jobs/s"),
        Figure::new(
            "last three to first three, each against the limit",
            ratio(7..10) / ratio(0..3),
            "",
        )
        .at_least(0.9),
        Figure::new(
            "memory of the server at the end",
            machine::resident(server.pid()) as f64 / 1e6,
            "MB",
        ),
        Figure::new("database", server.database_bytes() as f64 / 1e6, "MB"),
    ])
}

/// With and without people who look, in turn during one run: the machine is not equally fast all
/// the time.
pub fn status_load(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(40_000);
    let stretch = Duration::from_millis(if bench.is_quick { 200 } else { 1_000 });
    let mut groups = Vec::new();
    for _ in 0..bench.rounds {
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, "true"))?;
        let runner = server.runner(created.id)?;
        // It gets going.
        std::thread::sleep(stretch);
        while let Some(group) = asked_and_not(&server, created.id, jobs, stretch)? {
            groups.push(group);
        }
        runner.finish()?;
    }
    let median_of = |of: fn(&Asked) -> f64| median(groups.iter().map(of).collect());
    Ok(vec![
        Figure::new("alone", median_of(|g| g.alone.jobs), "jobs/s"),
        Figure::new("asked", median_of(|g| g.at_random.jobs), "jobs/s"),
        Figure::new("asked to alone", median_of(|g| g.at_random.jobs / g.alone.jobs), "")
            .at_least(0.9),
        Figure::new(
            "asked on an even beat to alone",
            median_of(|g| g.on_a_beat.jobs / g.alone.jobs),
            "",
        )
        .at_least(0.9),
        Figure::new(
            "answers per second",
            median_of(|g| (g.at_random.answers + g.on_a_beat.answers) / 2.0),
            "",
        ),
    ])
}

/// With and without open pages, in turn during one run.
pub fn open_pages(bench: &Bench) -> Result<Vec<Figure>> {
    let jobs = bench.scale(100_000);
    // What a page asks for most seldom, it asks for every five seconds.
    let stretch = Duration::from_millis(if bench.is_quick { 500 } else { 5_000 });
    let (mut alone, mut open, mut ratios, mut bytes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let server = bench.arena.server()?;
        let created = server.create(specs::flat(jobs, "true"))?;
        let runner = server.runner(created.id)?;
        std::thread::sleep(stretch / 5);
        'run: loop {
            // Each kind as long before the middle as after it.
            let mut rates = [0.0; 2];
            for is_open in [false, true, true, false] {
                let pages = is_open.then(|| Pages::open(&server.dir, created.id)).transpose()?;
                let (begun, before) = (Instant::now(), server.completed(created.id)?);
                std::thread::sleep(stretch);
                let (after, took) = (server.completed(created.id)?, begun.elapsed().as_secs_f64());
                let got = pages.map(Pages::close).transpose()?;
                if after == jobs {
                    break 'run;
                }
                bytes.extend(got.map(|got| got as f64 / took / 1e3));
                rates[usize::from(is_open)] += (after - before) as f64 / took / 2.0;
            }
            alone.push(rates[0]);
            open.push(rates[1]);
            ratios.push(rates[1] / rates[0]);
        }
        runner.finish()?;
    }
    Ok(vec![
        Figure::new("pages", Pages::COUNT as f64, ""),
        Figure::new("alone", median(alone), "jobs/s"),
        Figure::new("with open pages", median(open), "jobs/s"),
        Figure::new("with open pages to alone", median(ratios), "").at_least(0.95),
        Figure::new("sent to the pages", median(bytes), "kB/s"),
    ])
}

/// What was done in each second of a group of stretches.
#[derive(Default)]
struct Asked {
    alone: Rates,
    at_random: Rates,
    on_a_beat: Rates,
}

#[derive(Default)]
struct Rates {
    jobs: f64,
    answers: f64,
}

/// Stretches of a run, each kind as long before the middle as after it: so a machine that becomes
/// slower or faster all the while does so for all of them. Nothing if the run ends before them.
fn asked_and_not(
    server: &Server<'_>,
    id: WorkflowId,
    jobs: usize,
    stretch: Duration,
) -> Result<Option<Asked>> {
    let mut asked = Asked::default();
    let there = [None, Some(Moments::Random), Some(Moments::Beat)];
    for moments in there.into_iter().chain(there.into_iter().rev()) {
        let askers =
            moments.map(|m| Askers::start(&server.dir, id, m, QUESTION_EVERY)).transpose()?;
        let (begun, before) = (Instant::now(), server.completed(id)?);
        std::thread::sleep(stretch);
        let (after, took) = (server.completed(id)?, begun.elapsed().as_secs_f64());
        let heard = askers.map(Askers::stop).transpose()?;
        if after == jobs {
            return Ok(None);
        }
        let rates = match moments {
            None => &mut asked.alone,
            Some(Moments::Random) => &mut asked.at_random,
            Some(Moments::Beat) => &mut asked.on_a_beat,
        };
        // There are two stretches of each kind.
        rates.jobs += (after - before) as f64 / took / 2.0;
        rates.answers += heard.unwrap_or_default() / 2.0;
    }
    Ok(Some(asked))
}
