//! KDL's nodes arranged as the shared tree, with the help of the key tables: lists are repeated
//! nodes, the first argument of a thing is its name.

use super::kdl::{self, KdlNode};
use super::{Builder, Stop};
use crate::diagnostic::SourceMap;
use crate::keys::{Field, Object, Shape, WORKFLOW};
use crate::node::{Entry, JOBS, Kind, Node, Span};
use crate::packed::Collector;

/// Reads a text into a tree.
pub fn parse(map: &SourceMap, builder: &mut Builder<'_>) -> Result<Node, Stop> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut jobs = Collector::default();
    let mut is_empty = true;
    // What is wrong with the arrangement matters only if the text as such is right.
    let mut arranged = Builder::new(map);
    kdl::parse(map, builder, &mut |node| {
        is_empty = false;
        match WORKFLOW.field(&node.name, true).filter(|field| field.key == JOBS) {
            Some(field) => {
                let key_span = node.name_span;
                let value = field_value(node, field.shape, &mut arranged);
                if !entries.iter().any(|entry| entry.key == JOBS) {
                    let list = Node::new(Kind::List(Vec::new()), value.span);
                    entries.push(Entry { key: field.key.into(), key_span, value: list });
                }
                jobs.push(value);
            }
            None => child(&mut entries, node, &WORKFLOW, &mut arranged),
        }
    })?;
    builder.errors.extend(arranged.errors);
    if is_empty {
        let help = "a workflow needs at least `name` and one `job`";
        return Err(builder.stop(Span::new(0, 0), "the file is empty", Some(help)));
    }
    let span = Span::new(0, map.text().trim_end().len());
    match entries.iter_mut().find(|entry| entry.key == JOBS) {
        Some(entry) => entry.value.kind = jobs.finish(),
        // A file without a single `job` is a workflow without jobs, which the reader speaks about.
        None => entries.push(Entry {
            key: JOBS.into(),
            key_span: span,
            value: Node::new(jobs.finish(), span),
        }),
    }
    Ok(Node::new(Kind::Map(builder.unique(entries)), span))
}

/// Children and properties of a thing with known keys.
fn object_entries(
    children: Vec<KdlNode>,
    properties: Vec<Entry>,
    object: &'static Object,
    builder: &mut Builder<'_>,
) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for property in properties {
        let Some(field) = object.field(&property.key, true) else {
            entries.push(property);
            continue;
        };
        let value =
            if takes_json(field.shape) { json_text(property.value) } else { property.value };
        add(&mut entries, field, property.key_span, value);
    }
    children.into_iter().for_each(|node| child(&mut entries, node, object, builder));
    entries
}

fn child(
    entries: &mut Vec<Entry>,
    node: KdlNode,
    object: &'static Object,
    builder: &mut Builder<'_>,
) {
    let key_span = node.name_span;
    match object.field(&node.name, true) {
        Some(field) => {
            let value = field_value(node, field.shape, builder);
            add(entries, field, key_span, value);
        }
        None => {
            let key = node.name.clone();
            let value = generic(node, builder);
            entries.push(Entry { key: key.into(), key_span, value });
        }
    }
}

/// Adds a value; further values of a list go into the list that is there.
fn add(entries: &mut Vec<Entry>, field: &'static Field, key_span: Span, value: Node) {
    let is_list = matches!(field.shape, Shape::List(_));
    if is_list
        && let Some(entry) = entries.iter_mut().find(|entry| entry.key == field.key)
        && let Kind::List(items) = &mut entry.value.kind
    {
        match value.kind {
            Kind::List(more) => items.extend(more),
            _ => items.push(value),
        }
        return;
    }
    let span = value.span;
    let value = match value.kind {
        Kind::List(_) => value,
        kind if is_list => Node::new(Kind::List(vec![Node::new(kind, span)]), span),
        kind => Node::new(kind, span),
    };
    entries.push(Entry { key: field.key.into(), key_span, value });
}

