//! What was measured: as JSON, as a table, and as the tables and the picture in
//! `docs/benchmarks.md`.

use crate::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Everything that has been measured on a machine.
#[derive(Serialize, Deserialize, Default)]
pub struct Results {
    /// The machine.
    pub machine: String,
    /// The shell that all jobs were started with.
    pub shell: String,
    /// Each with its own date: a row can be measured again by itself.
    pub rows: Vec<Row>,
}

/// One measurement.
#[derive(Serialize, Deserialize, Clone)]
pub struct Row {
    /// Its name on the command line.
    pub name: String,
    /// What is done.
    pub about: String,
    /// When, and from which commit.
    pub measured: String,
    /// What came out.
    pub figures: Vec<Figure>,
}

/// One number.
#[derive(Serialize, Deserialize, Clone)]
pub struct Figure {
    /// What it says.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// In this.
    pub unit: String,
    /// What it should be.
    pub target: Option<FigureTarget>,
}

/// What a figure should be.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub enum FigureTarget {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

impl Figure {
    /// A number to know.
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.into(), target: None }
    }

    /// It should be this or less.
    pub fn at_most(self, value: f64) -> Self {
        Self { target: Some(FigureTarget::AtMost(value)), ..self }
    }

    /// It should be this or more.
    pub fn at_least(self, value: f64) -> Self {
        Self { target: Some(FigureTarget::AtLeast(value)), ..self }
    }

    fn is_met(&self) -> Option<bool> {
        self.target.map(|target| match target {
            FigureTarget::AtMost(limit) => self.value <= limit,
            FigureTarget::AtLeast(limit) => self.value >= limit,
        })
    }

    fn target_text(&self) -> String {
        match self.target {
            Some(FigureTarget::AtMost(limit)) => format!("<= {}", number(limit)),
            Some(FigureTarget::AtLeast(limit)) => format!(">= {}", number(limit)),
            None => String::new(),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        }
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (i, digit) in digits.chars().enumerate() {
                if i > 0 && (digits.len() - i).is_multiple_of(3) {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Results {
    /// What an earlier call kept, or nothing.
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Puts a row in the place of an older one with its name.
    pub fn put(&mut self, row: Row) {
        match self.rows.iter_mut().find(|known| known.name == row.name) {
            Some(known) => *known = row,
            None => self.rows.push(row),
        }
    }

    /// Keeps everything.
    pub fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }

    /// The tables for `docs/benchmarks.md`.
    pub fn markdown(&self) -> String {
        let mut text = format!("Machine: {}. Shell: `{}`.\n\n", self.machine, self.shell);
        text += "| row | figure | value | target | met |\n|---|---|---|---|---|\n";
        for row in &self.rows {
            for (n, figure) in row.figures.iter().enumerate() {
                let name = if n == 0 { format!("`{}`", row.name) } else { String::new() };
                let value = format!("{} {}", number(figure.value), figure.unit);
                let (target, met) = (figure.target_text(), figure.verdict());
                text += &format!(
                    "| {name} | {} | {} | {target} | {met} |\n",
                    figure.name,
                    value.trim_end()
                );
            }
        }
        text += "\nWhat each row does, and when it was measured:\n\n";
        for row in &self.rows {
            text += &format!("- `{}`: {} ({})\n", row.name, row.about, row.measured);
        }
        text
    }
}

/// One row for the terminal.
pub fn print(row: &Row) {
    println!("{}: {}", row.name, row.about);
    for figure in &row.figures {
        let value = format!("{} {}", number(figure.value), figure.unit);
        let verdict = match figure.is_met() {
            Some(true) => format!("  {} met", figure.target_text()),
            Some(false) => format!("  {} NOT MET", figure.target_text()),
            None => String::new(),
        };
        println!("  {:<44} {:>16}{verdict}", figure.name, value.trim_end());
    }
}

/// Between these lines `docs/benchmarks.md` is written by the benchmark.
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --publish` -->\n";
const END: &str = "<!-- end of results -->\n";

/// Puts the tables into the document.
pub fn publish(results: &Results, document: &Path) -> Result<()> {
    let text = std::fs::read_to_string(document)
        .map_err(|e| format!("cannot read `{}`: {e}", document.display()))?;
    let (head, rest) = text.split_once(BEGIN).ok_or("the document has no place for results")?;
    let (_, tail) = rest.split_once(END).ok_or("the document's place for results has no end")?;
    std::fs::write(document, format!("{head}{BEGIN}\n{}\n{END}{tail}", results.markdown()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        let texts: Vec<String> =
            [0.0312, 0.89, 1.5, 14.26, 150.4, 1600.2, 1_234_567.0].map(number).into();
        assert_eq!(texts, ["0.031", "0.890", "1.50", "14.3", "150", "1,600", "1,234,567"]);
    }

    #[test]
    fn a_figure_that_misses_its_target_says_so() {
        let slow = Figure::new("ratio", 0.5, "").at_least(0.8);
        let quick = Figure::new("time", 2.0, "ms").at_most(3.0);
        assert_eq!((slow.verdict(), quick.verdict()), ("**no**", "yes"));
        let row = Row {
            name: "r".into(),
            about: "a".into(),
            measured: "m".into(),
            figures: vec![slow, quick],
        };
        let mut results = Results::default();
        results.put(row.clone());
        results.put(row);
        assert_eq!(results.rows.len(), 1);
        assert!(results.markdown().contains("| `r` | ratio | 0.500 | >= 0.800 | **no** |"));
    }
}
