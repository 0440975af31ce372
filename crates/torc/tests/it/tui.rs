//! The terminal UI as a user drives it: the real program in a real terminal (tmux).
//!
//! `scripts/tmux-lab` installs tmux. `TORC_TMUX` names it, or is `none` where it cannot be had. Where
//! it is missing these tests say so and are skipped; with `CI=true` that is a failure.

use crate::support::Test;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// The program tmux; `None` where it cannot be had.
fn tmux() -> Option<PathBuf> {
    let named = std::env::var_os("TORC_TMUX").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: tmux cannot be had here");
        return None;
    }
    let program = named.unwrap_or_else(|| "tmux".into());
    if Command::new(&program).arg("-V").output().is_ok_and(|done| done.status.success()) {
        return Some(program);
    }
    let how = "no tmux for the tests of the terminal UI; `scripts/tmux-lab` installs it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// A terminal of its own, in which a command runs. What is written to it wakes the test.
struct Terminal {
    tmux: PathBuf,
    socket: PathBuf,
    changes: Receiver<()>,
}

impl Terminal {
    /// Runs a shell script in a terminal of so many columns and rows.
    fn open(tmux: PathBuf, test: &Test, (columns, rows): (u16, u16), script: &str) -> Self {
        let socket = test.path("tmux.sock");
        let pipe = test.path("written");
        let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        let (sender, changes) = channel();
        let reader = pipe.clone();
        std::thread::spawn(move || {
            let Ok(mut pipe) = fs::File::open(reader) else { return };
            let mut bytes = [0; 4096];
            while pipe.read(&mut bytes).is_ok_and(|length| length > 0) {
                if sender.send(()).is_err() {
                    return;
                }
            }
        });
        // The script waits until the pipe listens, so that nothing of it is missed.
        test.write("script.sh", &format!("read -r _ < start\n{script}\nexec cat\n"));
        let gate = test.gate("start");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let call = [
            "-f",
            "/dev/null",
            "-S",
            "tmux.sock",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
        ];
        let call = call.into_iter().chain(["bash", "script.sh"]);
        let program = tmux.to_string_lossy().into_owned();
        test.command(&program, call).success();
        let terminal = Self { tmux, socket, changes };
        terminal.call(&["pipe-pane", &format!("cat > '{}'", pipe.display())]);
        gate.open();
        terminal
    }

