//! The reference of the workflow file, made from the same key tables that the reader uses: for
//! `torc help spec` and for the page in the documents.

use crate::keys::{Field, Object, Shape, WORKFLOW};
use crate::steps::{Part, part_object};

/// A map of the workflow file with its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// What it is, with its article: `a job`.
    pub title: &'static str,
    /// Its name in the JSON Schema: `job`.
    pub id: &'static str,
    /// Keys under which it stands, each with the section of the key.
    pub places: Vec<(&'static str, &'static str)>,
    /// A lone value stands for a map with only this key.
    pub shorthand: Option<&'static str>,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// One key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What its value may be.
    pub kind: String,
    /// It must be there.
    pub is_required: bool,
    /// What holds without it.
    pub default: String,
    /// The version that brought it.
    pub since: &'static str,
    /// What it means.
    pub about: &'static str,
    /// A value, as YAML in one line; none for keys without effect.
    pub example: Option<String>,
}

/// Every map of the workflow file, from the whole file to the smallest part.
pub fn sections() -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    collect(&WORKFLOW, None, &mut found);
    found
}

fn collect(
    object: &'static Object,
    place: Option<(&'static str, &'static str)>,
    found: &mut Vec<Section>,
) {
    if let Some(known) = found.iter_mut().find(|section| section.id == object.id) {
        known.places.extend(place.filter(|place| !known.places.contains(place)));
        return;
    }
    found.push(Section {
        title: object.name,
        id: object.id,
        places: place.into_iter().collect(),
        shorthand: object.shorthand,
        keys: object.fields.iter().filter_map(|field| key(object, field)).collect(),
    });
    for field in object.fields {
        if let Some(inner) = inner(&field.shape) {
            collect(inner, Some((object.id, field.key)), found);
        }
    }
}

/// The map that a value of this shape is or holds.
fn inner(shape: &Shape) -> Option<&'static Object> {
    match shape {
        Shape::Object(object) => Some(object),
        Shape::List(item) | Shape::Map(_, item) => inner(item),
        Shape::Steps(part) => part_object(*part),
        _ => None,
    }
}

fn key(object: &Object, field: &'static Field) -> Option<Key> {
    // What is refused is no key of ours.
    if let Shape::Refused(_) = field.shape {
        return None;
    }
    let example = match example(object.id, field) {
        Value::None => None,
        Value::Line(value) => Some(format!("{}: {value}", field.key)),
    };
    Some(Key {
        name: field.key,
        aliases: field.aliases,
        kind: kind(&field.shape),
        is_required: field.required,
        default: default(field),
        since: "0.1",
        about: field.doc,
        example,
    })
}

/// What a value may be, in a few words.
fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Text => "text".into(),
        Shape::Line => "text of one line".into(),
        Shape::Name => "name".into(),
        Shape::FileName => "name or path of a file".into(),
        Shape::Labels => "name or list of names".into(),
        Shape::Bool => "`true` or `false`".into(),
        Shape::Int(least, most) => range(*least as f64, *most as f64, "whole number"),
        Shape::Number(least, most) => range(*least, *most, "number"),
        Shape::Memory => "size, such as `8g` or `512m`".into(),
        Shape::Runtime | Shape::Timeout => "duration, such as `2h30m` or `PT5M`".into(),
        Shape::Seconds => "duration, or seconds".into(),
        Shape::Walltime => "walltime as Slurm takes it, such as `04:00:00`".into(),
        Shape::SlurmMemory => "size as Slurm takes it, such as `64G`".into(),
        Shape::Word(words) => {
            let words: Vec<String> = words().iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Shape::Signal => "signal, such as `SIGTERM`".into(),
        Shape::EarlySignal => "signal with seconds, such as `TERM@120`".into(),
        Shape::Regex => "regular expression".into(),
        Shape::List(item) => format!("list: {}", kind(item)),
        Shape::Map(_, value) => format!("map: {}", kind(value)),
        Shape::Object(object) => format!("{}, see `{}`", object.name, object.id),
        Shape::Json => "anything".into(),
        Shape::Metadata => "anything, or JSON as text".into(),
        Shape::ParameterValues => "values: `1:10`, `[a, b]`, or one".into(),
        Shape::Steps(part) => part_kind(*part),
        Shape::Ignored(why) => format!("no effect: {why}"),
        Shape::Refused(why) => format!("refused: {why}"),
    }
}

