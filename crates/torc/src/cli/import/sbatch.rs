//! A script of `sbatch` as a spec: the script itself runs, once per index of its array.

use super::{Made, Out, name_of, quoted};
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Most indexes of an array.
const MAX_TASKS: usize = 1_000_000;

/// What `torc import sbatch` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The script
    file: PathBuf,

    /// Arguments that it gets
    #[arg(last = true)]
    arguments: Vec<String>,

    #[command(flatten)]
    pub(super) out: Out,
}

/// What the `#SBATCH` lines say.
#[derive(Default)]
struct Options {
    said: Vec<(String, String)>,
    notes: Vec<String>,
}

/// Options that say nothing about what a job needs here.
const OF_THE_BATCH_SYSTEM: [&str; 12] = [
    "account",
    "chdir",
    "comment",
    "error",
    "export",
    "mail-type",
    "mail-user",
    "open-mode",
    "output",
    "partition",
    "qos",
    "requeue",
];

/// Long names of the letters.
const LETTERS: [(char, &str); 14] = [
    ('A', "account"),
    ('J', "job-name"),
    ('N', "nodes"),
    ('n', "ntasks"),
    ('c', "cpus-per-task"),
    ('t', "time"),
    ('a', "array"),
    ('G', "gpus"),
    ('p', "partition"),
    ('q', "qos"),
    ('o', "output"),
    ('e', "error"),
    ('d', "dependency"),
    ('D', "chdir"),
];

impl Options {
    fn read(script: &str) -> Self {
        let mut options = Self::default();
        for line in script.lines().skip(1) {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("#SBATCH") {
                options.line(rest.split_once(" #").map_or(rest, |(said, _)| said));
            } else if !line.is_empty() && !line.starts_with('#') {
                // Slurm reads no further than the first command.
                break;
            }
        }
        options
    }

    fn line(&mut self, text: &str) {
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let (name, value) = match word.strip_prefix("--") {
                Some(long) => match long.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (long.to_owned(), None),
                },
                None => {
                    let mut letters = word.trim_start_matches('-').chars();
                    let letter = letters.next().unwrap_or('?');
                    let long = LETTERS.iter().find(|(known, _)| *known == letter);
                    let name =
                        long.map_or_else(|| letter.to_string(), |(_, long)| (*long).to_owned());
                    let glued = letters.as_str().trim_start_matches('=');
                    (name, (!glued.is_empty()).then(|| glued.to_owned()))
                }
            };
            let value = value
                .or_else(|| words.next_if(|next| !next.starts_with('-')).map(ToOwned::to_owned));
            self.said.push((name, value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()));
        }
    }

    /// What an option says; the last one counts.
    fn get(&self, name: &str) -> Option<&str> {
        self.said.iter().rev().find(|(said, _)| said == name).map(|(_, value)| value.as_str())
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let text = self.get(name)?.to_owned();
        let number = text.split('-').next().and_then(|first| first.parse().ok());
        if number.is_none() {
            self.notes.push(format!("`--{name}={text}` is no number and left out"));
        }
        number
    }
}

