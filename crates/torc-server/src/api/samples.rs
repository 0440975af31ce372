//! What an attempt used over time, from the samples that its runner kept.
//!
//! A runner appends the samples of all its attempts to one file, in the order of time. So the place
//! of an attempt in it is found by halving, and only its own time is read.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::store::read::SampledAttempt;
use axum::extract::State;
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use torc_fs::Trust;
use torc_model::api::{SamplePoint, SamplesView};
use torc_model::files;
use torc_model::ids::JobId;
use utoipa::IntoParams;

/// Points in an answer at most; of those between two, the one with the most memory is given.
const MAX_POINTS: usize = 300;
/// Bytes of a file that are read at most, from the begin of the attempt on.
const MAX_BYTES: u64 = 32 << 20;
/// A line is at most this long: names of jobs are bounded.
const LONGEST_LINE: usize = 64 << 10;
/// The last sample may be written a little after the end.
const SLACK_MS: i64 = 10_000;

/// Which attempt.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetSamples {
    /// Of this run; the newest unless given.
    pub run_id: Option<i64>,
    /// This attempt; the newest unless given.
    pub attempt_id: Option<i64>,
}

/// Memory and CPU use of an attempt over time, where its runner kept samples.
///
/// Runners keep them with `resource_monitor: {granularity: time_series}`. Without any, or where the
/// server does not see the files of the runner, there are no points.
#[utoipa::path(
    get,
    path = "/jobs/{id}/samples",
    operation_id = "get_job_samples",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job."), GetSamples),
    responses((status = 200, description = "At most 300 points.", body = SamplesView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_samples(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetSamples>,
) -> Answer<SamplesView> {
    let job = JobId(id);
    caller.check(app.reader().workflow_of_job(job).await?)?;
    let attempt = app.reader().sampled_attempt(job, query.run_id, query.attempt_id).await?;
    let attempt = attempt.ok_or_else(|| {
        ApiError::not_found(format!("job {id} has no such attempt that has started"))
    })?;
    let directory = std::path::PathBuf::from(attempt.output_dir.clone().unwrap_or_default());
    let (run_id, attempt_id) = (attempt.run_id, attempt.attempt_id);
    let memory_limit_bytes = attempt.memory_bytes;
    let points = crate::slow_files::look(directory, move || points(job, &attempt)).await;
    Ok(Json(SamplesView {
        job_id: job,
        run_id,
        attempt_id,
        memory_limit_bytes,
        points: points.map_err(ApiError::hangs)?,
    }))
}

/// The samples of the attempt; none where the file is not there or not to be read.
fn points(job: JobId, attempt: &SampledAttempt) -> Vec<SamplePoint> {
    let Some(directory) = &attempt.output_dir else { return Vec::new() };
    let name = format!("samples_{}.jsonl", attempt.tag);
    let path = std::path::Path::new(directory).join(files::SAMPLES).join(name);
    let read = torc_fs::open(&path, Trust::Log).and_then(|file| read(&file, job, attempt));
    thinned(read.unwrap_or_else(|error| {
        tracing::debug!(path = %path.display(), %error, "no samples of an attempt");
        Vec::new()
    }))
}

/// One look at one attempt, as runners write it.
#[derive(Deserialize)]
struct Line {
    timestamp_ms: i64,
    job_id: i64,
    run_id: i64,
    attempt_id: i64,
    cpu_percent: Option<f64>,
    memory_bytes: Option<f64>,
}

fn read(file: &File, job: JobId, attempt: &SampledAttempt) -> io::Result<Vec<SamplePoint>> {
    let size = file.metadata()?.len();
    let mut at = first_from(file, size, attempt.started_ms)?;
    let last = attempt.ended_ms.map_or(i64::MAX, |end| end + SLACK_MS);
    let end = size.min(at + MAX_BYTES);
    let mut found = Vec::new();
    let mut rest: Vec<u8> = Vec::new();
    let mut buffer = vec![0u8; 256 << 10];
    while at < end {
        let count = file.read_at(&mut buffer, at)?;
        if count == 0 {
            break;
        }
        at += count as u64;
        rest.extend_from_slice(&buffer[..count]);
        let Some(whole) = rest.iter().rposition(|byte| *byte == b'\n') else {
            if rest.len() > LONGEST_LINE {
                rest.clear();
            }
            continue;
        };
        for line in rest[..whole].split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Line>(line) else { continue };
            if line.timestamp_ms > last {
                return Ok(found);
            }
            let is_its = line.job_id == job.0
                && (line.run_id, line.attempt_id) == (attempt.run_id, attempt.attempt_id);
            if is_its {
                found.push(SamplePoint(
                    (line.timestamp_ms - attempt.started_ms).max(0),
                    line.memory_bytes.unwrap_or(0.0) as i64,
                    line.cpu_percent.map(|percent| (percent * 10.0).round() / 10.0),
                ));
            }
        }
        rest.drain(..=whole);
    }
    Ok(found)
}

/// The begin of the first line that is not older than this.
fn first_from(file: &File, size: u64, ms: i64) -> io::Result<u64> {
    let (mut low, mut high) = (0u64, size);
    // A line that is older begins at `low`, one that is not at `high` or none.
    while low < high {
        let middle = low + (high - low) / 2;
        match next_line(file, middle)? {
            Some((begin, behind, time)) if begin < high && time < ms => low = behind,
            _ => high = middle,
        }
    }
    Ok(next_line(file, low)?.map_or(size, |(begin, ..)| begin))
}

/// The first line that begins at this place or behind it: where it begins and ends, and its time.
fn next_line(file: &File, at: u64) -> io::Result<Option<(u64, u64, i64)>> {
    let from = at.saturating_sub(1);
    let mut buffer = vec![0u8; 2 * LONGEST_LINE];
    let count = file.read_at(&mut buffer, from)?;
    let text = &buffer[..count];
    let mut begin = match at {
        0 => 0,
        _ => match text.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None => return Ok(None),
        },
    };
    while let Some(length) = text[begin..].iter().position(|byte| *byte == b'\n') {
        let line = &text[begin..begin + length];
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            let behind = from + (begin + length + 1) as u64;
            return Ok(Some((from + begin as u64, behind, line.timestamp_ms)));
        }
        begin += length + 1;
    }
    Ok(None)
}

