//! The grammar of steps: every form that people may write, brought into one.

use crate::diagnostic::{Diagnostic, excerpt, nearest};
use crate::keys::{Field, KeyRule, Object, Shape, field};
use crate::node::{Entry, Kind, Node, Span};
use crate::read::Reader;
use crate::template;
use torc_model::steps::{CaptureSource, Expr, Only, Select, Tolerate};

/// Which part of the step grammar a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A list of steps, a step or a string.
    Steps,
    /// What runs on failure.
    Handler,
    /// Items and how to go through them.
    Map,
    /// The map job whose results are reduced.
    Reduce,
    /// `start` or `step`.
    Resume,
    /// A directory.
    Dir,
    /// The agent program.
    Agent,
    /// Program and arguments of the agent.
    AgentCommand,
    /// Variables and where their values come from.
    Capture,
    /// An expression.
    Expression,
    /// A failure that is worth another try.
    Only,
    /// Where items come from.
    Items,
    /// How many failed items are borne.
    Tolerate,
}

/// Variables that exist without being captured.
pub const RESERVED: [&str; 8] =
    ["item", "error", "map", "job", "workflow", "files", "user_data", "exit_code"];

const ACTIONS: [&str; 4] = ["shell", "claude", "validate", "steps"];
const TEXTS: Shape = Shape::List(&Shape::Text);
const EXPRESSION: Shape = Shape::Steps(Part::Expression);
const COUNT: i64 = 1_000_000;

/// A step.
pub static STEP: Object = Object {
    name: "a step",
    id: "step",
    shorthand: None,
    check: Some(check_step),
    fields: &[
        field("name", Shape::Line, "What messages call it; its place unless set."),
        field("shell", Shape::Text, "Shell text."),
        field("claude", Shape::Text, "A prompt for the agent."),
        field("steps", Shape::Steps(Part::Steps), "A group: fails at the first step that fails."),
        field(
            "validate",
            Shape::Steps(Part::Steps),
            "Checks that run after success; alone it is a step of its own.",
        ),
        field("when", EXPRESSION, "The step is skipped unless this holds."),
        field("retry", Shape::Object(&RETRY), "How often it is tried before its handler runs."),
        field("timeout", Shape::Timeout, "A try is ended after this long."),
        field(
            "capture",
            Shape::Steps(Part::Capture),
            "Variables that it gives to the steps after it.",
        ),
        field("expect", EXPRESSION, "Success, instead of exit code 0."),
        field("on_failure", Shape::Steps(Part::Handler), "What runs when it failed."),
        field("on_success", Shape::Steps(Part::Steps), "What runs when it succeeded."),
        field("continue_on_error", Shape::Bool, "Its failure is tolerated."),
        field(
            "handler_failure_fatal",
            Shape::Bool,
            "A failing handler ends the job, and nothing tries again.",
        ),
        field("env", Shape::Map(KeyRule::Environment, &Shape::Text), "Its environment variables."),
        field("dir", Shape::Text, "Where it runs."),
    ],
};

static HANDLER: Object = Object {
    name: "a handler",
    id: "handler",
    shorthand: None,
    check: Some(check_handler),
    fields: &[
        field("commands", Shape::Steps(Part::Steps), "Its steps.").required(),
        field(
            "strategy",
            Shape::Word(|| vec!["recovery", "fallback", "cleanup", "custom"]),
            "What its success means; `recovery` unless set.",
        ),
        field(
            "max_attempts",
            Shape::Int(1, 1000),
            "Tries of what failed, the first included; 1 unless set.",
        ),
        field("timeout", Shape::Timeout, "The whole handler is ended after this long."),
        field("capture", Shape::Steps(Part::Capture), "Variables read from its last command."),
        field(
            "handler_failure_fatal",
            Shape::Bool,
            "Its failure ends the job, and nothing tries again.",
        ),
    ],
};

