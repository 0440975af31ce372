//! `torc report`: a workflow as one HTML file that opens from disk without a network.
//!
//! The summary is plain HTML. Behind it stand the modules of the page, made into one script, with
//! the answers of the server packed beside them.

use super::Context;
use super::references::{self, LATEST};
use super::session::Access;
use super::timeline::TextTimeline;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::chart::escape;
use crate::output::{self, human};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use torc_client::{Client, Query};
use torc_model::api::{FailureGroup, FamiliesView, FamilyResources, JobView, Page, WorkflowView};
use torc_model::status::JobStatus;
use torc_model::words::{count, grouped};
use torc_server::api::page_files;

/// Write a workflow as one HTML file that needs no server
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc report                        writes report_wf1.html for the latest workflow
  torc report sweep -o run.html
  torc report sweep --redact         without commands, paths, hosts and output

The file holds overview, jobs, failures with their last lines, timeline, graph, resources and spec. It makes no request
to anywhere. Of a workflow that still runs it shows the present state.")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// File to write [default: report_wfID.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Leave out commands, paths, hosts, users and what jobs wrote
    #[arg(long)]
    redact: bool,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            self.write(context, client).await?;
            Ok(Exit::Success)
        })
    }

    async fn write(&self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let path =
            self.output.clone().unwrap_or_else(|| format!("report_wf{}.html", workflow.id).into());
        let mut run = Run::fetch(client, workflow).await?;
        if self.redact {
            run.redact();
        }
        let html = run.html(self.redact);
        std::fs::write(&path, &html).map_err(Error::io("write", &path))?;
        let answer = json!({"workflow_id": run.workflow.id, "file": path, "bytes": html.len()});
        context
            .output
            .value(&answer, |_| format!("{}\n", output::escape::line(&path.display().to_string())))
    }
}

/// Changes that the summary names.
const MAX_CHANGES: usize = 20;

/// Everything a report tells.
struct Run {
    workflow: WorkflowView,
    families: FamiliesView,
    failures: Vec<FailureGroup>,
    resources: Vec<FamilyResources>,
    jobs: Vec<JobView>,
    timeline: TextTimeline,
    graph: Value,
    critical_path: Value,
    spec: Value,
    adjustments: Value,
}

impl Run {
    async fn fetch(client: &Client, workflow: WorkflowView) -> Result<Self> {
        let id = workflow.id;
        let at = |place: &str| format!("/workflows/{id}/{place}");
        let query = Query::new().add("workflow_id", id).add("include_last", true);
        let failures: Page<FailureGroup> = client.get(&at("failures")).await?;
        let resources: Page<FamilyResources> = client.get(&at("resources")).await?;
        Ok(Self {
            families: client.get(&at("families")).await?,
            failures: failures.items,
            resources: resources.items,
            jobs: client.list_all("/jobs", &query).await?,
            timeline: TextTimeline::fetch(client, id).await?,
            graph: client.get(&at("graph")).await?,
            critical_path: client.get(&at("critical_path")).await?,
            spec: client.get(&at("spec")).await?,
            adjustments: client.get(&at("adjustments")).await?,
            workflow,
        })
    }

    /// Takes out what may name people, machines and what they do.
    fn redact(&mut self) {
        self.workflow.user = "-".into();
        self.workflow.origin.directory = None;
        self.workflow.notes.metadata = None;
        self.spec = json!({"left out": "by --redact"});
        self.adjustments = json!({"items": [], "total_count": 0});
        for group in &mut self.failures {
            group.sample.tail.clear();
            group.nodes.clear();
            group.diagnosis.proof.clear();
            group.diagnosis.summary = format!("{}", group.diagnosis.kind);
        }
        for job in &mut self.jobs {
            if let Some(last) = &mut job.last {
                last.hostname = None;
            }
        }
        // The names of the hosts stand at the end of the timeline.
        let bars = 24 + self.timeline.bars.len() * 20;
        let kept: Value = serde_json::from_slice(&self.timeline.bytes[bars..]).unwrap_or_default();
        let runners: Vec<Value> = (0..self.timeline.runners.len())
            .map(|number| {
                let cpus = &kept["runners"][number]["cpus"];
                json!({"id": number + 1, "host": format!("runner {}", number + 1), "cpus": cpus})
            })
            .collect();
        let names = json!({"runners": runners, "family_cpus": kept["family_cpus"]}).to_string();
        self.timeline.bytes.truncate(bars);
        self.timeline.bytes[20..24].copy_from_slice(&(names.len() as u32).to_le_bytes());
        self.timeline.bytes.extend_from_slice(names.as_bytes());
    }

