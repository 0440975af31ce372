//! What processes of steps leave behind: captures, messages and logs.

use super::scope::Captured;
use serde_json::{Map, Value, json};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use torc_fs::Trust;
use torc_model::steps::{CaptureSource, Select};

/// A value larger than this is not read: it belongs into a file.
const READ_MAX: u64 = 8 << 20;
/// What a failure says about itself.
const MESSAGE_BYTES: u64 = 4 << 10;
/// So much of each step's output is repeated in the attempt's own log.
const ECHO_BYTES: u64 = 1 << 20;

/// How a process ended, as far as captures care.
#[derive(Clone, Debug)]
pub struct Ended<'a> {
    /// Its exit code.
    pub exit_code: i64,
    /// It succeeded by its exit code.
    pub success: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// Which try it was.
    pub nth: u32,
    /// Its standard output.
    pub stdout: &'a Path,
    /// Its standard error.
    pub stderr: &'a Path,
    /// Where paths of files start.
    pub dir: &'a Path,
}

/// Reads one captured value. When the process failed, a value that is not as it should be is null.
pub fn capture(source: &CaptureSource, ended: &Ended<'_>) -> Result<Captured, String> {
    let file_of = |path: &Path| path.display().to_string();
    let mut file = file_of(ended.stdout);
    let stdout = || text(ended.stdout).map(trimmed);
    let value = match source {
        CaptureSource::Stdout => stdout().map(Value::from),
        CaptureSource::Stderr => {
            file = file_of(ended.stderr);
            text(ended.stderr).map(|text| Value::from(trimmed(text)))
        }
        CaptureSource::Lines => stdout().map(|text| text.lines().map(Value::from).collect()),
        CaptureSource::Json(select) => {
            stdout().and_then(|text| parse_json(&text, select.as_deref()))
        }
        CaptureSource::Number => stdout().and_then(|text| {
            let number = text.trim().parse::<i64>().map(Value::from).ok();
            let number = number.or_else(|| {
                text.trim().parse().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
            });
            number.ok_or_else(|| format!("`{}` is not a number", excerpt(text.trim())))
        }),
        CaptureSource::Boolean => stdout().map(|text| match text.trim() {
            "true" | "yes" | "1" => Value::Bool(true),
            "false" | "no" | "0" => Value::Bool(false),
            _ => Value::Bool(ended.success),
        }),
        CaptureSource::ExitCode => Ok(json!(ended.exit_code)),
        CaptureSource::File(path) => {
            let path = ended.dir.join(path);
            file = file_of(&path);
            let is_json = path.extension().is_some_and(|ending| ending == "json");
            text(&path).and_then(|text| {
                if is_json { parse_json(&text, None) } else { Ok(Value::from(trimmed(text))) }
            })
        }
    };
    let value =
        value.and_then(|value| match value.as_str().is_some_and(|text| text.contains('\0')) {
            true => Err("the value contains a NUL character".into()),
            false => Ok(value),
        });
    let value = match value {
        Ok(value) => value,
        Err(_) if !ended.success => Value::Null,
        Err(error) => return Err(error),
    };
    let bounded = |path: &Path| tail(path, 64 << 10).unwrap_or_default();
    let about = Map::from_iter([
        ("exit_code".to_owned(), json!(ended.exit_code)),
        ("success".to_owned(), json!(ended.success)),
        ("duration".to_owned(), json!(ended.seconds)),
        ("attempts".to_owned(), json!(ended.nth)),
        ("outcome".to_owned(), json!(if ended.success { "ok" } else { "failed" })),
        ("stdout".to_owned(), json!(trimmed(bounded(ended.stdout)))),
        ("stderr".to_owned(), json!(trimmed(bounded(ended.stderr)))),
        ("file".to_owned(), json!(file)),
    ]);
    Ok(Captured { value, about })
}

