//! The words by which a failure handler names failures: the causes that a runner finds, and what the
//! diagnosis calls them.

use super::diagnosis::Diagnosis;
use super::kind::Kind;
use super::nature::Nature;
use crate::status::Cause;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What passes by itself, whatever its kind.
const TRANSIENT: &str = "transient";

/// A word that names failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureName {
    cause: Option<Cause>,
    kind: Option<Kind>,
}

impl FailureName {
    /// Reads a word; `None` for one that names nothing.
    pub fn parse(word: &str) -> Option<Self> {
        let (cause, kind) = (Cause::parse(word), Kind::parse(word));
        (cause.is_some() || kind.is_some() || word == TRANSIENT).then_some(Self { cause, kind })
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match (self.cause, self.kind) {
            (Some(cause), _) => cause.as_str(),
            (None, Some(kind)) => kind.as_str(),
            (None, None) => TRANSIENT,
        }
    }

    /// Every word.
    pub fn words() -> Vec<&'static str> {
        let causes = Cause::ALL.iter().map(|cause| cause.as_str());
        let kinds = Kind::ALL.iter().map(|kind| kind.as_str());
        let own = kinds.filter(|word| Cause::parse(word).is_none());
        causes.chain(own).chain([TRANSIENT]).collect()
    }

    /// Only a diagnosis tells whether it fits.
    pub fn needs_diagnosis(self) -> bool {
        self.kind.is_some() || self.cause.is_none()
    }

    /// It names this failure. A diagnosis counts where it is sure enough to act on.
    pub fn fits(self, cause: Cause, diagnosis: Option<&Diagnosis>) -> bool {
        let told = diagnosis.filter(|diagnosis| diagnosis.is_sure());
        self.cause == Some(cause)
            || told.is_some_and(|diagnosis| match (self.cause, self.kind) {
                (_, Some(kind)) => diagnosis.kind == kind,
                (None, None) => diagnosis.nature == Nature::Transient,
                (Some(_), None) => false,
            })
    }
}

impl From<Cause> for FailureName {
    fn from(cause: Cause) -> Self {
        Self { cause: Some(cause), kind: Kind::parse(cause.as_str()) }
    }
}

impl Serialize for FailureName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FailureName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word).ok_or_else(|| {
            let known = Self::words().join("`, `");
            de::Error::custom(format!("`{word}` names no failure; known are `{known}`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Facts, diagnose};
    use super::*;

    #[test]
    fn words_name_causes_kinds_and_what_passes() {
        let facts = |cause, stderr| Facts {
            cause: Some(cause),
            return_code: Some(7),
            stderr_tail: stderr,
            ..Facts::default()
        };
        let refused = diagnose(&facts(Cause::Exit, "curl: (7) Connection refused\n"));
        let bug = diagnose(&facts(Cause::Exit, "KeyError: 'x'\n"));
        let fits = |word: &str, diagnosis: &Option<Diagnosis>| {
            let name = FailureName::parse(word).expect("a word");
            assert_eq!(name.as_str(), word);
            name.fits(Cause::Exit, diagnosis.as_ref())
        };
        for word in ["network", "transient", "exit"] {
            assert!(fits(word, &refused), "{word}");
        }
        for word in ["network", "transient", "oom", "license"] {
            assert!(!fits(word, &bug), "{word}");
        }
        assert!(FailureName::words().iter().all(|word| FailureName::parse(word).is_some()));
        assert_eq!(FailureName::parse("netwrok"), None);
    }
}
