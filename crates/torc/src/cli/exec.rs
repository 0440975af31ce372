//! `torc exec`: plain commands become a workflow like any other.

use super::direct::Direct;
use super::job_output::Style;
use super::run::{self, RunOptions};
use super::{Context, spec};
use crate::error::{Error, Result};
use crate::exit::Exit;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use torc_model::units::Runtime;

/// Run plain commands as a workflow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc exec -c 'make a' -c 'make b'             two jobs, as many at once as there are CPUs
  torc exec -C commands.txt -j 4                one job per line, four at once
  torc exec --param i=1:10 -- ./simulate {i}    ten jobs
  torc exec --param lr=0.1,0.01 --param seed=1:3 -c 'train --lr {lr} --seed {seed}'
                                                every combination: six jobs
  torc exec -C commands.txt --show-output --tag    what they print, with the job before each line
  torc exec --direct --scope limit:gpu -- ./try.sh    once, in the place of the next job; not a job itself

What a single command prints is shown as it prints it; with several, `--show-output` shows it job by job as they end.

Values of --param: a range (`1:10`, `0:1:0.25`), a list (`a,b,c` or a JSON array), or @FILE with one value per line.")]
pub struct Args {
    /// A command for the shell; may be repeated
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<String>,

    /// File with one command per line (`-`: standard input); `#` begins a comment
    #[arg(short = 'C', long, value_name = "FILE")]
    commands_file: Option<std::path::PathBuf>,

    /// Values for `{NAME}` in the commands; several parameters give every combination
    #[arg(short, long, value_name = "NAME=VALUES")]
    param: Vec<String>,

    /// Take the values of several parameters pairwise instead of every combination
    #[arg(long, value_enum, default_value = "product", hide_default_value = true)]
    link: ParameterLink,

    /// Name of the workflow
    #[arg(short, long, default_value = "exec")]
    name: String,

    /// Run the command here and now, before any job that waits: no new job starts until it has
    /// ended
    #[arg(long, requires = "trailing", conflicts_with_all = ["command", "commands_file", "param"])]
    direct: bool,

    /// With `--direct`: what to keep free, `all`, `workflow:ID` or `limit:NAME`
    #[arg(long, requires = "direct", default_value = "all", hide_default_value = true)]
    scope: String,

    /// With `--direct`: jobs start again this long after this process was killed
    #[arg(long, requires = "direct", default_value = "10m", hide_default_value = true, value_parser = Runtime::parse)]
    ttl: Runtime,

    /// Show what each job printed, when it has ended. A single command is shown without it, line by
    /// line as it prints
    #[arg(long, conflicts_with_all = ["direct", "detach"])]
    show_output: bool,

    /// Show no output of a single command either
    #[arg(long, conflicts_with_all = ["show_output", "tag", "keep_order"])]
    hide_output: bool,

    /// Show output with the name of its job and a tab before each line
    #[arg(long, conflicts_with_all = ["direct", "detach"])]
    tag: bool,

    /// Show output in the order of the commands, not in the order in which they end
    #[arg(short, long, conflicts_with_all = ["direct", "detach"])]
    keep_order: bool,

    #[command(flatten)]
    options: RunOptions,

    /// One command with its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    trailing: Vec<String>,
}

