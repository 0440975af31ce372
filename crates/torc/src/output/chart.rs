//! Lines over time as SVG, and a page that holds them. Self-contained: no script, no font, no
//! address.

use std::fmt::Write;

/// Width of a chart.
const WIDTH: f64 = 1000.0;
/// Height of a panel.
const HEIGHT: f64 = 290.0;
/// Height of a line of the legend.
const LEGEND: f64 = 22.0;
/// Room for labels.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 30.0;
/// Colours that people with any kind of colour vision can tell apart.
const COLORS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#882255"];

/// The colour of the sum of all lines.
const AREA: &str = "#cfe3f1";

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
    /// Round numbers are powers of two, as for bytes.
    pub is_binary: bool,
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

/// Draws panels below each other, over the same time, and below them which colour is whose.
pub fn svg(panels: &[Panel<'_>], seconds: f64) -> String {
    let seconds = seconds.max(0.001);
    let names: Vec<&str> = panels
        .first()
        .map(|p| p.lines.iter().map(|line| line.name.as_str()).collect())
        .unwrap_or_default();
    let mut legend = String::new();
    let bottom = panels.len() as f64 * HEIGHT;
    let height = bottom + draw_legend(&mut legend, &names, bottom);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (nth, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, nth as f64 * HEIGHT, seconds);
    }
    out.push_str(&legend);
    out.push_str("</svg>\n");
    out
}

/// Which colour is whose, in as many lines as that takes. Answers with its height.
fn draw_legend(out: &mut String, names: &[&str], top: f64) -> f64 {
    let mut entries: Vec<(String, &str)> = vec![("all together".into(), AREA)];
    entries.extend(
        names
            .iter()
            .take(COLORS.len())
            .enumerate()
            .map(|(nth, name)| (shortened(name), color(nth))),
    );
    if names.len() > COLORS.len() {
        entries.push((format!("{} more", names.len() - COLORS.len()), color(COLORS.len())));
    }
    let (mut x, mut y) = (LEFT, top + LEGEND / 2.0);
    for (name, color) in entries {
        // Letters of this size are hardly ever wider.
        let width = 22.0 + name.chars().count() as f64 * 7.2 + 16.0;
        if x + width > WIDTH && x > LEFT {
            (x, y) = (LEFT, y + LEGEND);
        }
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" rx=\"2\" fill=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#333\">{}</text>",
            y - 5.0,
            x + 20.0,
            y + 4.5,
            escape(&name)
        );
        x += width;
    }
    y - top + LEGEND
}

/// A name that leaves room for others.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 40;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn draw(out: &mut String, panel: &Panel<'_>, top: f64, seconds: f64) {
    let peak = panel
        .lines
        .iter()
        .flat_map(|l| &l.points)
        .chain(panel.total)
        .map(|(_, v)| *v)
        .fold(0.0, f64::max);
    let step = if panel.is_binary { binary_step(peak, 4) } else { nice_step(peak, 4) };
    let highest = (peak / step).ceil().max(1.0) * step;
    let x = |t: f64| LEFT + t / seconds * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| top + HEIGHT - BOTTOM - v / highest * (HEIGHT - TOP - BOTTOM);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{title}\" font-size=\"15\" font-weight=\"bold\" fill=\"#222\">{}</text>\
         <text x=\"{}\" y=\"{title}\" text-anchor=\"end\" fill=\"#555\">at most {} at once</text>",
        escape(panel.title),
        WIDTH - RIGHT,
        escape(&(panel.unit)(peak)),
        title = top + 20.0,
    );
    let mut value = 0.0;
    while value <= highest * 1.001 {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            WIDTH - RIGHT,
            if value == 0.0 { "#999" } else { "#e4e4e4" },
            LEFT - 8.0,
            y(value) + 4.0,
            escape(&(panel.unit)(value)),
            y = y(value),
        );
        value += step;
    }
    let time_step = time_step(seconds);
    let mut time = 0.0;
    while time <= seconds * 1.001 {
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#f0f0f0\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
            top + TOP,
            y(0.0),
            top + HEIGHT - BOTTOM + 18.0,
            clock(time, seconds),
            x = x(time),
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
            "<path d=\"{path}L{:.1} {:.1}Z\" fill=\"{AREA}\" fill-opacity=\"0.55\"><title>all together</title></path>",
            x(last.0),
            y(0.0)
        );
    }
    // Coloured lines last, so that grey ones do not cover them.
    for (nth, line) in panel.lines.iter().enumerate().rev() {
        let points: String =
            line.points.iter().map(|(t, v)| format!("{:.1},{:.1} ", x(*t), y(*v))).collect();
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
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{}\"/>",
                x(*t),
                y(*v),
                color(nth)
            );
        }
    }
}