/// At most [`MAX_POINTS`]: of each stretch the point with the most memory.
fn thinned(points: Vec<SamplePoint>) -> Vec<SamplePoint> {
    if points.len() <= MAX_POINTS {
        return points;
    }
    let each = points.len().div_ceil(MAX_POINTS);
    points.chunks(each).filter_map(|part| part.iter().max_by_key(|one| one.1).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_samples_of_one_attempt_are_found_among_those_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples_x.jsonl");
        let mut file = File::create(&path).unwrap();
        for second in 0..5000i64 {
            for job in 1..=3 {
                let attempt = if job == 2 && second >= 3000 { 2 } else { 1 };
                writeln!(
                    file,
                    r#"{{"timestamp_ms":{},"job_id":{job},"job_name":"é{job}","run_id":1,"attempt_id":{attempt},"cpu_percent":50.04,"memory_bytes":{}}}"#,
                    1_000_000 + second * 1000,
                    second * 10 + job,
                )
                .unwrap();
            }
        }
        file.write_all(b"{\"timestamp_ms\":99").unwrap();
        let attempt = |attempt_id, started: i64, ended: Option<i64>| SampledAttempt {
            run_id: 1,
            attempt_id,
            started_ms: 1_000_000 + started * 1000,
            ended_ms: ended.map(|end| 1_000_000 + end * 1000),
            memory_bytes: None,
            output_dir: None,
            tag: "x".into(),
        };
        let file = File::open(&path).unwrap();
        let first = read(&file, JobId(2), &attempt(1, 0, Some(2999))).unwrap();
        assert_eq!((first.len(), first[0]), (3000, SamplePoint(0, 2, Some(50.0))));
        let second = read(&file, JobId(2), &attempt(2, 3000, None)).unwrap();
        assert_eq!((second.len(), second[0].0, second[0].1), (2000, 0, 30_002));
        let some = read(&file, JobId(1), &attempt(1, 100, Some(110))).unwrap();
        assert_eq!((some[0], some.last().unwrap().0), (SamplePoint(0, 1001, Some(50.0)), 20_000));
        assert_eq!(read(&file, JobId(1), &attempt(1, 9000, None)).unwrap(), []);
        let few = thinned(first);
        assert!(few.len() <= MAX_POINTS && few.last().unwrap().1 == 29_992, "{:?}", few.last());
    }
}
