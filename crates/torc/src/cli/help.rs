//! `torc help`: a command's help, or the reference of the workflow file.

use super::{Cli, Context};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::Output;
use clap::CommandFactory as _;
use std::fmt::Write as _;
use torc_spec::nearest;
use torc_spec::reference::{self, Key, Section};

/// The first word of a call about the workflow file.
const SPEC: &str = "spec";

/// Explain a command, or a key of the workflow file: `torc help spec retries`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc help run                 the same as `torc run --help`
  torc help spec                every part of the workflow file
  torc help spec job            the keys of a job
  torc help spec retries        one key, wherever it stands
  torc help spec job.retries    one key of one part")]
pub struct Args {
    /// A command such as `jobs list`, or `spec` and a key
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let text = match words.as_slice() {
            [SPEC] => overview(),
            [SPEC, key] => of_spec(key)?,
            [SPEC, ..] => {
                return Err(Error::usage_hint("one key at a time", "`torc help spec KEY`"));
            }
            words => of_command(words)?,
        };
        context.output.long(&text)?;
        Ok(Exit::Success)
    }
}

/// `torc version`.
pub fn version(context: &Context) -> Result<Exit> {
    Output::data(context.output, &format!("torc {}\n", crate::VERSION))?;
    Ok(Exit::Success)
}

fn of_command(words: &[&str]) -> Result<String> {
    let mut command = super::flowing(Cli::command());
    command.build();
    let mut found = &mut command;
    for (index, word) in words.iter().enumerate() {
        let known: Vec<String> =
            found.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
        let before = words[..index].join(" ");
        let Some(inner) = found.find_subcommand_mut(word) else {
            let message = format!("there is no command `{}`", [&before, *word].join(" ").trim());
            return Err(match nearest(word, known.iter().map(String::as_str)) {
                Some(near) => Error::usage_hint(
                    message,
                    format!("did you mean `torc help {}`?", [&before, near].join(" ").trim()),
                ),
                None => Error::usage_hint(message, "`torc help` lists the commands"),
            });
        };
        found = inner;
    }
    Ok(found.render_help().to_string())
}

fn overview() -> String {
    let mut text = String::from(
        "The workflow file consists of these parts; `torc help spec PART` lists the keys of one:\n\n",
    );
    for section in reference::sections() {
        let keys = section.keys.len();
        let _ = writeln!(text, "  {:<22}{} ({keys} keys)", section.id, section.title);
    }
    text += "\n`torc help spec KEY` explains a key; docs/workflow-reference.md has them all.\n";
    text
}

fn of_spec(asked: &str) -> Result<String> {
    let sections = reference::sections();
    if let Some(section) = sections.iter().find(|section| section.id == asked) {
        let mut text = whole(section);
        // The name of a part may be a key as well.
        for (of, key) in found(&sections, asked) {
            text += &format!("\n{}", one(of, key));
        }
        return Ok(text);
    }
    let keys = found(&sections, asked);
    if keys.is_empty() {
        let known = sections.iter().flat_map(|section| {
            section.keys.iter().flat_map(|key| key.aliases.iter().copied().chain([key.name]))
        });
        let known: Vec<&str> = known.chain(sections.iter().map(|section| section.id)).collect();
        let message = format!("the workflow file has no key `{asked}`");
        return Err(match nearest(asked, known.iter().copied()) {
            Some(near) => {
                Error::usage_hint(message, format!("did you mean `torc help spec {near}`?"))
            }
            None => Error::usage_hint(message, "`torc help spec` lists its parts"),
        });
    }
    Ok(keys.iter().map(|(section, key)| one(section, key)).collect::<Vec<_>>().join("\n"))
}

/// The keys of this name (`key`, or `part.key`), with the parts that they belong to.
fn found<'a>(sections: &'a [Section], asked: &str) -> Vec<(&'a Section, &'a Key)> {
    let (part, name) = match asked.split_once('.') {
        Some((part, name)) => (Some(part), name),
        None => (None, asked),
    };
    let sections = sections.iter().filter(|section| part.is_none_or(|part| section.id == part));
    sections
        .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
        .filter(|(_, key)| key.name == name || key.aliases.contains(&name))
        .collect()
}

fn whole(section: &Section) -> String {
    let mut text = format!("{} (`{}`)\n", section.title, section.id);
    for (of, key) in &section.places {
        let _ = writeln!(text, "  the value of `{key}` of `{of}`");
    }
    text.push('\n');
    let width = section.keys.iter().map(|key| key.name.len()).max().unwrap_or_default() + 2;
    for key in &section.keys {
        let _ = writeln!(text, "  {:<width$}{}", key.name, key.about);
    }
    text
}

fn one(section: &Section, key: &Key) -> String {
    let mut text = format!("{} of {} (`{}.{}`)\n", key.name, section.title, section.id, key.name);
    let _ = writeln!(text, "  {}", key.about);
    let _ = writeln!(text, "  type      {}", key.kind);
    let _ = writeln!(text, "  default   {}", key.default);
    let _ = writeln!(text, "  since     {}", key.since);
    if !key.aliases.is_empty() {
        let _ = writeln!(text, "  also      {}", key.aliases.join(", "));
    }
    if let Some(example) = &key.example {
        let _ = writeln!(text, "  example   {example}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parts_and_commands_are_explained() {
        let text = of_spec("retries").unwrap();
        assert!(text.starts_with("retries of a job (`job.retries`)\n"), "{text}");
        assert!(text.contains("  example   retries: 2\n"), "{text}");
        assert!(of_spec("job").unwrap().contains("depends_on"));
        assert!(of_spec("file.path").unwrap().starts_with("path of a file"));
        assert!(of_spec("blocked_by").unwrap().starts_with("depends_on of a job"));
        assert_eq!(
            of_spec("retris").unwrap_err().hint(),
            Some("did you mean `torc help spec retries`?")
        );
        assert!(of_command(&["jobs", "list"]).unwrap().contains("--where"));
        assert_eq!(
            of_command(&["jobs", "lst"]).unwrap_err().hint(),
            Some("did you mean `torc help jobs list`?")
        );
    }
}