fn part_kind(part: Part) -> String {
    match part {
        Part::Steps => "steps, see `step`".into(),
        Part::Handler => "commands or a handler, see `handler`".into(),
        Part::Map => "a map over items, see `map`".into(),
        Part::Items => "where items come from, see `items`".into(),
        Part::Agent => "an agent program, see `agent`".into(),
        Part::Reduce => "name of a map job".into(),
        Part::Resume => "`start`, `step`".into(),
        Part::Dir => "path".into(),
        Part::AgentCommand => "command line, as text or a list".into(),
        Part::Capture => "map: variable and where it is read".into(),
        Part::Expression => "expression".into(),
        Part::Only => "list: exit codes or expressions".into(),
        Part::Tolerate => "number, or a share such as `10%`".into(),
    }
}

fn range(least: f64, most: f64, what: &str) -> String {
    // Larger bounds are those of the machine, not of the matter.
    match most < 1e9 {
        true => format!("{what} from {least} to {most}"),
        false if least > -1e9 => format!("{what}, at least {least}"),
        false => what.into(),
    }
}

/// What holds without the key: the tables say it in the key's own sentence.
fn default(field: &Field) -> String {
    if field.required {
        return "required".into();
    }
    let said = field.doc.trim_end_matches('.').strip_suffix(" unless set");
    if let Some(said) = said {
        let value = said.rsplit(['.', ';', ',', ':']).next().unwrap_or(said).trim();
        let value = value.trim_start_matches("the ");
        return match value.contains([' ']) || value.starts_with('`') {
            true => value.into(),
            false => format!("`{value}`"),
        };
    }
    match field.shape {
        Shape::Bool => "`false`".into(),
        Shape::Word(words) => words().first().map(|word| format!("`{word}`")).unwrap_or_default(),
        Shape::List(_) | Shape::Map(..) => "none".into(),
        _ => "not set".into(),
    }
}

/// A value to show.
enum Value {
    None,
    Line(String),
}

