//! The text format that Prometheus reads (version 0.0.4).

use super::Histogram;
use std::fmt::Write as _;

/// What a scraper may do with a family of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows, until the server starts again.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// Samples under their families, in the order in which they were added.
#[derive(Default, Debug)]
pub struct MetricsText {
    text: String,
    /// The family that samples belong to.
    name: &'static str,
}

/// A value of a sample; integers stay exact.
pub trait SampleValue: std::fmt::Display {}
impl SampleValue for u64 {}
impl SampleValue for i64 {}
impl SampleValue for f64 {}

impl MetricsText {
    /// The media type.
    pub const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. `help` is ours: one line, without a backslash.
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        self.head(name, kind, help);
    }

    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl SampleValue) {
        self.line("", labels, value);
    }

    /// A family of one sample.
    pub fn one(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &str,
        value: impl SampleValue,
    ) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// A family that is one histogram.
    pub fn histogram(&mut self, name: &'static str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let (bounds, count) = histogram.cumulative();
        for (bound, count) in bounds {
            self.line("_bucket", &[("le", &bound.to_string())], count);
        }
        self.line("_bucket", &[("le", "+Inf")], count);
        self.line("_sum", &[], histogram.sum());
        self.line("_count", &[], count);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl SampleValue) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_cannot_break_a_line() {
        let mut text = MetricsText::default();
        text.family("a", MetricKind::Gauge, "About a.");
        text.sample(&[("x", "1\n\"2\"\\"), ("y", "z")], 0.5);
        let expected =
            "# HELP a About a.\n# TYPE a gauge\na{x=\"1\\n\\\"2\\\"\\\\\",y=\"z\"} 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
