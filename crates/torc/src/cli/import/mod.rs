//! `torc import`: a spec out of what people have: a batch script, a line of GNU parallel or xargs, WfFormat.

mod lines;
mod sbatch;
mod wfformat;

use super::Context;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::escape;
use clap::Subcommand;
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;

/// Make a spec of a batch script, of commands of parallel or xargs, or of WfFormat
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc import sbatch job.sh -o job.yaml               an array script becomes one job per index
  torc import parallel 'parallel -j4 gzip {} ::: *.txt'
  torc import xargs 'xargs -P4 -n1 gzip' < names.txt
  torc import wfformat montage.json -o montage.yaml
The spec goes to standard output unless `-o` names a file; look at it, then `torc run` it.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// A script of `sbatch`: its options become requirements, its array one job per index
    Sbatch(sbatch::Args),
    /// A line of GNU parallel: one job per combination of arguments
    Parallel(lines::Parallel),
    /// A line of xargs: one job per command that it would run
    Xargs(lines::Xargs),
    /// A workflow of WfCommons (WfFormat 1.4 or 1.5)
    Wfformat(wfformat::Args),
}

/// Where the spec goes.
#[derive(clap::Args, Debug)]
struct Out {
    /// File to write; its extension tells the format [default: standard output, YAML]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

/// A spec, and what of the original it does not say.
struct Made {
    spec: Value,
    notes: Vec<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let (made, out) = match self.command {
            Command::Sbatch(args) => (args.make()?, args.out),
            Command::Parallel(args) => (args.make()?, args.out),
            Command::Xargs(args) => (args.make()?, args.out),
            Command::Wfformat(args) => (args.make()?, args.out),
        };
        for note in &made.notes {
            context.output.warn(escape::line(note));
        }
        out.write(context, made.spec)?;
        Ok(Exit::Success)
    }
}

impl Out {
    fn write(&self, context: &Context, spec: Value) -> Result<()> {
        let format = match &self.output {
            Some(path) => torc_spec::SpecFormat::from_path(path).ok_or_else(|| {
                Error::usage_hint(
                    format!("`{}` names no format of a spec", path.display()),
                    "end it with .yaml, .json, .json5 or .kdl",
                )
            })?,
            None if context.output.is_json() => torc_spec::SpecFormat::Json,
            None => torc_spec::SpecFormat::Yaml,
        };
        let parsed = torc_spec::Spec::from_value(spec);
        let spec = match parsed {
            Ok(parsed) => parsed.spec,
            Err(errors) => return Err(Error::Spec { rendered: errors.render(false) }),
        };
        // What would be refused later is told now.
        if let Err(errors) = spec.plan() {
            return Err(Error::Spec { rendered: errors.render(false) });
        }
        let text = spec.write(format);
        let Some(path) = &self.output else { return context.output.data(&text) };
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).create_new(!self.force);
        let mut file = options.open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Error::usage_hint(
                format!("`{}` is there already", path.display()),
                "name another file, or use `--force` to replace it",
            ),
            _ => Error::io("write", path)(error),
        })?;
        file.write_all(text.as_bytes()).map_err(Error::io("write", path))?;
        context.output.talk(format_args!("wrote `{}`", path.display()));
        Ok(())
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Text that stands in a spec for itself: a name in braces would be a parameter, so it gets two pairs.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out += before;
        let inner = after.split_once('}').map(|(inner, _)| inner).filter(|inner| {
            let mut letters = inner.chars();
            letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        });
        match inner {
            Some(inner) if !before.ends_with('$') => {
                out += &format!("{{{{{inner}}}}}");
                rest = &after[inner.len() + 1..];
            }
            _ => {
                out.push('{');
                rest = after;
            }
        }
    }
    out + rest
}

/// Letters, digits and `_` of a text, as part of a name.
fn name_of(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let name = name.trim_matches('_');
    if name.is_empty() { "job".to_owned() } else { name.chars().take(40).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stay_what_they_were() {
        assert_eq!(
            literal("awk '{print $1}' {x} ${y} {1..3}"),
            "awk '{print $1}' {{x}} ${y} {1..3}"
        );
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