/// Examples that say more than the shape alone would.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("workflow", "name", "sweep"),
    ("workflow", "user", "alice"),
    ("workflow", "description", "A sweep over two parameters"),
    ("workflow", "project", "climate"),
    ("workflow", "metadata", "{ticket: 17}"),
    ("workflow", "variables", "{data: /scratch/data}"),
    ("workflow", "env", "{OMP_NUM_THREADS: \"1\"}"),
    ("workflow", "shell", "strict"),
    ("workflow", "limits", "{licence: 4}"),
    ("workflow", "parameters", "{alpha: \"0:1:0.25\"}"),
    ("workflow", "parameters_file", "runs.csv"),
    ("workflow", "default_failure_handler", "flaky"),
    ("workflow", "checkpoint_exit_code", "85"),
    ("workflow", "disown_seconds", "3600"),
    ("workflow", "slurm_defaults", "{qos: high}"),
    ("workflow", "files", "[{name: table, path: table.csv}]"),
    ("workflow", "user_data", "[{name: best}]"),
    ("workflow", "resource_requirements", "[{name: big, num_cpus: 8, memory: 32g}]"),
    ("workflow", "failure_handlers", "[{name: flaky, rules: [{exit_codes: [75]}]}]"),
    ("workflow", "slurm_schedulers", "[{name: main, account: abc, walltime: \"04:00:00\"}]"),
    ("workflow", "jobs", "[{name: a, command: make a}]"),
    (
        "workflow",
        "recovery_rules",
        "[{rule: busy, kind: network, nature: transient, says: [try later]}]",
    ),
    (
        "workflow",
        "actions",
        "[{trigger_type: on_workflow_complete, action_type: run_commands, commands: [./tidy.sh]}]",
    ),
    ("workflow", "agent", "{command: claude}"),
    ("job", "name", "\"train_{alpha}\""),
    ("job", "command", "\"./train.sh {alpha}\""),
    ("job", "steps", "[./prepare.sh, ./run.sh]"),
    ("job", "map", "{items: {file: samples.txt}}"),
    ("job", "reduce", "measure"),
    ("job", "resume", "step"),
    ("job", "dir", "work"),
    ("job", "invocation_script", "module load gcc"),
    ("job", "parameters", "{alpha: [0.1, 0.2]}"),
    ("job", "parameters_file", "runs.csv"),
    ("job", "use_parameters", "[alpha]"),
    ("job", "depends_on", "[prepare]"),
    ("job", "depends_on_regexes", "[\"train_.*\"]"),
    ("job", "input_files", "[table.csv]"),
    ("job", "input_file_regexes", "[\"part_.*\"]"),
    ("job", "output_files", "[model.bin]"),
    ("job", "output_file_regexes", "[\"result_.*\"]"),
    ("job", "input_user_data", "[best]"),
    ("job", "input_user_data_regexes", "[\"score_.*\"]"),
    ("job", "output_user_data", "[best]"),
    ("job", "output_user_data_regexes", "[\"score_.*\"]"),
    ("job", "resource_requirements", "big"),
    ("job", "failure_handler", "flaky"),
    ("job", "retries", "2"),
    ("job", "scheduler", "main"),
    ("job", "priority", "10"),
    ("job", "env", "{LANG: C}"),
    ("job", "uses", "[licence]"),
    ("job", "label", "gpu"),
    ("job", "stdio", "combined"),
    ("job", "max_lost_retries", "5"),
    ("file", "name", "table"),
    ("file", "path", "data/table.csv"),
    ("user_data", "name", "best"),
    ("user_data", "data", "{score: 0.5}"),
    ("rule", "exit_codes", "[75, 137]"),
    ("rule", "signals", "[SIGSEGV]"),
    ("rule", "causes", "[oom, timeout]"),
    ("rule", "stderr_matches", "[\"connection reset\"]"),
    ("rule", "recovery_script", "rm -f lock"),
    ("rule", "max_retries", "3"),
    ("rule", "backoff", "{delay: 30s, factor: 2}"),
    ("failure_handler", "name", "flaky"),
    ("failure_handler", "rules", "[{exit_codes: [75], max_retries: 3}]"),
    ("resource_monitor", "sample_interval_seconds", "10"),
    ("slurm_scheduler", "name", "main"),
    ("slurm_scheduler", "account", "abc"),
    ("slurm_scheduler", "partition", "standard"),
    ("slurm_scheduler", "extra", "\"--constraint=cpu\""),
    ("slurm_scheduler", "gres", "\"gpu:2\""),
    ("action", "jobs", "[train]"),
    ("action", "commands", "[./tidy.sh]"),
    ("action", "scheduler", "main"),
    ("step", "command", "./run.sh"),
    ("step", "name", "run"),
    ("retry", "attempts", "3"),
    ("map", "items", "{file: samples.txt}"),
    ("map", "sort", "[name]"),
    ("items", "file", "samples.txt"),
    ("items", "command", "ls *.csv"),
    ("items", "select", "\"$.items[*]\""),
];

fn example(object: &str, field: &Field) -> Value {
    let known = EXAMPLES.iter().find(|(of, key, _)| *of == object && *key == field.key);
    if let Some((_, _, value)) = known {
        return Value::Line((*value).into());
    }
    by_shape(&field.shape)
}

