//! Which variables are known where, and what is doubtful about a handler or a quote.

use super::grammar::RESERVED;
use crate::diagnostic::{Advice, Diagnostic, nearest};
use crate::node::NodePath;
use crate::shell::{Quotes, Scanner};
use std::collections::BTreeSet;
use torc_model::steps::{
    Action, Expr, Handler, Piece, Step, Strategy, TextError, TextReference, Tree,
};
use torc_model::steps::{references, shell};

/// Handlers and groups may be nested this deep.
const MAX_DEPTH: usize = 8;

const ERROR_FIELDS: [&str; 12] = [
    "message",
    "exit_code",
    "step",
    "timestamp",
    "kind",
    "signal",
    "attempt",
    "command",
    "stdout_file",
    "stderr_file",
    "output_file",
    "cause",
];
const JOB_FIELDS: [&str; 3] = ["name", "id", "attempt"];
const WORKFLOW_FIELDS: [&str; 2] = ["name", "id"];
const MAP_FIELDS: [&str; 6] = ["total", "successful", "failed", "recovered", "results", "dead"];

/// A message and the text it is about, at a node of the spec.
pub(crate) struct Remark {
    /// The node of the spec that it is about.
    pub at: NodePath,
    /// The part of the text there.
    pub part: String,
    /// What it says.
    pub diagnostic: Diagnostic,
}

/// Checks a tree. `root` is the place of the job.
pub(crate) fn check(tree: &Tree, root: &NodePath, is_item: bool, is_reduce: bool) -> Vec<Remark> {
    let mut all = BTreeSet::new();
    tree.parts().for_each(|(_, steps)| captured(steps, &mut all));
    if let Some(handler) = &tree.on_failure {
        all.extend(handler.capture.keys().cloned());
    }
    let mut flow = StepFlow {
        all,
        certain: BTreeSet::new(),
        errors: 0,
        is_item,
        is_reduce,
        advice: Advice::default(),
        remarks: Vec::new(),
    };
    let mut known = flow.certain.clone();
    if let Some(dir) = &tree.dir {
        flow.plain(dir, &root.join("dir"));
    }
    flow.steps(&tree.steps, &root.join("steps"), 1);
    std::mem::swap(&mut known, &mut flow.certain);
    flow.certain.extend(known);
    if let Some(handler) = &tree.on_failure {
        flow.handler(handler, &root.join("on_failure"), 1);
    }
    flow.steps(&tree.on_success, &root.join("on_success"), 1);
    flow.remarks
}

fn captured(steps: &[Step], all: &mut BTreeSet<String>) {
    for step in steps {
        all.extend(step.capture.keys().cloned());
        if let Some(handler) = &step.on_failure {
            all.extend(handler.capture.keys().cloned());
        }
        step.parts().for_each(|(_, steps)| captured(steps, all));
    }
}

struct StepFlow {
    /// Everything that is captured anywhere.
    all: BTreeSet<String>,
    /// What has been captured for certain at this point.
    certain: BTreeSet<String>,
    /// How many handlers are around this point.
    errors: usize,
    is_item: bool,
    is_reduce: bool,
    advice: Advice,
    remarks: Vec<Remark>,
}

impl StepFlow {
    fn say(&mut self, at: &NodePath, part: impl Into<String>, diagnostic: Diagnostic) {
        self.remarks.push(Remark { at: at.clone(), part: part.into(), diagnostic });
    }

    fn steps(&mut self, steps: &[Step], at: &NodePath, depth: usize) {
        if depth > MAX_DEPTH {
            let message = format!("steps are nested more than {MAX_DEPTH} deep");
            self.say(at, "", Diagnostic::error(message));
            return;
        }
        for (index, step) in steps.iter().enumerate() {
            self.step(step, &at.join(index), depth);
        }
    }

