//! `torc rules`: what is known about failures, as data; and tests of what users add to it.

use super::{Context, spec};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use torc_model::recovery::{RuleSpec, Rules};
use torc_spec::Source;

/// Names a file of rules other than the usual one.
const ENV_RULES: &str = "TORC_RULES";

/// List and test what is known about failures
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc rules list                    every rule: what it means, what helps, where that is written down
  torc rules list network            those whose name has `network` in it
  torc rules test rules.yaml         do the rules of a file decide their own examples?
  torc rules test workflow.yaml      the same for `recovery_rules` of a spec

Rules of a site are read from `~/.config/torc/rules.yaml`, or from the file that TORC_RULES names, when a server starts.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the rules, those that win first
    List {
        /// Only those whose name has this in it
        word: Option<String>,
    },
    /// Test the rules of a file, or of a spec, by their own examples
    Test {
        /// The file
        file: PathBuf,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::List { word } => list(context, word.as_deref().unwrap_or_default()),
            Command::Test { file } => test(context, &file),
        }
    }
}

fn list(context: &Context, word: &str) -> Result<Exit> {
    let mut rules = Rules::in_force().everything();
    rules.retain(|rule| rule.id.contains(word));
    let shown: Vec<serde_json::Value> = rules
        .iter()
        .map(|rule| {
            json!({"rule": rule.id, "kind": rule.kind, "nature": rule.nature, "sure": rule.sure,
                   "source": rule.source, "examples": rule.examples})
        })
        .collect();
    context.output.list("rules", &shown, shown.len() as i64, || {
        let mut table = Table::new(["rule", "what happened", "what helps", "sure", "source"]);
        for rule in &rules {
            table.row([
                Field::text(&rule.id),
                Field::text(rule.kind.title()),
                Field::text(rule.nature.as_str()),
                Field::text(format!("{:.0}%", rule.sure * 100.0)),
                Field::text(&rule.source),
            ]);
        }
        table
    })?;
    Ok(Exit::Success)
}

fn test(context: &Context, file: &Path) -> Result<Exit> {
    let own = read(file)?;
    let examples: usize = own.iter().map(|rule| rule.examples.len() + rule.unlike.len()).sum();
    let count = own.len();
    let wrong = Rules::of_workflow(own).problems();
    let shown = json!({"rules": count, "examples": examples, "problems": wrong});
    context.output.value(&shown, |_| {
        let mut text: String =
            wrong.iter().map(|line| format!("{}\n", escape::line(line))).collect();
        text += &format!(
            "{}, {}: {}\n",
            human::count(count as i64, "rule"),
            human::count(examples as i64, "example"),
            match wrong.len() {
                0 => "all as they should be".to_owned(),
                wrong => human::count(wrong as i64, "problem"),
            }
        );
        text
    })?;
    Ok(if wrong.is_empty() { Exit::Success } else { Exit::JobsFailed })
}

fn read(file: &Path) -> Result<Vec<RuleSpec>> {
    Source::read(file).and_then(Source::parse_rules).map_err(|errors| spec::wrong(&errors))
}

/// The rules of this site, if it has some. A file with mistakes is told of and has no effect.
pub fn of_site() -> Vec<RuleSpec> {
    let named = std::env::var_os(ENV_RULES).map(PathBuf::from);
    let usual = || {
        let config = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
        Some(config.join("torc/rules.yaml")).filter(|file| file.is_file())
    };
    let Some(file) = named.or_else(usual) else { return Vec::new() };
    match read(&file) {
        Ok(rules) => rules,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the rules of this site have no effect");
            Vec::new()
        }
    }
}
