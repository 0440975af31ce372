//! The results as a page and a picture.

use super::{Row, SchedResults};
use crate::Result;
use std::fmt::Write as _;

const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

/// The tables, in Markdown.
pub fn text(results: &SchedResults) -> String {
    let mut text = String::new();
    for table in &results.tables {
        let count = table.rows.first().map_or(0, |row| row.ratios.len());
        let _ = writeln!(text, "**{}** ({count} instances)\n", table.title);
        text += "| scheduler | mean | p90 | max | within 5% |\n|---|---|---|---|---|\n";
        for row in &table.rows {
            let _ = writeln!(
                text,
                "| {} | {:.3} | {:.3} | {:.3} | {:.0}% |",
                row.name,
                row.mean(),
                row.quantile(0.9),
                row.quantile(1.0),
                row.close() * 100.0
            );
        }
        text.push('\n');
    }
    text += "| figure | value |\n|---|---|\n";
    for (name, value) in &results.figures {
        let value = if *value >= 1000.0 {
            torc_model::words::grouped(value.round() as i64)
        } else {
            format!("{value:.3}")
        };
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text
}

/// Puts the results between the marks of the page.
pub fn insert(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).ok_or("the page has no mark for the results")?;
    let (_, after) = rest.split_once(END).ok_or("the page has no mark for the results' end")?;
    Ok(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

/// Tells which means have become worse since the kept results.
pub fn compare(kept: &SchedResults, now: &SchedResults) {
    for table in &now.tables {
        let Some(old) = kept.tables.iter().find(|old| old.title == table.title) else { continue };
        for row in &table.rows {
            let before = old.row(&row.name);
            if before.ratios.len() == row.ratios.len() && row.mean() > before.mean() * 1.002 {
                let (title, name) = (&table.title, &row.name);
                println!(
                    "worse than published: {title}: {name}: {:.3}, was {:.3}",
                    row.mean(),
                    before.mean()
                );
            }
        }
    }
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const MARGIN: f64 = 50.0;
const COLORS: [&str; 5] = ["#8a8a8a", "#d08a2e", "#3a7fb5", "#2b8a4b", "#7a3fa0"];
const SHOWN: [&str; 5] = [
    "submission order, first fit (before)",
    "Torc, first run",
    "Torc, families known",
    "Torc, each job known to 10%",
    "best of 40 perturbed orders",
];

/// The first table as curves: the share of instances that are at most so far from the bound.
pub fn svg(results: &SchedResults) -> String {
    let top = 1.5;
    let x = |share: f64| MARGIN + share * (WIDTH - 2.0 * MARGIN);
    let y = |ratio: f64| {
        HEIGHT - MARGIN - (ratio.min(top) - 1.0) / (top - 1.0) * (HEIGHT - 2.0 * MARGIN)
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for step in 0..=5 {
        let ratio = 1.0 + f64::from(step) * 0.1;
        let _ = writeln!(
            text,
            "<line x1=\"{:.0}\" x2=\"{:.0}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/><text x=\"{3:.0}\" y=\"{4:.1}\" text-anchor=\"end\">{ratio:.1}</text>",
            x(0.0),
            x(1.0),
            y(ratio),
            x(0.0) - 6.0,
            y(ratio) + 4.0
        );
    }
    let title = results.tables.first().map_or("", |table| table.title.as_str());
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"22\" font-size=\"14\">{title}, instances from best to worst</text>",
        x(0.0)
    );
    let rows: Vec<Row> = SHOWN
        .iter()
        .map(|name| results.tables.first().map_or_else(Row::default, |t| t.row(name)))
        .collect();
    for (number, row) in rows.iter().enumerate().filter(|(_, row)| !row.ratios.is_empty()) {
        let sorted = row.sorted();
        let last = (sorted.len() - 1).max(1) as f64;
        let points: Vec<String> = sorted
            .iter()
            .enumerate()
            .map(|(at, ratio)| format!("{:.1},{:.1}", x(at as f64 / last), y(*ratio)))
            .collect();
        let color = COLORS[number];
        let _ = writeln!(
            text,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
        let at = 52.0 + 18.0 * number as f64;
        let _ = writeln!(
            text,
            "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{color}\"/><text x=\"{:.0}\" y=\"{:.0}\">{} (mean {:.3})</text>",
            x(0.03),
            at,
            x(0.03) + 20.0,
            at + 6.0,
            row.name,
            row.mean()
        );
    }
    text + "</svg>\n"
}