    fn step(&mut self, step: &Step, at: &NodePath, depth: usize) {
        let before = self.certain.clone();
        if let Some(when) = &step.when {
            self.expression(when, &at.join("when"), false);
        }
        for (key, value) in &step.env {
            self.plain(value, &at.join("env").join(key.as_str()));
        }
        if let Some(dir) = &step.dir {
            self.plain(dir, &at.join("dir"));
        }
        match &step.action {
            Action::Shell(text) => self.shell(text, &at.join("shell")),
            Action::Claude(text) => self.plain(text, &at.join("claude")),
            Action::Validate(steps) => self.steps(steps, &at.join("validate"), depth + 1),
            Action::Steps(steps) => self.steps(steps, &at.join("steps"), depth + 1),
        }
        for (name, source) in &step.capture {
            if let torc_model::steps::CaptureSource::File(path) = source {
                self.plain(path, &at.join("capture").join(name.as_str()));
            }
        }
        self.certain.extend(step.capture.keys().cloned());
        if let Some(expect) = &step.expect {
            self.expression(expect, &at.join("expect"), true);
        }
        self.steps(&step.validate, &at.join("validate"), depth + 1);
        if let Some(handler) = &step.on_failure {
            let inside = self.certain.clone();
            self.handler(handler, &at.join("on_failure"), depth);
            self.reachable(step, handler, at);
            self.certain = inside;
        }
        self.steps(&step.on_success, &at.join("on_success"), depth + 1);
        if step.when.is_some() {
            self.certain = before;
        }
    }

    fn handler(&mut self, handler: &Handler, at: &NodePath, depth: usize) {
        self.errors += 1;
        self.steps(&handler.commands, &at.join("commands"), depth + 1);
        self.errors -= 1;
        let only_agent =
            handler.commands.iter().all(|step| matches!(step.action, Action::Claude(_)));
        if handler.strategy == Strategy::Recovery && handler.max_attempts == 1 && only_agent {
            let message = "this recovery is not verified: what the agent says is taken for success";
            let help = "set `max_attempts: 2` to run again what failed, or add a check as the last command";
            self.say(at, "", Diagnostic::warning(message).help(help));
        }
        let tolerated = handler.commands.iter().all(|step| step.continue_on_error);
        if tolerated && handler.strategy != Strategy::Cleanup {
            let message =
                "every command of this handler may fail: it recovers only if one of them succeeds";
            self.say(at, "", Diagnostic::warning(message));
        }
    }

    fn reachable(&mut self, step: &Step, handler: &Handler, at: &NodePath) {
        let always = match &step.action {
            Action::Shell(text) => matches!(text.trim(), "true" | ":" | "exit 0"),
            Action::Claude(_) => false,
            Action::Validate(steps) | Action::Steps(steps) => steps.iter().all(|step| {
                step.continue_on_error
                    && step.on_failure.as_ref().is_none_or(|h| !h.handler_failure_fatal)
            }),
        };
        if always
            && step.validate.is_empty()
            && step.expect.is_none()
            && !handler.commands.is_empty()
        {
            let message = "this handler is never reached: the step cannot fail";
            self.say(&at.join("on_failure"), "", Diagnostic::warning(message));
        }
    }

    fn ours(&self, root: &str) -> bool {
        self.all.contains(root)
            || match root {
                "item" => self.is_item,
                "map" => self.is_reduce,
                "error" => self.errors > 0,
                "job" | "workflow" | "files" | "user_data" => true,
                _ => false,
            }
    }