fn by_shape(shape: &Shape) -> Value {
    Value::Line(match shape {
        Shape::Bool => "true".into(),
        Shape::Int(least, most) => middle(*least as f64, *most as f64).to_string(),
        Shape::Number(least, most) => match most <= &1.0 {
            true => "0.5".into(),
            false => middle(*least, *most).to_string(),
        },
        Shape::Memory => "8g".into(),
        Shape::Runtime | Shape::Timeout => "2h".into(),
        Shape::Seconds => "30s".into(),
        Shape::Walltime => "\"04:00:00\"".into(),
        Shape::SlurmMemory => "64G".into(),
        Shape::Word(words) => words().last().copied().unwrap_or_default().into(),
        Shape::Signal => "SIGTERM".into(),
        Shape::EarlySignal => "TERM@120".into(),
        Shape::List(item) => match by_shape(item) {
            Value::Line(line) => format!("[{line}]"),
            Value::None => return Value::None,
        },
        Shape::Object(object) => {
            let fields = object.fields.iter().filter(|field| field.required);
            let mut pairs: Vec<String> = Vec::new();
            for field in fields {
                if let Value::Line(line) = example(object.id, field) {
                    pairs.push(format!("{}: {line}", field.key));
                }
            }
            if pairs.is_empty()
                && let Some(first) = object.fields.first()
                && let Value::Line(line) = example(object.id, first)
            {
                pairs.push(format!("{}: {line}", first.key));
            }
            format!("{{{}}}", pairs.join(", "))
        }
        Shape::Steps(Part::Steps | Part::Handler) => "[./tidy.sh]".into(),
        Shape::Steps(Part::Tolerate) => "10%".into(),
        Shape::Text | Shape::Line | Shape::Name | Shape::FileName | Shape::Regex => "text".into(),
        Shape::Labels => "text or list of texts".into(),
        Shape::Map(..)
        | Shape::Json
        | Shape::Metadata
        | Shape::ParameterValues
        | Shape::Steps(_)
        | Shape::Ignored(_)
        | Shape::Refused(_) => return Value::None,
    })
}

/// A number that the bounds allow and that looks like one that a user would write.
fn middle(least: f64, most: f64) -> f64 {
    [4.0, 60.0, 1.0].into_iter().find(|value| (least..=most).contains(value)).unwrap_or(least)
}

impl Section {
    /// Its keys and what they mean, as the page has them.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {} (`{}`)\n\n", capital(self.title), self.id);
        if !self.places.is_empty() {
            let places: Vec<String> = self
                .places
                .iter()
                .map(|(section, key)| format!("`{key}` of `{section}`"))
                .collect();
            text += &format!("The value of {}. ", places.join(", "));
        }
        if let Some(short) = self.shorthand {
            text += &format!("A single value stands for a map with only `{short}`.");
        }
        text = text.trim_end().to_owned();
        text +=
            "\n\n| key | type | default | since | meaning | example |\n|---|---|---|---|---|---|\n";
        for key in &self.keys {
            let mut name = format!("`{}`", key.name);
            if !key.aliases.is_empty() {
                let aliases: Vec<String> =
                    key.aliases.iter().map(|alias| format!("`{alias}`")).collect();
                name += &format!(" (or {})", aliases.join(", "));
            }
            let example = key.example.as_ref().map(|text| format!("`{text}`")).unwrap_or_default();
            let cells = [&name, &key.kind, &key.default, key.since, key.about, &example];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_of_the_schema_is_in_the_reference() {
        let schema = crate::json_schema();
        let sections = sections();
        for name in schema["$defs"].as_object().unwrap().keys() {
            assert!(sections.iter().any(|section| section.id == name), "{name}");
        }
    }

    #[test]
    fn defaults_are_taken_from_the_sentence_of_the_key() {
        let find = |section: &str, key: &str| {
            let all = sections();
            let found = all.iter().find(|s| s.id == section).unwrap();
            found.keys.iter().find(|k| k.name == key).unwrap().clone()
        };
        assert_eq!(find("job", "max_lost_retries").default, "`3`");
        assert_eq!(find("job", "cancel_on_blocking_job_failure").default, "`true`");
        assert_eq!(find("job", "name").default, "required");
        assert_eq!(find("workflow", "shell").default, "`default`");
        assert_eq!(find("job", "memory").example.as_deref(), Some("memory: 8g"));
    }
}
