//! What a step has come to: the one place that decides, for plain jobs, handlers, map items and
//! reduce alike.

use super::tree::Strategy;
use serde::{Deserialize, Serialize};

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded at once, or by its own retries.
    Ok,
    /// It failed, and its handler repaired or replaced it.
    Recovered,
    /// It failed, and that is tolerated.
    Ignored,
    /// Its condition did not hold.
    Skipped,
    /// It failed.
    Failed,
    /// It was ended from outside.
    Interrupted,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Recovered, Self::Ignored, Self::Skipped, Self::Failed, Self::Interrupted];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Recovered => "recovered",
            Self::Ignored => "ignored",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// The steps after it run.
    pub fn goes_on(self) -> bool {
        matches!(self, Self::Ok | Self::Recovered | Self::Ignored | Self::Skipped)
    }
}

/// The word that a custom handler wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Taken as recovered.
    Recovered,
    /// What failed shall run again.
    Retry,
    /// Nothing helped; also when it wrote nothing.
    Failed,
}

impl Word {
    /// Reads what the handler wrote. What is none of the words comes back as a sentence about it.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "recovered" => Ok(Self::Recovered),
            "retry" => Ok(Self::Retry),
            "failed" | "" => Ok(Self::Failed),
            other => {
                let shown: String =
                    other.lines().next().unwrap_or_default().chars().take(40).collect();
                Err(format!(
                    "`{shown}` in `$OUTCOME_FILE` is not understood; use `recovered`, `retry` or `failed`"
                ))
            }
        }
    }
}

/// How a handler ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlerEnd {
    /// No command of it failed untolerated, and at least one succeeded. With the word that it
    /// wrote, if it is custom.
    Succeeded(Word),
    /// A command failed, or it took too long.
    Failed,
}

/// What follows a try of the failed part (its own retries included).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterTry {
    /// The step passed with this outcome; `on_success` is next.
    Passed(Outcome),
    /// The handler runs.
    Handle,
    /// Nothing more is tried.
    GiveUp,
}

/// What follows the handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterHandler {
    /// The step is recovered. A fallback's result stands for the step's.
    Recovered,
    /// What failed runs again.
    Rerun,
    /// Nothing more is tried.
    GiveUp,
    /// The job ends as failed, and no automatic retry follows.
    Fatal,
}

/// Decides after try `n` (from 1) of the failed part.
pub fn after_try(passed: bool, n: u32, handler: Option<(Strategy, u32)>) -> AfterTry {
    match (passed, handler) {
        (true, _) => AfterTry::Passed(if n <= 1 { Outcome::Ok } else { Outcome::Recovered }),
        (false, None) => AfterTry::GiveUp,
        (false, Some((Strategy::Recovery, max))) if max > 1 && n >= max => AfterTry::GiveUp,
        (
            false,
            Some((
                Strategy::Recovery | Strategy::Fallback | Strategy::Cleanup | Strategy::Custom,
                _,
            )),
        ) => AfterTry::Handle,
    }
}

/// Decides after the handler that followed try `n`. A custom handler that says `retry` gets at
/// least one.
pub fn after_handler(
    strategy: Strategy,
    end: HandlerEnd,
    n: u32,
    max_attempts: u32,
    fatal: bool,
) -> AfterHandler {
    let word = match (end, fatal) {
        (HandlerEnd::Failed, true) => return AfterHandler::Fatal,
        (HandlerEnd::Failed, false) => return AfterHandler::GiveUp,
        (HandlerEnd::Succeeded(word), _) => word,
    };
    match strategy {
        Strategy::Recovery if max_attempts > 1 => AfterHandler::Rerun,
        Strategy::Recovery | Strategy::Fallback => AfterHandler::Recovered,
        Strategy::Cleanup => AfterHandler::GiveUp,
        Strategy::Custom => match word {
            Word::Recovered => AfterHandler::Recovered,
            Word::Retry if n < max_attempts.max(2) => AfterHandler::Rerun,
            Word::Retry | Word::Failed => AfterHandler::GiveUp,
        },
    }
}

/// The outcome of a step that nothing could save.
pub fn given_up(continue_on_error: bool) -> Outcome {
    if continue_on_error { Outcome::Ignored } else { Outcome::Failed }
}

