//! From parameter texts to the rows of values that an entry is expanded with.

use crate::document::{Mode, ParametersSpec};
use crate::values;
use serde_json::{Map, Value};

/// Every combination of values for one entry.
#[derive(Debug, Default)]
pub struct ParameterRows {
    names: Vec<String>,
    columns: Vec<Vec<Value>>,
    mode: Mode,
    count: usize,
}

/// Why there are no rows.
#[derive(Debug)]
pub enum RowsError {
    /// A name in `use_parameters` that the workflow does not define.
    Unknown { index: usize, name: String },
    /// Lists of different lengths side by side.
    Lengths { first: (String, usize), other: (String, usize) },
    /// The values of one parameter cannot be read.
    Value { name: String, error: values::ValueError },
    /// Too many combinations.
    Many,
}

/// More instances than this are refused, over the whole workflow.
pub const MAX_INSTANCES: usize = 1_000_000;

impl ParameterRows {
    /// The rows of an entry: its own parameters alone, or those it takes from the workflow.
    pub fn new(
        own: ParametersSpec<'_>,
        shared: &Map<String, Value>,
        shared_mode: Mode,
    ) -> Result<Self, RowsError> {
        let from_own = !own.parameters.is_empty();
        let mode = own.parameter_mode.unwrap_or(if from_own { Mode::Product } else { shared_mode });
        let mut names = Vec::new();
        let mut columns = Vec::new();
        let mut add = |name: &str, value: &Value| {
            let values = match value {
                Value::Array(items) => items.clone(),
                Value::String(text) => values::parameter_text(text)
                    .map_err(|error| RowsError::Value { name: name.into(), error })?,
                single => vec![single.clone()],
            };
            names.push(name.to_owned());
            columns.push(values);
            Ok(())
        };
        if from_own {
            own.parameters.iter().try_for_each(|(name, value)| add(name, value))?;
        } else {
            for (index, name) in own.use_parameters.iter().enumerate() {
                let value = shared
                    .get(name)
                    .ok_or_else(|| RowsError::Unknown { index, name: name.clone() })?;
                if !own.use_parameters[..index].contains(name) {
                    add(name, value)?;
                }
            }
        }
        let count = match mode {
            Mode::Product => columns
                .iter()
                .try_fold(1usize, |count, column| count.checked_mul(column.len()))
                .ok_or(RowsError::Many)?,
            Mode::Zip => {
                let first = columns.first().map_or(1, Vec::len);
                if let Some(other) = columns.iter().position(|column| column.len() != first) {
                    let of = |index: usize| (names[index].clone(), columns[index].len());
                    return Err(RowsError::Lengths { first: of(0), other: of(other) });
                }
                first
            }
        };
        if count > MAX_INSTANCES {
            return Err(RowsError::Many);
        }
        Ok(Self { names, columns, mode, count })
    }

    /// The names, in the order of the file.
    pub fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// How many rows there are; one without parameters.
    pub fn len(&self) -> usize {
        self.count
    }

    /// One row; the last parameter changes fastest.
    pub fn row(&self, index: usize) -> Vec<&Value> {
        match self.mode {
            Mode::Zip => self.columns.iter().map(|column| &column[index]).collect(),
            Mode::Product => {
                let mut rest = index;
                let from_last = self.columns.iter().rev().map(|column| {
                    let value = &column[rest % column.len()];
                    rest /= column.len();
                    value
                });
                let mut row: Vec<&Value> = from_last.collect();
                row.reverse();
                row
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_parameter_changes_fastest() {
        let Value::Object(parameters) = json!({"b": "1:2", "a": ["x", "y", "z"]}) else {
            unreachable!()
        };
        let spec =
            ParametersSpec { parameters: &parameters, parameter_mode: None, use_parameters: &[] };
        let rows = ParameterRows::new(spec, &Map::new(), Mode::Product).unwrap();
        let all: Vec<String> = (0..rows.len())
            .map(|index| {
                let row = rows.row(index);
                format!("{}{}", row[0], row[1].as_str().unwrap())
            })
            .collect();
        assert_eq!(rows.names(), ["b", "a"]);
        assert_eq!(all, ["1x", "1y", "1z", "2x", "2y", "2z"]);
    }
}