fn field_value(node: KdlNode, shape: Shape, builder: &mut Builder<'_>) -> Node {
    match shape {
        Shape::List(Shape::Object(object)) => thing(node, object, builder),
        Shape::Object(object) => {
            if object.shorthand.is_some()
                && node.arguments.len() == 1
                && node.children.is_none()
                && node.properties.is_empty()
            {
                return generic(node, builder);
            }
            thing(node, object, builder)
        }
        Shape::List(_) => {
            let span = node.span;
            match generic(node, builder) {
                list @ Node { kind: Kind::List(_), .. } => list,
                single => Node::new(Kind::List(vec![single]), span),
            }
        }
        Shape::Map(..) => {
            let span = node.span;
            if !node.arguments.is_empty() {
                builder.error(
                    span,
                    format!("`{}` takes keys, not values", node.name),
                    Some("write `{ key \"value\" }` after it"),
                );
            }
            let mut entries = node.properties;
            for child in node.children.into_iter().flatten() {
                let (key, key_span) = (child.name.clone(), child.name_span);
                let value = generic(child, builder);
                entries.push(Entry { key: key.into(), key_span, value });
            }
            Node::new(Kind::Map(builder.unique(entries)), span)
        }
        shape if takes_json(shape) => json_text(generic(node, builder)),
        _ => generic(node, builder),
    }
}

fn takes_json(shape: Shape) -> bool {
    matches!(shape, Shape::Json | Shape::Metadata)
}

/// KDL has no notation for any JSON, so a text that is JSON stands for its value.
fn json_text(node: Node) -> Node {
    let parsed = node.as_text().and_then(|text| serde_json::from_str(text).ok());
    match parsed {
        Some(value) => Node { span: node.span, ..Node::from_value(value) },
        None => node,
    }
}

/// `job "name" key="value" { ... }`
fn thing(node: KdlNode, object: &'static Object, builder: &mut Builder<'_>) -> Node {
    let span = node.span;
    let mut named = Vec::new();
    let mut arguments = node.arguments.into_iter();
    if object.field("name", false).is_some() {
        named.extend(arguments.next().map(|name| Entry {
            key: "name".into(),
            key_span: name.span,
            value: name,
        }));
    }
    if let Some(extra) = arguments.next() {
        let message = format!("`{}` takes no further value", node.name);
        builder.error(extra.span, message, Some("write keys as children: `{ key \"value\" }`"));
    }
    named.extend(object_entries(
        node.children.unwrap_or_default(),
        node.properties,
        object,
        builder,
    ));
    Node::new(Kind::Map(builder.unique(named)), span)
}

/// A node whose key is not known to be special: one argument is a value, several are a list,
/// children named `-` are the elements of a list, other children and properties are a map. `(list)`
/// and `(map)` before the name decide where that leaves a doubt: a list of nothing, a map whose
/// only key is `-`.
fn generic(node: KdlNode, builder: &mut Builder<'_>) -> Node {
    let span = node.span;
    let has_keys = node.children.is_some() || !node.properties.is_empty();
    if !has_keys {
        let mut arguments = node.arguments;
        return match arguments.len() {
            0 => {
                builder.error(span, format!("`{}` has no value", node.name), None);
                Node::new(Kind::Null, span)
            }
            1 => Node { span, ..arguments.remove(0) },
            _ => Node::new(Kind::List(arguments), span),
        };
    }
    if !node.arguments.is_empty() {
        builder.error(span, format!("`{}` has both values and keys", node.name), None);
    }
    let children = node.children.unwrap_or_default();
    let is_list = match node.annotation.as_deref() {
        Some("list") => true,
        Some("map") => false,
        _ => !children.is_empty(),
    };
    if is_list && node.properties.is_empty() && children.iter().all(|child| child.name == "-") {
        let items = children.into_iter().map(|child| generic(child, builder)).collect();
        return Node::new(Kind::List(items), span);
    }
    let mut entries = node.properties;
    for child in children {
        let (key, key_span) = (child.name.clone(), child.name_span);
        let value = generic(child, builder);
        entries.push(Entry { key: key.into(), key_span, value });
    }
    Node::new(Kind::Map(builder.unique(entries)), span)
}
