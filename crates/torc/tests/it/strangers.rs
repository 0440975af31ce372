//! Other users of the machine, and files that are not what they seem: state, sockets, logs, spools
//! and mounts.
//!
//! What needs a second user runs as `nobody` and needs root to become it; elsewhere these tests say
//! that they are skipped.

use crate::support::{Call, Running, TORC, Test, text};
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;
use torc_model::words;

/// Uid and gid of `nobody`.
const OTHER_UID: u32 = 65534;

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: {what} needs root, to become another user");
    }
    is_root
}

/// A shell of user `nobody` in this directory, with the program on its path.
fn as_other_user(test: &Test, dir: &str, script: &str) -> Call {
    let id = OTHER_UID.to_string();
    let script = format!("cd '{}' && {script}", test.path(dir).display());
    let words = ["--reuid", &id, "--regid", &id, "--clear-groups", "bash", "-c", &script];
    test.command("setpriv", words).env("HOME", test.path(dir))
}

/// A directory in which every user may write, with a copy of the program that every user may start.
fn shared(test: &Test) {
    let open = |path: PathBuf, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    };
    open(test.path("."), 0o755);
    fs::create_dir_all(test.path("shared/below")).expect("directories");
    open(test.path("shared"), 0o777);
    open(test.path("shared/below"), 0o777);
    fs::copy(TORC, test.path("torc")).expect("a copy of the program");
    open(test.path("torc"), 0o755);
}

#[test]
fn the_server_of_another_user_gets_no_command_and_its_jobs_do_not_run() {
    if !is_root("a server of another user") {
        return;
    }
    let test = Test::new()
        .file("evil.yaml", "name: evil\njobs: [{name: a, command: 'id -u >> ../PWNED'}]\n")
        .file("mine.yaml", "name: mine\njobs: [{name: a, command: 'true'}]\n");
    shared(&test);
    let mut evil = as_other_user(
        &test,
        "shared",
        // The server takes the shell's place, so that it ends with the test.
        "../torc create ../evil.yaml --initialize >&2 && rm -f .torc/server.json && { \
         (until [ -e .torc/server.json ]; do sleep 0.05; done; \
         chmod 777 .torc; chmod 644 .torc/*; echo opened) & exec ../torc server run; }",
    )
    .spawn();
    evil.wait_for_stdout("opened");
    for (dir, words) in [
        ("shared/below", "status"),
        ("shared/below", "runner latest"),
        ("shared/below", "watch latest --recover"),
        ("shared/below", "run latest"),
        ("shared", "status"),
        ("shared", "runner latest"),
        ("shared", "run ../mine.yaml"),
        ("shared", "create ../mine.yaml"),
    ] {
        let done = test.shell(&format!("cd {dir} && ../torc {words}")).done();
        let done = if done.code == Some(127) {
            test.shell(&format!("cd {dir} && ../../torc {words}")).done()
        } else {
            done
        };
        assert!(
            matches!(done.code, Some(2 | 3)),
            "{dir} {words}: {}\n{}",
            done.stdout,
            done.stderr
        );
        assert!(
            done.stderr.contains(&format!("uid {OTHER_UID}")),
            "{dir} {words} does not say whose it is: {}",
            done.stderr
        );
    }
    assert!(!test.exists("PWNED"), "a stranger's job ran as uid {}", test.read("PWNED"));
    let list = "chmod 700 .torc && ../torc -f json workflows list";
    let created = as_other_user(&test, "shared", list).success().json();
    assert_eq!(created["total_count"], 1, "nothing of ours was created on the stranger's server");
    drop(evil);
}

#[test]
fn a_token_is_not_sent_to_another_user_who_took_the_port_of_a_dead_server() {
    if !is_root("a listener of another user") {
        return;
    }
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    shared(&test);
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let listen = "perl -MIO::Socket::INET -e '$|=1; \
         $s=IO::Socket::INET->new(Listen=>5,LocalAddr=>\"127.0.0.1\") or die; \
         print $s->sockport(),\"\\n\"; open $o,\">\",\"heard\"; $o->autoflush; \
         while($c=$s->accept){ while(<$c>){ print $o $_ } }'";
    let mut thief = as_other_user(&test, "shared", listen).spawn();
    let port = thief.wait_for_stdout("").trim().to_owned();
    let token = test.read(".torc/token").trim().to_owned();
    let server = serde_json::json!({
        "url": format!("http://127.0.0.1:{port}"), "token": token, "embedded": false, "pid": 1,
        "hostname": "h", "started_ms": 1, "version": "0",
    });
    torc_fs::write_new_private(&test.path(".torc/server.json"), server.to_string().as_bytes())
        .expect("the file of a server that died");
    // No server of ours is there, so the command serves itself from the database.
    test.torc(["status"]).success();
    let url = format!("http://127.0.0.1:{port}");
    test.torc(["--url", &url, "status"]).exit(3).tells("another user");
    assert_eq!(test.read("shared/heard"), "", "the thief heard something");
    drop(thief);
}

