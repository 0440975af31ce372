//! The keys of the spec: the one table that drives the reader, its suggestions, the KDL mapping,
//! the writers and the JSON Schema.

mod parts;
mod workflow;

pub use parts::*;
pub use workflow::*;

use crate::checks;
use crate::node::Node;
use crate::read::Reader;
use std::collections::HashMap;
use std::sync::LazyLock;
use torc_model::status::Trigger;

/// A job's priority is one of these.
pub const PRIORITIES: std::ops::RangeInclusive<i64> = -1_000_000_000..=1_000_000_000;

/// What a value may look like and what it becomes in the canonical form.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Any text; numbers and booleans are taken as they are spelled.
    Text,
    /// Text of one line: it ends up in a file where a line break would begin something else.
    Line,
    /// The name of something: one line, of a decent length, that cannot lead out of a directory.
    Name,
    /// The name of a file, or its path.
    FileName,
    /// A name or a list of names; canonical as one text with commas between.
    Labels,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Int(i64, i64),
    /// A number within bounds.
    Number(f64, f64),
    /// `8g`, `1.5GB`; canonical in the largest whole unit.
    Memory,
    /// `2h30m`, `02:30:00`; canonical as ISO 8601.
    Runtime,
    /// The same, longer than nothing.
    Timeout,
    /// A duration or a number of seconds; canonical as a number of seconds.
    Seconds,
    /// As Slurm takes it; canonical `HH:MM:SS` or `D-HH:MM:SS`. A bare number is minutes, as for
    /// `sbatch`.
    Walltime,
    /// As Slurm takes it: a whole number with an optional unit letter.
    SlurmMemory,
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    /// A signal by name or number; canonical `SIGTERM`.
    Signal,
    /// A signal and how many seconds early it comes: `TERM@120`.
    EarlySignal,
    /// A regular expression.
    Regex,
    /// A list; a single value stands for a list of one.
    List(&'static Shape),
    /// A map with keys of the user's choice.
    Map(KeyRule, &'static Shape),
    /// A map with known keys.
    Object(&'static Object),
    /// Any JSON value.
    Json,
    /// Anything; a text that is a JSON object is read as such.
    Metadata,
    /// Values of one parameter: text in Torc's syntax, a number, or a list of scalars.
    ParameterValues,
    /// Steps of a job or what belongs to them; read by [`crate::steps`].
    Steps(crate::steps::Part),
    /// Accepted for the sake of older files, with a warning that says why nothing happens.
    Ignored(&'static str),
    /// Refused with a word of explanation.
    Refused(&'static str),
}

/// What the keys of a [`Shape::Map`] may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyRule {
    /// `[A-Za-z_][A-Za-z0-9_]*`
    Identifier,
    /// Names of environment variables.
    Environment,
    /// Long options of `sbatch`.
    SlurmOption,
    /// What other things are called.
    Name,
}

/// One key.
pub struct Field {
    /// Its name.
    pub key: &'static str,
    /// Other names for it, in every format.
    pub aliases: &'static [&'static str],
    /// Names for it in KDL, where lists are written as repeated nodes; the first is the one we
    /// write.
    pub kdl: &'static [&'static str],
    /// Its value.
    pub shape: Shape,
    /// It must be there.
    pub required: bool,
    /// For the JSON Schema.
    pub doc: &'static str,
}

/// A map with known keys.
pub struct Object {
    /// With its article, for messages: `a job`.
    pub name: &'static str,
    /// For the JSON Schema.
    pub id: &'static str,
    /// Its keys, in the canonical order.
    pub fields: &'static [Field],
    /// A lone scalar stands for a map with only this key.
    pub shorthand: Option<&'static str>,
    /// Rules between its keys; sees the canonical form.
    pub check: Option<fn(&mut Reader<'_>, &Node)>,
}

/// The keys of all fields, numbered.
struct Known {
    keys: Vec<&'static str>,
    numbers: HashMap<&'static str, usize>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut known = Known { keys: Vec::new(), numbers: HashMap::new() };
    for field in OBJECTS.iter().flat_map(|object| object.fields) {
        if !known.numbers.contains_key(field.key) {
            known.numbers.insert(field.key, known.keys.len());
            known.keys.push(field.key);
        }
    }
    known
});

/// A key of any field, as the tables have it.
pub fn known(key: &str) -> Option<&'static str> {
    number(key).map(|(_, key)| key)
}

/// The number of a key of any field, and the key as the tables have it.
pub fn number(key: &str) -> Option<(usize, &'static str)> {
    KNOWN.numbers.get_key_value(key).map(|(key, number)| (*number, *key))
}

/// The key with a number that [`number`] gave.
pub fn numbered(number: usize) -> &'static str {
    KNOWN.keys[number]
}

impl Object {
    /// The field with this key or alias.
    pub fn field(&self, key: &str, kdl: bool) -> Option<&'static Field> {
        self.fields.iter().find(|field| {
            field.key == key || field.aliases.contains(&key) || (kdl && field.kdl.contains(&key))
        })
    }
}

pub(crate) const fn field(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, aliases: &[], kdl: &[], shape, required: false, doc }
}

impl Field {
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn kdl(mut self, names: &'static [&'static str]) -> Self {
        self.kdl = names;
        self
    }
}

const NAMES: Shape = Shape::List(&Shape::Name);
const FILES: Shape = Shape::List(&Shape::FileName);
const REGEXES: Shape = Shape::List(&Shape::Regex);
const TEXTS: Shape = Shape::List(&Shape::Text);
const ENVIRONMENT: Shape = Shape::Map(KeyRule::Environment, &Shape::Text);
const PARAMETERS: Shape = Shape::Map(KeyRule::Identifier, &Shape::ParameterValues);
const MODE: Shape = Shape::Word(|| vec!["product", "zip"]);
const COUNT: i64 = u32::MAX as i64;
const MONTH: i64 = 31 * 86_400;

/// Objects whose unknown keys are warned of instead of refused. The monitor only watches, so that no
/// job runs differently by a key that is passed over, and files of Torc have keys of several
/// releases there.
pub const PASSES_OVER_UNKNOWN: [&str; 2] = ["resource_monitor", "resource_monitor_jobs"];

/// Everything with known keys.
pub static OBJECTS: [&Object; 17] = [
    &WORKFLOW,
    &JOB,
    &FILE,
    &USER_DATA,
    &REQUIREMENTS,
    &HANDLER,
    &RULE,
    &BACKOFF,
    &STDIO,
    &RESOURCE_MONITOR,
    &MONITOR_JOBS,
    &EXECUTION,
    &DYNAMIC,
    &AUTO_RECOVER,
    &RECOVERY_RULE,
    &SCHEDULER,
    &ACTION,
];
