//! Short forms of a whole file: `tasks`, a bare list, `setup`, `map` and `reduce` at the top become
//! jobs.

use crate::node::{Entry, Kind, Node, Span};
use crate::packed;
use std::sync::Arc;

/// Rewrites the short forms; everything else stays as it is, mistakes included.
pub fn desugar(tree: Node) -> Node {
    let span = tree.span;
    let mut entries = match tree.kind {
        Kind::List(_) => vec![entry("tasks", span, tree)],
        Kind::Map(entries) => entries,
        kind => return Node::new(kind, span),
    };
    let mut short: Vec<Entry> = Vec::new();
    let take = |entries: &mut Vec<Entry>, key: &str| {
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at))
    };
    let main = take(&mut entries, "tasks").or_else(|| take(&mut entries, "commands"));
    let setup = take(&mut entries, "setup");
    let map = take(&mut entries, "map");
    let reduce = take(&mut entries, "reduce");
    let mut before: Vec<&str> = Vec::new();
    for (name, part) in [("setup", setup), ("main", main)] {
        let Some(part) = part else { continue };
        let (key_span, mut job) =
            (part.key_span, vec![entry("name", part.key_span, text(name, part.key_span))]);
        job.push(entry("steps", key_span, commands(part.value)));
        job.extend(after(&before, key_span));
        short.push(entry("", key_span, Node::new(Kind::Map(job), key_span)));
        before = vec![name];
    }
    let has_map = map.is_some();
    if let Some(part) = map {
        let key_span = part.key_span;
        let mut job = vec![entry("name", key_span, text("map", key_span)), part];
        job.extend(after(&before, key_span));
        short.push(entry("", key_span, Node::new(Kind::Map(job), key_span)));
    }
    if let Some(part) = reduce.filter(|_| has_map) {
        let key_span = part.key_span;
        let job = vec![
            entry("name", key_span, text("reduce", key_span)),
            entry("reduce", key_span, text("map", key_span)),
            entry("steps", key_span, commands(part.value)),
        ];
        short.push(entry("", key_span, Node::new(Kind::Map(job), key_span)));
    }
    if !short.is_empty() {
        let jobs: Vec<Node> = short.into_iter().map(|entry| entry.value).collect();
        match entries
            .iter_mut()
            .find(|entry| entry.key == "jobs")
            .map(|entry| &mut entry.value.kind)
        {
            Some(Kind::List(known)) => known.extend(jobs),
            Some(Kind::Long(known)) => Arc::make_mut(known).extend(jobs),
            _ => entries.push(entry("jobs", span, Node::new(Kind::List(jobs), span))),
        }
        if !entries.iter().any(|entry| entry.key == "name") {
            entries.insert(0, entry("name", span, text("tasks", span)));
        }
    }
    match entries.iter_mut().find(|entry| entry.key == "jobs").map(|entry| &mut entry.value.kind) {
        Some(Kind::List(jobs)) => jobs.iter_mut().for_each(desugar_job),
        Some(Kind::Long(jobs)) if jobs.mentions("map") => {
            packed::change(jobs, |_, job| desugar_job(job))
        }
        _ => {}
    }
    declare_user_data(&mut entries, span);
    Node::new(Kind::Map(entries), span)
}

fn entry(key: &str, key_span: Span, value: Node) -> Entry {
    Entry { key: key.to_owned().into(), key_span, value }
}

fn text(word: &str, span: Span) -> Node {
    Node::text(word, span)
}

fn after(before: &[&str], span: Span) -> Option<Entry> {
    let names = before.iter().map(|name| text(name, span)).collect::<Vec<_>>();
    (!names.is_empty()).then(|| entry("depends_on", span, Node::new(Kind::List(names), span)))
}

/// `{commands: [...]}` stands for the list.
fn commands(node: Node) -> Node {
    match node.kind {
        Kind::Map(mut entries) if entries.len() == 1 && entries[0].key == "commands" => {
            entries.remove(0).value
        }
        kind => Node::new(kind, node.span),
    }
}

