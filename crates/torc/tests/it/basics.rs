//! Help, versions, completions and calls that make no sense.

use crate::support::Test;

#[test]
fn version_is_one_line() {
    let done = Test::new().torc(["--version"]).success();
    assert_eq!(done.stdout, format!("torc {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(done.stderr, "");
}

#[test]
fn help_names_the_exit_codes() {
    Test::new().torc(["--help"]).success().says("Exit codes: 0 all jobs succeeded, 1 some did not");
}

#[test]
fn every_command_explains_itself_in_one_line() {
    let help = Test::new().torc(["--help"]).success().stdout;
    let commands: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  ") && !line.trim_start().starts_with('-'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"status") && commands.contains(&"completions"), "{commands:?}");
    for command in commands {
        let help = Test::new().torc([command, "--help"]).success().stdout;
        let first = help.lines().next().unwrap_or_default();
        assert!(first.len() > 10 && help.contains("Usage: torc"), "{command}: {help}");
        assert!(
            command == "help" || help.contains("\nExample"),
            "{command} has no example: {help}"
        );
    }
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        Test::new().torc(["completions", shell]).success().says("torc");
    }
}

#[test]
fn an_unknown_command_is_a_wrong_call() {
    Test::new().torc(["staus"]).exit(2).tells("'staus'").tells("'status'");
}

#[test]
fn without_any_state_looking_is_a_wrong_call_with_a_hint() {
    for call in [vec!["status"], vec!["jobs", "list"], vec!["why", "x"], vec!["cancel", "latest"]] {
        let test = Test::new();
        let done =
            test.torc(&call).exit(2).tells("there are no workflows here").tells("hint: start one");
        assert_eq!(done.stdout, "");
        assert!(!test.exists(".torc"), "{call:?} left a directory behind");
    }
}

#[test]
fn a_server_that_does_not_answer_is_exit_3() {
    // Port 1 is reserved and refuses at once.
    let test = Test::new().file("token", "x");
    let call = ["--url", "http://127.0.0.1:1", "--token-file", "token", "status"];
    test.torc(call)
        .exit(3)
        .tells("no answer from the server at `http://127.0.0.1:1`")
        .tells("hint:");
}

#[test]
fn a_server_without_a_token_is_a_wrong_call() {
    Test::new()
        .torc(["--url", "http://127.0.0.1:1", "status"])
        .exit(2)
        .tells("there is no token")
        .tells("--token-file");
}

#[test]
fn an_empty_address_means_none() {
    Test::new()
        .torc(["status"])
        .env("TORC_API_URL", "")
        .exit(2)
        .tells("there are no workflows here");
}

#[test]
fn a_file_brings_its_limits_and_the_servers_own_hold() {
    let spec = "name: w\nlimits: {one: 1}\njobs:\n  - {name: 'j{i}', command: 'mkdir busy && rmdir busy', parameters: {i: '1:6'}, uses: [one]}\n";
    let test = Test::new().spec(spec);
    test.run().expect(0);
    test.torc(["limits", "list"]).success().says("one");
    test.torc(["limits", "set", "one", "3"]).success();
    test.torc(["create", "workflow.yaml"]).success();
    let limits = test.torc(["-f", "json", "limits", "list"]).success().json();
    assert_eq!(limits["limits"][0]["max"], 3, "{limits}");
}

#[test]
fn run_and_create_warn_of_what_check_warns_of() {
    let spec = "name: w\nlimits: {licence: 1}\nresource_requirements: [{name: r, memory: 4}]\n\
                jobs: [{name: a, command: 'true', uses: [licnece], resource_requirements: r}]\n";
    let test = Test::new()
        .spec(spec)
        .file("free.yaml", "name: f\njobs: [{name: a, command: 'true', uses: [lic]}]\n");
    let created = test.torc(["-f", "json", "create", "workflow.yaml"]).success();
    let warnings = created.json()["warnings"].to_string();
    for word in ["`licnece` is not in `limits`", "4 bytes of memory"] {
        assert!(warnings.contains(word), "{warnings}");
        assert_eq!(created.stderr.matches(word).count(), 1, "{}", created.stderr);
    }
    test.torc(["check", "free.yaml"]).success().tells("unless the server has it");
    test.torc(["create", "free.yaml"]).success().tells("limit `lic` is not set");
    test.torc(["limits", "set", "lic", "1"]).success();
    let quiet = test.torc(["create", "free.yaml"]).success();
    assert!(!quiet.stderr.contains("lic"), "{}", quiet.stderr);
}

#[test]
fn a_workflow_whose_creation_can_not_be_told_is_named_all_the_same() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.shell("torc -f json create workflow.yaml > /dev/full")
        .exit(1)
        .tells("workflow 1 was created");
}