    /// The answers of the server, by path, and the jobs as columns.
    fn data(&self) -> Value {
        let id = self.workflow.id;
        let base = self.families.started_ms.unwrap_or(0);
        let family: HashMap<&str, usize> =
            self.families.families.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
        let (mut hosts, mut causes) = (Words::default(), Words::default());
        let column = |value: &dyn Fn(&JobView) -> Value| -> Vec<Value> {
            self.jobs.iter().map(value).collect()
        };
        let last = |job: &JobView| job.last.clone();
        let host: Vec<Value> = self
            .jobs
            .iter()
            .map(|job| hosts.number(last(job).and_then(|a| a.hostname).as_deref()).into())
            .collect();
        let cause: Vec<Value> = self
            .jobs
            .iter()
            .map(|job| causes.number(last(job).and_then(|a| a.cause).map(|c| c.as_str())).into())
            .collect();
        let columns = json!({
            "id": column(&|job| job.id.0.into()),
            "name": column(&|job| job.name.as_str().into()),
            "family": column(&|job| family.get(job.family.as_str()).copied().unwrap_or(0).into()),
            "status": column(&|job| job.status.code().into()),
            "attempt": column(&|job| job.attempt_id.into()),
            "exit": column(&|job| job.return_code.into()),
            "start": column(&|job| last(job).and_then(|a| a.started_ms).map(|ms| (ms - base).max(1)).into()),
            "ms": column(&|job| last(job).and_then(|a| a.exec_seconds).map(|s| (s * 1000.0) as i64).into()),
            "peak": column(&|job| last(job).and_then(|a| a.peak_memory_bytes).map(|b| b / 1024).into()),
            "asked": column(&|job| last(job).and_then(|a| a.memory_bytes).into()),
            "host": host,
            "cause": cause,
        });
        let mut answers = Map::new();
        let mut add = |place: &str, value: Value| {
            answers.insert(format!("/workflows/{id}{place}"), value);
        };
        let page = |items: Value| json!({"items": items, "total_count": 0});
        add("", json!(self.workflow));
        add("/families", json!(self.families));
        add("/failures", page(json!(self.failures)));
        add("/resources", page(json!(self.resources)));
        add("/graph", self.graph.clone());
        add("/critical_path", self.critical_path.clone());
        add("/spec", self.spec.clone());
        add("/adjustments", self.adjustments.clone());
        let tails: BTreeMap<String, Value> = self
            .failures
            .iter()
            .map(|group| {
                let kept = json!({"summary": group.diagnosis.summary, "tail": group.sample.tail});
                (group.sample.job.0.to_string(), kept)
            })
            .collect();
        let names: Vec<&str> =
            self.families.families.iter().map(|family| family.name.as_str()).collect();
        json!({"workflow": id, "base_ms": base, "families": names, "hosts": hosts.0,
               "causes": causes.0, "columns": columns, "answers": answers, "tails": tails})
    }