/// How parameters combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum ParameterLink {
    /// Every value of one with every value of the other.
    Product,
    /// The first with the first, the second with the second.
    Zip,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        if self.direct {
            let ttl = Duration::from_secs(self.ttl.0);
            return Direct { scope: self.scope, ttl, command: self.trailing }.execute(context);
        }
        let spec = self.spec(context)?;
        let show = self.show(context, &spec)?;
        let checked = spec::from_value(context, spec)?;
        // The same commands may be meant to run again, so every call is a workflow of its own.
        run::run_new(context, &checked, &self.options, show)
    }

    /// Whether and how output of jobs is shown.
    fn show(&self, context: &Context, spec: &Value) -> Result<Option<Style>> {
        let is_asked = self.show_output || self.tag || self.keep_order;
        if context.output.is_json() {
            return match is_asked {
                true => Err(Error::usage_hint(
                    "standard output cannot hold both JSON and what jobs print",
                    "`torc logs JOB` prints it later",
                )),
                false => Ok(None),
            };
        }
        let is_single =
            spec["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1) && self.param.is_empty();
        let is_shown = is_single && !self.hide_output && !self.options.detach;
        let style = Style { tag: self.tag, keep_order: self.keep_order, is_live: is_single };
        Ok((is_asked || is_shown).then_some(style))
    }

    /// The commands as a spec.
    fn spec(&self, context: &Context) -> Result<Value> {
        let mut commands = self.command.clone();
        if let Some(path) = &self.commands_file {
            commands.extend(parse_lines(&read_text(path)?));
        }
        if !self.trailing.is_empty() {
            commands.push(shell_words(&self.trailing));
        }
        if commands.is_empty() {
            return Err(Error::usage_hint(
                "there is no command",
                "give one with `-c`, with `-C FILE`, or after `--`",
            ));
        }
        let parameters =
            self.param.iter().map(|text| parse_parameter(text)).collect::<Result<Vec<_>>>()?;
        let mut names = BTreeSet::new();
        if let Some((twice, _)) = parameters.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Error::usage(format!(
                "`--param {twice}` is given twice; put all its values into one"
            )));
        }
        for name in other_names(&commands, &parameters) {
            context.output.warn(format_args!(
                "`{{{name}}}` stays as it is: no `--param` has this name ({} given)",
                parameters
                    .iter()
                    .map(|(name, _)| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
        }
        Ok(build(&self.name, &commands, &parameters, self.link))
    }
}

fn build(
    name: &str,
    commands: &[String],
    parameters: &[(String, Value)],
    link: ParameterLink,
) -> Value {
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    let suffix: String = names.iter().map(|name| format!("_{{{name}}}")).collect();
    let jobs: Vec<Value> = commands
        .iter()
        .enumerate()
        .map(|(index, command)| {
            let mut job = Map::new();
            job.insert("name".into(), json!(format!("job{}{suffix}", index + 1)));
            job.insert("command".into(), json!(keep_other_braces(command, &names).0));
            if !parameters.is_empty() {
                job.insert(
                    "parameters".into(),
                    parameters.iter().cloned().collect::<Map<_, _>>().into(),
                );
            }
            if link == ParameterLink::Zip {
                job.insert("parameter_mode".into(), json!("zip"));
            }
            job.into()
        })
        .collect();
    json!({ "name": name, "jobs": jobs })
}

/// A command line is text for the shell: only `{NAME}` of a given parameter means something to us.
/// Other names in braces are doubled, which is how a spec writes a brace that is meant; they are
/// handed back too.
fn keep_other_braces<'a>(command: &'a str, parameters: &[&str]) -> (String, Vec<&'a str>) {
    let mut others = Vec::new();
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let inner = from[1..].split('}').next().unwrap_or_default();
        let is_closed = from.len() > inner.len() + 1;
        let name = inner.split(':').next().unwrap_or_default();
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_shell = before.ends_with('$') || out.ends_with('$');
        if is_closed && is_name && !is_shell && !parameters.contains(&name) {
            others.push(name);
            out.push_str(&format!("{{{{{inner}}}}}"));
            rest = &from[inner.len() + 2..];
        } else {
            out.push('{');
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    (out, others)
}

/// Names in braces that are no parameters, each once: beside parameters they may be slips.
fn other_names<'a>(commands: &'a [String], parameters: &[(String, Value)]) -> BTreeSet<&'a str> {
    if parameters.is_empty() {
        return BTreeSet::new();
    }
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    commands.iter().flat_map(|command| keep_other_braces(command, &names).1).collect()
}

fn read_text(path: &Path) -> Result<String> {
    if path != Path::new("-") {
        return std::fs::read_to_string(path).map_err(Error::io("read", path));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::io("read", "standard input"))?;
    Ok(text)
}

/// One command per line; empty lines and lines that begin with `#` are passed over.
fn parse_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(String::from)
}

