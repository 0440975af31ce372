//! Every file in `tests/errors` gives exactly the messages in the `.expected` file beside it.
//! Run with `UPDATE_EXPECTED=1` to write them anew, then read the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use torc_spec::{Diagnostics, Severity, Source, SpecFormat};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| SpecFormat::from_path(path).is_some());
    files.sort();
    files
}

fn check(path: &Path) -> Diagnostics {
    let mut source = match Source::read(path) {
        Ok(source) => source,
        Err(errors) => return errors,
    };
    source.name = path.file_name().unwrap().to_str().unwrap().to_owned();
    source.base_dir = Some("no-such-directory".into());
    let mut found = match torc_spec::parse(&source) {
        Ok(parsed) => match parsed.spec.plan() {
            Ok((_, mut warnings)) => {
                let mut all = parsed.warnings;
                all.extend(std::mem::take(&mut warnings));
                all
            }
            Err(errors) => errors,
        },
        Err(errors) => errors,
    };
    found.0.sort_by_key(|d| d.severity);
    found
}

#[test]
fn messages_are_as_expected() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wrong = String::new();
    for path in files() {
        let found = check(&path);
        assert!(!found.is_empty(), "{} has nothing to complain about", path.display());
        let rendered = found.render(false);
        let expected_path = PathBuf::from(format!("{}.expected", path.display()));
        if update {
            std::fs::write(&expected_path, &rendered).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if rendered != expected {
            writeln!(wrong, "==== {}\n{rendered}---- expected\n{expected}", path.display())
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// An error without a place does not help.
#[test]
fn every_error_has_a_place_and_its_line() {
    for path in files() {
        for diagnostic in check(&path).iter().filter(|d| d.severity == Severity::Error) {
            let place = diagnostic
                .place
                .as_ref()
                .unwrap_or_else(|| panic!("{}: {}", path.display(), diagnostic.message));
            assert!(
                place.line > 0 && place.column > 0,
                "{}: {}",
                path.display(),
                diagnostic.message
            );
        }
    }
}