    fn html(&self, is_redacted: bool) -> String {
        let title = format!("{} · Torc report", self.workflow.name);
        let note = if is_redacted { ", redacted" } else { "" };
        let linked = json!({
            "@context": "https://schema.org", "@type": "CreateAction", "name": self.workflow.name,
            "startTime": self.families.started_ms.map(iso), "endTime": self.families.last_end_ms.map(iso),
            "instrument": {"@type": "SoftwareApplication", "name": "torc", "softwareVersion": env!("CARGO_PKG_VERSION")},
        });
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">\n\
             <title>{title}</title>\n<style>{style}</style>\n\
             <script type=\"application/ld+json\">{linked}</script></head>\n\
             <body><main><div class=\"place\">{summary}<p class=\"quiet\">torc {version}{note}</p></div></main>\n\
             <script type=\"text/plain\" id=\"torc-data\">{data}</script>\n\
             <script type=\"text/plain\" id=\"torc-timeline\">{bars}</script>\n\
             <script>{script}</script>\n</body></html>\n",
            title = escape(&title),
            style = page_files::text(page_files::STYLE),
            linked = in_script(&linked.to_string()),
            summary = self.summary(),
            version = env!("CARGO_PKG_VERSION"),
            data = packed(self.data().to_string().as_bytes()),
            bars = packed(&self.timeline.bytes),
            script = script(),
        )
    }

    /// What can be read without JavaScript.
    fn summary(&self) -> String {
        let view = &self.families;
        let end = if view.is_complete { view.last_end_ms } else { Some(view.at_ms) };
        let took = match (view.started_ms, end) {
            (Some(begin), Some(end)) => human::seconds((end - begin).max(0) as f64 / 1000.0),
            _ => "no time".into(),
        };
        let counts: Vec<String> = view
            .counts
            .iter()
            .map(|(status, n)| format!("{} {}", grouped(*n), status.replace('_', " ")))
            .collect();
        let mut html = format!(
            "<h1>{}</h1><p>Workflow {}, run {}, as of {}: {}. {}: {}.</p>",
            escape(&self.workflow.name),
            self.workflow.id,
            view.run_id,
            escape(&human::local_time(view.at_ms)),
            escape(
                &format!("it took {took} so far")
                    .replace(" so far", if view.is_complete { "" } else { " so far" })
            ),
            escape(&count(view.total, "job")),
            escape(&counts.join(", ")),
        );
        let used: HashMap<i64, &FamilyResources> =
            self.resources.iter().map(|row| (row.number, row)).collect();
        let rows = view.families.iter().map(|family| {
            let done = family.counts.get("completed").copied().unwrap_or(0);
            let row = used.get(&family.number);
            let median = row.and_then(|r| r.seconds.median).map(human::seconds);
            let memory = row.and_then(|r| r.memory_max).map(human::bytes);
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
            [
                family.name.clone(),
                format!("{} of {}", grouped(done), grouped(family.total)),
                or_dash(median),
                or_dash(memory),
            ]
        });
        html += &table("Families", ["Family", "Completed", "Median time", "Most memory"], rows);
        let rows = self.failures.iter().map(|group| {
            let at = format!("{} (and {} blocked)", group.counts.jobs, group.counts.blocked);
            [
                group.family.clone(),
                at,
                group.diagnosis.summary.clone(),
                last_lines(&group.sample.tail),
            ]
        });
        html += &table("Failures", ["Family", "Jobs", "What happened", "Last lines"], rows);
        let mut slow: Vec<(&JobView, f64)> = self
            .jobs
            .iter()
            .filter_map(|job| Some((job, job.last.as_ref()?.exec_seconds?)))
            .collect();
        slow.sort_by(|a, b| b.1.total_cmp(&a.1));
        let rows = slow.iter().take(10).map(|(job, seconds)| {
            let status = job.status.to_string();
            [job.name.clone(), status, human::seconds(*seconds), grouped(job.attempt_id)]
        });
        html += &table("Slowest jobs", ["Job", "Status", "Time", "Attempts"], rows);
        html + &self.retries()
    }

    /// Jobs that were tried more than once, by family, and what was changed for them.
    fn retries(&self) -> String {
        let mut families: BTreeMap<&str, [i64; 3]> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.attempt_id > 1) {
            let [jobs, more, recovered] = families.entry(&job.family).or_default();
            *jobs += 1;
            *more += job.attempt_id - 1;
            *recovered += i64::from(job.status == JobStatus::Completed);
        }
        let rows = families.iter().map(|(family, [jobs, more, recovered])| {
            [(*family).to_owned(), grouped(*jobs), grouped(*more), grouped(*recovered)]
        });
        let head = ["Family", "Jobs tried again", "Further attempts", "Succeeded then"];
        let retries = table("Retries", head, rows);
        let text = |value: &Value| match value {
            Value::Null => "–".into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let changes = self.adjustments["items"].as_array().map_or(&[][..], Vec::as_slice);
        let rows = changes
            .iter()
            .take(MAX_CHANGES)
            .map(|change| ["job_name", "field", "from", "to", "why"].map(|key| text(&change[key])));
        retries + &table("What was changed for them", ["Job", "What", "From", "To", "Why"], rows)
    }
}

