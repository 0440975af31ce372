//! What was learned from retries: looked at, shared, and forgotten.

use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::{Connection, params};
use torc_model::recovery::{
    Counts, Fingerprint, Kind, Knowledge, KnowledgeForgotten, KnowledgeTaken, KnownFailure,
    KnownOutcome, Tried, untrusted,
};

/// More failures in one file are a mistake.
const MOST: usize = 100_000;
const LONGEST: usize = 240;

/// All that is known, or what is known of one failure: the latest first.
pub fn list(db: &Connection, only: Option<&str>) -> rusqlite::Result<Vec<KnownFailure>> {
    let mut statement = db.prepare_cached(
        "SELECT p.fingerprint, p.family, p.cause, p.kind, p.program, p.exception, p.template, p.seen_ms,
                m.action, m.day, m.workflow, m.tries, m.succeeded, m.failed_same, m.failed_other, m.needed_bytes,
                m.needed_seconds
         FROM failure_print p JOIN failure_memory m ON m.fingerprint = p.fingerprint
         WHERE ?1 IS NULL OR p.fingerprint = ?1 ORDER BY p.seen_ms DESC, p.fingerprint, m.action, m.day",
    )?;
    let mut rows = statement.query([only])?;
    let mut all: Vec<KnownFailure> = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        if all.last().is_none_or(|known| known.fingerprint.id != id) {
            all.push(KnownFailure {
                fingerprint: Fingerprint {
                    id,
                    family: row.get(1)?,
                    kind: Kind::parse(&row.get::<_, String>(3)?).unwrap_or(Kind::Unknown),
                    program: row.get(4)?,
                    exception: row.get(5)?,
                    template: row.get(6)?,
                },
                cause: row.get(2)?,
                seen_ms: row.get(7)?,
                outcomes: Vec::new(),
            });
        }
        let Some(action) = Tried::parse(&row.get::<_, String>(8)?) else { continue };
        let outcome = KnownOutcome {
            action,
            day: row.get(9)?,
            workflow: row.get(10)?,
            counts: Counts {
                tries: row.get(11)?,
                succeeded: row.get(12)?,
                failed_same: row.get(13)?,
                failed_other: row.get(14)?,
            },
            needed_bytes: row.get(15)?,
            needed_seconds: row.get(16)?,
        };
        if let Some(known) = all.last_mut() {
            known.outcomes.push(outcome);
        }
    }
    Ok(all)
}

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
        new += tx
            .db
            .prepare_cached(
                "INSERT INTO failure_print (fingerprint, family, cause, kind, program, exception, template, seen_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (fingerprint) DO NOTHING",
            )?
            .execute(params![
                print.id,
                print.family,
                line(&known.cause),
                print.kind.as_str(),
                line(&print.program),
                print.exception.as_deref().map(line),
                line(&print.template),
                known.seen_ms,
            ])?;
        for outcome in &known.outcomes {
            tx.db
                .prepare_cached(
                    "INSERT INTO failure_memory (fingerprint, action, day, workflow, tries, succeeded, failed_same,
                        failed_other, needed_bytes, needed_seconds) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                     ON CONFLICT (fingerprint, action, day, workflow) DO UPDATE SET
                        tries = excluded.tries, succeeded = excluded.succeeded, failed_same = excluded.failed_same,
                        failed_other = excluded.failed_other,
                        needed_bytes = coalesce(excluded.needed_bytes, needed_bytes),
                        needed_seconds = coalesce(excluded.needed_seconds, needed_seconds)
                     WHERE excluded.tries > tries",
                )?
                .execute(params![
                    print.id,
                    outcome.action.as_str(),
                    outcome.day,
                    line(&outcome.workflow),
                    outcome.counts.tries,
                    outcome.counts.succeeded,
                    outcome.counts.failed_same,
                    outcome.counts.failed_other,
                    outcome.needed_bytes,
                    outcome.needed_seconds,
                ])?;
        }
    }
    Ok(KnowledgeTaken { failures: knowledge.failures.len() as i64, new: new as i64 })
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
    let failures = tx
        .db
        .prepare_cached("DELETE FROM failure_print WHERE ?1 IS NULL OR fingerprint = ?1")?
        .execute([only])?;
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
