use super::*;
use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn why(result: io::Result<impl std::fmt::Debug>) -> Distrust {
    let error = result.expect_err("it is refused");
    distrust(&error).unwrap_or_else(|| panic!("{error}"))
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
}

const ALL: [Trust; 4] = [Trust::Regular, Trust::Log, Trust::Config, Trust::Private];

#[test]
fn a_fifo_is_refused_at_once_for_reading_and_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fifo(&path);
    for trust in ALL {
        assert_eq!(why(open(&path, trust)), Distrust::NotRegular, "{trust:?}");
    }
    assert_eq!(why(create_log(&path)), Distrust::NotRegular);
    assert_eq!(why(append_log(&path)), Distrust::NotRegular);
    assert_eq!(why(append_private(&path)), Distrust::NotRegular);
    assert!(write_new_private(&path, b"x").is_err());
}

#[test]
fn logs_are_not_written_through_links() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link, hard) =
        (dir.path().join("secret"), dir.path().join("a.o"), dir.path().join("b.o"));
    std::fs::write(&file, "precious").unwrap();
    symlink(&file, &link).unwrap();
    std::fs::hard_link(&file, &hard).unwrap();
    assert_eq!(why(create_log(&link)), Distrust::Link);
    assert_eq!(why(append_log(&link)), Distrust::Link);
    assert_eq!(why(create_log(&hard)), Distrust::HardLinks);
    assert_eq!(why(append_log(&hard)), Distrust::HardLinks);
    assert_eq!(why(open(&link, Trust::Log)), Distrust::Link);
    assert_eq!(why(open(&hard, Trust::Log)), Distrust::HardLinks);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    // A link whose target is missing makes no file either.
    let dangling = dir.path().join("c.o");
    symlink(dir.path().join("nowhere"), &dangling).unwrap();
    assert_eq!(why(create_log(&dangling)), Distrust::Link);
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn an_old_log_is_emptied_and_written_at_its_end_with_writes_that_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.o");
    std::fs::write(&path, "old").unwrap();
    let mut first = create_log(&path).unwrap();
    let mut second = append_log(&path).unwrap();
    first.write_all(b"1").unwrap();
    second.write_all(b"2").unwrap();
    first.write_all(b"3").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"123");
    for file in [&first, &second] {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert!(flags.contains(OFlags::APPEND) && !flags.contains(OFlags::NONBLOCK));
    }
}

#[test]
fn private_files_are_refused_when_others_may_write_them_or_their_directory() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    make_private_dir(&state).unwrap();
    write_new_private(&state.join("x"), b"content").unwrap();
    assert_eq!(read_private_in(&state, "x", 100).unwrap(), b"content");
    assert_eq!(why(read_private_in(&state, "x", 3)), Distrust::TooLarge(3));
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o620, 0o602] {
        set(&state.join("x"), mode);
        assert_eq!(why(read_private_in(&state, "x", 100)), Distrust::Writable(mode));
        assert_eq!(why(open(&state.join("x"), Trust::Config)), Distrust::Writable(mode));
    }
    set(&state.join("x"), 0o644);
    for mode in [0o770, 0o707] {
        set(&state, mode);
        assert_eq!(why(read_private_in(&state, "x", 100)), Distrust::Writable(mode));
        assert_eq!(why(open(&state.join("x"), Trust::Config)), Distrust::WritableDirectory(mode));
    }
    set(&state, 0o1777);
    open(&state.join("x"), Trust::Config).unwrap();
    make_private_dir(&state).unwrap();
    read_private_in(&state, "x", 100).unwrap();
}

#[test]
fn files_of_another_user_are_not_ours() {
    if own_uid() != 0 {
        eprintln!("SKIPPED: only root can make a file of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, link, inner) = (dir.path().join("x"), dir.path().join("l"), dir.path().join("d"));
    std::fs::write(&path, "").unwrap();
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("x"), "").unwrap();
    symlink(&inner, &link).unwrap();
    for path in [&path, &inner, &link] {
        std::os::unix::fs::lchown(path, Some(65534), None).unwrap();
    }
    for trust in [Trust::Config, Trust::Private] {
        assert_eq!(why(open(&path, trust)), Distrust::Owner(65534), "{trust:?}");
    }
    open(&path, Trust::Regular).unwrap();
    open(&path, Trust::Log).unwrap();
    assert_eq!(why(create_log(&path)), Distrust::Owner(65534));
    assert_eq!(why(append_private(&path)), Distrust::Owner(65534));
    assert_eq!(why(check_private_dir(&inner)), Distrust::Owner(65534));
    assert_eq!(why(make_private_dir(&inner)), Distrust::Owner(65534));
    assert_eq!(why(read_private_in(&inner, "x", 9)), Distrust::Owner(65534));
    std::os::unix::fs::lchown(&inner, Some(0), None).unwrap();
    assert_eq!(why(check_private_dir(&link)), Distrust::Owner(65534), "the link is a stranger's");
    check_private_dir(&inner).unwrap();
}

#[test]
fn a_place_that_hangs_costs_its_deadline_once_and_other_places_nothing() {
    let (free, gate) = mpsc::channel::<()>();
    let place = Path::new("/hangs");
    let begin = Instant::now();
    let hangs = within(place, Duration::from_millis(50), move || gate.recv().is_ok());
    assert_eq!(hangs, Err(Hangs));
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let long = Duration::from_secs(60);
    let begin = Instant::now();
    assert_eq!(within(place, long, || 1), Err(Hangs));
    assert!(begin.elapsed() < Duration::from_secs(30), "no second thread waits at that place");
    assert_eq!(within(Path::new("/other"), long, || 2), Ok(2));
    free.send(()).unwrap();
    // The thread takes its mark away after its answer; only time can be waited for here.
    while within(place, long, || 3) != Ok(3) {
        std::thread::yield_now();
    }
}

#[test]
fn two_looks_at_one_place_may_go_on_at_once() {
    let place = Path::new("/busy");
    let long = Duration::from_secs(60);
    let inner = within(place, long, move || within(place, long, || 4));
    assert_eq!(inner, Ok(Ok(4)));
}
