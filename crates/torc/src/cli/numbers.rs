//! Wrong words, numbers and formats on the command line: says what was expected instead of how the
//! reading failed.

use crate::output::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error, ValueEnum as _};
use std::error::Error as _;
use std::ffi::OsString;

/// The same error in words that help, if it is about a command, a number or the format of these
/// arguments.
pub fn explain(mut error: Error, arguments: &[OsString]) -> Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let first = arguments
            .iter()
            .skip(1)
            .find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
        let namesakes = if first.is_some_and(|first| first == word.as_str()) {
            namesakes(word)
        } else {
            Vec::new()
        };
        if !namesakes.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(namesakes));
        }
        return error;
    }
    let is_format = |argument: &ContextValue| argument.to_string().starts_with("--format");
    if error.get(ContextKind::InvalidArg).is_some_and(is_format)
        && arguments.iter().any(|word| word == "check")
    {
        let names = Format::value_variants().iter().filter_map(|format| format.to_possible_value());
        let names = names.map(|value| value.get_name().to_owned()).collect();
        error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
        return error;
    }
    let Some(expected) = error.source().and_then(|source| expected(&source.to_string())) else {
        return error;
    };
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (value, argument) = (context(ContextKind::InvalidValue), context(ContextKind::InvalidArg));
    let message = format!("invalid value '{value}' for '{argument}': expected {expected}");
    // Like every other wrong value: without the usage, which says nothing about values.
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    Error::raw(ErrorKind::ValueValidation, message).with_cmd(&super::Cli::command())
}

/// Commands of that name under another one: `delete` is `workflows delete`.
fn namesakes(word: &str) -> Vec<String> {
    let cli = super::Cli::command();
    let groups = cli.get_subcommands().filter(|group| !group.is_hide_set());
    let has_it = groups
        .filter(|group| group.find_subcommand(word).is_some_and(|command| !command.is_hide_set()));
    has_it.map(|group| format!("{} {word}", group.get_name())).collect()
}

/// What a number should have been, by what its parser says.
fn expected(said: &str) -> Option<String> {
    if let Some((_, range)) = said.split_once(" is not in ") {
        let (least, most) = range.split_once("..")?;
        let most: Option<i64> = most.trim_start_matches('=').parse().ok();
        return Some(match most.filter(|most| *most < i64::from(u32::MAX)) {
            Some(most) => format!("a whole number from {least} to {most}"),
            None => format!("a whole number of at least {least}"),
        });
    }
    match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("a whole number".into())
        }
        "invalid float literal" | "cannot parse float from empty string" => Some("a number".into()),
        _ if said.starts_with("number too ") => Some("a smaller number".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_wrong_number_is_told_what_it_should_be() {
        for (call, expected) in [
            (
                &["jobs", "list", "--limit", "abc"][..],
                "'abc' for '--limit <N>': expected a whole number\n",
            ),
            (
                &["jobs", "list", "--limit", "0"],
                "'0' for '--limit <N>': expected a whole number of at least 1\n",
            ),
            (
                &["jobs", "list", "--offset", "-3"],
                "'-3' for '--offset <N>': expected a whole number of at least 0\n",
            ),
            (
                &["events", "--after", "-1"],
                "'-1' for '--after <ID>': expected a whole number of at least 0\n",
            ),
            (
                &["watch", "--memory-multiplier", "x"],
                "--memory-multiplier <FACTOR>': expected a number\n",
            ),
            (
                &["recover", "--memory-multiplier", "nan"],
                "--memory-multiplier <FACTOR>': expected a number from 1 to 100\n",
            ),
            (&["recover", "--runtime-multiplier", "0.5"], "expected a number from 1 to 100\n"),
            (
                &["slurm", "schedule-nodes", "-n", "5000"],
                "expected a whole number from 1 to 1000\n",
            ),
            (&["limits", "set", "gpu", "99999999999999999999"], "expected a smaller number\n"),
        ] {
            let error = wrong(call);
            assert!(error.to_string().contains(expected), "{call:?}: {error}");
            assert!(!error.to_string().contains("Usage:"), "{call:?}: {error}");
            assert!(!error.to_string().contains("\n\n\n"), "{call:?}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = wrong(&["jobs", "lst"]);
        assert!(error.to_string().contains("a similar subcommand exists"), "{error}");
    }

    #[test]
    fn a_command_that_stands_under_another_one_is_named() {
        for (call, expected) in [
            (&["reinitialize"][..], "a similar subcommand exists: 'workflows reinitialize'"),
            (&["-q", "doctor"], "'server doctor', 'slurm doctor'"),
            (&["retry", "x"], "'jobs retry'"),
            (&["statsu"], "'status'"),
            (&["jobs", "dleete"], "unrecognized subcommand 'dleete'"),
        ] {
            let error = wrong(call).to_string();
            assert!(error.contains(expected), "{call:?}: {error}");
        }
    }

    #[test]
    fn a_wrong_format_is_told_those_of_its_command() {
        let error = wrong(&["check", "x.yaml", "--format", "xml"]);
        assert!(
            error.to_string().contains("[possible values: table, json, csv, dot, mermaid, svg]"),
            "{error}"
        );
        let error = wrong(&["jobs", "list", "--format", "xml"]);
        assert!(error.to_string().contains("[possible values: table, json, csv]"), "{error}");
    }

    fn wrong(call: &[&str]) -> Error {
        let arguments: Vec<OsString> = ["torc"].iter().chain(call).map(OsString::from).collect();
        Cli::try_parse_from(&arguments)
            .map(|_| ())
            .map_err(|error| explain(error, &arguments))
            .unwrap_err()
    }
}