    fn call(&self, args: &[&str]) -> String {
        let done = Command::new(&self.tmux).arg("-S").arg(&self.socket).args(args).output();
        let done = done.expect("tmux");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Keys by their names in tmux.
    fn press(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    /// Bytes as they are.
    fn write(&self, text: &str) {
        self.call(&["send-keys", "-l", text]);
    }

    fn shown(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it should be.
    fn wait(&self, what: &str, is_right: impl Fn(&str) -> bool) -> String {
        // Times on a screen move on, so that there may be a change every second for ever.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            if is_right(&shown) {
                return shown;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let change = self.changes.recv_timeout(left);
            assert!(change.is_ok(), "{what} never came; the screen:\n{}", self.shown());
        }
    }

    fn wait_for(&self, needle: &str) -> String {
        self.wait(needle, |shown| shown.contains(needle))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new(&self.tmux).arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

/// What is left of the terminal after the program.
const LEFT: &str = "echo \"left with $?\"; stty -a | grep -o -- '-\\?icanon\\|-\\?echo '";

const SPEC: &str = r#"
name: sweep
jobs:
  - name: "train_{i}"
    command: "echo epoch 1; for i in $(seq 1 400); do echo line $i; done; echo the needle; if [ {i} = 3 ] && [ ! -e fixed ]; then echo 'ValueError: \u001b[2J wrong rate' >&2; exit 4; fi"
    parameters: {i: "1:5"}
  - {name: report, command: "true", depends_on_regexes: ["train_.*"]}
"#;

#[test]
fn from_a_failure_to_its_recovery_with_keys_alone() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec(SPEC);
    test.run().expect(1);
    let script = format!("torc tui latest; {LEFT}");
    let terminal = Terminal::open(tmux, &test, (120, 40), &script);
    let shown = terminal.wait_for("in train · 1 job blocked");
    assert!(shown.contains("✓ 4 completed") && shown.contains("✕ 1 failed"), "{shown}");

    // What failed, and what it wrote: its escape sequence cleared nothing.
    terminal.press(&["3"]);
    let shown = terminal.wait_for("Last lines of train_3");
    assert!(shown.contains("│ ValueError:  wrong rate"), "{shown}");
    terminal.press(&["Enter"]);
    terminal.wait_for("attempt 1 stderr");
    terminal.wait_for("ValueError:  wrong rate");

    // The whole output, searched on the server.
    terminal.press(&["l", "s"]);
    terminal.wait_for("train_3, attempt 1 stdout");
    terminal.wait_for("the needle");
    terminal.press(&["/"]);
    terminal.write("line 7");
    terminal.press(&["Enter"]);
    terminal.wait_for("`line 7` 1 of 11, line 8");
    terminal.press(&["n"]);
    terminal.wait_for("`line 7` 2 of 11, line 71");

    // Recover it: first what it would do, then the deed.
    test.write("fixed", "");
    terminal.press(&["Escape"]);
    terminal.wait_for("train_3  ✕ failed");
    terminal.press(&["R"]);
    let shown = terminal.wait_for("The same in a terminal:");
    assert!(shown.contains("torc jobs act recover 1 --where 'id:3'"), "{shown}");
    terminal.press(&["Enter"]);
    terminal.wait_for("Recover: done with 1 job");
    let runner = test.torc(["run", "1"]).spawn();
    terminal.press(&["Escape", "1"]);
    terminal.wait_for("every job succeeded");
    runner.wait().expect(0);

    // Two attempts compared.
    terminal.press(&["2"]);
    terminal.wait_for("6 jobs");
    terminal.press(&["/", "C-u"]);
    terminal.write("train_3");
    terminal.press(&["Enter"]);
    // Rows of the filter before are not for acting, so the count tells when the answer is here.
    terminal.wait("the row", |shown| {
        shown.contains(" 1 job\n")
            && shown.lines().any(|l| l.contains("train_3 ") && l.contains("completed"))
    });
    terminal.press(&["Enter"]);
    terminal.wait_for("attempt 2 of 2");
    terminal.press(&["d", "s"]);
    terminal.wait_for("- ValueError:  wrong rate");

    // The mouse clicks a tab.
    terminal.press(&["Escape", "Escape"]);
    terminal.wait_for("2 Jobs");
    terminal.write("\u{1b}[<0;16;2M\u{1b}[<0;16;2m");
    terminal.wait_for("train_3");
    terminal.write("\u{1b}[<0;40;2M\u{1b}[<0;40;2m");
    terminal.wait_for("at once");

    terminal.press(&["Q"]);
    terminal.wait_for("left with 0");
    let shown = terminal.wait("the modes of the terminal", |shown| shown.contains("\necho"));
    assert!(!shown.contains("-icanon") && !shown.contains("at once"), "{shown}");
}

#[test]
fn the_terminal_is_left_as_it_was_by_control_c_and_by_a_panic() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.run().expect(0);
    let script = format!(
        "echo before; torc tui; {LEFT}; read -r _; TORC_TUI_PANIC=1 RUST_BACKTRACE=0 torc tui; {LEFT}; echo after"
    );
    let terminal = Terminal::open(tmux, &test, (80, 24), &script);
    terminal.wait_for("done");
    terminal.press(&["C-c"]);
    let shown =
        terminal.wait("the end", |shown| shown.contains("left with 0") && shown.contains("\necho"));
    assert!(shown.contains("before") && !shown.contains("1 Overview"), "{shown}");
    assert!(!shown.contains("-icanon") && !shown.contains("-echo"), "{shown}");
    terminal.press(&["Enter"]);
    terminal.wait("the screens", |shown| shown.contains("7 Workflows") && shown.contains("done"));
    terminal.press(&["C-l"]);
    let shown = terminal.wait_for("after");
    assert!(shown.contains("asked for by a test") && !shown.contains("7 Workflows"), "{shown}");
    assert!(!shown.contains("-icanon") && !shown.contains("-echo"), "{shown}");
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_brings_the_screens_back() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.run().expect(0);
    // Job control, as in a shell that a person uses.
    let script = format!("set -m; echo before; torc tui latest; {LEFT}; read -r _; fg; {LEFT}");
    let terminal = Terminal::open(tmux, &test, (80, 24), &script);
    terminal.wait_for("every job succeeded");
    terminal.press(&["C-z"]);
    let stopped = terminal
        .wait("the shell", |shown| shown.contains("left with 148") && shown.contains("\necho"));
    assert!(stopped.contains("before") && !stopped.contains("7 Workflows"), "{stopped}");
    assert!(!stopped.contains("-icanon") && !stopped.contains("-echo"), "{stopped}");
    // Meanwhile the terminal gets another size.
    terminal.call(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.press(&["Enter"]);
    terminal.wait_for("every job succeeded");
    terminal.press(&["2"]);
    let shown = terminal.wait("the table", |shown| shown.contains("Memory / asked"));
    assert_eq!(shown.trim_end().lines().count(), 30, "the whole height is used:\n{shown}");
    terminal.press(&["Q"]);
    let shown = terminal.wait_for("left with 0");
    assert!(!shown.contains("7 Workflows"), "{shown}");
}

#[test]
fn pager_editor_clipboard_and_colours_work_in_a_real_terminal() {
    let Some(tmux) = tmux() else { return };
    let spec = r#"
name: w
jobs:
  - {name: a, command: "echo plain; printf '\\033[31mred\\033[0m \\033[8mhidden\\033[0m \\033[41mloud\\033[2J\\n'; # what it runs"}
"#;
    let test = Test::new()
        .spec(spec)
        .file("pager.sh", "cp \"$1\" paged; echo the pager has it; read -r _\n")
        .file("editor.sh", "cp \"$1\" edited; echo the editor has it; read -r _\n");
    test.run().expect(0);
    let script =
        "export PAGER='sh pager.sh' VISUAL= EDITOR='sh editor.sh' NO_COLOR=; torc tui latest";
    let terminal = Terminal::open(tmux, &test, (100, 30), script);
    // tmux takes OSC 52 and keeps it in a buffer that can be read.
    terminal.call(&["set-option", "-s", "set-clipboard", "on"]);
    terminal.wait_for("every job succeeded");
    terminal.press(&["2", "/", "C-u"]);
    terminal.write("name:a");
    terminal.press(&["Enter"]);
    terminal.wait("the row", |shown| {
        shown.contains(" 1 job\n") && shown.lines().any(|line| line.trim_start().starts_with("a  "))
    });
    terminal.press(&["y"]);
    terminal.wait_for("copied the name");
    assert_eq!(terminal.call(&["show-buffer"]), "a");

    terminal.press(&["l"]);
    terminal.wait_for("red hidden loud");
    let cells = terminal.call(&["capture-pane", "-p", "-e"]);
    let line = cells.lines().find(|line| line.contains("hidden")).expect("the line");
    // Red is shown; conceal and the background are not.
    assert!(line.contains("\u{1b}[38;5;1mred\u{1b}[39m hidden loud"), "{line:?}");
    terminal.press(&["y"]);
    terminal.wait_for("copied `torc logs");
    assert_eq!(terminal.call(&["show-buffer"]), "torc logs 1 --attempt 1 --stdout");

    for (key, said) in [("o", "the pager has it"), ("e", "the editor has it")] {
        terminal.press(&[key]);
        let shown = terminal.wait_for(said);
        assert!(!shown.contains("red hidden"), "the screen is lent:\n{shown}");
        terminal.press(&["Enter"]);
        terminal.wait_for("red hidden loud");
    }
    assert!(test.read("paged").starts_with("plain\n\u{1b}[31mred"), "the bytes as they are");
    assert!(test.read("edited").contains("# what it runs"), "{}", test.read("edited"));
    terminal.press(&["Q"]);
}

#[test]
fn a_live_line_leaves_nothing_behind_when_the_terminal_becomes_narrower() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: a_job_with_a_name, command: 'read -r _ < gate'}\n  - {name: b, command: 'true', depends_on: [a_job_with_a_name]}\n",
    );
    let gate = test.gate("gate");
    let script = format!("echo before; torc run workflow.yaml; {LEFT}");
    let terminal = Terminal::open(tmux, &test, (120, 20), &script);
    terminal.wait_for("1 running: a_job_with_a_name");
    for width in ["60", "30", "100", "45", "20"] {
        terminal.call(&["resize-window", "-x", width, "-y", "20"]);
        let columns: usize = width.parse().unwrap();
        terminal.wait("the line at its new width", |shown| {
            let lines: Vec<&str> = shown.lines().filter(|line| line.contains("0/2")).collect();
            lines.len() == 1 && lines[0].chars().count() <= columns
        });
        // A terminal that breaks lines anew moves the upper ones out of sight, but keeps them.
        let all = terminal.call(&["capture-pane", "-p", "-S", "-"]);
        assert!(all.contains("before") && all.contains("created workflow"), "{all}");
    }
    gate.open();
    let shown = terminal.wait_for("left with 0");
    assert!(!shown.contains("0/2"), "{shown}");
}