static RETRY: Object = Object {
    name: "a retry",
    id: "retry",
    shorthand: Some("attempts"),
    check: None,
    fields: &[
        field("attempts", Shape::Int(1, 1000), "Tries in all.").required(),
        field(
            "backoff",
            Shape::Word(|| vec!["fixed", "linear", "exponential", "fibonacci"]),
            "How the wait grows; `exponential` unless set.",
        ),
        field("delay", Shape::Seconds, "Wait before the second try; 1 s unless set."),
        field("max_delay", Shape::Seconds, "Longest wait."),
        field("jitter", Shape::Number(0.0, 1.0), "The wait varies by this fraction."),
        field("budget", Shape::Seconds, "What the step may take in all, waits included."),
        field(
            "only",
            Shape::List(&Shape::Steps(Part::Only)),
            "Only after these kinds, exit codes or `re:` messages.",
        ),
    ],
};

static MAP: Object = Object {
    name: "a map",
    id: "map",
    shorthand: None,
    check: None,
    fields: &[
        field("items", Shape::Steps(Part::Items), "Where items come from.").required(),
        field("where", EXPRESSION, "Only items for which this holds.").alias(&["filter"]),
        field("sort", TEXTS, "Fields to sort by; `-` in front turns the order around."),
        field("limit", Shape::Int(0, COUNT), "At most this many items.").alias(&["max_items"]),
        field("key", EXPRESSION, "What identifies an item; the item itself unless set."),
        field("max_parallel", Shape::Int(1, COUNT), "Items at once; as many as fit unless set."),
        field(
            "tolerate",
            Shape::Steps(Part::Tolerate),
            "Failed items that the map tolerates, as number or share.",
        ),
        field("fail_fast", Shape::Bool, "Cancel what has not started once too many items failed."),
        field("parallel", Shape::Refused("write `max_parallel`"), "Not supported."),
        field("operation", Shape::Refused("write the `steps` of the job"), "Not supported."),
    ],
};

static ITEMS: Object = Object {
    name: "a source of items",
    id: "items",
    shorthand: None,
    check: Some(check_items),
    fields: &[
        field("file", Shape::Line, "A file with one item per line, a JSON array or JSONL."),
        field("command", Shape::Text, "A shell command that prints the same."),
        field("user_data", Shape::Name, "User data that an earlier job produces."),
        field("select", Shape::Text, "Which part of it, such as `$.items[*]`."),
    ],
};

static AGENT: Object = Object {
    name: "an agent",
    id: "agent",
    shorthand: Some("command"),
    check: None,
    fields: &[
        field(
            "command",
            Shape::Steps(Part::AgentCommand),
            "Program and arguments; `claude -p` unless set.",
        ),
        field("timeout", Shape::Timeout, "A call is ended after this long."),
        field("max_calls", Shape::Int(0, COUNT), "Calls in the whole workflow."),
        field("max_parallel", Shape::Int(1, COUNT), "Calls at once in the whole workflow."),
        field(
            "permissions",
            Shape::Word(|| vec!["ask", "edit", "all"]),
            "What it may do without asking; `ask` unless set.",
        ),
        field("dry_run", Shape::Bool, "Print prompts instead of calling."),
    ],
};

/// Reads one part into its canonical form.
pub fn read(reader: &mut Reader<'_>, node: Node, part: Part) -> Option<Node> {
    match part {
        Part::Steps => steps(reader, node),
        Part::Handler => handler(reader, node),
        Part::Map => reader.object(node, &MAP),
        Part::Reduce => reader.shape(node, &Shape::Name),
        Part::Resume => reader.shape(node, &Shape::Word(|| vec!["start", "step"])),
        Part::Dir => reader.shape(node, &Shape::Line),
        Part::Agent => reader.object(node, &AGENT),
        Part::AgentCommand => agent_command(reader, node),
        Part::Capture => capture(reader, node),
        Part::Expression => expression(reader, node),
        Part::Only => {
            checked(reader, node, "a kind of failure", |text| Only::parse(text).map(|_| ()))
        }
        Part::Items => items(reader, node),
        Part::Tolerate => {
            checked(reader, node, "a number or a share", |text| Tolerate::parse(text).map(|_| ()))
        }
    }
}

