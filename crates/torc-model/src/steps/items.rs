//! The items of a map: where they come from, which of them count, in which order, and what each is
//! called.

use super::data::{Select, show};
use super::expr::Expr;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// How a map finds its items and goes through them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MapSettings {
    /// Where items come from.
    pub items: ItemSource,
    /// Only items for which this holds.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Fields to sort by; `-` in front turns the order around.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<String>,
    /// At most this many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// What identifies an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// At once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Failed items that the map tolerates.
    #[serde(skip_serializing_if = "Tolerate::is_default")]
    pub tolerate: Tolerate,
    /// Items that have not started are canceled once too many have failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
}

/// What a job has to do with a map; kept with the job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapRole {
    /// It is the map: it finds the items and is done when they are.
    Map(Box<MapSettings>),
    /// It runs over the results of the map of this name.
    Reduce(String),
    /// It is an item of the map of this name.
    Item {
        /// The map.
        of: String,
        /// What identifies the item.
        key: String,
        /// The item.
        item: Value,
    },
}

impl MapRole {
    /// Reads what a job keeps.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        Self::deserialize(value)
            .map_err(|error| format!("the map settings cannot be read: {error}"))
    }

    /// As a job keeps it.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("map settings have only text keys")
    }
}

/// Where items come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemSource {
    /// Written in the spec.
    List(Vec<Value>),
    /// A file.
    File {
        /// Its path.
        path: String,
        /// What of it.
        select: Option<String>,
    },
    /// What a shell command prints.
    Command {
        /// The command.
        command: String,
        /// What of it.
        select: Option<String>,
    },
    /// User data that an earlier job made.
    UserData {
        /// Its name.
        name: String,
        /// What of it.
        select: Option<String>,
        /// Its value, filled in when the attempt is claimed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
    },
}

impl Default for ItemSource {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// How many failed items a map tolerates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerate {
    /// So many.
    Count(u64),
    /// So many of a hundred.
    Percent(f64),
}

