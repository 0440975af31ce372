//! The picture: jobs per second of Torc and of everything else that ran the same work, beside the
//! limit.

use super::report::Results;

const WIDTH: f64 = 720.0;
const LABEL: f64 = 190.0;
const BAR: f64 = 22.0;
const GAP: f64 = 10.0;

/// Bars for every figure in jobs per second.
pub fn svg(results: &Results) -> String {
    let bars: Vec<(String, f64, bool)> = results
        .rows
        .iter()
        .flat_map(|row| row.figures.iter().map(move |figure| (row, figure)))
        .filter(|(_, figure)| figure.unit == "jobs/s")
        .map(|(row, figure)| {
            (
                format!("{} {}", row.name, figure.name),
                figure.value,
                figure.name.starts_with("limit"),
            )
        })
        .collect();
    let most = bars.iter().map(|(_, value, _)| *value).fold(1.0, f64::max);
    let height = 50.0 + bars.len() as f64 * (BAR + GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\" role=\"img\">\n<title>Jobs per second</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"24\" font-size=\"16\" fill=\"#222\">Jobs per second (grey: the limit of the machine)</text>\n"
    );
    for (n, (name, value, is_limit)) in bars.iter().enumerate() {
        let y = 40.0 + n as f64 * (BAR + GAP);
        let width = (WIDTH - LABEL - 90.0) * value / most;
        let color = if *is_limit { "#9a9a9a" } else { "#2f6db3" };
        let (middle, end) = (y + BAR * 0.7, LABEL + width + 6.0);
        text += &format!(
            "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\" fill=\"#222\">{}</text>\
             <rect x=\"{LABEL}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{color}\"/>\
             <text x=\"{end:.1}\" y=\"{middle:.1}\" fill=\"#222\">{value:.0}</text>\n",
            LABEL - 8.0,
            escape(name),
        );
    }
    text + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::{Figure, Row};

    #[test]
    fn only_rates_become_bars_and_names_are_escaped() {
        let figures = vec![Figure::new("limit", 1600.0, "jobs/s"), Figure::new("CPU", 0.3, "ms")];
        let row =
            Row { name: "a<b".into(), about: String::new(), measured: String::new(), figures };
        let picture = svg(&Results { rows: vec![row], ..Results::default() });
        assert_eq!(picture.matches("<rect x=").count(), 1);
        assert!(picture.contains("a&lt;b limit"));
    }
}
