//! Wrong words, numbers and formats on the command line: says what was expected instead of how the
//! reading failed.

use crate::output::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error, ValueEnum as _};
use std::error::Error as _;
use std::ffi::OsString;

/// Reads arguments. A negative value (`--nodes -1`, `--memory -1g`) looks like an option to clap; it is
/// given to the option before it, so that the option itself says what it expects.
pub fn read<T>(
    arguments: &[OsString],
    parse: impl Fn(&[OsString]) -> Result<T, Error>,
) -> Result<T, Error> {
    let error = match parse(arguments) {
        Err(error) if error.kind() == ErrorKind::UnknownArgument => error,
        other => return other,
    };
    let Some(joined) = joined(arguments) else { return Err(error) };
    parse(&joined).map_err(|better| match better.kind() {
        // The option takes no value, or something else is unknown too.
        ErrorKind::TooManyValues | ErrorKind::UnknownArgument => error,
        _ => better,
    })
}

/// The same arguments with `--option -1` as `--option=-1`; `None` if there is no such pair.
fn joined(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let bytes = |at: usize| arguments.get(at).map_or(&b""[..], |word| word.as_encoded_bytes());
    let is_negative = |at: usize| {
        matches!(bytes(at), [b'-', b'0'..=b'9' | b'.', ..]) && !bytes(at).starts_with(b"--")
    };
    let is_option = |at: usize| {
        matches!(bytes(at), [b'-', b'-', _, ..] | [b'-', b'a'..=b'z' | b'A'..=b'Z'])
            && !bytes(at).contains(&b'=')
    };
    let mut out: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut is_changed = false;
    for (at, argument) in arguments.iter().enumerate() {
        // What follows `--` belongs to another program.
        let is_over = arguments[..at].iter().any(|word| word == "--");
        match out.last_mut() {
            Some(option) if !is_over && at > 0 && is_option(at - 1) && is_negative(at) => {
                option.push("=");
                option.push(argument);
                is_changed = true;
            }
            _ => out.push(argument.clone()),
        }
    }
    is_changed.then_some(out)
}

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
    if error.kind() == ErrorKind::MissingRequiredArgument {
        // clap lists options that the environment gives as if they had to be typed.
        let usage = command_of(arguments).render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
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
    // A type without a sign does not say so by itself.
    let is_negative = value.starts_with('-') && value[1..].parse::<u64>().is_ok();
    let expected = match expected.as_str() {
        "a whole number" if is_negative => "a whole number of at least 0".to_owned(),
        _ => expected,
    };
    let message = format!("invalid value '{value}' for '{argument}': expected {expected}");
    // Like every other wrong value: without the usage, which says nothing about values.
    let message = format!("{message}\n\nFor more information, try '--help'.\n");
    Error::raw(ErrorKind::ValueValidation, message).with_cmd(&super::Cli::command())
}

/// The command that these arguments name, as far as they do.
fn command_of(arguments: &[OsString]) -> clap::Command {
    let mut command = super::Cli::command();
    command.build();
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(found) => command = found.clone(),
            // A value of an option before it, or an argument of the command.
            None => continue,
        }
    }
    command
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
    fn the_usage_names_what_is_missing_and_no_option() {
        let error = wrong(&["--url", "http://x", "-q", "reservations", "renew"]).to_string();
        assert!(error.contains("Usage: torc reservations renew [OPTIONS] <ID> <TOKEN>"), "{error}");
        assert!(error.contains("<ID>\n  <TOKEN>\n"), "{error}");
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

    /// Every option with a value, of every command: a number is asked for in our words, and no option
    /// takes `-1` for another option.
    #[test]
    fn no_option_takes_a_negative_number_for_an_option() {
        fn walk(command: &clap::Command, path: &[String], seen: &mut usize) {
            for sub in command.get_subcommands() {
                let path = [path, &[sub.get_name().to_owned()]].concat();
                // Options of every command are the same everywhere.
                let own = |a: &&clap::Arg| a.get_action().takes_values() && !a.is_global_set();
                for option in sub.get_arguments().filter(own) {
                    let Some(long) = option.get_long() else { continue };
                    for value in ["-1", "-1g"] {
                        let option = format!("--{long}");
                        let call = path.iter().map(String::as_str).chain([option.as_str(), value]);
                        let call: Vec<OsString> =
                            ["torc"].into_iter().chain(call).map(OsString::from).collect();
                        let read = read(&call, |words| Cli::try_parse_from(words).map(|_| ()));
                        let Err(error) = read else { continue };
                        let error = explain(error, &call);
                        let said = error.to_string();
                        assert!(
                            !said.contains(&format!("unexpected argument '{value}'")),
                            "{said}"
                        );
                        assert!(!said.contains("invalid digit"), "{said}");
                        *seen += usize::from(said.contains("expected"));
                    }
                }
                walk(sub, &path, seen);
            }
        }
        let mut command = Cli::command();
        command.build();
        let mut seen = 0;
        walk(&command, &[], &mut seen);
        assert!(seen > 40, "{seen}");
    }

    #[test]
    fn a_negative_value_is_given_to_the_option_before_it() {
        for (call, expected) in [
            (&["predict", "--nodes", "-1"][..], "'--nodes <N>': expected a whole number from 1 to"),
            (&["run", "x.yaml", "-j", "-1"], "expected a whole number of at least 1"),
            (&["run", "x.yaml", "--memory", "-1g"], "`-1g` is not a memory size; write it like"),
            (&["server", "run", "--port", "-1"], "expected a whole number from 0 to 65535"),
            (&["logs", "x", "--tail", "-5"], "expected a whole number of at least 0"),
            (&["slurm", "generate", "--walltime-multiplier", "-1", "x"], "a number from 1 to 100"),
            (&["run", "--", "--nodes", "-1"], "unexpected argument"),
            (&["run", "x.yaml", "--yes", "-1"], "unexpected argument '-1'"),
        ] {
            let error = wrong(call).to_string();
            assert!(error.contains(expected), "{call:?}: {error}");
        }
    }

    fn wrong(call: &[&str]) -> Error {
        let arguments: Vec<OsString> = ["torc"].iter().chain(call).map(OsString::from).collect();
        read(&arguments, |words| Cli::try_parse_from(words))
            .map(|_| ())
            .map_err(|error| explain(error, &arguments))
            .unwrap_err()
    }
}
