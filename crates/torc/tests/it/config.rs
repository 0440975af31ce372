//! Configuration files: their order, where values come from, mistakes in them, and units of systemd.

use crate::support::{Call, Test, text};
use serde_json::Value;

/// A call whose system file is in the test's directory.
fn torc(test: &Test, args: &[&str]) -> Call {
    test.torc(args).env("TORC_SYSTEM_CONFIG", test.path("etc/config.toml"))
}

fn shown(test: &Test, more: &[&str], env: &[(&str, &str)]) -> impl Fn(&str) -> (String, String) {
    let mut call = torc(test, &[&["-f", "json", "config", "show"], more].concat());
    for (name, value) in env {
        call = call.env(name, value);
    }
    let all = call.success().json();
    move |key| {
        let all = all["settings"].as_array().expect("a list");
        let one = all.iter().find(|one| one["key"] == key).expect(key);
        (one["value"].as_str().unwrap_or_default().to_owned(), text(&one["origin"]).to_owned())
    }
}

#[test]
fn later_places_count_more_and_each_value_says_where_it_comes_from() {
    let test = Test::new();
    let is = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    let system = test.path("etc/config.toml").display().to_string();
    let user = test.path(".config/torc/config.toml").display().to_string();
    assert_eq!(shown(&test, &[], &[])("client.url"), is("", "default"));
    test.write("etc/config.toml", "[client]\nurl = \"http://system:1\"\n[server]\nport = 81\n");
    let of = shown(&test, &[], &[]);
    assert_eq!(of("client.url"), is("http://system:1", &format!("{system}:2")));
    test.write(".config/torc/config.toml", "# mine\n[client]\nurl = \"http://user:1\"\n");
    let of = shown(&test, &[], &[]);
    assert_eq!(of("client.url"), is("http://user:1", &format!("{user}:3")));
    assert_eq!(of("server.port"), is("81", &format!("{system}:4")));
    test.write("torc.toml", "client.url = \"http://project:1\"\n");
    assert_eq!(shown(&test, &[], &[])("client.url"), is("http://project:1", "torc.toml:1"));
    let env = [("TORC_API_URL", "http://env:1")];
    assert_eq!(shown(&test, &[], &env)("client.url"), is("http://env:1", "TORC_API_URL"));
    let option = ["--url", "http://option:1"];
    assert_eq!(shown(&test, &option, &env)("client.url"), is("http://option:1", "--url"));

    // And they are used, in the same order.
    let asked = |url: &str, more: &[&str], env: &[(&str, &str)]| {
        let mut call = torc(&test, &[&["status"], more].concat());
        for (name, value) in env {
            call = call.env(name, value);
        }
        let done = call.env("TORC_TOKEN", "x").done();
        assert!(done.stderr.contains(url), "{url}: {}", done.stderr);
    };
    asked("project:1", &[], &[]);
    asked("env:1", &[], &env);
    asked("option:1", &option, &env);
    torc(&test, &["config", "paths"]).success().says("torc.toml");
}

#[test]
fn a_mistake_ends_every_command_with_its_place_and_what_was_meant() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.write("torc.toml", "[client]\nformat = \"json\"\nurll = \"http://x\"\n");
    for args in [&["run", "workflow.yaml"][..], &["status"], &["config", "check"]] {
        let done = torc(&test, args).exit(2);
        done.tells("torc.toml:3").tells("`url`");
    }
    torc(&test, &["config", "show"]).success().tells("urll");
    torc(&test, &["--help"]).success();
    torc(&test, &["config", "check", "nowhere.toml"]).exit(2).tells("no such file");
    test.write("torc.toml", "[client]\nformat = \"json\"\n");
    torc(&test, &["config", "check"]).success();
    torc(&test, &["run", "workflow.yaml"]).success();
    let jobs = torc(&test, &["jobs", "list"]).success().json();
    assert_eq!(jobs["total_count"], Value::from(1), "the file says json");
    torc(&test, &["jobs", "list", "--format", "table"]).success().says("completed");
}

#[test]
fn a_file_is_begun_once_and_is_right() {
    let test = Test::new();
    torc(&test, &["config", "init"]).success().says(".config/torc/config.toml");
    torc(&test, &["config", "check"]).success().says("nothing is wrong");
    torc(&test, &["config", "init", "--user"]).exit(2).tells("there already");
    torc(&test, &["config", "init", "--local"]).success();
    torc(&test, &["config", "init", "--system"]).success();
    torc(&test, &["config", "validate"]).success();
}