#[test]
fn data_has_an_age_while_the_server_is_away_and_goes_on_when_it_is_back() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.run().expect(0);
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    let terminal = Terminal::open(tmux, &test, (100, 30), "torc tui 1");
    terminal.wait_for("every job succeeded");
    server.signal("KILL");
    server.wait();
    terminal.wait_for("ago), reconnecting");
    terminal.press(&["2"]);
    terminal.wait_for("reconnecting");
    // It may come back at another address.
    let mut server = test.torc(["server", "run"]).spawn();
    server.wait_for_stdout("http://");
    let shown = terminal
        .wait("the server", |shown| !shown.contains("reconnecting") && shown.contains("completed"));
    assert!(shown.contains("1 job"), "{shown}");
    terminal.press(&["Q"]);
    server.signal("INT");
    server.wait();
}

#[test]
fn a_run_goes_on_when_its_screens_are_left() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new()
        .spec("name: w\njobs:\n  - {name: a, command: 'read -r _ < gate'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    let gate = test.gate("gate");
    let script = format!("torc run workflow.yaml --tui; {LEFT}");
    let terminal = Terminal::open(tmux, &test, (100, 30), &script);
    terminal.wait_for("▶ 1 running");
    terminal.press(&["q"]);
    terminal.wait_for("watching it");
    gate.open();
    let shown = terminal.wait_for("left with 0");
    assert!(shown.contains("2 of 2"), "{shown}");
}

#[test]
fn what_is_no_terminal_is_refused_with_another_way() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    for call in [["tui", "latest"].as_slice(), &["run", "workflow.yaml", "--tui"]] {
        test.torc(call).exit(2).tells("need a terminal").tells("`torc status --watch`");
    }
    assert!(!test.exists(".torc"), "nothing was made");
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_refused() {
    let Some(tmux) = tmux() else { return };
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.run().expect(0);
    let terminal =
        Terminal::open(tmux, &test, (100, 10), "TERM=dumb torc tui; echo \"left with $?\"");
    let shown = terminal.wait_for("left with 2");
    assert!(shown.contains("`TERM` is `dumb`") && shown.contains("torc status --watch"), "{shown}");
}
