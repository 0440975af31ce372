//! `parameters_file`: rows of a CSV, JSON or JSONL file, written out as parameters that go side by
//! side.

use crate::diagnostic::{Diagnostic, Diagnostics, SourceMap, excerpt};
use crate::node::{Entry, Kind, Node, Span};
use crate::packed::change;
use crate::source::{Source, read_limited};
use crate::{template, values};
use serde_json::{Map, Number, Value};
use std::path::Path;

/// Replaces every `parameters_file` in a canonical tree.
pub fn parameters_files(
    tree: &mut Node,
    map: &SourceMap,
    base_dir: Option<&Path>,
    found: &mut Diagnostics,
) {
    let constants: Vec<(String, String)> = match tree.get("variables").map(|node| &node.kind) {
        Some(Kind::Map(entries)) => entries
            .iter()
            .map(|e| (e.key.to_string(), e.value.as_text().unwrap_or_default().to_owned()))
            .collect(),
        _ => Vec::new(),
    };
    let shared: Option<Vec<String>> = tree.entry("parameters_file").map(|entry| {
        let columns = columns(&entry.value, base_dir, &constants);
        columns
            .map(|columns| columns.into_iter().map(|(name, _)| name).collect())
            .unwrap_or_default()
    });
    let mut inline = |node: &mut Node, path: String| {
        if let Some(entry) = node.entry("use_parameters_file").cloned() {
            match &shared {
                Some(names) => take_rows(node, &entry, names),
                None => {
                    let message = "the workflow has no `parameters_file`";
                    let place = map.place(entry.key_span, format!("{path}use_parameters_file"));
                    found.push(Diagnostic::error(message).at(place));
                }
            }
        }
        let Some(entry) = node.entry("parameters_file").cloned() else { return };
        match columns(&entry.value, base_dir, &constants) {
            Ok(columns) => replace(node, &entry, columns),
            Err(diagnostic) => found.push(
                (*diagnostic).at(map.place(entry.value.span, format!("{path}parameters_file"))),
            ),
        }
    };
    inline(tree, String::new());
    for key in ["files", "user_data", "jobs"] {
        let Kind::Map(entries) = &mut tree.kind else { return };
        let Some(list) = entries.iter_mut().find(|entry| entry.key == key) else { continue };
        match &mut list.value.kind {
            Kind::List(items) => items
                .iter_mut()
                .enumerate()
                .for_each(|(index, item)| inline(item, format!("{key}[{index}]."))),
            Kind::Long(items)
                if items.mentions("parameters_file") || items.mentions("use_parameters_file") =>
            {
                change(items, |index, item| inline(item, format!("{key}[{index}].")));
            }
            _ => {}
        }
    }
}

/// `use_parameters` with every column in the place of `use_parameters_file: true`.
fn take_rows(node: &mut Node, flag: &Entry, names: &[String]) {
    let Kind::Map(entries) = &mut node.kind else { return };
    let Some(at) = entries.iter().position(|entry| entry.key == "use_parameters_file") else {
        return;
    };
    entries.remove(at);
    if flag.value.is_true() {
        let span = flag.value.span;
        let names = names.iter().map(|name| Node::text(name.as_str(), span)).collect();
        let value = Node::new(Kind::List(names), span);
        let key = "use_parameters".to_owned().into();
        entries.insert(at, Entry { key, key_span: flag.key_span, value });
    }
}

/// `parameters` and `parameter_mode: zip` in the place of the file, in the canonical order of keys.
fn replace(node: &mut Node, file: &Entry, columns: Map<String, Value>) {
    let span = file.value.span;
    let entry = |key: &str, mut value: Node| {
        cover(&mut value, span);
        Entry { key: key.to_owned().into(), key_span: file.key_span, value }
    };
    let Kind::Map(entries) = &mut node.kind else { return };
    if let Some(at) = entries.iter().position(|entry| entry.key == "parameters_file") {
        entries.remove(at);
        entries.insert(at, entry("parameters", Node::from_value(Value::Object(columns))));
        entries.insert(at + 1, entry("parameter_mode", Node::text("zip", Span::NONE)));
    }
}

fn cover(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.kind {
        Kind::List(items) => items.iter_mut().for_each(|item| cover(item, span)),
        Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_span = span;
            cover(&mut entry.value, span);
        }),
        _ => {}
    }
}

