//! A command that is run without a shell must do what it does with one. Both ways are tried here,
//! and everything that a program can see is compared: arguments, variables, directory, output, and
//! how it ends.

use super::*;
use crate::sys::Reap;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;

struct World {
    dir: tempfile::TempDir,
    setup: Setup,
}

#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    status: (Option<i32>, Option<i32>),
    stdout: Vec<u8>,
    stderr: String,
}

impl World {
    fn new(env: &[(&str, &str)]) -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), env)
    }

    fn in_dir(dir: tempfile::TempDir, env: &[(&str, &str)]) -> Self {
        let script = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        script("show", "#!/bin/sh\nprintf '<%s>' \"$0\" \"$@\"\npwd\n", 0o755);
        script("no_first_line", "echo from $BASH_VERSION $1\n", 0o755);
        script("bad_first_line", "#!/no/such/interpreter\n", 0o755);
        script("not_executable", "#!/bin/sh\n", 0o644);
        script("fails", "#!/bin/sh\necho no >&2; exit 3\n", 0o755);
        script("dies", "#!/bin/sh\nkill -SEGV $$\n", 0o755);
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let setup = Setup::with_env("test", env, dir.path().into(), None).unwrap();
        Self { dir, setup }
    }

    fn order(&self, text: &str, env: &[(&str, &str)]) -> ProcessOrder {
        ProcessOrder {
            id: 1,
            tag: "test/1".into(),
            text: text.into(),
            argv: Vec::new(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            dir: None,
            stdin: None,
            stdout: Sink::Create(self.dir.path().join("o")),
            stderr: Sink::Create(self.dir.path().join("e")),
            time_limit: None,
            memory_limit: None,
            shell: Default::default(),
            rest: None,
        }
    }

    fn run(&self, order: &ProcessOrder) -> Outcome {
        let pid = launch(&self.setup, order).unwrap().pid;
        sys::wait_for_end(pid);
        let Reap::Ended(reaped) = sys::reap(pid) else { panic!("not reaped") };
        let mut stdout = std::fs::read(self.dir.path().join("o")).unwrap();
        if order.text.trim().ends_with("env") {
            let mut lines: Vec<&[u8]> = stdout.split(|b| *b == b'\n').collect();
            lines.sort_unstable();
            stdout = lines.join(&b'\n');
        }
        Outcome {
            status: (reaped.status.code(), reaped.status.signal()),
            stdout,
            stderr: std::fs::read_to_string(self.dir.path().join("e")).unwrap(),
        }
    }

    /// Runs the command both ways, and says whether the first way was without a shell.
    fn compare(&mut self, text: &str, env: &[(&str, &str)]) -> bool {
        let order = self.order(text, env);
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let trial = start_plainly(&self.setup, &order, None, [null.as_fd(); 3]);
        if let Some((pid, _)) = trial {
            sys::wait_for_end(pid);
            sys::reap(pid);
        }
        let plainly = self.run(&order);
        let plain = self.setup.plain.take();
        assert_eq!(plainly, self.run(&order), "{text}");
        self.setup.plain = plain;
        let usual = std::mem::replace(&mut self.setup.spawn, &sys::Std);
        assert_eq!(plainly, self.run(&order), "{text}, started by the standard library");
        self.setup.spawn = usual;
        trial.is_some()
    }
}

const USUAL: &[(&str, &str)] =
    &[("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/root"), ("LANG", "C")];

#[test]
fn what_is_run_without_a_shell_does_the_same_as_with_one() {
    let mut world = World::new(USUAL);
    for text in [
        "env",
        "  env \n",
        "./show",
        "./show one two=2 -x --y=z a,b a:b x+y @1 100% ./a/../b",
        "./show 'single quoted $HOME `x` \"' \"double 'quoted' * ?\" a'b'\"c\"d ''",
        "./show ümlaut \t tab",
        "sh -c 'echo $0 $1; exit 4' zero one",
        "cat",
        "./fails",
        "./dies",
        "sleep 0",
        "/usr/bin/env",
    ] {
        assert!(world.compare(text, &[]), "a shell was used for {text}");
    }
}

#[test]
fn what_a_shell_does_itself_is_left_to_it() {
    let mut world = World::new(USUAL);
    for text in [
        "echo -e 'a\\tb'",
        "true",
        "exit 5",
        "X=1 env",
        "./show $HOME ~ *",
        "./show a{b,c}",
        "./show a > /dev/stderr",
        "./show a; ./show b",
        "./show a && ./show b",
        "./show a | cat",
        "./show \"$HOME\" \\x",
        "./show # nothing",
        "./show a\n./show b",
        "(./show)",
        "! ./show",
        "if ./show; then ./fails; fi",
        "%1",
        "no_such_program",
        "./no_such_program x",
        "./not_executable",
        "./no_first_line x",
        "./bad_first_line",
        ".",
        "/",
        "'./show' a",
        "{ time ./show; } 2>/dev/null",
        "kill -l",
        "./show 'unfinished",
        "",
        "   ",
    ] {
        assert!(!world.compare(text, &[]), "no shell was used for {text}");
    }
}