fn parse_json(text: &str, select: Option<&str>) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text.trim())
        .map_err(|error| format!("the output is not JSON: {error}"))?;
    let Some(path) = select else { return Ok(value) };
    let select = Select::parse(path)?;
    let found = select.all(&value);
    match (found.as_slice(), select.is_many()) {
        (found, true) => Ok(Value::Array(found.iter().map(|value| (*value).clone()).collect())),
        ([single, ..], false) => Ok((*single).clone()),
        ([], false) => Err(format!("there is nothing at `{path}`")),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

fn text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let mut file = torc_fs::open(path, Trust::Regular)
        .map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let length = file.metadata().map_err(|error| format!("cannot read `{shown}`: {error}"))?.len();
    if length > READ_MAX {
        return Err(format!("`{shown}` has {length} bytes, more than a variable can hold"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn trimmed(text: String) -> String {
    text.trim_end_matches(['\n', '\r']).to_owned()
}

fn tail(path: &Path, most: u64) -> Option<String> {
    let mut file = torc_fs::open(path, Trust::Log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most))).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a failed process says: the end of its errors, else of its output, else the sentence.
pub fn message(stdout: &Path, stderr: &Path, sentence: &str) -> String {
    let said = |path: &Path| {
        let text = tail(path, MESSAGE_BYTES)?.replace('\0', "\u{fffd}");
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        (!text.trim().is_empty()).then_some(text)
    };
    said(stderr).or_else(|| said(stdout)).unwrap_or_else(|| sentence.into())
}

/// Repeats a step's output in the attempt's own log, so that one file tells the whole story.
pub fn echo(from: &Path, to: &Path) -> io::Result<()> {
    let source = torc_fs::open(from, Trust::Log)?;
    let length = source.metadata()?.len();
    if length == 0 {
        return Ok(());
    }
    let mut target = torc_fs::append_log(to)?;
    io::copy(&mut source.take(ECHO_BYTES), &mut target)?;
    if length > ECHO_BYTES {
        writeln!(target, "\n[torc] {} more bytes in {}", length - ECHO_BYTES, from.display())?;
    }
    Ok(())
}

/// Writes a line about a step into the attempt's own log.
pub fn note(to: &Path, line: &str) -> io::Result<()> {
    let mut target = torc_fs::append_log(to)?;
    // One write, so that lines of others do not get between.
    target.write_all(format!("[torc] {}\n", line.escape_debug()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(source: &str, stdout: &str, exit_code: i64) -> Result<Value, String> {
        let dir = tempfile::tempdir().unwrap();
        let (out, err) = (dir.path().join("o"), dir.path().join("e"));
        std::fs::write(&out, stdout).unwrap();
        std::fs::write(&err, "warning\n").unwrap();
        std::fs::write(dir.path().join("r.json"), "{\"score\": 9}").unwrap();
        let ended = Ended {
            exit_code,
            success: exit_code == 0,
            seconds: 1.0,
            nth: 1,
            stdout: &out,
            stderr: &err,
            dir: dir.path(),
        };
        capture(&CaptureSource::parse(source).unwrap(), &ended).map(|captured| captured.value)
    }

    #[test]
    fn every_source_gives_its_value() {
        assert_eq!(captured("stdout", "a\nb\n\n", 0), Ok(json!("a\nb")));
        assert_eq!(captured("stderr", "", 0), Ok(json!("warning")));
        assert_eq!(captured("lines", "a\nb\n", 0), Ok(json!(["a", "b"])));
        assert_eq!(captured("json", "{\"a\": [1]}", 0), Ok(json!({"a": [1]})));
        assert_eq!(captured("json:$.a[*]", "{\"a\": [1, 2]}", 0), Ok(json!([1, 2])));
        assert_eq!(captured("json:$.a[0]", "{\"a\": [1, 2]}", 0), Ok(json!(1)));
        assert_eq!(captured("number", " 2.5\n", 0), Ok(json!(2.5)));
        assert_eq!(captured("boolean", "maybe", 3), Ok(json!(false)));
        assert_eq!(captured("boolean", "true", 3), Ok(json!(true)));
        assert_eq!(captured("exit_code", "", 3), Ok(json!(3)));
        assert_eq!(captured("file:r.json", "", 0), Ok(json!({"score": 9})));
    }

    #[test]
    fn a_wrong_value_fails_a_success_and_is_null_in_a_failure() {
        assert!(captured("json", "no", 0).unwrap_err().contains("not JSON"));
        assert_eq!(captured("json", "no", 1), Ok(Value::Null));
        assert!(captured("number", "x", 0).is_err());
        assert!(captured("json:$.b", "{}", 0).is_err());
        assert!(captured("file:missing.json", "", 0).is_err());
        assert!(captured("stdout", "a\0b", 0).unwrap_err().contains("NUL"));
    }
}