/// User data that a job with steps produces needs no entry of its own: the capture of that name is
/// its value.
fn declare_user_data(entries: &mut Vec<Entry>, span: Span) {
    let list = |node: &Node| match &node.kind {
        Kind::List(items) => items.clone(),
        Kind::Text(_) => vec![node.clone()],
        _ => Vec::new(),
    };
    let find =
        |key: &str| entries.iter().find(|entry| &*entry.key == key).map(|entry| &entry.value);
    let known: Vec<String> = find("user_data")
        .map(Node::items)
        .unwrap_or_default()
        .iter()
        .filter_map(|data| data.get("name").and_then(Node::as_text).map(str::to_owned))
        .collect();
    let mut missing: Vec<Node> = Vec::new();
    let mut look = |job: &Node| {
        let names = job.get("output_user_data").filter(|_| job.get("steps").is_some());
        for name in names.map(list).unwrap_or_default() {
            let Some(word) = name.as_text() else { continue };
            // A name with a parameter stands for many; those must be declared.
            let is_new = !known.iter().any(|known| known == word) && !word.contains('{');
            if is_new
                && !missing
                    .iter()
                    .any(|data| data.get("name").and_then(Node::as_text) == Some(word))
            {
                missing.push(Node::new(
                    Kind::Map(vec![entry("name", name.span, name.clone())]),
                    name.span,
                ));
            }
        }
    };
    match find("jobs").map(|jobs| &jobs.kind) {
        Some(Kind::List(jobs)) => jobs.iter().for_each(look),
        Some(Kind::Long(jobs)) if jobs.mentions("output_user_data") => {
            jobs.iter().for_each(|job| look(&job))
        }
        _ => {}
    }
    if missing.is_empty() {
        return;
    }
    match entries
        .iter_mut()
        .find(|entry| &*entry.key == "user_data")
        .map(|entry| &mut entry.value.kind)
    {
        Some(Kind::List(known)) => known.extend(missing),
        Some(_) => {}
        None => entries.push(entry("user_data", span, Node::new(Kind::List(missing), span))),
    }
}

/// `map.agent_template`, `map.input` with `map.json_path`, and `map.sort_by`.
fn desugar_job(job: &mut Node) {
    let Kind::Map(job) = &mut job.kind else { return };
    let Some(position) = job.iter().position(|entry| entry.key == "map") else { return };
    let Kind::Map(map) = &mut job[position].value.kind else { return };
    let mut take = |key: &str| {
        let at = map.iter().position(|entry| entry.key == key)?;
        Some(map.remove(at))
    };
    let template = take("agent_template");
    let (input, path, sort) = (take("input"), take("json_path"), take("sort_by"));
    if let Some(input) = input {
        let source = source(&input, path);
        map.insert(0, entry("items", input.key_span, source));
    } else if let Some(path) = path {
        map.push(path);
    }
    if let Some(sort) = sort {
        let key_span = sort.key_span;
        map.push(entry("sort", key_span, sort_fields(sort.value)));
    }
    if let Some(template) = template {
        let key_span = template.key_span;
        job.push(entry("steps", key_span, commands(template.value)));
    }
}

/// A name of a file, or something with a space in it: a command. Anything else is left for the
/// reader to refuse.
fn source(input: &Entry, path: Option<Entry>) -> Node {
    let span = input.value.span;
    let Some(word) = input.value.as_text() else { return input.value.clone() };
    let is_file = [".json", ".jsonl", ".txt"].iter().any(|ending| word.ends_with(ending))
        && !word.contains(' ');
    let key = match (is_file, word.contains(char::is_whitespace)) {
        (true, _) => "file",
        (false, true) => "command",
        (false, false) => return input.value.clone(),
    };
    let mut entries = vec![entry(key, input.key_span, input.value.clone())];
    entries.extend(path.map(|path| entry("select", path.key_span, path.value)));
    Node::new(Kind::Map(entries), span)
}

/// `"a DESC, b"` as `["-a", "b"]`.
fn sort_fields(node: Node) -> Node {
    let span = node.span;
    let Some(word) = node.as_text() else { return node };
    let fields = word.split(',').map(|field| {
        let mut words = field.split_whitespace();
        let name = words.next().unwrap_or_default();
        let name = name.strip_prefix("item.").unwrap_or(name);
        match words.next() {
            Some(direction) if direction.eq_ignore_ascii_case("desc") => {
                Node::text(format!("-{name}"), span)
            }
            _ => Node::text(name, span),
        }
    });
    Node::new(Kind::List(fields.collect()), span)
}