/// The whole story of one step as a function: does try `n` pass, how does handler run `n` end? For
/// the tests and for `torc check`, which tells what a handler can achieve.
pub fn overall(
    passes: impl Fn(u32) -> bool,
    handler: Option<(Strategy, u32, bool)>,
    ends: impl Fn(u32) -> HandlerEnd,
    continue_on_error: bool,
) -> (Outcome, u32, u32) {
    let (mut tries, mut handled) = (0, 0);
    loop {
        tries += 1;
        match after_try(passes(tries), tries, handler.map(|(strategy, max, _)| (strategy, max))) {
            AfterTry::Passed(outcome) => return (outcome, tries, handled),
            AfterTry::GiveUp => return (given_up(continue_on_error), tries, handled),
            AfterTry::Handle => {}
        }
        let Some((strategy, max, fatal)) = handler else {
            return (given_up(continue_on_error), tries, handled);
        };
        handled += 1;
        match after_handler(strategy, ends(handled), tries, max, fatal) {
            AfterHandler::Recovered => return (Outcome::Recovered, tries, handled),
            AfterHandler::Rerun => {}
            AfterHandler::GiveUp => return (given_up(continue_on_error), tries, handled),
            AfterHandler::Fatal => return (Outcome::Failed, tries, handled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    const ENDS: [HandlerEnd; 4] = [
        HandlerEnd::Succeeded(Word::Recovered),
        HandlerEnd::Succeeded(Word::Retry),
        HandlerEnd::Succeeded(Word::Failed),
        HandlerEnd::Failed,
    ];

    /// The table of the documentation: one failing try, one handler run, no re-run allowed.
    #[test]
    fn each_strategy_means_what_the_table_says() {
        let case = |strategy, end| overall(|_| false, Some((strategy, 1, false)), |_| end, false).0;
        let plain = HandlerEnd::Succeeded(Word::Failed);
        assert_eq!(case(Strategy::Recovery, plain), Outcome::Recovered);
        assert_eq!(case(Strategy::Fallback, plain), Outcome::Recovered);
        assert_eq!(case(Strategy::Cleanup, plain), Outcome::Failed);
        assert_eq!(case(Strategy::Custom, plain), Outcome::Failed);
        assert_eq!(
            case(Strategy::Custom, HandlerEnd::Succeeded(Word::Recovered)),
            Outcome::Recovered
        );
        for strategy in Strategy::ALL {
            assert_eq!(case(strategy, HandlerEnd::Failed), Outcome::Failed);
        }
    }

    /// Tries and handler runs for every number of attempts, when nothing helps and when the last
    /// try passes.
    #[test]
    fn n_attempts_are_n_tries_and_one_handler_run_less() {
        let good = |_| HandlerEnd::Succeeded(Word::Failed);
        for max in 2..6 {
            let handler = Some((Strategy::Recovery, max, false));
            assert_eq!(overall(|_| false, handler, good, false), (Outcome::Failed, max, max - 1));
            assert_eq!(
                overall(|n| n == max, handler, good, false),
                (Outcome::Recovered, max, max - 1)
            );
        }
        assert_eq!(
            overall(|_| false, Some((Strategy::Recovery, 1, false)), good, false),
            (Outcome::Recovered, 1, 1)
        );
        assert_eq!(
            overall(|_| true, Some((Strategy::Recovery, 3, false)), good, false),
            (Outcome::Ok, 1, 0)
        );
    }

    proptest! {
        /// Total, finite, and true to the few rules that hold whatever the input.
        #[test]
        fn every_case_has_an_outcome(
            passes in 0u32..12,
            strategy in 0usize..4,
            max in 1u32..9,
            fatal: bool,
            tolerated: bool,
            has_handler: bool,
            ends in proptest::collection::vec(0usize..4, 12),
        ) {
            let strategy = Strategy::ALL[strategy];
            let end = |n: u32| ENDS[ends[(n as usize - 1) % ends.len()]];
            let handler = has_handler.then_some((strategy, max, fatal));
            let (outcome, tries, handled) = overall(|n| n == passes, handler, end, tolerated);
            prop_assert!(tries <= max.max(2) && handled <= tries, "no handler can loop");
            prop_assert!(!matches!(outcome, Outcome::Skipped | Outcome::Interrupted));
            if passes == 1 {
                prop_assert_eq!((outcome, tries, handled), (Outcome::Ok, 1, 0));
            }
            if !has_handler {
                prop_assert_eq!((tries, handled), (1, 0));
            }
            if strategy == Strategy::Cleanup && passes != 1 {
                prop_assert!(matches!(outcome, Outcome::Failed | Outcome::Ignored), "a cleanup changes no verdict");
            }
            if outcome == Outcome::Ignored {
                prop_assert!(tolerated);
            }
            if has_handler && handled > 0 && end(handled) == HandlerEnd::Failed {
                let expected = if fatal || !tolerated { Outcome::Failed } else { Outcome::Ignored };
                prop_assert_eq!(outcome, expected);
            }
        }
    }
}
