//! The analysis as text, and the graph as DOT, Mermaid and SVG.

use crate::analysis::{Analysis, Graph};
use crate::recovery;
use std::fmt::Write as _;
use torc_model::units::Runtime;
use torc_model::words::count;

impl Analysis {
    /// For a terminal: a summary, the stages with what each node waits for, the critical path, and
    /// who recovers what.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {}, {}, {}, at most {} at once",
            self.name,
            count(self.jobs, "job"),
            count(self.dependencies, "dependency"),
            count(self.stages.len(), "stage"),
            self.width
        );
        let waits = self.graph.parents();
        for (number, stage) in self.stages.iter().enumerate() {
            let _ = writeln!(out, "\nstage {}: {}", number + 1, count(stage.jobs, "job"));
            for node in &stage.nodes {
                let parents = &waits[*node];
                let mut names: Vec<&str> = parents
                    .iter()
                    .take(6)
                    .map(|parent| self.graph.nodes[*parent].name.as_str())
                    .collect();
                if parents.len() > 6 {
                    names.push("...");
                }
                let after = if names.is_empty() {
                    String::new()
                } else {
                    format!("  <- {}", names.join(", "))
                };
                let _ = writeln!(out, "  {}{after}", self.graph.nodes[*node].label());
            }
        }
        if !self.critical_path.is_empty() {
            let time =
                self.critical_seconds.map(|seconds| format!(" ({})", Runtime(seconds).friendly()));
            let shown = self
                .critical_path
                .iter()
                .take(12)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" -> ");
            let dots = if self.critical_path.len() > 12 { " -> ..." } else { "" };
            let _ = writeln!(out, "\ncritical path{}: {shown}{dots}", time.unwrap_or_default());
        }
        out.push_str(&recovery::to_text(&self.recovery));
        out
    }
}

impl Graph {
    /// For each node, those it waits for.
    pub fn parents(&self) -> Vec<Vec<usize>> {
        let mut parents = vec![Vec::new(); self.nodes.len()];
        for (from, to) in &self.edges {
            parents[*to].push(*from);
        }
        parents
    }

    /// The graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph workflow {\n  rankdir=LR;\n  node [shape=box];\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(
                out,
                "  n{index} [label=\"{}\"];",
                escape(&node.label(), &[('\\', "\\\\"), ('"', "\\\"")])
            );
        }
        for (from, to) in &self.edges {
            let _ = writeln!(out, "  n{from} -> n{to};");
        }
        out.push_str("}\n");
        out
    }

    /// The graph in the language of Mermaid.
    pub fn to_mermaid(&self) -> String {
        let mut out = String::from("flowchart LR\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(
                out,
                "  n{index}[\"{}\"]",
                escape(&node.label(), &[('"', "#quot;"), ('#', "#35;"), ('<', "#lt;")])
            );
        }
        for (from, to) in &self.edges {
            let _ = writeln!(out, "  n{from} --> n{to}");
        }
        out
    }

    /// A drawing: one column per stage.
    pub fn to_svg(&self) -> String {
        const WIDTH: usize = 180;
        const HEIGHT: usize = 30;
        const GAP_X: usize = 60;
        const GAP_Y: usize = 14;
        let mut rows = vec![0usize; self.nodes.iter().map(|node| node.stage).max().unwrap_or(0)];
        let place: Vec<(usize, usize)> = self
            .nodes
            .iter()
            .map(|node| {
                let row = rows[node.stage - 1];
                rows[node.stage - 1] += 1;
                (10 + (node.stage - 1) * (WIDTH + GAP_X), 10 + row * (HEIGHT + GAP_Y))
            })
            .collect();
        let width = 20 + rows.len() * (WIDTH + GAP_X);
        let height = 20 + rows.iter().max().unwrap_or(&0) * (HEIGHT + GAP_Y);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n"
        );
        for (from, to) in &self.edges {
            let ((x1, y1), (x2, y2)) = (place[*from], place[*to]);
            let (x1, y1, y2) = (x1 + WIDTH, y1 + HEIGHT / 2, y2 + HEIGHT / 2);
            let middle = (x1 + x2) / 2;
            let _ = writeln!(
                out,
                "<path d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\" fill=\"none\" stroke=\"#888\"/>"
            );
        }
        for (node, (x, y)) in self.nodes.iter().zip(place) {
            let label = node.label();
            let short: String = if label.chars().count() > 24 {
                label.chars().take(23).chain(['…']).collect()
            } else {
                label.clone()
            };
            let xml = |text: &str| {
                escape(text, &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")])
            };
            let _ = writeln!(
                out,
                "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"5\" fill=\"#eef\" \
                 stroke=\"#557\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
                xml(&label),
                x + 8,
                y + 20,
                xml(&short)
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

fn escape(text: &str, table: &[(char, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match table.iter().find(|(from, _)| *from == c) {
            Some((_, to)) => out.push_str(to),
            None => out.push(c),
        }
    }
    out
}