#[test]
fn a_file_that_another_user_could_have_written_is_passed_over() {
    let test = Test::new();
    test.write("torc.toml", "[client]\nurl = \"http://evil:1\"\n");
    test.command("chmod", ["666", "torc.toml"]).success();
    let done = torc(&test, &["config", "show"]).success().tells("torc.toml");
    assert!(!done.stdout.contains("evil"), "{}", done.stdout);
    torc(&test, &["config", "check"]).success().tells("torc.toml");
}

#[test]
fn a_server_takes_its_options_from_the_file_and_keeps_to_the_retention() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["run", "workflow.yaml"]).success();
    let listed = |test: &Test| {
        let list = test.torc(["-f", "json", "workflows", "list"]).success().json();
        list["total_count"].as_i64()
    };
    assert_eq!(listed(&test), Some(1));
    let kept = "[server]\nstate_dir = \".torc\"\nlog_format = \"json\"\n[retention]\nolder_than = \"1h\"\n";
    test.write(
        "etc/config.toml",
        &kept.replace(".torc", &test.path(".torc").display().to_string()),
    );
    let mut server = torc(&test, &["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    assert_eq!(listed(&test), Some(1), "it ended less than an hour ago");
    server.signal("TERM");
    server.wait().expect(0);
    let text = test.read("etc/config.toml").replace("1h", "0s");
    test.write("etc/config.toml", &text);
    let mut server = torc(&test, &["server", "run", "-v"]).spawn();
    server.wait_for_stdout("http://");
    server.wait_for_stderr("retention: deleted workflow 1");
    assert_eq!(listed(&test), Some(0));
    server.signal("TERM");
    let log = server.wait().expect(0).stderr;
    assert!(log.contains("\"level\""), "the log is JSON: {log}");
}

/// What systemd's own tool finds wrong with a unit; None where there is no such tool.
fn verify(test: &Test, unit: &str) -> Option<String> {
    let call = std::process::Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(test.path(unit))
        .output();
    match call {
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            // What it says of units of the machine is not ours.
            Some(said.lines().filter(|line| line.contains("torc")).collect::<Vec<_>>().join("\n"))
        }
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "systemd-analyze: {error}");
            eprintln!("SKIPPED: systemd-analyze cannot be run: {error}");
            None
        }
    }
}

#[test]
fn units_are_right_in_the_eyes_of_systemd() {
    let test = Test::new();
    test.write("torc-wrong.service", "[Service]\nExecStart=/bin/true\nNoSuchKey=yes\n");
    let Some(wrong) = verify(&test, "torc-wrong.service") else { return };
    assert!(wrong.contains("NoSuchKey"), "the tool finds mistakes: {wrong}");
    for kind in [&["--user"][..], &["--system", "--as", "daemon"]] {
        let call = [&["server", "install", "--print"], kind, &["--", "--port", "8080"]].concat();
        test.write("torc.service", &test.torc(call).success().stdout);
        assert_eq!(verify(&test, "torc.service").as_deref(), Some(""), "{kind:?}");
    }
}

#[test]
fn a_unit_of_systemd_is_written_and_started_only_where_systemd_runs() {
    let test = Test::new();
    let install = ["server", "install", "--user", "--state-dir", "my state"];
    let behind = ["--", "--port", "8080", "--allowed-host", "100%"];
    let printed = test.torc([&install[..], &["--print"], &behind].concat()).success();
    printed.says("ExecStart=").says("NoNewPrivileges=yes").says("\"100%%\"");
    assert!(!test.exists(".config/systemd"));
    let done = test.torc([&install[..], &["--no-start"], &behind].concat()).success();
    done.says("torc.service").tells("not started");
    let unit = test.read(".config/systemd/user/torc.service");
    assert!(unit.contains("my state\" --port 8080"), "{unit}");
    assert!(!unit.contains("CapabilityBoundingSet"), "a user's systemd may not set it: {unit}");
    test.torc(["server", "install"]).exit(2).tells("--system");
    let print = ["server", "install", "--system", "--print", "--as"];
    test.torc([&print[..], &["nobody"]].concat())
        .success()
        .says("User=nobody")
        .says("ProtectSystem=full");
    test.torc([&print[..], &["no-such-user"]].concat()).exit(2).tells("no user");
    if !std::path::Path::new("/run/systemd/system").is_dir() {
        test.torc(install).success().tells("systemd does not run here");
    }
}