fn columns(
    file: &Node,
    base_dir: Option<&Path>,
    constants: &[(String, String)],
) -> Result<Map<String, Value>, Box<Diagnostic>> {
    let constants: Vec<(&str, &str)> =
        constants.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let name = template::substitute(file.as_text().unwrap_or_default(), &constants)
        .map_err(|error| Diagnostic::error(error.message))?;
    let Some(base_dir) = base_dir else {
        let message = "a parameters file can only be read where the spec file is";
        return Err(Diagnostic::error(message)
            .help("create the workflow with `torc create`, which sends the rows along")
            .into());
    };
    // Beside the spec, else in the directory where the command was given, as Torc 1.0 has it.
    let beside = base_dir.join(&name);
    let path = match beside.exists() || !Path::new(&name).exists() {
        true => beside,
        false => Path::new(&name).to_owned(),
    };
    let fail = |error: std::io::Error| {
        Diagnostic::error(format!("cannot read `{}`: {error}", path.display()))
    };
    let bytes = torc_fs::open(&path, torc_fs::Trust::Regular)
        .and_then(|mut file| read_limited(&mut file))
        .map_err(fail)?;
    if bytes.len() > Source::MAX_BYTES {
        return Err(Diagnostic::error(format!(
            "`{name}` is larger than {} MiB",
            Source::MAX_BYTES >> 20
        ))
        .into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Diagnostic::error(format!("`{name}` is not UTF-8 text")))?;
    let text = text.trim_start_matches('\u{FEFF}');
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or("")
        .to_ascii_lowercase();
    let rows = match extension.as_str() {
        "csv" => csv(text, ','),
        "tsv" => csv(text, '\t'),
        "json" => json(text),
        "jsonl" | "ndjson" => json_lines(text),
        _ => {
            return Err(Diagnostic::error(format!("`{}` has no known extension", excerpt(&name)))
                .help("use `.csv`, `.tsv`, `.json` or `.jsonl`")
                .into());
        }
    };
    rows.and_then(transpose)
        .map_err(|message| Diagnostic::error(format!("`{}`: {message}", excerpt(&name))).into())
}

type Row = Map<String, Value>;

/// From rows to one list of values per name; every row must have the same names.
fn transpose(rows: Vec<Row>) -> Result<Map<String, Value>, String> {
    let Some(first) = rows.first() else { return Err("there are no rows".into()) };
    if rows.len() > values::MAX_VALUES {
        return Err(format!("there are more than {} rows", values::MAX_VALUES));
    }
    let names: Vec<String> = first.keys().cloned().collect();
    if let Some(bad) = names.iter().find(|name| !template::is_identifier(name)) {
        return Err(format!(
            "`{}` cannot be the name of a parameter: use letters, digits and `_`",
            excerpt(bad)
        ));
    }
    let mut columns: Vec<Vec<Value>> =
        names.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for (index, mut row) in rows.into_iter().enumerate() {
        for (name, column) in names.iter().zip(&mut columns) {
            match row.remove(name) {
                Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
                    column.push(value)
                }
                Some(_) => {
                    return Err(format!(
                        "row {}: `{name}` is not a text, a number or a boolean",
                        index + 1
                    ));
                }
                None => return Err(format!("row {} has no `{name}`", index + 1)),
            }
        }
        if let Some(extra) = row.keys().next() {
            return Err(format!(
                "row {} has `{}`, which the first row does not have",
                index + 1,
                excerpt(extra)
            ));
        }
    }
    Ok(names.into_iter().zip(columns.into_iter().map(Value::from)).collect())
}

fn json(text: &str) -> Result<Vec<Row>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a list of objects: {error}"))
}

fn json_lines(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
        })
        .collect()
}

/// RFC 4180: quotes protect separators and line breaks, a doubled quote is a quote.
fn csv(text: &str, separator: char) -> Result<Vec<Row>, String> {
    let mut records = Vec::new();
    let mut record: Vec<String> = Vec::new();
    let mut field = String::new();
    let mut chars = text.chars().peekable();
    let (mut quoted, mut line) = (false, 1usize);
    while let Some(c) = chars.next() {
        line += usize::from(c == '\n');
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            c if quoted => field.push(c),
            c if c == separator => record.push(std::mem::take(&mut field)),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                record.push(std::mem::take(&mut field));
                records.push((line - 1, std::mem::take(&mut record)));
            }
            c => field.push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push((line, record));
    }
    let mut records =
        records.into_iter().filter(|(_, record)| record.len() > 1 || !record[0].trim().is_empty());
    let Some((_, header)) = records.next() else { return Err("the file is empty".into()) };
    let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
    if let Some((_, twice)) =
        header.iter().enumerate().find(|(index, name)| header[..*index].contains(name))
    {
        return Err(format!("column `{}` occurs twice", excerpt(twice)));
    }
    records
        .map(|(line, record)| {
            if record.len() != header.len() {
                return Err(format!(
                    "line {line} has {} fields, the header has {}",
                    record.len(),
                    header.len()
                ));
            }
            Ok(header.iter().cloned().zip(record.iter().map(|field| csv_value(field))).collect())
        })
        .collect()
}

/// A number only if it prints as it was written: `007` and `1.10` stay text.
fn csv_value(field: &str) -> Value {
    let trimmed = field.trim();
    let number = trimmed
        .parse::<i64>()
        .ok()
        .map(Number::from)
        .or_else(|| trimmed.parse().ok().and_then(Number::from_f64));
    match number {
        Some(number) if template::display(&Value::Number(number.clone())) == trimmed => {
            Value::Number(number)
        }
        _ => Value::from(field),
    }
}
