//! Messages to people: what they say, and how each kind of channel is spoken to.
//!
//! Names in a message are chosen by users, so they are data everywhere: escaped for Slack, encoded in
//! headers, JSON for Teams, and the environment and standard input of a command.

use axum::http::{HeaderValue, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use torc_model::api::NotifyKind;

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationText {
    /// One line, with the workflow's name.
    pub title: String,
    /// The text below the title.
    pub text: String,
    /// Where to look.
    pub link: Option<String>,
    /// Something went wrong.
    pub is_bad: bool,
}

/// As one line without control characters, however long a name is.
fn line(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain,
    }
}

impl NotificationText {
    /// The message of a row of the outbox; `base` is the server's address.
    pub fn of(payload: &Value, base: &str) -> Self {
        let name = line(&payload["workflow_name"]);
        let id = payload["workflow_id"].as_i64();
        let link = id.map(|id| format!("{}/ui/w/{id}", base.trim_end_matches('/')));
        let job = line(&payload["job_name"]);
        let (title, text, is_bad) = match payload["event"].as_str() {
            Some("end") => {
                let count = |status: &str| payload["counts"][status].as_i64().unwrap_or(0);
                let bad = count("failed") + count("terminated") + count("canceled");
                let all = bad + count("completed") + count("disabled");
                match bad {
                    0 => (format!("{name}: all {all} jobs succeeded"), String::new(), false),
                    _ => (
                        format!("{name}: ended, {bad} of {all} jobs did not succeed"),
                        format!(
                            "{} failed, {} terminated, {} canceled",
                            count("failed"),
                            count("terminated"),
                            count("canceled")
                        ),
                        true,
                    ),
                }
            }
            Some("failure") => {
                let why = match (payload["cause"].as_str(), payload["return_code"].as_i64()) {
                    (Some("exit"), Some(code)) => format!("with code {code}"),
                    (Some(cause), _) => format!("({cause})"),
                    (None, _) => String::new(),
                };
                let title = format!("{name}: job {job} failed {why}");
                let text = "It is the first failure of this run; others are not told one by one.";
                (title.trim_end().to_owned(), text.to_owned(), true)
            }
            Some("verdict") => (
                format!("{name}: a failure waits for a verdict"),
                format!("Job {job}; more of them may wait."),
                true,
            ),
            Some(_) | None => {
                ("Torc can reach you here".to_owned(), "This is a test.".to_owned(), false)
            }
        };
        Self { title, text, link, is_bad }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        [&*self.title, &*self.text]
            .into_iter()
            .chain(self.link.as_deref())
            .filter(|l| !l.is_empty())
    }

    /// The body for Slack: `&`, `<` and `>` are its markup.
    fn slack(&self) -> Value {
        let escape =
            |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let sign = if self.is_bad { ":x:" } else { ":white_check_mark:" };
        let mut text = format!("{sign} *{}*", escape(&self.title).replace('*', "∗"));
        for more in [&*self.text].into_iter().filter(|text| !text.is_empty()) {
            text += &format!("\n{}", escape(more));
        }
        if let Some(link) = &self.link {
            text += &format!("\n<{link}|Open in Torc>");
        }
        json!({ "text": text })
    }

    /// The body for Teams: an adaptive card whose texts are not read as Markdown.
    fn teams(&self) -> Value {
        let block = |text: &str, weight: &str| {
            let run = json!({"type": "TextRun", "text": text, "weight": weight});
            json!({"type": "RichTextBlock", "inlines": [run]})
        };
        let mut body = vec![block(&self.title, "bolder")];
        if !self.text.is_empty() {
            body.push(block(&self.text, "default"));
        }
        let actions: Vec<Value> = self
            .link
            .iter()
            .map(|link| json!({"type": "Action.OpenUrl", "title": "Open in Torc", "url": link}))
            .collect();
        json!({
            "type": "message",
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard", "version": "1.4", "body": body, "actions": actions
                }
            }]
        })
    }

    /// The request of a channel that is spoken to by HTTP.
    pub fn request(
        &self,
        kind: NotifyKind,
        path: &str,
        authority: &str,
    ) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::post(path)
            .header("host", authority)
            .header("user-agent", concat!("torc/", env!("CARGO_PKG_VERSION")));
        let (request, body) = match kind {
            NotifyKind::Slack => {
                (request.header("content-type", "application/json"), self.slack().to_string())
            }
            NotifyKind::Teams => {
                (request.header("content-type", "application/json"), self.teams().to_string())
            }
            NotifyKind::Ntfy => {
                let mut request = request
                    .header("title", encoded(&self.title))
                    .header("tags", if self.is_bad { "x" } else { "white_check_mark" })
                    .header("priority", if self.is_bad { "high" } else { "default" });
                if let Some(link) = &self.link {
                    let link = HeaderValue::from_str(link).map_err(|e| e.to_string())?;
                    request = request.header("click", link);
                }
                let text = if self.text.is_empty() { &self.title } else { &self.text };
                (request, text.clone())
            }
            NotifyKind::Mail | NotifyKind::Command => {
                return Err("this channel is not spoken to by HTTP".into());
            }
        };
        request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())
    }
}