/// Texts that occur often, as numbers.
#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn number(&mut self, word: Option<&str>) -> Option<usize> {
        let word = word?;
        let known = self.0.iter().position(|known| known == word);
        Some(known.unwrap_or_else(|| {
            self.0.push(word.to_owned());
            self.0.len() - 1
        }))
    }
}

fn last_lines(tail: &str) -> String {
    let lines: Vec<&str> = tail.lines().rev().take(3).collect();
    lines.into_iter().rev().map(plain).collect::<Vec<_>>().join("\n")
}

/// A line as a terminal leaves it, without colours.
fn plain(line: &str) -> String {
    // A progress bar writes over itself; its last state stays.
    let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    let mut parts = line.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Such a sequence ends with its first letter.
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        plain += &part[end..];
    }
    plain
}

fn table<const N: usize>(
    title: &str,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut body = String::new();
    for row in rows {
        let cell = |text: &String| {
            let lines: Vec<String> = text.lines().map(escape).collect();
            format!("<td>{}</td>", lines.join("<br>"))
        };
        let cells: String = row.iter().map(cell).collect();
        body += &format!("<tr>{cells}</tr>");
    }
    if body.is_empty() {
        return String::new();
    }
    let head: String = head.iter().map(|cell| format!("<th>{cell}</th>")).collect();
    format!(
        "<h2>{title}</h2><table class=\"grid\"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
}

fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map(|at| at.to_string()).unwrap_or_default()
}

/// Text that must not end the element it stands in.
fn in_script(text: &str) -> String {
    text.replace('<', "\\u003c")
}

fn packed(bytes: &[u8]) -> String {
    let small = miniz_oxide::deflate::compress_to_vec(bytes, 6);
    base64::engine::general_purpose::STANDARD.encode(small)
}

/// The modules of the page as one script, behind the data that stand in for a server.
fn script() -> String {
    let (data, modules) = (page_files::REPORT_SCRIPT, page_files::text(page_files::BUNDLE));
    let all =
        format!("(async()=>{{\"use strict\";\n{data}\nawait openReport();\n{{{modules}}}}})();\n");
    // An element ends with the first `</script`, wherever it stands.
    all.replace("</script", "<\\/script")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_as_a_terminal_leaves_them() {
        let tail = "a\nb\n10%\r50%\r100%\r\n\x1b[33mwarning:\x1b[0m <b>\nend\x1b[";
        assert_eq!(last_lines(tail), "100%\nwarning: <b>\nend");
        let html = table("Lines", ["Last"], std::iter::once([last_lines(tail)]));
        assert!(html.contains("<td>100%<br>warning: &lt;b&gt;<br>end</td>"), "{html}");
    }

    #[test]
    fn what_is_packed_comes_back() {
        let text = b"columns columns columns".repeat(100);
        let bytes = base64::engine::general_purpose::STANDARD.decode(packed(&text)).unwrap();
        assert!(bytes.len() < text.len() / 10);
        assert_eq!(miniz_oxide::inflate::decompress_to_vec(&bytes).unwrap(), text);
    }
}
