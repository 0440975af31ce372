//! What was learned from retries: looked at, shared, and forgotten.

pub use super::journal::knowledge::list;

use super::journal::knowledge as journal;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use torc_model::recovery::{
    Counts, Fingerprint, Knowledge, KnowledgeForgotten, KnowledgeTaken, KnownFailure, untrusted,
};

/// More failures in one file are a mistake.
const MOST: usize = 100_000;
const LONGEST: usize = 240;

/// Takes in what others learned. The same file twice counts once: of one day, one workflow and one
/// failure the larger numbers stay.
pub fn take(tx: &mut Tx<'_>, knowledge: &Knowledge) -> Result<KnowledgeTaken, Failed> {
    if knowledge.torc_knowledge != Knowledge::VERSION {
        let message = format!(
            "this is knowledge of version {}; version {} is understood",
            knowledge.torc_knowledge,
            Knowledge::VERSION
        );
        return Err(Refusal::invalid("torc_knowledge", message).into());
    }
    if knowledge.failures.len() > MOST {
        return Err(Refusal::invalid("failures", format!("at most {MOST} at once")).into());
    }
    let mut new = 0;
    for (at, known) in knowledge.failures.iter().enumerate() {
        check(known).map_err(|why| Refusal::invalid("failures", format!("{}: {why}", at + 1)))?;
        let print = &known.fingerprint;
        let line = |text: &str| untrusted::line(text, LONGEST);
        let print = Fingerprint {
            program: line(&print.program),
            exception: print.exception.as_deref().map(line),
            template: line(&print.template),
            ..print.clone()
        };
        new += i64::from(journal::insert_print(tx.db, &print, &line(&known.cause), known.seen_ms)?);
        for outcome in &known.outcomes {
            journal::put_outcome(tx.db, &print.id, outcome, &line(&outcome.workflow))?;
        }
    }
    Ok(KnowledgeTaken { failures: knowledge.failures.len() as i64, new })
}

/// A sentence about what is wrong with it.
fn check(known: &KnownFailure) -> Result<(), String> {
    let is_print = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_print(&known.fingerprint.id) || !is_print(&known.fingerprint.family) {
        return Err("`id` and `family` of a fingerprint are 16 hexadecimal digits".into());
    }
    for outcome in &known.outcomes {
        let Counts { tries, succeeded, failed_same, failed_other } = outcome.counts;
        let parts = [succeeded, failed_same, failed_other];
        if parts.iter().any(|part| !(0..=1_000_000_000).contains(part))
            || parts.iter().sum::<i64>() != tries
        {
            return Err(
                "`tries` must be the sum of `succeeded`, `failed_same` and `failed_other`".into()
            );
        }
    }
    Ok(())
}

/// Forgets what is known of one failure, or of all.
pub fn forget(tx: &mut Tx<'_>, only: Option<&str>) -> Result<KnowledgeForgotten, Failed> {
    let failures = journal::delete_prints(tx.db, only)?;
    match only {
        Some(print) if failures == 0 => Err(unknown(print).into()),
        _ => Ok(KnowledgeForgotten { failures: failures as i64 }),
    }
}

/// There is nothing to show or forget.
pub fn unknown(print: &str) -> Refusal {
    let print = untrusted::line(print, 40);
    Refusal::invalid("fingerprint", format!("nothing is known of a failure `{print}`"))
        .hint("`torc knowledge list` shows what is known")
}
