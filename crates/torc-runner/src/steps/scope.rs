//! The variables of one attempt: what they are, how they become environment variables, and how
//! texts are filled in.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use torc_model::steps::{
    DataPath, EXPORT_MAX, EXPORT_TOTAL_MAX, Expr, Piece, TextError, TextReference, env_name, fill,
    lookup, show,
};

/// Names that mean something about a capture itself; they win over fields of its value.
const ABOUT: [&str; 8] =
    ["exit_code", "success", "duration", "stdout", "stderr", "attempts", "outcome", "file"];

/// A captured value and how it came about.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Captured {
    /// The value.
    pub value: Value,
    /// See [`ABOUT`].
    pub about: Map<String, Value>,
}

/// All variables of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// `job`, `workflow`, `item`, `map`, `files`, `user_data`.
    fixed: BTreeMap<String, Value>,
    /// Paths that name a file: `item.file`, `map.results.file`, `map.dead.file`.
    files: BTreeMap<String, String>,
    captures: BTreeMap<String, Captured>,
    /// Names that some step captures: without a value yet they are null, not unknown.
    expected: Vec<String>,
    /// The failures whose handlers run now, the innermost last.
    errors: Vec<Value>,
    /// The exit code that `expect` looks at.
    exit_code: Option<Value>,
}

impl Scope {
    /// Adds a variable that never changes.
    pub fn fix(&mut self, name: &str, value: Value) {
        self.fixed.insert(name.into(), value);
    }

    /// Lets a path name a file.
    pub fn name_file(&mut self, path: &str, file: String) {
        self.files.insert(path.into(), file);
    }

    /// Some step captures this.
    pub fn expect_capture(&mut self, name: &str) {
        self.expected.push(name.into());
    }

    /// A step captured this.
    pub fn capture(&mut self, name: &str, captured: Captured) {
        self.captures.insert(name.into(), captured);
    }

    /// What was captured so far.
    pub fn captures(&self) -> &BTreeMap<String, Captured> {
        &self.captures
    }

    /// A handler begins: its failure is `error`, and what was `error` before becomes its cause.
    pub fn push_error(&mut self, mut error: Map<String, Value>) {
        if let Some(cause) = self.errors.last() {
            error.insert("cause".into(), cause.clone());
        }
        self.errors.push(Value::Object(error));
    }

    /// The handler has ended.
    pub fn pop_error(&mut self) {
        self.errors.pop();
    }

    fn root(&self, name: &str) -> Option<&Value> {
        static NULL: Value = Value::Null;
        match name {
            "error" => self.errors.last(),
            "exit_code" => self.exit_code.as_ref(),
            _ => self
                .captures
                .get(name)
                .map(|captured| &captured.value)
                .or_else(|| self.fixed.get(name))
                .or_else(|| self.expected.iter().any(|expected| expected == name).then_some(&NULL)),
        }
    }

    /// Something has this name.
    pub fn knows(&self, name: &str) -> bool {
        name != "exit_code" && self.root(name).is_some()
    }

    fn value(&self, path: &DataPath) -> Option<Value> {
        if let Some(Piece::Key(key)) = path.pieces.first()
            && ABOUT.contains(&key.as_str())
            && let Some(captured) = self.captures.get(&path.root)
            && let Some(value) = captured.about.get(key)
        {
            return lookup(value, &path.pieces[1..]).cloned();
        }
        // A capture called `files` hides none of `files.input.NAME`.
        let fixed = self.fixed.get(&path.root).and_then(|value| lookup(value, &path.pieces));
        let fixed = fixed.filter(|value| !value.is_null() && !path.pieces.is_empty());
        let value = fixed.or_else(|| {
            lookup(self.root(&path.root)?, &path.pieces).filter(|value| !value.is_null())
        });
        value
            .cloned()
            .or_else(|| self.files.get(&path.to_string()).map(|file| Value::from(file.as_str())))
    }

    /// Fills in a text that no shell reads.
    pub fn fill(&self, text: &str) -> Result<String, TextError> {
        fill(text, |path| {
            if !self.knows(&path.root) {
                return Err(TextError::Unknown { path: path.clone(), at: 0..0 });
            }
            Ok(self.value(path).map(|value| show(&value)))
        })
    }

    /// Whether an expression holds.
    pub fn holds(&self, text: &str) -> Result<bool, String> {
        let expr = Expr::parse(text).map_err(|error| error.to_string())?;
        expr.holds(&|name| self.root(name)).map_err(|error| error.to_string())
    }

    /// The same with the exit code of the process that has just ended.
    pub fn holds_after(&mut self, text: &str, exit_code: i64) -> Result<bool, String> {
        self.exit_code = Some(json!(exit_code));
        let held = self.holds(text);
        self.exit_code = None;
        held
    }