#[test]
fn the_environment_is_the_one_that_a_shell_would_give() {
    let real = tempfile::tempdir().unwrap();
    let link = real.path().join("link");
    let dir = tempfile::tempdir_in(real.path()).unwrap();
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let link = link.to_str().unwrap().to_string();
    let mut world = World::in_dir(dir, USUAL);
    for (more, is_plain) in [
        (vec![], true),
        (vec![("SHLVL", "1")], true),
        (vec![("SHLVL", "7"), ("_", "/usr/bin/torc")], true),
        (vec![("SHLVL", "0"), ("SSH_CLIENT", "::1 1 22")], false),
        (vec![("SHLVL", "1"), ("SSH_CLIENT", "::1 1 22")], true),
        (vec![("SHLVL", "many")], false),
        (vec![("PWD", link.as_str())], true),
        (vec![("PWD", "/tmp")], true),
        (vec![("PWD", "relative")], true),
        (vec![("OLDPWD", "/tmp")], true),
        (vec![("OLDPWD", "/no/such/dir")], false),
        (vec![("BASH_ENV", "/dev/null")], false),
        (vec![("BASH_FUNC_env%%", "() { echo mine; }")], false),
        (
            vec![
                ("not a name", "1"),
                ("TERM", "xterm"),
                ("EMPTY", ""),
                ("HOSTNAME", "h"),
                ("TMOUT", "5"),
            ],
            true,
        ),
        (
            vec![
                ("ENV", "/no/such/file"),
                ("LINES", "5"),
                ("OPTARG", "x"),
                ("HISTFILE", "h"),
                ("CDPATH", "/"),
            ],
            true,
        ),
        (vec![("IFS", "x")], false),
        (vec![("PS1", "x")], false),
        (vec![("BASHPID", "x")], false),
    ] {
        let env: Vec<(&str, &str)> = USUAL.iter().copied().chain(more.clone()).collect();
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        world.setup = Setup::with_env("test", env, world.dir.path().into(), None).unwrap();
        assert_eq!(world.compare("env", &[]), is_plain, "{more:?}");
        assert_eq!(world.compare("./show a", &[]), is_plain, "{more:?}");
    }
    world = World::new(USUAL);
    assert!(world.compare("env", &[("HOME", "/nowhere"), ("A", "1"), ("A", "2")]));
    assert!(!world.compare("env", &[("BASH_ENV", "/dev/null")]));
    assert!(!world.compare("env", &[("PWD", "/tmp")]));
    for path in ["", "/bin:.", "/bin::/usr/bin", "./:/bin", "sub/..:/bin"] {
        world.compare("show x", &[("PATH", path)]);
        world.compare("env", &[("PATH", &format!("{path}:/usr/bin"))]);
    }
    let own = world.dir.path().to_str().unwrap().to_string();
    assert!(world.compare("show x", &[("PATH", &format!("/no/such/dir:{own}:/bin"))]));
}

#[test]
fn random_text_means_the_same_with_and_without_a_shell() {
    let mut world = World::new(USUAL);
    let letters: Vec<char> = "ab/.-_=,+@%: \t'\"$~*?[]{}#!&|;<>()\\`^é".chars().collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |count: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % count
    };
    let mut plain = 0;
    for _ in 0..600 {
        // Mostly harmless ones: most texts of any length have something for the shell.
        let harmless = if next(4) == 0 { letters.len() } else { 18 };
        let text: String = (0..next(14)).map(|_| letters[next(harmless)]).collect();
        let text = format!("./show {text}");
        if plain::words(&text).is_some() {
            plain += usize::from(world.compare(&text, &[]));
        }
    }
    assert!(plain > 100, "only {plain} texts needed no shell");
}

#[test]
fn a_program_is_found_on_the_path_of_the_process_relative_places_included() {
    let world = World::new(USUAL);
    let mut order = world.order("", &[("PATH", "/no/such/dir:.:/bin")]);
    order.argv = ["show", "a b", "$HOME"].map(String::from).into();
    let seen = world.run(&order);
    assert_eq!(seen.status, (Some(0), None));
    assert!(seen.stdout.starts_with(b"<./show><a b><$HOME>"), "{seen:?}");
    order.argv = vec!["no_such_program".into()];
    let error = launch(&world.setup, &order).unwrap_err();
    assert_eq!(error.return_code, 127);
    assert!(error.message.contains("cannot start `no_such_program`"), "{error:?}");
}

#[test]
fn what_kept_a_program_from_starting_is_a_word() {
    use EndDetail::{
        StartDenied, StartDiskFull, StartFileSystem, StartLimit, StartNotFound, StartQuota,
    };
    for (numbers, word) in [
        (&[libc::ENOENT, libc::ENOTDIR][..], Some(StartNotFound)),
        (&[libc::EACCES, libc::EPERM], Some(StartDenied)),
        (&[libc::ENOSPC], Some(StartDiskFull)),
        (&[libc::EDQUOT], Some(StartQuota)),
        (&[libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE], Some(StartLimit)),
        (&[libc::ESTALE, libc::EROFS, libc::EIO], Some(StartFileSystem)),
        (&[libc::E2BIG, libc::ENOEXEC], None),
    ] {
        for number in numbers {
            let error = io::Error::from_raw_os_error(*number);
            assert_eq!(LaunchError::new("x", &error).detail, word, "{error}");
        }
    }
}