fn checked(
    reader: &mut Reader<'_>,
    node: Node,
    what: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Option<Node> {
    let node = reader.text(node, what)?;
    match check(&template::blank(node.as_text().unwrap_or_default(), false)) {
        Ok(()) => Some(node),
        Err(message) => {
            reader.report(node.span, Diagnostic::error(message).label(format!("expected {what}")));
            None
        }
    }
}

fn expression(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    checked(reader, node, "an expression", |text| {
        Expr::parse(text)
            .map(|_| ())
            .map_err(|error| format!("`{}` cannot be read: {error}", excerpt(text)))
    })
}

/// A string is shell; `claude:` or `shell:` in front of it selects.
fn string_step(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    let span = node.span;
    let node = reader.text(node, "a command")?;
    let text = node.as_text().unwrap_or_default();
    let (key, text) = match (text.strip_prefix("claude:"), text.strip_prefix("shell:")) {
        (Some(prompt), _) => ("claude", prompt.trim_start()),
        (_, Some(command)) => ("shell", command.trim_start()),
        _ => ("shell", text),
    };
    if text.trim().is_empty() {
        reader.report(span, Diagnostic::error("the command is empty"));
        return None;
    }
    let first = text.split(' ').next().unwrap_or_default();
    let is_slash = first.len() > 1
        && first.starts_with('/')
        && first[1..]
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-'));
    if key == "shell" && is_slash {
        let message = format!("`{}` runs as a shell command", excerpt(first));
        let help = format!("did you mean `claude: \"{}\"`?", excerpt(text));
        reader.report(span, Diagnostic::warning(message).help(help));
    }
    Some(map(span, vec![(key, Node::text(text, span))]))
}

fn map(span: Span, entries: Vec<(&str, Node)>) -> Node {
    let entries = entries
        .into_iter()
        .map(|(key, value)| Entry { key: key.to_owned().into(), key_span: span, value })
        .collect();
    Node::new(Kind::Map(entries), span)
}

fn list(items: Vec<Node>, span: Span) -> Node {
    Node::new(Kind::List(items), span)
}

fn steps(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    let span = node.span;
    let items = match node.kind {
        Kind::List(items) => items,
        Kind::Null => {
            reader.report(span, Diagnostic::error("expected steps, found nothing"));
            return None;
        }
        kind => vec![Node::new(kind, span)],
    };
    let mut read: Vec<Node> = Vec::with_capacity(items.len());
    let mut lost = false;
    for (index, item) in items.into_iter().enumerate() {
        let found = reader.inside(index, |reader| match &item.kind {
            Kind::Map(entries)
                if !entries.is_empty() && entries.iter().all(|e| is_attachment(&e.key)) =>
            {
                attach(reader, item, &mut read, lost);
                Some(None)
            }
            Kind::Map(_) => reader.object(item, &STEP).map(Some),
            _ => string_step(reader, item).map(Some),
        });
        match found {
            Some(Some(step)) => read.push(step),
            Some(None) => {}
            None => lost = true,
        }
    }
    Some(list(read, span))
}

fn is_attachment(key: &str) -> bool {
    matches!(key, "on_failure" | "on_success")
}

/// `- on_failure:` alone belongs to the step before it.
fn attach(reader: &mut Reader<'_>, item: Node, steps: &mut [Node], lost: bool) {
    let Kind::Map(entries) = item.kind else { return };
    for entry in entries {
        let Some(Kind::Map(step)) = steps.last_mut().map(|node| &mut node.kind) else {
            // After a step that could not be read, one message is enough.
            if !lost {
                let message = format!("`{}` stands alone and follows no step", entry.key);
                let help = format!(
                    "put it after the step that it belongs to, or inside that step as `{}:`",
                    entry.key
                );
                reader.report(entry.key_span, Diagnostic::error(message).help(help));
            }
            return;
        };
        if let Some(first) = step.iter().find(|other| other.key == entry.key) {
            let place = reader.place(first.key_span);
            let message = format!("the step before this has an `{}` already", entry.key);
            reader.report(entry.key_span, Diagnostic::error(message).remark_at("here", place));
            return;
        }
        let part = if entry.key == "on_failure" { Part::Handler } else { Part::Steps };
        if let Some(value) = read(reader, entry.value, part) {
            step.push(Entry { key: entry.key, key_span: entry.key_span, value });
            // The canonical order of keys, so that both ways of writing it are the same.
            step.sort_by_key(|entry| STEP.fields.iter().position(|field| field.key == entry.key));
        }
    }
}

fn handler(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    let span = node.span;
    let Kind::Map(entries) = node.kind else {
        let commands = steps(reader, node)?;
        return reader.object(map(span, vec![("commands", commands)]), &HANDLER);
    };
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let action = ACTIONS.into_iter().find(|key| has(key));
    match (has("commands"), action) {
        (true, Some(action)) => {
            let message = format!("a handler has either `commands` or `{action}`, not both");
            reader.report(
                span,
                Diagnostic::error(message).help("put everything that it runs into `commands`"),
            );
            None
        }
        (true, None) => reader.object(Node::new(Kind::Map(entries), span), &HANDLER),
        (false, Some(_)) => {
            let is_own = |entry: &Entry| HANDLER.field(&entry.key, false).is_some();
            let (mut own, step): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(is_own);
            let step = Node::new(Kind::Map(step), span);
            own.insert(0, Entry { key: "commands".into(), key_span: span, value: step });
            reader.object(Node::new(Kind::Map(own), span), &HANDLER)
        }
        (false, None) => {
            let known = HANDLER.fields.iter().chain(STEP.fields).map(|field: &Field| field.key);
            let near = entries
                .iter()
                .find_map(|entry| nearest(&entry.key, known.clone()).map(|key| (entry, key)));
            let help = match near {
                Some((entry, key)) if entry.key != key => {
                    format!("did you mean `{key}` instead of `{}`?", entry.key)
                }
                _ => "give it `commands`, or one of `shell`, `claude`, `validate`, `steps`".into(),
            };
            reader.report(span, Diagnostic::error("this handler runs nothing").help(help));
            None
        }
    }
}

fn given<'a>(node: &'a Node, key: &str) -> Option<&'a Entry> {
    node.entry(key).filter(|entry| !matches!(entry.value.kind, Kind::Null))
}

