//! Lines over time as SVG, and a page that holds them. Self-contained: no script, no font, no address.

use std::fmt::Write;

/// Width of a chart.
const WIDTH: f64 = 1000.0;
/// Height of a panel.
const HEIGHT: f64 = 280.0;
/// Room for labels.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 30.0;
/// Colours that people with any kind of colour vision can tell apart.
const COLORS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#882255"];

/// One line of a panel.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Seconds since the begin and value.
    pub points: Vec<(f64, f64)>,
}

/// One panel.
pub struct Panel<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Its lines; those beyond the colours are grey.
    pub lines: &'a [Line],
    /// The sum of all lines, drawn as an area.
    pub total: &'a [(f64, f64)],
    /// Writes a value.
    pub unit: fn(f64) -> String,
}

/// Text inside XML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The colour of the nth line.
pub fn color(nth: usize) -> &'static str {
    COLORS.get(nth).copied().unwrap_or("#b8b8b8")
}

/// Draws panels below each other, over the same time.
pub fn svg(panels: &[Panel<'_>], seconds: f64) -> String {
    let seconds = seconds.max(0.001);
    let height = panels.len() as f64 * HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (nth, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, nth as f64 * HEIGHT, seconds);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel<'_>, top: f64, seconds: f64) {
    let values = panel.lines.iter().flat_map(|line| &line.points).chain(panel.total).map(|(_, v)| *v);
    let step = nice_step(values.fold(0.0, f64::max), 4);
    let highest = values_end(panel, step);
    let x = |t: f64| LEFT + t / seconds * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| top + HEIGHT - BOTTOM - v / highest * (HEIGHT - TOP - BOTTOM);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"15\" font-weight=\"bold\">{}</text>",
        top + 20.0,
        escape(panel.title)
    );
    let mut value = 0.0;
    while value <= highest * 1.001 {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(value) + 4.0,
            escape(&(panel.unit)(value)),
            y = y(value),
        );
        value += step;
    }
    let time_step = nice_step(seconds, 8);
    let mut time = 0.0;
    while time <= seconds * 1.001 {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
            x(time),
            top + HEIGHT - BOTTOM + 18.0,
            super::human::seconds(time)
        );
        time += time_step;
    }
    if let (Some(first), Some(last)) = (panel.total.first(), panel.total.last()) {
        let mut path = format!("M{:.1} {:.1}", x(first.0), y(0.0));
        for (t, v) in panel.total {
            let _ = write!(path, "L{:.1} {:.1}", x(*t), y(*v));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}L{:.1} {:.1}Z\" fill=\"#0072b2\" fill-opacity=\"0.10\"><title>all jobs</title></path>",
            x(last.0),
            y(0.0)
        );
    }
    // Coloured lines last, so that grey ones do not cover them.
    for (nth, line) in panel.lines.iter().enumerate().rev() {
        let points: String = line.points.iter().map(|(t, v)| format!("{:.1},{:.1} ", x(*t), y(*v))).collect();
        let peak = line.points.iter().map(|(_, v)| *v).fold(0.0, f64::max);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\">\
             <title>{}: highest {}</title></polyline>",
            points.trim_end(),
            color(nth),
            escape(&line.name),
            escape(&(panel.unit)(peak))
        );
        if let [(t, v)] = line.points.as_slice() {
            let _ =
                writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{}\"/>", x(*t), y(*v), color(nth));
        }
    }
}

fn values_end(panel: &Panel<'_>, step: f64) -> f64 {
    let values = panel.lines.iter().flat_map(|line| &line.points).chain(panel.total).map(|(_, v)| *v);
    (values.fold(0.0, f64::max) / step).ceil().max(1.0) * step
}

/// A round number that divides `range` into about `parts` parts.
fn nice_step(range: f64, parts: u32) -> f64 {
    let rough = (range / f64::from(parts)).max(f64::MIN_POSITIVE);
    let size = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * size >= rough * 0.999).unwrap_or(10.0);
    if range > 0.0 { factor * size } else { 1.0 }
}

/// A page with a title, a few numbers, the charts and a legend.
pub fn page(title: &str, facts: &[(String, String)], svg: &str, legend: &[String]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>\
         body{{font-family:sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}}\
         h1{{font-size:1.4em}}dl{{display:flex;flex-wrap:wrap;gap:1em 2.5em;margin:0 0 1em}}\
         dt{{color:#666;font-size:.85em}}dd{{margin:0;font-size:1.2em;font-weight:bold}}\
         ul{{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.4em 1.2em}}\
         li span{{display:inline-block;width:1em;height:.8em;margin-right:.4em}}svg{{width:100%;height:auto}}\
         </style></head><body>\n<h1>{0}</h1>\n<dl>",
        escape(title)
    );
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
    out.push_str(svg);
    out.push_str("<ul>");
    for (nth, name) in legend.iter().enumerate() {
        let _ = write!(out, "<li><span style=\"background:{}\"></span>{}</li>", color(nth), escape(name));
    }
    out.push_str("</ul>\n</body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_text_is_escaped() {
        assert_eq!((nice_step(100.0, 4), nice_step(7.3, 4), nice_step(0.0, 4)), (25.0, 2.0, 1.0));
        let line = Line { name: "<script>&\u{1}".into(), points: vec![(0.0, 1.0), (2.0, 3.0)] };
        let panel = Panel { title: "CPU", lines: &[line], total: &[(0.0, 1.0)], unit: |v| format!("{v}") };
        let svg = svg(&[panel], 2.0);
        assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    }
}