/// A round number that divides `range` into about `parts` parts.
fn nice_step(range: f64, parts: u32) -> f64 {
    let rough = (range / f64::from(parts)).max(f64::MIN_POSITIVE);
    let size = 10f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * size >= rough * 0.999).unwrap_or(10.0);
    if range > 0.0 { factor * size } else { 1.0 }
}

/// The same for bytes: 1, 2 or 5 times 1, 10 or 100 of a unit, which people read as round.
fn binary_step(range: f64, parts: u32) -> f64 {
    let mut unit = 1.0;
    while range / f64::from(parts) >= unit * 1024.0 {
        unit *= 1024.0;
    }
    let step = nice_step(range / unit, parts);
    // 2.5 MiB is as round as 2.5; 1000 MiB is not.
    if step >= 1000.0 { 1024.0 * unit } else { step * unit }
}

/// A step that clocks have, so that there are about eight of them.
fn time_step(seconds: f64) -> f64 {
    const STEPS: [f64; 18] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
        3600.0, 7200.0, 14400.0,
    ];
    let rough = seconds / 9.0;
    STEPS
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or_else(|| (rough / 86400.0).ceil() * 86400.0)
}

/// A time since the begin, all of one axis in one notation.
fn clock(time: f64, seconds: f64) -> String {
    let whole = time.round() as u64;
    if seconds < 2.0 {
        format!("{time:.1} s")
    } else if seconds <= 120.0 {
        format!("{whole} s")
    } else if seconds < 5400.0 {
        format!("{}:{:02}", whole / 60, whole % 60)
    } else {
        format!("{}:{:02} h", whole / 3600, whole % 3600 / 60)
    }
}

/// A page with a title, a few numbers and the charts.
pub fn page(title: &str, facts: &[(String, String)], svg: &str) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>\
         body{{font-family:sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}}\
         h1{{font-size:1.4em}}dl{{display:flex;flex-wrap:wrap;gap:1em 2.5em;margin:0 0 1em}}\
         dt{{color:#666;font-size:.85em}}dd{{margin:0;font-size:1.2em;font-weight:bold}}\
         svg{{width:100%;height:auto}}\
         </style></head><body>\n<h1>{0}</h1>\n<dl>",
        escape(title)
    );
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
    out.push_str(svg);
    out.push_str("</body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_text_is_escaped() {
        assert_eq!((nice_step(100.0, 4), nice_step(7.3, 4), nice_step(0.0, 4)), (25.0, 2.0, 1.0));
        let line = Line { name: "<script>&\u{1}".into(), points: vec![(0.0, 1.0), (2.0, 3.0)] };
        let panel = Panel {
            title: "CPU",
            lines: &[line],
            total: &[(0.0, 1.0)],
            unit: |v| format!("{v}"),
            is_binary: false,
        };
        assert_eq!(binary_step(600.0 * 1048576.0, 4), 200.0 * 1048576.0, "200 MiB");
        assert_eq!(
            (time_step(14.0), time_step(3000.0), clock(600.0, 3000.0)),
            (2.0, 600.0, "10:00".into())
        );
        let svg = svg(&[panel], 2.0);
        assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    }
}