fn check_step(reader: &mut Reader<'_>, node: &Node) {
    // A key with a wrong value counts: that mistake has been reported.
    let actions: Vec<&Entry> =
        ["shell", "claude", "steps"].iter().filter_map(|key| node.entry(key)).collect();
    match actions.as_slice() {
        [] if node.entry("validate").is_none() => {
            let help = "give it one of `shell`, `claude`, `validate`, `steps`";
            reader.report(node.span, Diagnostic::error("this step does nothing").help(help));
        }
        [first, second, ..] => {
            let message =
                format!("a step has either `{}` or `{}`, not both", first.key, second.key);
            let place = reader.place(first.key_span);
            let diagnostic = Diagnostic::error(message).remark_at("the other one", place);
            reader.report(second.key_span, diagnostic.help("make it two steps"));
        }
        _ => {}
    }
    for key in ["shell", "claude"] {
        if let Some(entry) = given(node, key)
            && entry.value.as_text().is_some_and(|text| text.trim().is_empty())
        {
            reader.report(entry.value.span, Diagnostic::error(format!("`{key}` is empty")));
        }
    }
    let own = given(node, "handler_failure_fatal");
    let inner = node.get("on_failure").and_then(|handler| given(handler, "handler_failure_fatal"));
    if let (Some(own), Some(inner)) = (own, inner)
        && matches!((&own.value.kind, &inner.value.kind), (Kind::Bool(a), Kind::Bool(b)) if a != b)
    {
        let message =
            "`handler_failure_fatal` of the step and of its handler contradict each other";
        let place = reader.place(inner.key_span);
        reader.report(own.key_span, Diagnostic::error(message).remark_at("the handler's", place));
    }
    if let Some(own) = own
        && node.entry("on_failure").is_none()
    {
        let message = "`handler_failure_fatal` has no effect without `on_failure`";
        reader.report(own.key_span, Diagnostic::warning(message));
    }
}