/// Text in a header, as RFC 2047 has it where it is not plain.
fn encoded(text: &str) -> String {
    match text.bytes().all(|b| (b' '..=b'~').contains(&b)) && !text.contains("=?") {
        true => text.to_owned(),
        false => format!("=?UTF-8?B?{}?=", STANDARD.encode(text)),
    }
}

/// Runs a program with the message in its environment and the whole event as JSON on its standard
/// input. Ends it, with what it started, when it takes too long.
pub fn run(
    argv: &[String],
    message: &NotificationText,
    payload: &str,
    limit: Duration,
) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("there is no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("TORC_NOTIFY_TITLE", &message.title)
        .env("TORC_NOTIFY_TEXT", &message.text)
        .env("TORC_NOTIFY_LINK", message.link.as_deref().unwrap_or_default())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("failed to start `{program}`: {e}"))?;
    let pid =
        i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("there is no process")?;
    let _awaited = torc_fence::Awaited::new(pid.as_raw_nonzero().get());
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read is content with its environment. A row is smaller than a pipe.
        let _ = stdin.write_all(payload.as_bytes());
    }
    let deadline = Instant::now() + limit;
    let ended = pidfd_open(pid, PidfdFlags::empty()).and_then(|fd| {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // A signal to this process, such as the end of a job, interrupts the wait and says
            // nothing about the program.
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                ended => return ended,
            }
        }
    });
    if !matches!(ended, Ok(1..)) {
        // It is gone already at worst.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match (ended, status.success()) {
        (Ok(1..), true) => Ok(()),
        (Ok(1..), false) => Err(format!("`{program}` ended with {status}")),
        _ => Err(format!("`{program}` took longer than {} s", limit.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str) -> NotificationText {
        let payload = json!({
            "event": "failure", "workflow_id": 7, "workflow_name": name, "job_name": "a", "cause": "exit", "return_code": 3
        });
        NotificationText::of(&payload, "https://torc.example.org/")
    }

    #[test]
    fn a_message_names_the_workflow_and_where_to_look() {
        let message = failure("sweep");
        assert_eq!(message.title, "sweep: job a failed with code 3");
        assert_eq!(message.link.as_deref(), Some("https://torc.example.org/ui/w/7"));
        let end = |counts: Value| {
            let payload = json!({"event": "end", "workflow_name": "sweep", "workflow_id": 1, "counts": counts});
            NotificationText::of(&payload, "").title
        };
        assert_eq!(end(json!({"completed": 4})), "sweep: all 4 jobs succeeded");
        let bad = json!({"completed": 3, "failed": 1, "canceled": 2});
        assert_eq!(end(bad), "sweep: ended, 3 of 6 jobs did not succeed");
    }

    #[test]
    fn a_name_cannot_become_markup_a_header_or_a_line() {
        let message = failure("<!channel> & \r\nBcc: all\u{7}");
        assert!(!message.title.contains(['\r', '\n', '\u{7}']));
        let slack = message.slack()["text"].as_str().unwrap().to_owned();
        assert!(slack.contains("&lt;!channel&gt; &amp;"), "{slack}");
        let request = message.request(NotifyKind::Ntfy, "/topic", "ntfy.sh").unwrap();
        assert!(request.headers()["title"].to_str().unwrap().starts_with("<!channel>"));
        let odd = failure("größe").request(NotifyKind::Ntfy, "/t", "x").unwrap();
        assert!(odd.headers()["title"].to_str().unwrap().starts_with("=?UTF-8?B?"));
    }

    #[test]
    fn a_command_gets_values_as_data_and_ends_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!("cat > {0}; printf %s \"$TORC_NOTIFY_TITLE\" >> {0}", out.display());
        let argv: Vec<String> = ["sh", "-c", &script].map(String::from).into();
        let message = failure("$(touch /tmp/x) `id`");
        run(&argv, &message, "{\"a\":1}", Duration::from_secs(10)).unwrap();
        let seen = std::fs::read_to_string(&out).unwrap();
        assert_eq!(seen, "{\"a\":1}$(touch /tmp/x) `id`: job a failed with code 3");
        let slow: Vec<String> = ["sh", "-c", "sleep 60 & wait"].map(String::from).into();
        let begin = std::time::Instant::now();
        let error = run(&slow, &message, "", Duration::from_secs(1)).unwrap_err();
        assert!(
            error.contains("longer than 1 s") && begin.elapsed() < Duration::from_secs(20),
            "{error}"
        );
        assert!(run(&["/no/such".into()], &message, "", Duration::from_secs(1)).is_err());
    }
}
