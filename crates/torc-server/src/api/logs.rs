//! The output of attempts, in pieces.
//!
//! A caller names a job, never a path. The path comes from the runner's report, and only a file
//! with the name that an attempt's output has is opened: a lie in a report does not turn this into
//! a way to read other files.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::word;
use super::{Answer, App};
use crate::store::read::AttemptLogs;
use axum::extract::State;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path as FilePath, PathBuf};
use torc_fs::Trust;
use torc_model::api::{LogPiece, LogView, ReadLog};
use torc_model::files;
use torc_model::ids::{JobId, PoolRunnerId};
use torc_model::status::Stream;
use utoipa::IntoParams;

const DEFAULT_BYTES: i64 = 64 << 10;
const MAX_BYTES: i64 = 1 << 20;

/// Which piece of which output.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetLogs {
    /// `stdout` (the default) or `stderr`; `script_stdout` or `script_stderr` of the recovery
    /// script before it.
    pub stream: Option<String>,
    /// Of this run; the newest unless given.
    pub run_id: Option<i64>,
    /// Of this attempt; the newest unless given.
    pub attempt_id: Option<i64>,
    /// Where to begin, in bytes; negative counts from the end.
    pub offset: Option<i64>,
    /// At most this many bytes; 65536 unless given.
    #[param(minimum = 1, maximum = 1048576)]
    pub limit: Option<i64>,
}

/// A piece of an attempt's output.
#[utoipa::path(
    get,
    path = "/jobs/{id}/logs",
    operation_id = "get_job_logs",
    tag = "jobs",
    params(("id" = i64, Path, description = "The job."), GetLogs),
    responses((status = 200, description = "A piece of the output.", body = LogView), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_logs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<GetLogs>,
) -> Answer<LogView> {
    let job = JobId(id);
    caller.check(app.reader().workflow_of_job(job).await?)?;
    let stream = named_stream(query.stream.as_deref())?;
    let limit = checked_limit(query.limit)?;
    let logs = app.reader().find_logs(job, query.run_id, query.attempt_id).await?;
    let logs = logs.ok_or_else(|| {
        ApiError::not_found(format!("job {id} has no such attempt that has started"))
    })?;
    let offset = query.offset.unwrap_or(0);
    let (path, piece) = read(&app, job, &logs, stream, offset, limit).await?;
    Ok(Json(LogView {
        job_id: job,
        run_id: logs.run_id,
        attempt_id: logs.attempt_id,
        stream,
        path: path.display().to_string(),
        offset: piece.offset,
        next_offset: piece.offset + piece.length,
        size: piece.size,
        text: piece.text,
    }))
}

/// A piece of an attempt's output, from here or from the machine of its pool runner.
pub async fn read(
    app: &App,
    job: JobId,
    logs: &AttemptLogs,
    stream: Stream,
    offset: i64,
    limit: i64,
) -> Result<(PathBuf, Piece), ApiError> {
    let here = {
        let logs = logs.clone();
        crate::slow_files::look(place(&logs), move || {
            let (path, file) = open(job, &logs, stream)?;
            let piece = read_piece(&file, offset, limit).map_err(|e| unreadable(&path, &e))?;
            Ok((path, piece))
        })
    };
    match (here.await.map_err(ApiError::hangs)?, logs.pool_runner) {
        (Err(_), Some(pool)) => {
            read_there(app, pool, candidates(job, logs, stream)?, offset, limit).await
        }
        (found, _) => found,
    }
}

/// Reads the first of these files that is there, on the machine of a pool runner.
async fn read_there(
    app: &App,
    pool: PoolRunnerId,
    files: Vec<PathBuf>,
    offset: i64,
    limit: i64,
) -> Result<(PathBuf, Piece), ApiError> {
    let mut problem = ApiError::not_found("this attempt has no such output");
    for path in files {
        let read = app.inner.reads.ask(pool, path.display().to_string(), offset, limit).await?;
        match read.error {
            None => {
                let LogPiece { offset, length, size, text, .. } = read;
                return Ok((path, Piece { offset, length, size, text }));
            }
            Some(error) => {
                let what = format!("cannot read `{}` there: {error}", path.display());
                problem = ApiError::not_found(what);
            }
        }
    }
    Err(problem)
}

