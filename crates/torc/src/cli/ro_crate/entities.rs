//! The entities of a Provenance Run Crate, out of what the server knows of a workflow.

use super::{METADATA, SPEC, pretty};
use crate::cli::files::place;
use crate::cli::record::Record;
use crate::error::Result;
use crate::output::human;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use torc_model::api::{AttemptView, FileView, RelationKind};
use torc_model::status::AttemptState;

/// The profiles that a crate follows, with their names and versions.
const PROFILES: [(&str, &str, &str); 4] = [
    ("https://w3id.org/ro/wfrun/process/0.5", "Process Run Crate", "0.5"),
    ("https://w3id.org/ro/wfrun/workflow/0.5", "Workflow Run Crate", "0.5"),
    ("https://w3id.org/ro/wfrun/provenance/0.5", "Provenance Run Crate", "0.5"),
    ("https://w3id.org/workflowhub/workflow-ro-crate/1.0", "Workflow RO-Crate", "1.0"),
];
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// A file that a job reads or writes, as it is now.
pub(super) struct Data {
    pub id: String,
    pub place: PathBuf,
    pub is_copied: bool,
    entity: Value,
}

/// The entities of a crate, as they are put together.
pub(super) struct Crate<'a> {
    record: &'a Record,
    license: Option<&'a str>,
    most: u64,
    /// By the row of the file.
    pub data: BTreeMap<i64, Data>,
    /// Paths of files that are not there.
    pub missing: Vec<String>,
    entities: Vec<Value>,
    /// Jobs' relations, by job.
    relations: HashMap<i64, Vec<(RelationKind, i64)>>,
}

/// Text as a part of an `@id`.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match plain(byte) {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
        out
    })
}

/// The name of the file that an `@id` stands for.
pub(super) fn decoded(id: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), id.as_bytes());
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &more[2..]).1,
            None => (bytes.push(*first), rest = more).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn link(id: impl Into<String>) -> Value {
    json!({"@id": id.into()})
}

/// Milliseconds since 1970 as a time of ISO 8601.
fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

impl<'a> Crate<'a> {
    /// Begins one.
    pub fn new(record: &'a Record, license: Option<&'a str>, most: u64) -> Self {
        let mut relations: HashMap<i64, Vec<(RelationKind, i64)>> = HashMap::new();
        for relation in &record.relations {
            relations.entry(relation.job_id.0).or_default().push((relation.kind, relation.item_id));
        }
        Self {
            record,
            license,
            most,
            data: BTreeMap::new(),
            missing: Vec::new(),
            entities: Vec::new(),
            relations,
        }
    }

    /// Looks at every file of the workflow: size, checksum, kind.
    pub fn read_files(&mut self) -> Result<()> {
        let mut identifiers: HashMap<&str, &Value> = HashMap::new();
        for entry in self.record.spec["files"].as_array().into_iter().flatten() {
            if let (Some(name), Some(identifier)) =
                (entry["name"].as_str(), entry.get("identifier"))
            {
                identifiers.insert(name, identifier);
            }
        }
        for file in &self.record.files {
            let place = place(&self.record.workflow, &file.path);
            let Ok((size, hash)) = checksum(&place) else {
                self.missing.push(file.path.clone());
                continue;
            };
            let is_inside = !Path::new(&file.path).is_absolute() && !file.path.contains("..");
            let is_copied = is_inside && size <= self.most;
            let id = match is_copied {
                true => encoded(file.path.trim_start_matches("./")),
                false => format!("file://{}", encoded(&place.display().to_string())),
            };
            let mut entity = json!({
                "@id": id, "@type": "File", "name": file.path, "contentSize": size.to_string(),
                "sha256": hash, "encodingFormat": encoding(&place),
                "exampleOfWork": link(parameter(file)),
            });
            if let Some(modified) = modified_ms(&place) {
                entity["dateModified"] = json!(time(modified));
            }
            if let Some(identifier) = identifiers.get(file.name.as_str()) {
                entity["identifier"] = (*identifier).clone();
            }
            self.data.insert(file.id, Data { id, place, is_copied, entity });
        }
        Ok(())
    }