/// `1-10:2,15%4`: the indexes, and how many at once.
fn array(text: &str) -> std::result::Result<(Vec<u64>, Option<u32>), String> {
    let wrong = || format!("the array `{text}` is not written as `1-10:2,15%4`");
    let (list, at_once) = match text.split_once('%') {
        Some((list, most)) => (list, Some(most.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let mut indexes = Vec::new();
    for part in list.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let step: usize = step.parse().ok().filter(|step| *step > 0).ok_or_else(wrong)?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) =
            (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
        if last < first || (last - first) as usize / step > MAX_TASKS {
            return Err(wrong());
        }
        indexes.extend((first..=last).step_by(step));
    }
    indexes.sort_unstable();
    indexes.dedup();
    Ok((indexes, at_once))
}

/// `4G`, `4096`: megabytes unless it says otherwise; `0` is a whole node.
fn megabytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.to_ascii_uppercase() {
        text if text.ends_with('K') => (text.trim_end_matches('K').to_owned(), 1.0 / 1024.0),
        text if text.ends_with('G') => (text.trim_end_matches('G').to_owned(), 1024.0),
        text if text.ends_with('T') => (text.trim_end_matches('T').to_owned(), 1024.0 * 1024.0),
        text => (text.trim_end_matches('M').to_owned(), 1.0),
    };
    let value: f64 = number.parse().ok()?;
    Some((value * factor).ceil() as u64).filter(|mb| *mb > 0)
}

/// `gpu:a100:2`, `2`, `a100:2`: how many.
fn gpus(text: &str) -> u64 {
    let of = |part: &str| part.rsplit(':').next().and_then(|last| last.parse().ok()).unwrap_or(1);
    text.split(',').map(of).sum()
}

impl Args {
    /// The spec.
    pub(super) fn make(&self) -> Result<Made> {
        let script = std::fs::read_to_string(&self.file).map_err(Error::io("read", &self.file))?;
        let mut options = Options::read(&script);
        let path = self.file.display().to_string();
        let stem = self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = options.get("job-name").map(ToOwned::to_owned).or(stem).unwrap_or_default();
        let name = name_of(&name);
        let needs = needs(&mut options);
        let shell = script.lines().next().and_then(|line| line.strip_prefix("#!")).map(str::trim);
        let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh");
        let mut run = format!("{shell} {}", quoted(&path));
        for argument in &self.arguments {
            run += &format!(" {}", quoted(argument));
        }
        let run = super::literal(&run);
        let mut job = Map::new();
        let mut spec = json!({"name": name});
        match options.get("array").map(ToOwned::to_owned) {
            Some(text) => {
                let (indexes, at_once) = array(&text).map_err(Error::usage)?;
                let (first, last) = (indexes.first().copied(), indexes.last().copied());
                let variables = format!(
                    "SLURM_ARRAY_TASK_ID={{index}} SLURM_ARRAY_TASK_COUNT={} SLURM_ARRAY_TASK_MIN={} SLURM_ARRAY_TASK_MAX={} ",
                    indexes.len(),
                    first.unwrap_or_default(),
                    last.unwrap_or_default()
                );
                job.insert("name".into(), json!(format!("{name}_{{index}}")));
                job.insert("command".into(), json!(format!("{variables}{run}")));
                job.insert("parameters".into(), json!({"index": indexes}));
                if let Some(most) = at_once {
                    let limit = format!("{name}_at_once");
                    spec["limits"] = json!({ (limit.clone()): most });
                    job.insert("uses".into(), json!([limit]));
                }
            }
            None => {
                job.insert("name".into(), json!(name));
                job.insert("command".into(), json!(run));
            }
        }
        if !needs.is_empty() {
            let mut entry = Map::from_iter([("name".to_owned(), json!(name))]);
            entry.extend(needs);
            spec["resource_requirements"] = json!([entry]);
            job.insert("resource_requirements".into(), json!(name));
        }
        spec["jobs"] = json!([job]);
        Ok(Made { spec, notes: notes(options, &script) })
    }
}

fn needs(options: &mut Options) -> Map<String, Value> {
    let mut needs = Map::new();
    let cpus = options.number("cpus-per-task");
    let tasks = options.number("ntasks").or_else(|| options.number("ntasks-per-node"));
    let nodes = options.number("nodes").filter(|nodes| *nodes > 1);
    let all = cpus.unwrap_or(1) * tasks.unwrap_or(1) / nodes.unwrap_or(1).max(1);
    if all > 1 {
        needs.insert("num_cpus".into(), json!(all));
    }
    if let Some(nodes) = nodes {
        needs.insert("num_nodes".into(), json!(nodes));
    }
    let memory = options.get("mem").and_then(megabytes);
    let by_cpu = options.get("mem-per-cpu").and_then(megabytes).map(|mb| mb * all.max(1));
    if let Some(mb) = memory.or(by_cpu) {
        needs.insert("memory".into(), json!(format!("{mb}m")));
    }
    let wanted =
        ["gpus", "gpus-per-node", "gpus-per-task"].into_iter().find_map(|name| options.get(name));
    let wanted = wanted.or_else(|| options.get("gres").filter(|gres| gres.starts_with("gpu")));
    if let Some(count) = wanted.map(gpus).filter(|count| *count > 0) {
        needs.insert("num_gpus".into(), json!(count));
    }
    if let Some(time) = options.get("time") {
        match torc_model::slurm::parse_clock(time).flatten() {
            Some(seconds) => _ = needs.insert("runtime".into(), json!(format!("PT{seconds}S"))),
            None => options.notes.push(format!("`--time={}` is left out", time.to_owned())),
        }
    }
    needs
}

/// What of the script the spec does not say.
fn notes(options: Options, script: &str) -> Vec<String> {
    const READ: [&str; 14] = [
        "job-name",
        "array",
        "cpus-per-task",
        "ntasks",
        "ntasks-per-node",
        "nodes",
        "mem",
        "mem-per-cpu",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "time",
        "parsable",
    ];
    let mut notes = options.notes;
    let is_of_batch = |name: &str| OF_THE_BATCH_SYSTEM.contains(&name);
    let left: Vec<&str> = options
        .said
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !READ.contains(name) && !is_of_batch(name))
        .collect();
    if !left.is_empty() {
        notes.push(format!("not taken over: `--{}`", left.join("`, `--")));
    }
    if options.said.iter().any(|(name, _)| name == "account" || name == "partition") {
        notes.push(
            "`torc slurm generate SPEC --account NAME` asks for nodes; here the spec runs anywhere"
                .into(),
        );
    }
    if script.contains("SLURM_JOB_ID") || script.contains("SLURM_SUBMIT_DIR") {
        notes.push("the script reads variables that only Slurm sets: inside of an allocation they are there".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_and_sizes_are_read_as_slurm_reads_them() {
        assert_eq!(array("1-7:3,5%2"), Ok((vec![1, 4, 5, 7], Some(2))));
        assert_eq!(array("3"), Ok((vec![3], None)));
        assert!(array("7-1").is_err() && array("a").is_err() && array("1-9:0").is_err());
        assert_eq!(
            (megabytes("4G"), megabytes("500"), megabytes("0")),
            (Some(4096), Some(500), None)
        );
        assert_eq!((gpus("gpu:a100:2"), gpus("3"), gpus("gpu")), (2, 3, 1));
    }

    #[test]
    fn options_are_read_up_to_the_first_command() {
        let text = "#!/bin/bash\n#SBATCH -J sweep --time=01:00:00\n#SBATCH -c4 # four\n\necho hi\n#SBATCH --mem=9G\n";
        let options = Options::read(text);
        assert_eq!(options.get("job-name"), Some("sweep"));
        assert_eq!(options.get("cpus-per-task"), Some("4"));
        assert_eq!(options.get("mem"), None);
    }
}