/// The page of one user on a machine with others: they reach its port, but no data.
#[test]
fn another_user_gets_nothing_of_the_page_through_its_port_or_its_socket() {
    if !is_root("the page of another user") {
        return;
    }
    let test = Test::new()
        .file("w.yaml", "name: secretive\njobs: [{name: hidden_job, command: 'echo hidden'}]\n");
    shared(&test);
    test.torc(["run", "w.yaml"]).success();
    let mut page = test.torc(["ui", "--no-browser"]).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1").trim().to_owned();
    let (url, code) = link.split_once("/ui/#k=").expect("a link");
    let asks = |what: &str| {
        let curl =
            format!("curl -sS -o body -w '%{{http_code}}' {what}; echo; cat body; rm -f body");
        as_other_user(&test, "shared", &curl).done()
    };
    let api = format!("{url}/torc-service/v1");
    // The shell is the same for everyone and names nothing.
    let shell = asks(&format!("{url}/ui/w/1"));
    assert!(shell.stdout.starts_with("200") && !shell.stdout.contains("secretive"), "{shell:?}");
    for path in [
        "jobs",
        "workflows",
        "workflows/1/families",
        "workflows/1/pulse",
        "jobs/1/logs",
        "ui_sessions",
        "server",
    ] {
        let refused = asks(&format!("{api}/{path}"));
        assert!(refused.stdout.starts_with("401"), "{path}: {refused:?}");
        assert!(!refused.stdout.contains("secretive") && !refused.stdout.contains("hidden"));
    }
    let asked = asks(&format!(
        "-X POST -d '{{\"scope\":\"act\"}}' -H 'Content-Type: application/json' {api}/ui_codes"
    ));
    assert!(asked.stdout.starts_with("401"), "{asked:?}");
    // The socket is not theirs to open, and neither is the directory it is in, nor the token.
    let socket = test.path(".torc/ui.sock");
    let through = asks(&format!("--unix-socket {} http://localhost/ui/", socket.display()));
    assert!(through.stdout.starts_with("000") && through.stderr.contains("connect"), "{through:?}");
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    let token =
        as_other_user(&test, "shared", &format!("cat {}", test.path(".torc/token").display()))
            .done();
    assert!(token.stderr.contains("Permission denied"), "{token:?}");
    // Even a link that was seen over the owner's shoulder is void once it has been opened.
    let open = format!(
        "-X POST -d '{{\"code\":\"{code}\"}}' -H 'Content-Type: application/json' {api}/ui_sessions"
    );
    test.shell(&format!("curl -sSf {open}")).success();
    let late = asks(&open);
    assert!(late.stdout.starts_with("401") && late.stdout.contains("code_used"), "{late:?}");
    page.signal("INT");
    page.wait();
}

#[test]
fn a_log_that_cannot_be_opened_safely_fails_its_attempt_and_nothing_hangs() {
    for steps in [false, true] {
        for plant in ["fifo", "link", "hard link", "directory"] {
            let command =
                if steps { "steps: [{shell: 'echo new'}]" } else { "command: 'echo new'" };
            let test = Test::new().spec(&format!("name: w\njobs: [{{name: a, {command}}}]\n"));
            fs::create_dir_all(test.path("output/job_stdio")).expect("directories");
            test.write("precious", "precious");
            let log = test.path("output/job_stdio/job_wf1_j1_r1_a1.o");
            match plant {
                "fifo" => drop(test.gate("output/job_stdio/job_wf1_j1_r1_a1.o")),
                "link" => symlink(test.path("precious"), &log).expect("a link"),
                "hard link" => fs::hard_link(test.path("precious"), &log).expect("a link"),
                _ => fs::create_dir(&log).expect("a directory"),
            }
            let done = test.run();
            assert_eq!(test.read("precious"), "precious", "{plant}");
            assert_eq!(done.code, Some(1), "{plant} {steps}: {}", done.stderr);
            let attempt = test.last_attempt("a");
            let error = text(&attempt["error"]);
            assert!(words::has(error, "a1.o"), "{plant} {steps}: {error}");
        }
    }
}

fn serve(test: &Test) -> Running {
    let mut running = test.torc(["server", "run"]).spawn();
    running.wait_for_stdout("http://");
    running
}