/// Reads a piece of an attempt's output on this machine for a server elsewhere. Other files are not read.
pub fn read_log(order: &ReadLog) -> LogPiece {
    let path = FilePath::new(&order.path);
    let is_output = path.is_absolute()
        && path.file_name().and_then(OsStr::to_str).is_some_and(|name| {
            name.starts_with("job_wf") && [".o", ".e", ".log"].iter().any(|end| name.ends_with(end))
        });
    let read = match is_output {
        true => torc_fs::open(path, Trust::Log)
            .and_then(|file| read_piece(&file, order.offset, order.limit.clamp(1, MAX_BYTES))),
        false => Err(std::io::Error::other("it is not the output of an attempt")),
    };
    match read {
        Ok(Piece { offset, length, size, text }) => {
            LogPiece { id: order.id, offset, length, size, text, error: None }
        }
        Err(error) => {
            LogPiece { id: order.id, error: Some(error.to_string()), ..LogPiece::default() }
        }
    }
}

/// How many bytes of a file to read at most.
pub fn checked_limit(limit: Option<i64>) -> Result<i64, ApiError> {
    let limit = limit.unwrap_or(DEFAULT_BYTES);
    match (1..=MAX_BYTES).contains(&limit) {
        true => Ok(limit),
        false => Err(ApiError::bad_query(
            "limit",
            format!("`limit` is {limit}; it goes from 1 to {MAX_BYTES}"),
        )),
    }
}

/// A piece of the first of these files that can be read.
pub fn first_readable(
    files: &[PathBuf],
    offset: i64,
    limit: i64,
) -> Result<(PathBuf, Piece), ApiError> {
    let mut problem = ApiError::not_found("it has written nothing yet");
    for path in files {
        let piece =
            torc_fs::open(path, Trust::Log).and_then(|file| read_piece(&file, offset, limit));
        match piece {
            Ok(piece) => return Ok((path.clone(), piece)),
            Err(error) => problem = unreadable(path, &error),
        }
    }
    Err(problem)
}

/// The directory by which a file system that hangs is remembered.
pub fn place(logs: &AttemptLogs) -> PathBuf {
    logs.output_dir.as_deref().map_or_else(PathBuf::new, PathBuf::from)
}

/// A stream by its name in the API; standard output unless it is named.
pub fn named_stream(name: Option<&str>) -> Result<Stream, ApiError> {
    name.map_or(Ok(Stream::Stdout), |text| {
        word("stream", text, Stream::parse, Stream::ALL, Stream::as_str)
    })
}

/// The file of a stream, by its name in the API.
pub fn open_stream(job: JobId, logs: &AttemptLogs, stream: Option<&str>) -> Result<File, ApiError> {
    open(job, logs, named_stream(stream)?).map(|(_, file)| file)
}

/// The last bytes of an attempt's standard error, however large it is; or why they cannot be had.
pub fn end_of_stderr(job: JobId, logs: &AttemptLogs, bytes: i64) -> Result<String, String> {
    let (path, file) =
        open(job, logs, Stream::Stderr).map_err(|error| error.message().to_owned())?;
    let piece = read_piece(&file, -bytes, bytes)
        .map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
    Ok(piece.text)
}

/// How the names of the files of a stream end.
fn endings(stream: Stream) -> &'static [&'static str] {
    match stream {
        Stream::Stdout => &[".o", ".log"],
        Stream::Stderr => &[".e", ".log"],
        Stream::ScriptStdout => &["_recovery.o"],
        Stream::ScriptStderr => &["_recovery.e"],
    }
}

/// How the name of a file may end that the runner reported: where the script failed, its output is
/// the attempt's.
fn reported_endings(stream: Stream) -> &'static [&'static str] {
    match stream {
        Stream::Stdout => &[".o", ".log", "_recovery.o"],
        Stream::Stderr => &[".e", ".log", "_recovery.e"],
        Stream::ScriptStdout | Stream::ScriptStderr => endings(stream),
    }
}

/// Files that the stream may be in: where the runner said, or where a running attempt's output is by
/// convention.
fn candidates(job: JobId, logs: &AttemptLogs, stream: Stream) -> Result<Vec<PathBuf>, ApiError> {
    let AttemptLogs { workflow_id, run_id, attempt_id, .. } = logs;
    let stem = files::attempt_stem(*workflow_id, job, *run_id, *attempt_id);
    let name = |ending: &&str| format!("{stem}{ending}");
    let reported = match stream {
        Stream::Stdout => &logs.stdout_path,
        Stream::Stderr => &logs.stderr_path,
        Stream::ScriptStdout => &logs.script_stdout_path,
        Stream::ScriptStderr => &logs.script_stderr_path,
    };
    let files: Vec<PathBuf> = match (reported, &logs.output_dir) {
        (Some(path), _) => vec![path.into()],
        (None, Some(directory)) => {
            let directory = FilePath::new(directory).join(files::LOGS);
            endings(stream).iter().map(|ending| directory.join(name(ending))).collect()
        }
        (None, None) => Vec::new(),
    };
    let is_named =
        |found: &OsStr| reported_endings(stream).iter().any(|end| found == name(end).as_str());
    match files.iter().find(|path| !path.is_absolute() || !path.file_name().is_some_and(is_named)) {
        Some(other) => Err(ApiError::not_found(format!(
            "`{}` is not the output of this attempt",
            other.display()
        ))),
        None => Ok(files),
    }
}