/// Arguments as one line that a shell splits into the same arguments again.
fn shell_words(words: &[String]) -> String {
    let quote = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+{}".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn parse_parameter(text: &str) -> Result<(String, Value)> {
    let Some((name, values)) = text.split_once('=') else {
        return Err(Error::usage_hint(
            format!("`{text}` is not a parameter"),
            "write it like `n=1:10` or `mode=fast,slow`",
        ));
    };
    let values = match values.strip_prefix('@') {
        Some(path) => {
            let text = read_text(Path::new(path))?;
            parse_lines(&text).map(|line| scalar(&line)).collect()
        }
        // Ranges and arrays are the spec's own notation.
        None if is_range(values) || values.trim_start().starts_with('[') => json!(values),
        None => values.split(',').map(|value| scalar(value.trim())).collect(),
    };
    Ok((name.trim().to_string(), values))
}

fn is_range(values: &str) -> bool {
    let parts: Vec<&str> = values.split(':').collect();
    matches!(parts.len(), 2 | 3) && parts.iter().all(|part| part.trim().parse::<f64>().is_ok())
}

/// Whole and decimal numbers keep their kind, everything else is text.
fn scalar(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        // `007` is a name, not a number.
        if whole.to_string() == text {
            return json!(whole);
        }
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number.to_string() == text => json!(number),
        _ => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_and_hashes_are_comments() {
        let lines: Vec<String> = parse_lines("# title\necho a\n\n  echo 'b # c'  \n").collect();
        assert_eq!(lines, ["echo a", "echo 'b # c'"]);
    }

    #[test]
    fn words_survive_the_shell() {
        let words = ["echo", "a b", "it's", "", "$HOME", "x{n}"].map(String::from);
        assert_eq!(shell_words(&words), r"echo 'a b' 'it'\''s' '' '$HOME' x{n}");
    }

    #[test]
    fn parameters_are_ranges_lists_or_arrays() {
        let value = |text: &str| {
            parse_parameter(text).map(|(name, value)| format!("{name} {value}")).unwrap()
        };
        assert_eq!(value("n=1:10"), r#"n "1:10""#);
        assert_eq!(value("x=0:1:0.25"), r#"x "0:1:0.25""#);
        assert_eq!(value("m=fast, slow"), r#"m ["fast","slow"]"#);
        assert_eq!(value("v=1,2.5,007,a:b"), r#"v [1,2.5,"007","a:b"]"#);
        assert_eq!(value("a=['x','y']"), r#"a "['x','y']""#);
        assert!(parse_parameter("n").is_err());
    }

    #[test]
    fn braces_that_are_no_parameter_stay_what_they_are() {
        let keep = |text| keep_other_braces(text, &["n"]).0;
        assert_eq!(keep("run {n} {n:03d}"), "run {n} {n:03d}");
        assert_eq!(keep("echo {other}"), "echo {{other}}");
        assert_eq!(keep("awk '{print $1}' ${HOME} {a,b} {"), "awk '{print $1}' ${HOME} {a,b} {");
    }

    #[test]
    fn names_beside_parameters_are_noticed_once() {
        let commands = ["echo {i} {j}".to_owned(), "echo ${HOME} {j:02d} {a,b}".to_owned()];
        let parameters = [("i".to_owned(), json!([1]))];
        assert_eq!(other_names(&commands, &parameters).into_iter().collect::<Vec<_>>(), ["j"]);
        assert!(
            other_names(&commands, &[]).is_empty(),
            "without parameters braces mean nothing to us"
        );
    }

    #[test]
    fn commands_and_parameters_make_a_spec() {
        let spec =
            build("x", &["echo {n}".into()], &[("n".into(), json!([1, 2]))], ParameterLink::Zip);
        let expected = json!({"name": "x", "jobs": [
            {"name": "job1_{n}", "command": "echo {n}", "parameters": {"n": [1, 2]}, "parameter_mode": "zip"}
        ]});
        assert_eq!(spec, expected);
    }
}
