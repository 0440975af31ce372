//! The page of all commands is made from the definitions that `--help` shows.
//! Run with `UPDATE_EXPECTED=1` to write it anew, then read the difference.

use super::Cli;
use clap::CommandFactory as _;
use std::fmt::Write as _;

const HEAD: &str = "\
# Reference of the commands

Every command with its arguments and options, as `torc help COMMAND` shows them; [cli.md](cli.md) explains what they have in
common. The page is made from the definitions in `crates/torc/src/cli` (`commands_page.rs`), and a test keeps it so.

## Options of every command

";

fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page = String::from(HEAD);
    let globals = command.get_arguments().filter(|argument| argument.is_global_set());
    table(&mut page, &globals.collect::<Vec<_>>());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        section(&mut page, inner, "torc", 2);
    }
    page
}

fn section(page: &mut String, command: &clap::Command, before: &str, depth: usize) {
    let name = format!("{before} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(page, "\n{} `{name}`\n\n{about}.\n", "#".repeat(depth)).unwrap();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>();
    write!(page, "\n`{}`\n\n", usage.join(" ")).unwrap();
    let own = |argument: &&clap::Arg| {
        let id = argument.get_id();
        !argument.is_global_set() && !argument.is_hide_set() && id != "help" && id != "version"
    };
    let arguments: Vec<&clap::Arg> = command
        .get_arguments()
        .filter(own)
        .filter(|argument| argument.get_id() != "format")
        .collect();
    if !arguments.is_empty() {
        table(page, &arguments);
    }
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        write!(page, "\n```text\n{}\n```\n", after.trim_end()).unwrap();
    }
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        section(page, inner, &name, 3);
    }
}

fn table(page: &mut String, arguments: &[&clap::Arg]) {
    page.push_str("| argument | meaning | default |\n|---|---|---|\n");
    for argument in arguments {
        let values = argument.get_value_names().unwrap_or_default();
        let takes_value = argument.get_action().takes_values();
        let value = values.first().filter(|_| takes_value).map(|name| format!(" {name}"));
        let value = value.unwrap_or_default();
        let mut names: Vec<String> = Vec::new();
        names.extend(argument.get_short().map(|short| format!("`-{short}`")));
        names.extend(
            argument
                .get_visible_short_aliases()
                .unwrap_or_default()
                .iter()
                .map(|c| format!("`-{c}`")),
        );
        names.extend(argument.get_long().map(|long| format!("`--{long}{value}`")));
        if names.is_empty() {
            names.push(format!("`{}`", value.trim()));
        }
        let about = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let default: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| takes_value)
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        // Who you are is not the same everywhere.
        let default = if argument.get_id() == "by" { String::new() } else { default.join(", ") };
        let environment =
            argument.get_env().map(|name| format!(" (or `{}`)", name.to_string_lossy()));
        let environment = environment.unwrap_or_default();
        writeln!(page, "| {} | {about}{environment} | {default} |", names.join(", ")).unwrap();
    }
}

#[test]
fn the_page_of_commands_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/commands.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}