fn check_handler(reader: &mut Reader<'_>, node: &Node) {
    if let Some(commands) = node.entry("commands")
        && matches!(&commands.value.kind, Kind::List(commands) if commands.is_empty())
    {
        reader.report(commands.key_span, Diagnostic::error("this handler runs nothing"));
    }
    let strategy = node.get("strategy").and_then(Node::as_text).unwrap_or("recovery");
    if let Some(attempts) = given(node, "max_attempts")
        && matches!(strategy, "cleanup" | "fallback")
        && !matches!(&attempts.value.kind, Kind::Number(number, _) if number.as_i64() == Some(1))
    {
        let message = format!("a `{strategy}` handler runs once, so `max_attempts` means nothing");
        let help = "only `recovery` and `custom` run again what failed";
        reader.report(attempts.key_span, Diagnostic::error(message).help(help));
    }
}

fn capture(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    let span = node.span;
    let entries = match node.kind {
        Kind::Map(entries) => entries,
        _ => {
            let name =
                reader.text(node, "the name of a variable, or a map of names and sources")?;
            let key = name.as_text().unwrap_or_default().to_owned();
            vec![Entry { key: key.into(), key_span: span, value: Node::text("stdout", span) }]
        }
    };
    let mut read = Vec::with_capacity(entries.len());
    for entry in entries {
        let is_name = entry.key.starts_with(|c: char| c.is_ascii_lowercase())
            && entry.key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !is_name {
            let message = format!("`{}` cannot be the name of a variable", excerpt(&entry.key));
            let help = "use small letters, digits and `_`, and begin with a letter";
            reader.report(entry.key_span, Diagnostic::error(message).help(help));
            continue;
        }
        // `files` and `user_data` are groups of names; a capture beside them takes nothing away.
        if RESERVED.contains(&&*entry.key) && !matches!(&*entry.key, "files" | "user_data") {
            let message = format!("`{}` exists already and cannot be captured", entry.key);
            reader.report(entry.key_span, Diagnostic::error(message).help("choose another name"));
            continue;
        }
        let value = checked(reader, entry.value, "a source", |text| {
            CaptureSource::parse(text).map(|_| ())
        })?;
        read.push(Entry { key: entry.key, key_span: entry.key_span, value });
    }
    Some(Node::new(Kind::Map(read), span))
}

fn items(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    match &node.kind {
        Kind::List(_) => Some(node),
        Kind::Map(_) => reader.object(node, &ITEMS),
        _ => {
            let help =
                "write a list, `{file: items.json}`, `{command: \"ls\"}` or `{user_data: name}`";
            let message = format!("expected items, found {}", node.kind_name());
            reader.report(node.span, Diagnostic::error(message).help(help));
            None
        }
    }
}

fn check_items(reader: &mut Reader<'_>, node: &Node) {
    let sources = ["file", "command", "user_data"];
    let given: Vec<&Entry> = sources.iter().filter_map(|key| node.entry(key)).collect();
    if given.len() != 1 {
        let message = "items come from exactly one of `file`, `command` and `user_data`";
        reader.report(node.span, Diagnostic::error(message));
    }
    if let Some(select) = node.get("select").filter(|select| select.as_text().is_some())
        && let Err(message) =
            Select::parse(&template::blank(select.as_text().unwrap_or_default(), false))
    {
        reader.report(select.span, Diagnostic::error(message));
    }
}

fn agent_command(reader: &mut Reader<'_>, node: Node) -> Option<Node> {
    let span = node.span;
    let words = match node.kind {
        Kind::List(_) => reader.shape(node, &TEXTS)?,
        _ => {
            let text = reader.text(node, "a program and its arguments")?;
            let words = text.as_text().unwrap_or_default().split_whitespace();
            list(words.map(|word| Node::text(word, span)).collect(), span)
        }
    };
    if words.items().is_empty() {
        reader.report(span, Diagnostic::error("the agent has no program"));
        return None;
    }
    Some(words)
}

/// The keys that a part may have, if it is a map with known keys.
pub fn part_object(part: Part) -> Option<&'static Object> {
    match part {
        Part::Steps => Some(&STEP),
        Part::Handler => Some(&HANDLER),
        Part::Map => Some(&MAP),
        Part::Items => Some(&ITEMS),
        Part::Agent => Some(&AGENT),
        Part::Reduce
        | Part::Resume
        | Part::Dir
        | Part::AgentCommand
        | Part::Capture
        | Part::Expression
        | Part::Only
        | Part::Tolerate => None,
    }
}
