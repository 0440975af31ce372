//! JSON values whose texts may contain placeholders.

use crate::template::{Quoting, Template, TemplateError};
use serde_json::Value;

/// JSON whose texts are templates.
pub enum JsonTemplate {
    /// The same for all.
    Constant(Value),
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<Self>),
    /// A map; its keys are never templates.
    Map(Vec<(String, Self)>),
}

impl JsonTemplate {
    /// Cuts every text. In lenient data, braces around unknown words are the user's own.
    pub fn parse(value: &Value, names: &[&str], lenient: bool) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => match Template::parse(text, names, Quoting::Plain) {
                Ok(template) => Self::Text(template),
                Err(error) if lenient && error.unknown.is_some() => Self::Constant(value.clone()),
                Err(error) => return Err(error),
            },
            Value::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| Self::parse(item, names, lenient))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| {
                    Ok((key.clone(), Self::parse(value, names, lenient)?))
                };
                Self::Map(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            other => Self::Constant(other.clone()),
        })
    }

    /// Which parameters it uses.
    pub fn uses(&self) -> Vec<usize> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Text(template) => template.uses().collect(),
            Self::List(items) => items.iter().flat_map(Self::uses).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, value)| value.uses()).collect(),
        }
    }

    /// Fills in one row.
    pub fn fill(&self, row: &[&Value]) -> Result<Value, String> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Text(template) => Value::String(template.fill(row)?),
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.fill(row)).collect::<Result<_, _>>()?)
            }
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Self)| Ok((key.clone(), value.fill(row)?));
                Value::Object(entries.iter().map(entry).collect::<Result<_, String>>()?)
            }
        })
    }
}
