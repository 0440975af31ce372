//! The page of all stable words is made from the enums that define them.
//! Run with `UPDATE_EXPECTED=1` to write it anew, then read the difference.

use std::fmt::Write as _;
use torc_model::api::ErrorCode;
use torc_model::event::EventKind;
use torc_model::recovery::Kind;
use torc_model::status::{
    ActionState, AllocationStatus, AttemptState, Cause, EndedBy, JobStatus, Origin, Outcome,
    RunnerState, StatusReason,
};

const HEAD: &str = "\
# Words of the API

Programs tell things apart by the words on this page; sentences beside them (`message`, `decision`, `reason`) may change
with any version. The page is made from the definitions in `crates/torc-model` (`words_page.rs`), and a test keeps it so.
";

/// A table of all words of an enum.
macro_rules! table {
    ($page:ident, $title:literal, $intro:literal, $type:ty) => {
        write!($page, "\n## {}\n\n{}\n\n| word | meaning |\n|---|---|\n", $title, $intro).unwrap();
        for word in <$type>::ALL {
            writeln!($page, "| `{word}` | {} |", one_line(word.about())).unwrap();
        }
    };
}

fn one_line(about: &str) -> String {
    // Links of rustdoc lead nowhere on the page.
    let text = about.replace("[`", "`").replace("`]", "`");
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn page() -> String {
    let mut page = String::from(HEAD);
    table!(page, "Error codes", "`code` in every answer that refuses a request.", ErrorCode);
    page += "\n## Event kinds\n\n\
             `kind` of an event, and the fields that its `data` may have.\n\n\
             | kind | meaning | data |\n|---|---|---|\n";
    for kind in EventKind::ALL {
        let fields: Vec<_> = kind.fields().map(|field| format!("`{field}`")).collect();
        writeln!(page, "| `{kind}` | {} | {} |", one_line(kind.about()), fields.join(", "))
            .unwrap();
    }
    table!(page, "Job statuses", "`status` of a job.", JobStatus);
    table!(page, "Reasons of a status", "`status_reason` of a job.", StatusReason);
    table!(page, "Attempt states", "`state` of an attempt.", AttemptState);
    table!(page, "Causes", "`cause` of an attempt that did not succeed.", Cause);
    table!(page, "Kinds of failures", "`kind` of a diagnosis.", Kind);
    table!(page, "Who ended an attempt", "`ended_by` of an attempt.", EndedBy);
    table!(page, "What rules made of a failure", "`outcome` of an attempt.", Outcome);
    table!(page, "Where an attempt came from", "`origin` of an attempt.", Origin);
    table!(page, "Runner states", "`state` of a runner.", RunnerState);
    table!(page, "Allocation statuses", "`status` of an allocation.", AllocationStatus);
    table!(page, "Action states", "`state` of an action.", ActionState);
    page
}

#[test]
fn the_page_of_words_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/words.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == page, "docs/words.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}

#[test]
fn every_word_of_an_error_or_event_is_explained() {
    for about in ErrorCode::ALL.iter().map(|word| word.about()) {
        assert!(about.trim().split(' ').count() > 1, "{about}");
    }
    for kind in EventKind::ALL {
        assert!(kind.about().trim().split(' ').count() > 1, "{kind}");
    }
}