    /// The environment of a process that uses these references: all variables to the second level,
    /// and whatever is named. Values are data: they never become part of the shell's text.
    pub fn exports(
        &self,
        references: &[TextReference],
    ) -> Result<Vec<(String, String)>, TextError> {
        let mut out: BTreeMap<String, String> = BTreeMap::new();
        let mut total = 0;
        for reference in references {
            let path = &reference.path;
            let Some(value) = self.value(path) else {
                if reference.optional {
                    continue;
                }
                return Err(TextError::Missing(path.clone()));
            };
            let text = show(&value);
            let unusable = |why: String| TextError::Unusable { path: path.clone(), why };
            if text.contains('\0') {
                return Err(unusable("its value contains a NUL character".into()));
            }
            if text.len() > EXPORT_MAX || total + text.len() > EXPORT_TOTAL_MAX {
                let why =
                    format!("its value has {} bytes, more than a process can be given", text.len());
                return Err(unusable(format!(
                    "{why}; read the file `${{{}.file}}` instead",
                    path.root
                )));
            }
            total += text.len();
            out.insert(env_name(path), text);
        }
        let mut add = |name: String, value: &Value| {
            let text = show(value);
            if text.len() <= EXPORT_MAX
                && total + text.len() <= EXPORT_TOTAL_MAX
                && !text.contains('\0')
            {
                total += text.len();
                out.entry(name).or_insert(text);
            }
        };
        let errors = self.errors.last().map(|error| ("error", error));
        let fixed = self.fixed.iter().map(|(name, value)| (name.as_str(), value));
        let captures =
            self.captures.iter().map(|(name, captured)| (name.as_str(), &captured.value));
        for (name, value) in captures.chain(fixed).chain(errors) {
            add(name.into(), value);
            if let Value::Object(map) = value {
                for (key, value) in map.iter().filter(|(key, _)| is_word(key)) {
                    add(format!("{name}__{key}"), value);
                }
            }
        }
        for (name, captured) in &self.captures {
            for (key, value) in captured
                .about
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "stdout" | "stderr"))
            {
                add(format!("{name}__{key}"), value);
            }
        }
        for (path, file) in &self.files {
            add(path.replace('.', "__"), &Value::from(file.as_str()));
        }
        Ok(out.into_iter().collect())
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::steps::shell;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.fix(
            "item",
            json!({"path": "a b", "deep": {"er": [1, 2]}, "big": "x".repeat(EXPORT_MAX + 1)}),
        );
        scope.name_file("item.file", "/tmp/item.json".into());
        let about = json!({"exit_code": 0, "file": "/tmp/v.o", "success": true});
        let Value::Object(about) = about else { unreachable!() };
        scope.capture("v", Captured { value: json!({"success": "mine", "n": 3}), about });
        scope
    }

    fn env(scope: &Scope, text: &str) -> Result<BTreeMap<String, String>, TextError> {
        let shell = shell(text, |root| scope.knows(root))?;
        scope.exports(&shell.references).map(|pairs| pairs.into_iter().collect())
    }

    #[test]
    fn everything_is_exported_to_the_second_level_and_what_is_named() {
        let env = env(&scope(), "echo ${item.deep.er[1]} ${v.success}").unwrap();
        assert_eq!(env["item__path"], "a b");
        assert_eq!(env["item__deep"], "{\"er\":[1,2]}");
        assert_eq!(env["item__deep__er__1"], "2");
        assert_eq!((env["v__success"].as_str(), env["v__n"].as_str()), ("true", "3"));
        assert!(!env.contains_key("item__big"), "too large to export");
    }

    #[test]
    fn what_can_not_be_given_is_named() {
        let error = env(&scope(), "echo ${item.big}").unwrap_err().to_string();
        assert!(error.contains("${item.file}"), "{error}");
        assert_eq!(env(&scope(), "cat ${item.file}").unwrap()["item__file"], "/tmp/item.json");
        assert!(matches!(env(&scope(), "${item.none}"), Err(TextError::Missing(_))));
        assert!(env(&scope(), "${item.none:-x}").is_ok());
        let mut nul = scope();
        nul.capture("z", Captured { value: json!("a\0b"), about: Map::new() });
        assert!(matches!(env(&nul, "$z"), Err(TextError::Unusable { .. })));
    }

    #[test]
    fn errors_are_a_stack() {
        let mut scope = Scope::default();
        let error = |message: &str| Map::from_iter([("message".to_owned(), json!(message))]);
        scope.push_error(error("outer"));
        scope.push_error(error("inner"));
        assert_eq!(scope.fill("${error.message} ${error.cause.message}").unwrap(), "inner outer");
        scope.pop_error();
        assert_eq!(scope.fill("${error.message}").unwrap(), "outer");
        scope.pop_error();
        assert!(scope.fill("${error.message}").is_err());
    }
}