    fn shell(&mut self, text: &str, at: &NodePath) {
        let found = shell(text, |root| self.ours(root));
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.text_error(text, &error, at),
        };
        let mut scanner = Scanner::default();
        let mut seen = 0;
        for reference in &found.references {
            self.reference(reference, text, at);
            scanner.advance(&text[seen..reference.at.start]);
            seen = reference.at.start;
            let written = &text[reference.at.clone()];
            match scanner.quotes() {
                Quotes::Single
                    if reference.path.pieces.is_empty()
                        && !self.is_plain_ours(&reference.path.root) => {}
                Quotes::Single => {
                    let message = format!(
                        "`{}` stands in single quotes: only a nested shell will expand it",
                        reference.path
                    );
                    self.say(
                        at,
                        written,
                        Diagnostic::warning(message)
                            .help("use double quotes, unless that is what you mean"),
                    );
                }
                Quotes::None => {
                    let message = format!(
                        "`{}` is not quoted: the shell splits its value at spaces",
                        reference.path
                    );
                    self.say(
                        at,
                        written,
                        Diagnostic::note(message).help("put it in double quotes"),
                    );
                }
                Quotes::Double => {}
            }
        }
    }

    fn is_plain_ours(&self, root: &str) -> bool {
        self.all.contains(root) || RESERVED.contains(&root)
    }

    fn plain(&mut self, text: &str, at: &NodePath) {
        match references(text) {
            Ok(found) => {
                for reference in &found {
                    if self.ours(&reference.path.root) {
                        self.reference(reference, text, at);
                    } else {
                        let (path, at_text) = (reference.path.clone(), reference.at.clone());
                        self.text_error(text, &TextError::Unknown { path, at: at_text }, at);
                    }
                }
            }
            Err(error) => self.text_error(text, &error, at),
        }
    }

    fn text_error(&mut self, text: &str, error: &TextError, at: &NodePath) {
        match error {
            TextError::Unknown { path, at: range } => {
                let part = &text[range.clone()];
                let diagnostic = match path.root.as_str() {
                    "error" => Diagnostic::error("`error` is known only in handlers")
                        .help("use it inside `on_failure`"),
                    "item" => Diagnostic::error("`item` is known only in a job with `map`"),
                    "map" => Diagnostic::error("`map` is known only in a job with `reduce`"),
                    root => {
                        let known: Vec<&str> =
                            self.all.iter().map(String::as_str).chain(RESERVED).collect();
                        let near = self.advice.nearest(root, &known);
                        let help = near.map_or_else(
                            || {
                                "write `$${` for a `${` that is not a variable of the job"
                                    .to_owned()
                            },
                            |near| format!("did you mean `{near}`?"),
                        );
                        Diagnostic::error(format!("nothing is called `{root}` here")).help(help)
                    }
                };
                self.say(at, part, diagnostic);
            }
            TextError::Malformed { text: part, .. } => {
                let help = "write it like `${name.field}` or `${name:-text}`; `$${` stands for `${` itself";
                self.say(
                    at,
                    part.clone(),
                    Diagnostic::error(format!("`{part}` is not a variable")).help(help),
                );
            }
            TextError::Missing(_) | TextError::Unusable { .. } => {
                self.say(at, "", Diagnostic::error(error.to_string()));
            }
        }
    }

    /// A variable of ours: has it a value here, and does its field exist?
    fn reference(&mut self, reference: &TextReference, text: &str, at: &NodePath) {
        let root = reference.path.root.as_str();
        let part = &text[reference.at.clone()];
        let fields: Option<&[&str]> = match root {
            "error" => Some(&ERROR_FIELDS),
            "job" => Some(&JOB_FIELDS),
            "workflow" => Some(&WORKFLOW_FIELDS),
            "map" => Some(&MAP_FIELDS),
            _ => None,
        };
        if let Some(fields) = fields {
            let mut pieces = reference.path.pieces.as_slice();
            while root == "error"
                && matches!(pieces.first(), Some(Piece::Key(key)) if key == "cause")
                && pieces.len() > 1
            {
                pieces = &pieces[1..];
            }
            if let Some(Piece::Key(key)) = pieces.first()
                && !fields.contains(&key.as_str())
            {
                let help = nearest(key, fields.iter().copied()).map_or_else(
                    || {
                        format!(
                            "known: {}",
                            fields
                                .iter()
                                .map(|f| format!("`{root}.{f}`"))
                                .collect::<Vec<_>>()
                                .join(", ")
                        )
                    },
                    |near| format!("did you mean `{root}.{near}`?"),
                );
                self.say(
                    at,
                    part,
                    Diagnostic::error(format!("`{root}` has no `{key}`")).help(help),
                );
            }
            return;
        }
        if self.all.contains(root) && !self.certain.contains(root) && !reference.optional {
            let message =
                format!("`{root}` has no value here: it is captured later, or not always");
            let help = format!(
                "capture it before, or say what to do without it: `${{{}:-}}`",
                reference.path
            );
            self.say(at, part, Diagnostic::error(message).help(help));
        }
    }

    fn expression(&mut self, text: &str, at: &NodePath, is_expect: bool) {
        // Read before, when the text was checked.
        let Ok(expr) = Expr::parse(text) else { return };
        for path in expr.paths() {
            let root = path.root.as_str();
            if self.ours(root) || (is_expect && root == "exit_code") {
                continue;
            }
            let known: Vec<&str> = self.all.iter().map(String::as_str).chain(RESERVED).collect();
            let help =
                self.advice.nearest(root, &known).map(|near| format!("did you mean `{near}`?"));
            let message = format!("nothing is called `{root}` here");
            self.say(at, root, Diagnostic::error(message).maybe_help(help));
        }
    }
}