/// Opens the file of the stream.
fn open(job: JobId, logs: &AttemptLogs, stream: Stream) -> Result<(PathBuf, File), ApiError> {
    let mut problem = ApiError::not_found(format!("there is no {stream} of this attempt"));
    for path in candidates(job, logs, stream)? {
        match torc_fs::open(&path, Trust::Log) {
            Ok(file) => return Ok((path, file)),
            Err(error) => problem = unreadable(&path, &error),
        }
    }
    Err(problem)
}

fn unreadable(path: &FilePath, error: &std::io::Error) -> ApiError {
    ApiError::not_found(format!("cannot read `{}`: {error}", path.display()))
        .hint("it may be gone, or on a machine that the server cannot see")
}

/// Bytes of a file as text.
pub struct Piece {
    /// Where it begins.
    pub offset: i64,
    /// Bytes of it.
    pub length: i64,
    /// Of the file.
    pub size: i64,
    /// What is no text is replaced.
    pub text: String,
}

fn read_piece(file: &File, offset: i64, limit: i64) -> std::io::Result<Piece> {
    let size = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
    let offset = if offset < 0 { size.saturating_add(offset).max(0) } else { offset.min(size) };
    let mut bytes = vec![0; limit.min(size - offset) as usize];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], (offset as u64) + length as u64) {
            // The file shrank.
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(length);
    if offset + (length as i64) < size {
        bytes.truncate(whole_characters(&bytes));
    }
    Ok(Piece {
        offset,
        length: bytes.len() as i64,
        size,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

/// The length without a character that was cut at the end, which the next piece will have whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let cut = (1..=bytes.len().min(3))
        .find(|back| bytes[bytes.len() - back] & 0b1100_0000 != 0b1000_0000);
    let Some(back) = cut else { return bytes.len() };
    let needed = match bytes[bytes.len() - back] {
        0b1100_0000..=0b1101_1111 => 2,
        0b1110_0000..=0b1110_1111 => 3,
        0b1111_0000..=0b1111_0111 => 4,
        _ => 1,
    };
    if needed > back && bytes.len() > back { bytes.len() - back } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_whole_text_and_never_cut_a_character() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let text = "aé€😀z\n".repeat(50);
        std::fs::write(&path, &text).unwrap();
        let file = torc_fs::open(&path, Trust::Log).unwrap();
        for limit in 4..20 {
            let (mut joined, mut offset) = (String::new(), 0);
            while offset < text.len() as i64 {
                let piece = read_piece(&file, offset, limit).unwrap();
                assert!(piece.length > 0);
                joined += &piece.text;
                offset = piece.offset + piece.length;
            }
            assert_eq!(joined, text, "pieces of {limit}");
        }
        assert_eq!(read_piece(&file, -2, 10).unwrap().text, "z\n");
        assert_eq!(read_piece(&file, i64::MIN, 1).unwrap().offset, 0);
        assert_eq!(read_piece(&file, i64::MAX, 1).unwrap().text, "");
    }

    #[test]
    fn binary_output_makes_progress() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [0xffu8, 0x80, 0xc3, 0xf0, 0x00, 0x80, 0x80, 0x80, 0xe2]).unwrap();
        let file = torc_fs::open(&path, Trust::Log).unwrap();
        let mut offset = 0;
        while offset < 9 {
            let piece = read_piece(&file, offset, 1).unwrap();
            assert_eq!(piece.length, 1);
            offset += piece.length;
        }
    }

    #[test]
    fn only_the_attempts_own_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        let name = "job_wf1_j2_r3_a4.o";
        let logs = |path: &FilePath| AttemptLogs {
            workflow_id: torc_model::ids::WorkflowId(1),
            run_id: 3,
            attempt_id: 4,
            stdout_path: Some(path.display().to_string()),
            stderr_path: None,
            script_stdout_path: None,
            script_stderr_path: None,
            output_dir: None,
            pool_runner: None,
        };
        let try_open =
            |path: &FilePath| open(JobId(2), &logs(path), Stream::Stdout).map(|(path, _)| path);
        assert!(try_open(&secret).is_err());
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(try_open(&link).is_err());
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "output").unwrap();
        assert_eq!(try_open(&link).unwrap(), link);
        assert!(try_open(FilePath::new(name)).is_err());
        let script = dir.path().join("job_wf1_j2_r3_a4_recovery.o");
        std::fs::write(&script, "script").unwrap();
        assert_eq!(try_open(&script).unwrap(), script, "all there is where the script failed");
    }
}