    fn add(&mut self, entity: Value) {
        self.entities.push(entity);
    }

    /// Puts the entities together.
    pub fn describe(&mut self) {
        self.profiles();
        self.agents();
        self.parameters();
        self.tools();
        let actions = self.attempts();
        self.run(&actions);
        self.root(&actions);
    }

    fn profiles(&mut self) {
        self.add(json!({
            "@id": METADATA, "@type": "CreativeWork", "about": link("./"),
            "conformsTo": [link("https://w3id.org/ro/crate/1.1"), link(PROFILES[3].0)],
        }));
        for (id, name, version) in PROFILES {
            self.add(json!({"@id": id, "@type": "CreativeWork", "name": name, "version": version}));
        }
    }

    fn user(&self) -> String {
        format!("#user/{}", encoded(&self.record.workflow.user))
    }

    fn agents(&mut self) {
        self.add(json!({"@id": self.user(), "@type": "Person", "name": self.record.workflow.user}));
        let version = env!("CARGO_PKG_VERSION");
        self.add(json!({
            "@id": "#torc", "@type": "SoftwareApplication", "name": "Torc", "softwareVersion": version,
            "description": "runs workflows of shell jobs",
        }));
        self.add(json!({
            "@id": "#torc-spec", "@type": "ComputerLanguage", "name": "Torc workflow file",
            "version": version, "identifier": link("https://github.com/NREL/torc"),
            "url": link("https://github.com/NREL/torc"),
        }));
        let license = match self.license {
            Some(url) => json!({"@id": url, "@type": "CreativeWork", "name": url}),
            None => json!({
                "@id": "#license", "@type": "CreativeWork", "name": "not stated",
                "description": "it has to be stated before the crate is shared",
            }),
        };
        self.add(license);
    }