/// A runner for this workflow whose job has begun.
fn busy_runner(test: &Test, workflow: &str, output: &str) -> Running {
    let runner = test.torc(["runner", workflow, "--output-dir", output]).spawn();
    test.shell(&format!("until [ -e {workflow}.begun ]; do sleep 0.05; done")).success();
    runner
}

const TWO: [&str; 2] = ["first", "second"];

fn two_workflows(test: &Test) {
    for name in TWO {
        let command =
            format!("touch {name}.begun; if [ $TORC_ATTEMPT_ID = 1 ]; then sleep 600; fi");
        let spec = format!("name: {name}\njobs: [{{name: {name}_job, command: '{command}'}}]\n");
        test.write(&format!("{name}.yaml"), &spec);
        test.torc(["create", &format!("{name}.yaml"), "--initialize"]).success();
    }
}

/// Waits until the server has given up the first attempt of this workflow's job.
fn wait_until_lost(test: &Test, workflow: &str) {
    let script = format!(
        "until torc -f json jobs attempts {workflow}_job --workflow {workflow} | grep -q -- -128; do sleep 0.2; done"
    );
    test.shell(&script).success();
}

fn key_of_runner(test: &Test, output: &str) -> String {
    let entries = fs::read_dir(test.path(output).join(".torc_runners")).expect("a runner's files");
    let names = entries.flatten().map(|entry| entry.path());
    let record = names.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let stem = record.last().expect("a record").file_stem().map(|stem| stem.to_owned());
    stem.and_then(|stem| stem.into_string().ok()).expect("a key")
}

#[test]
fn a_fifo_in_place_of_a_spool_stops_neither_recovery_nor_the_end_nor_the_next_start() {
    let test = Test::new();
    let server = serve(&test);
    two_workflows(&test);
    let first = busy_runner(&test, TWO[0], "one");
    let second = busy_runner(&test, TWO[1], "two");
    let key = key_of_runner(&test, "one");
    fs::create_dir_all(test.path("one/.torc_spool")).expect("a directory");
    let _fifo = test.gate(&format!("one/.torc_spool/{key}.jsonl"));
    first.signal("KILL");
    wait_until_lost(&test, TWO[0]);
    second.signal("KILL");
    wait_until_lost(&test, TWO[1]);
    test.torc(["workflows", "sync-status", TWO[0]]).success();
    server.signal("TERM");
    server.wait().expect(0);
    let server = serve(&test);
    test.torc(["runner", TWO[0], "--output-dir", "one"]).success();
    drop(server);
}

/// A mount whose file system never answers, as of a network server that is gone.
struct DeadMount {
    at: PathBuf,
    device: Option<File>,
}

impl DeadMount {
    fn over(at: &Path) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = CString::new(data).expect("a text");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("dead", at, "fuse", flags, data.as_c_str()).ok()?;
        Some(Self { at: at.into(), device: Some(device) })
    }

    /// A caller that waits for an answer gets an error.
    fn end(&mut self) {
        if let Some(device) = self.device.take() {
            drop(device);
            let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_dead_mount_delays_its_own_workflow_only() {
    let test = Test::new();
    let server = serve(&test);
    two_workflows(&test);
    let first = busy_runner(&test, TWO[0], "one");
    let second = busy_runner(&test, TWO[1], "two");
    let Some(mut mount) = DeadMount::over(&test.path("one")) else {
        eprintln!("SKIPPED: a dead mount needs root and /dev/fuse");
        return;
    };
    first.signal("KILL");
    second.signal("KILL");
    wait_until_lost(&test, TWO[1]);
    let begin = Instant::now();
    test.torc(["workflows", "sync-status", TWO[1]]).success();
    test.torc(["workflows", "sync-status", TWO[0]]).success();
    server.signal("TERM");
    server.wait().expect(0);
    // The next server starts although the mount is still dead.
    let server = serve(&test);
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
    let attempt = test.last_attempt_of(TWO[0], "first_job");
    assert_eq!(attempt["attempt_id"], 1, "what the dead runner did is not known: {attempt}");
    mount.end();
    wait_until_lost(&test, TWO[0]);
    server.signal("TERM");
    server.wait().expect(0);
}

#[test]
fn the_tokens_of_a_killed_runners_jobs_are_removed_without_another_runner() {
    let test = Test::new();
    let server = serve(&test);
    two_workflows(&test);
    let runner = busy_runner(&test, TWO[0], "one");
    let left = || fs::read_dir(test.path("one/.torc_runners")).expect("a directory").count();
    assert_eq!(left(), 2, "the record of the runner, and the tokens of its jobs");
    runner.signal("KILL");
    runner.wait();
    wait_until_lost(&test, TWO[0]);
    assert_eq!(left(), 0);
    server.signal("TERM");
    server.wait().expect(0);
}