impl Default for Tolerate {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Tolerate {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Reads `3` or `10%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a number of items nor a share such as `10%`");
        match text.trim().strip_suffix('%') {
            Some(share) => share
                .trim()
                .parse()
                .ok()
                .filter(|share: &f64| (0.0..=100.0).contains(share))
                .map(Self::Percent)
                .ok_or_else(wrong),
            None => text.trim().parse().map(Self::Count).map_err(|_| wrong()),
        }
    }

    /// Whether so many failures among so many items are borne.
    pub fn bears(self, failed: u64, total: u64) -> bool {
        match self {
            Self::Count(count) => failed <= count,
            Self::Percent(share) => failed as f64 <= total as f64 * share / 100.0 + 1e-9,
        }
    }
}

impl fmt::Display for Tolerate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

impl Serialize for Tolerate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tolerate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&show(&Value::deserialize(deserializer)?)).map_err(serde::de::Error::custom)
    }
}

/// One item.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// What identifies it.
    pub key: String,
    /// The item.
    pub item: Value,
}

/// Why there are no items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItemError(pub String);

impl fmt::Display for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A workflow of more items than this is a mistake, not a wish.
const MAX_ITEMS: usize = 1_000_000;

impl ItemSource {
    /// The text of a file or a command as items: a JSON array, one JSON value per line, or plain
    /// lines.
    pub fn read(text: &str, select: Option<&str>) -> Result<Vec<Value>, ItemError> {
        let trimmed = text.trim();
        if select.is_some() || trimmed.starts_with('[') {
            match serde_json::from_str(trimmed) {
                Ok(value) => return Self::select(value, select),
                Err(error) if select.is_some() => {
                    return Err(ItemError(format!("the items are not JSON: {error}")));
                }
                Err(_) => {}
            }
        }
        let lines = || trimmed.lines().filter(|line| !line.trim().is_empty());
        if lines().next().is_some_and(|line| line.trim_start().starts_with(['{', '[']))
            && let Ok(values) = lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()
        {
            return Ok(values);
        }
        Ok(lines().map(|line| Value::from(line.trim_end_matches('\r'))).collect())
    }

    /// The items in a JSON value.
    pub fn select(value: Value, select: Option<&str>) -> Result<Vec<Value>, ItemError> {
        if let Some(path) = select {
            let select = Select::parse(path).map_err(ItemError)?;
            let found = select.all(&value);
            return match found.as_slice() {
                [Value::Array(items)] if !select.is_many() => Ok(items.clone()),
                [] if !select.is_many() => Err(ItemError(format!("there is nothing at `{path}`"))),
                _ => Ok(found.into_iter().cloned().collect()),
            };
        }
        match value {
            Value::Array(items) => Ok(items),
            _ => Err(ItemError(
                "the items are not a list; name the list with `select`, such as `$.items[*]`"
                    .into(),
            )),
        }
    }
}

/// The items that count, in their order, with their keys: `where`, then `sort`, then `limit`.
pub fn prepare(settings: &MapSettings, items: Vec<Value>) -> Result<Vec<Item>, ItemError> {
    let expression = |what: &str, text: &str| {
        Expr::parse(text).map_err(|error| ItemError(format!("`{what}` cannot be read: {error}")))
    };
    let mut kept = items;
    if let Some(text) = &settings.filter {
        let filter = expression("where", text)?;
        let mut passed = Vec::with_capacity(kept.len());
        for item in kept {
            let holds = filter.holds(&|root| (root == "item").then_some(&item));
            if holds.map_err(|error| ItemError(format!("`where`: {error}")))? {
                passed.push(item);
            }
        }
        kept = passed;
    }
    if !settings.sort.is_empty() {
        let fields: Vec<(bool, Expr)> = settings
            .sort
            .iter()
            .map(|field| {
                let (down, name) =
                    field.strip_prefix('-').map_or((false, field.as_str()), |name| (true, name));
                let path = if name == "item" || name.starts_with("item.") {
                    name.into()
                } else {
                    format!("item.{name}")
                };
                Ok((down, expression("sort", &path)?))
            })
            .collect::<Result<_, ItemError>>()?;
        kept.sort_by(|a, b| {
            let of =
                |item: &Value, field: &Expr| field.value(&|root| (root == "item").then_some(item));
            fields
                .iter()
                .map(|(down, field)| {
                    order(
                        &of(a, field).unwrap_or(Value::Null),
                        &of(b, field).unwrap_or(Value::Null),
                        *down,
                    )
                })
                .find(|order| *order != Ordering::Equal)
                .unwrap_or(Ordering::Equal)
        });
    }
    kept.truncate(settings.limit.unwrap_or(MAX_ITEMS + 1));
    if kept.len() > MAX_ITEMS {
        return Err(ItemError(format!("there are more than {MAX_ITEMS} items; set a `limit`")));
    }
    let key = settings.key.as_deref().map(|text| expression("key", text)).transpose()?;
    let mut known: HashMap<String, usize> = HashMap::with_capacity(kept.len());
    let mut twice: Vec<String> = Vec::new();
    let mut out = Vec::with_capacity(kept.len());
    for item in kept {
        if contains_nul(&item) {
            return Err(ItemError(format!(
                "the item {} contains a NUL character",
                excerpt(&item.to_string())
            )));
        }
        let name = match &key {
            Some(key) => {
                let value = key.value(&|root| (root == "item").then_some(&item));
                let value = value.map_err(|error| ItemError(format!("`key`: {error}")))?;
                if value.is_null() {
                    return Err(ItemError(format!(
                        "the item {} has no key",
                        excerpt(&item.to_string())
                    )));
                }
                show(&value)
            }
            None => match &item {
                Value::String(_) | Value::Number(_) | Value::Bool(_) => show(&item),
                Value::Null | Value::Array(_) | Value::Object(_) => hash(&item.to_string()),
            },
        };
        if known.insert(name.clone(), out.len()).is_some() && !twice.contains(&name) {
            twice.push(name.clone());
        }
        out.push(Item { key: name, item });
    }
    if !twice.is_empty() {
        let shown: Vec<String> =
            twice.iter().take(10).map(|key| format!("`{}`", excerpt(key))).collect();
        let more = if twice.len() > 10 {
            format!(" and {} more", twice.len() - 10)
        } else {
            String::new()
        };
        return Err(ItemError(format!(
            "several items have the same key: {}{more}",
            shown.join(", ")
        )));
    }
    Ok(out)
}

fn excerpt(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { cut }
}

fn contains_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(contains_nul),
        Value::Object(map) => {
            map.iter().any(|(key, value)| key.contains('\0') || contains_nul(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Missing values come last, whatever the direction.
fn order(a: &Value, b: &Value, down: bool) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let order = match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => show(a).cmp(&show(b)),
    };
    if down { order.reverse() } else { order }
}

/// The longest job name, in bytes.
const MAX_NAME: usize = 255;

/// The name of an item's job: `types/<key>`, or a hash of the key where that could not be a name.
pub fn job_name(map: &str, key: &str) -> String {
    let fits = !key.is_empty()
        && map.len() + 1 + key.len() <= MAX_NAME
        && key.trim() == key
        && !key.starts_with('/')
        && !key.chars().any(char::is_control)
        && !key.split(['/', '\\']).any(|part| part == ".." || part == ".");
    if fits { format!("{map}/{key}") } else { format!("{map}/{}", hash(key)) }
}

/// FNV-1a in 128 bits: short, stable for ever, and two items of one map will not meet in it.
fn hash(text: &str) -> String {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = text.bytes().fold(START, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_are_read_from_lines_json_and_jsonl() {
        assert_eq!(ItemSource::read("a\nb c\n\n", None).unwrap(), [json!("a"), json!("b c")]);
        assert_eq!(ItemSource::read("[1, {\"a\": 2}]", None).unwrap(), [json!(1), json!({"a": 2})]);
        assert_eq!(
            ItemSource::read("{\"a\": 1}\n{\"a\": 2}\n", None).unwrap(),
            [json!({"a": 1}), json!({"a": 2})]
        );
        assert_eq!(
            ItemSource::read("{\"items\": [1, 2]}", Some("$.items[*]")).unwrap(),
            [json!(1), json!(2)]
        );
        assert_eq!(
            ItemSource::read("{\"items\": [1, 2]}", Some("$.items")).unwrap(),
            [json!(1), json!(2)]
        );
        assert_eq!(ItemSource::read("", None).unwrap(), Vec::<Value>::new());
        assert!(ItemSource::read("{\"items\": [1]}", Some("$.other")).is_err());
        assert!(ItemSource::read("not json", Some("$.a")).is_err());
    }

    #[test]
    fn the_pipeline_filters_sorts_limits_and_names() {
        let settings = MapSettings {
            filter: Some("item.n > 1".into()),
            sort: vec!["-n".into(), "id".into()],
            limit: Some(3),
            key: Some("item.id".into()),
            ..MapSettings::default()
        };
        let items = json!([{"id": "a", "n": 1}, {"id": "d", "n": 2}, {"id": "b", "n": 9}, {"id": "c", "n": 2}, {"id": "e", "n": 2}]);
        let Value::Array(items) = items else { unreachable!() };
        let keys: Vec<String> =
            prepare(&settings, items).unwrap().into_iter().map(|item| item.key).collect();
        assert_eq!(keys, ["b", "c", "d"]);
        let missing = MapSettings { sort: vec!["-n".into()], ..MapSettings::default() };
        let sorted =
            prepare(&missing, vec![json!({"x": 1}), json!({"n": 1}), json!({"n": 2})]).unwrap();
        assert_eq!(
            sorted.iter().map(|i| i.item.clone()).collect::<Vec<_>>(),
            [json!({"n": 2}), json!({"n": 1}), json!({"x": 1})]
        );
    }

    #[test]
    fn keys_are_unique_and_items_clean() {
        let settings = MapSettings::default();
        let error = prepare(&settings, vec![json!("a"), json!("b"), json!("a")]).unwrap_err();
        assert_eq!(error.0, "several items have the same key: `a`");
        assert!(prepare(&settings, vec![json!("x\0y")]).unwrap_err().0.contains("NUL"));
        assert_eq!(job_name("types", "src/a.py"), "types/src/a.py");
        assert!(
            job_name("types", "../etc").starts_with("types/")
                && !job_name("types", "../etc").contains("..")
        );
    }

    #[test]
    fn tolerance_is_a_number_or_a_share() {
        assert!(
            Tolerate::parse("0").unwrap().bears(0, 3) && !Tolerate::parse("0").unwrap().bears(1, 3)
        );
        assert!(
            Tolerate::parse("50%").unwrap().bears(1, 2)
                && !Tolerate::parse("50%").unwrap().bears(2, 3)
        );
        assert!(Tolerate::parse("110%").is_err() && Tolerate::parse("x").is_err());
    }
}