    /// Files, and values of user data, as parameters of the workflow and of its tools.
    fn parameters(&mut self) {
        for file in &self.record.files {
            self.entities.push(json!({
                "@id": parameter(file), "@type": "FormalParameter", "name": file.name,
                "additionalType": "File", "valueRequired": true,
                "conformsTo": link("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
            }));
        }
        for data in &self.record.user_data {
            let id = format!("#parameter/user-data/{}", encoded(&data.name));
            self.entities.push(json!({
                "@id": id, "@type": "FormalParameter", "name": data.name, "additionalType": "Text",
                "valueRequired": true,
                "conformsTo": link("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
            }));
            self.entities.push(json!({
                "@id": value_of(data.id), "@type": "PropertyValue", "name": data.name,
                "value": data.data.as_ref().map(ToString::to_string).unwrap_or_default(),
                "exampleOfWork": link(id),
            }));
        }
        let entities: Vec<Value> = self.data.values().map(|data| data.entity.clone()).collect();
        self.entities.extend(entities);
    }

    /// What a job reads or writes, as parameters.
    fn parameters_of(&self, job: i64, inputs: bool) -> Vec<String> {
        let wanted = |kind: RelationKind| match kind {
            RelationKind::InputFile | RelationKind::InputUserData => inputs,
            RelationKind::OutputFile | RelationKind::OutputUserData => !inputs,
            RelationKind::DependsOn => false,
        };
        let name = |kind: RelationKind, item: i64| match kind {
            RelationKind::InputFile | RelationKind::OutputFile => {
                self.record.files.iter().find(|file| file.id == item).map(parameter)
            }
            _ => {
                let data = self.record.user_data.iter().find(|data| data.id == item)?;
                Some(format!("#parameter/user-data/{}", encoded(&data.name)))
            }
        };
        let all = self.relations.get(&job).into_iter().flatten();
        all.filter(|(kind, _)| wanted(*kind))
            .filter_map(|(kind, item)| name(*kind, *item))
            .collect()
    }

    /// The entries of the spec: each is a tool and a step of the workflow.
    fn tools(&mut self) {
        let mut families: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for job in &self.record.jobs {
            families.entry(&job.family).or_default().push(job.id.0);
        }
        let mut tools = Vec::new();
        let mut steps = Vec::new();
        for (number, (family, jobs)) in families.iter().enumerate() {
            let of = |inputs: bool| -> Vec<Value> {
                let all: BTreeSet<String> =
                    jobs.iter().flat_map(|job| self.parameters_of(*job, inputs)).collect();
                all.into_iter().map(link).collect()
            };
            let command = self.record.jobs.iter().find(|job| job.family == *family);
            tools.push(json!({
                "@id": tool(family), "@type": "SoftwareApplication", "name": family,
                "description": command.map(|job| job.command.as_str()).unwrap_or_default(),
                "input": of(true), "output": of(false),
            }));
            steps.push(json!({
                "@id": step(family), "@type": "HowToStep", "name": family,
                "position": (number + 1).to_string(), "workExample": link(tool(family)),
            }));
        }
        let links = |list: &[Value]| -> Vec<Value> {
            list.iter().filter_map(|one| one["@id"].as_str()).map(link).collect()
        };
        let (inputs, outputs) = self.ends();
        let spec = pretty(&self.record.spec);
        let params =
            |items: &BTreeSet<String>| -> Vec<Value> { items.iter().cloned().map(link).collect() };
        let workflow = json!({
            "@id": SPEC,
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            "name": self.record.workflow.name, "encodingFormat": "application/json",
            "programmingLanguage": link("#torc-spec"), "contentSize": spec.len().to_string(),
            "sha256": hex(&Sha256::digest(&spec)), "hasPart": links(&tools), "step": links(&steps),
            "input": params(&inputs), "output": params(&outputs),
            "version": self.record.workflow.revision.to_string(),
        });
        self.add(workflow);
        self.entities.extend(tools);
        self.entities.extend(steps);
    }

    /// What comes from outside, and what no job reads any more.
    fn ends(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let of = |inputs: bool| -> BTreeSet<String> {
            let jobs = self.record.jobs.iter();
            jobs.flat_map(|job| self.parameters_of(job.id.0, inputs)).collect()
        };
        let (read, written) = (of(true), of(false));
        (read.difference(&written).cloned().collect(), written.difference(&read).cloned().collect())
    }

    /// The things, not the parameters, that a job reads or writes and that are there.
    fn things(&self, job: i64, inputs: bool) -> Vec<Value> {
        let all = self.relations.get(&job).into_iter().flatten();
        let thing = |(kind, item): &(RelationKind, i64)| match (kind, inputs) {
            (RelationKind::InputFile, true) | (RelationKind::OutputFile, false) => {
                self.data.get(item).map(|data| link(data.id.clone()))
            }
            (RelationKind::InputUserData, true) | (RelationKind::OutputUserData, false) => {
                Some(link(value_of(*item)))
            }
            _ => None,
        };
        all.filter_map(thing).collect()
    }

    /// Every attempt that began, as an action; answers their ids by family.
    fn attempts(&mut self) -> BTreeMap<String, Vec<String>> {
        let families: HashMap<i64, &str> =
            self.record.jobs.iter().map(|job| (job.id.0, job.family.as_str())).collect();
        let commands: HashMap<i64, &str> =
            self.record.jobs.iter().map(|job| (job.id.0, job.command.as_str())).collect();
        let mut actions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut found = Vec::new();
        for attempt in &self.record.attempts {
            let Some(started) = attempt.started_ms else { continue };
            let family = families.get(&attempt.job_id.0).copied().unwrap_or("jobs");
            let id = format!("#attempt/{}", attempt.id);
            let is_good = attempt.state == AttemptState::Completed;
            let mut action = json!({
                "@id": id, "@type": "CreateAction",
                "name": format!("{}, run {}, attempt {}", attempt.job_name, attempt.run_id, attempt.attempt_id),
                "instrument": link(tool(family)), "agent": link(self.user()),
                "startTime": time(started), "actionStatus": link(status(is_good)),
                "description": commands.get(&attempt.job_id.0),
                "object": self.things(attempt.job_id.0, true),
                "result": if is_good { self.things(attempt.job_id.0, false) } else { Vec::new() },
            });
            let fields = action.as_object_mut().unwrap_or_else(|| unreachable!("it is an object"));
            if let Some(ended) = attempt.ended_ms {
                fields.insert("endTime".into(), json!(time(ended)));
            }
            if let Some(error) = attempt.error.as_ref().filter(|_| !is_good) {
                fields.insert("error".into(), json!(error));
            }
            let measured = measures(&id, attempt);
            let ids: Vec<Value> =
                measured.iter().filter_map(|one| one["@id"].as_str()).map(link).collect();
            fields.insert("resourceUsage".into(), json!(ids));
            found.extend(measured);
            found.push(action);
            actions.entry(family.to_owned()).or_default().push(id);
        }
        self.entities.extend(found);
        actions
    }

    /// The run as a whole, and how the engine steered it.
    fn run(&mut self, actions: &BTreeMap<String, Vec<String>>) {
        let began = self.record.attempts.iter().filter_map(|attempt| attempt.started_ms).min();
        let ended = self.record.attempts.iter().filter_map(|attempt| attempt.ended_ms).max();
        let is_good = self.record.jobs.iter().all(|job| !job.status.is_bad_end());
        let mut things = [Vec::new(), Vec::new()];
        let (inputs, outputs) = self.ends();
        for job in &self.record.jobs {
            for (at, wanted) in [(0, &inputs), (1, &outputs)] {
                let parameters = self.parameters_of(job.id.0, at == 0);
                if parameters.iter().any(|parameter| wanted.contains(parameter)) {
                    for thing in self.things(job.id.0, at == 0) {
                        if !things[at].contains(&thing) {
                            things[at].push(thing);
                        }
                    }
                }
            }
        }
        let [objects, results] = things;
        let mut times = Map::new();
        times.extend(began.map(|ms| ("startTime".to_owned(), json!(time(ms)))));
        times.extend(ended.map(|ms| ("endTime".to_owned(), json!(time(ms)))));
        let mut run = json!({
            "@id": "#run", "@type": "CreateAction", "instrument": link(SPEC),
            "name": format!("run {} of {}", self.record.workflow.run_id, self.record.workflow.name),
            "agent": link(self.user()), "actionStatus": link(status(is_good)),
            "object": objects, "result": results,
        });
        let controls: Vec<Value> = actions
            .iter()
            .map(|(family, ids)| {
                json!({
                    "@id": format!("#control/{}", encoded(family)), "@type": "ControlAction",
                    "name": format!("orchestrate {family}"), "instrument": link(step(family)),
                    "object": ids.iter().cloned().map(link).collect::<Vec<_>>(),
                })
            })
            .collect();
        let mut organize = json!({
            "@id": "#organize", "@type": "OrganizeAction", "name": "run of the workflow engine",
            "instrument": link("#torc"), "agent": link(self.user()), "result": link("#run"),
            "object": controls.iter().filter_map(|c| c["@id"].as_str()).map(link).collect::<Vec<_>>(),
        });
        for action in [&mut run, &mut organize] {
            if let Some(fields) = action.as_object_mut() {
                fields.extend(times.clone());
            }
        }
        self.entities.extend(controls);
        self.add(run);
        self.add(organize);
    }

    fn root(&mut self, actions: &BTreeMap<String, Vec<String>>) {
        let workflow = &self.record.workflow;
        let mut parts = vec![link(SPEC)];
        parts.extend(self.data.values().map(|data| link(data.id.clone())));
        let mut mentions = vec![link("#run"), link("#organize")];
        mentions.extend(actions.values().flatten().cloned().map(link));
        let description = workflow.notes.description.clone();
        let root = json!({
            "@id": "./", "@type": "Dataset", "name": workflow.name,
            "description": description.unwrap_or_else(|| {
                format!("run {} of the workflow {}, executed by Torc", workflow.run_id, workflow.name)
            }),
            "datePublished": time(human::now_ms()), "license": link(self.license.unwrap_or("#license")),
            "conformsTo": PROFILES.iter().map(|(id, ..)| link(*id)).collect::<Vec<_>>(),
            "mainEntity": link(SPEC), "hasPart": parts, "mentions": mentions,
            "author": link(self.user()),
        });
        self.entities.insert(1, root);
    }

    /// The whole as JSON-LD.
    pub fn document(&self) -> Value {
        json!({
            // The two terms of the profile that the context of RO-Crate 1.1 lacks.
            "@context": [
                "https://w3id.org/ro/crate/1.1/context",
                {
                    "sha256": "https://w3id.org/ro/terms/workflow-run#sha256",
                    "resourceUsage": "https://w3id.org/ro/terms/workflow-run#resourceUsage",
                },
            ],
            "@graph": self.entities,
        })
    }
}

fn parameter(file: &FileView) -> String {
    format!("#parameter/file/{}", encoded(&file.name))
}

fn value_of(user_data: i64) -> String {
    format!("#value/{user_data}")
}

fn tool(family: &str) -> String {
    format!("#tool/{}", encoded(family))
}

fn step(family: &str) -> String {
    format!("#step/{}", encoded(family))
}

fn status(is_good: bool) -> &'static str {
    match is_good {
        true => "http://schema.org/CompletedActionStatus",
        false => "http://schema.org/FailedActionStatus",
    }
}

/// What is known of an attempt besides its times.
fn measures(id: &str, attempt: &AttemptView) -> Vec<Value> {
    let values = [
        ("exit-code", attempt.return_code.map(|code| json!(code))),
        ("cpu-seconds", attempt.cpu_seconds.map(|seconds| json!(seconds))),
        ("peak-memory-bytes", attempt.peak_memory_bytes.map(|bytes| json!(bytes))),
        ("host", attempt.hostname.as_ref().map(|host| json!(host))),
        ("cause", attempt.cause.map(|cause| json!(cause))),
    ];
    let known = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known
        .map(|(name, value)| {
            json!({"@id": format!("{id}/{name}"), "@type": "PropertyValue", "name": name,
                   "propertyID": format!("https://github.com/NREL/torc#{name}"), "value": value})
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn modified_ms(place: &Path) -> Option<i64> {
    let modified = std::fs::metadata(place).ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// Size and SHA-256 of a regular file.
fn checksum(place: &Path) -> std::io::Result<(u64, String)> {
    let mut file = torc_fs::open(place, torc_fs::Trust::Regular)?;
    let (mut hash, mut size, mut room) = (Sha256::new(), 0u64, vec![0u8; PIECE]);
    loop {
        let got = file.read(&mut room)?;
        if got == 0 {
            return Ok((size, hex(&hash.finalize())));
        }
        hash.update(&room[..got]);
        size += got as u64;
    }
}

/// The kind of a file by its ending.
fn encoding(place: &Path) -> &'static str {
    match place.extension().and_then(|end| end.to_str()).unwrap_or_default() {
        "txt" | "log" | "out" => "text/plain",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "html" => "text/html",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        "gz" => "application/gzip",
        "zip" => "application/zip",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_ids_and_come_back() {
        for name in ["a b/c.txt", "ü%41.txt", "plain.csv"] {
            assert_eq!(decoded(&encoded(name)), name);
        }
        assert_eq!(encoded("a b"), "a%20b");
    }
}
