//! Drawing on a buffer: everything is clipped to its area, and every text is made safe on its way.

use crate::format::{BAR_ORDER, StatusCounts};
use crate::state::{Hit, Target};
use crate::text;
use crate::theme::{Theme, Tone};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Where a frame is drawn.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub theme: Theme,
    pub hits: Vec<Hit>,
    /// Where the terminal's cursor stands, when something is typed.
    pub cursor: Option<(u16, u16)>,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, theme: Theme) -> Self {
        Self { buffer, theme, hits: Vec::new(), cursor: None }
    }

    pub fn style(&self, tone: Tone) -> Style {
        self.theme.style(tone)
    }

    /// Puts a text at a place of an area and gives the column behind it. What does not fit is cut.
    pub fn put(&mut self, area: Rect, x: u16, y: u16, said: &str, style: Style) -> u16 {
        let area = area.intersection(self.buffer.area);
        if y >= area.height || x >= area.width {
            return x;
        }
        let room = usize::from(area.width - x);
        let safe = text::line(said);
        let (end, _) = self.buffer.set_stringn(area.x + x, area.y + y, safe, room, style);
        end.saturating_sub(area.x)
    }

    /// The same, with a sign where it is cut.
    pub fn put_fit(
        &mut self,
        area: Rect,
        x: u16,
        y: u16,
        said: &str,
        room: usize,
        tone: Style,
    ) -> u16 {
        let safe = text::line(said);
        let fits = text::fit(&safe, room, self.theme.more());
        self.put(area, x, y, &fits, tone)
    }

    /// A whole line, cut with a sign.
    pub fn line(&mut self, area: Rect, y: u16, said: &str, tone: Tone) -> u16 {
        let style = self.style(tone);
        self.put_fit(area, 0, y, said, usize::from(area.width), style)
    }

    /// Pieces of a line, one behind the other.
    pub fn pieces(&mut self, area: Rect, x: u16, y: u16, pieces: &[(&str, Style)]) -> u16 {
        pieces.iter().fold(x, |x, (said, style)| {
            let room = usize::from(area.width.saturating_sub(x));
            self.put_fit(area, x, y, said, room, *style)
        })
    }

    /// At the right edge; nothing if there is no room.
    pub fn right(&mut self, area: Rect, y: u16, said: &str, style: Style) {
        let width = text::width(&text::line(said));
        if let Some(x) = usize::from(area.width).checked_sub(width) {
            self.put(area, x as u16, y, said, style);
        }
    }

    /// Changes the looks of a row, and not what it says.
    pub fn restyle(&mut self, area: Rect, y: u16, style: Style) {
        if y < area.height {
            let row = Rect { y: area.y + y, height: 1, ..area };
            self.buffer.set_style(row.intersection(self.buffer.area), style);
        }
    }

    /// Changes the looks of a part of a row.
    pub fn restyle_part(&mut self, area: Rect, x: usize, y: u16, columns: usize, style: Style) {
        let x = u16::try_from(x).unwrap_or(u16::MAX).min(area.width);
        let width = u16::try_from(columns).unwrap_or(u16::MAX).min(area.width - x);
        self.restyle(Rect { x: area.x + x, width, ..area }, y, style);
    }

    /// A title with a line behind it.
    pub fn title(&mut self, area: Rect, y: u16, said: &str) {
        let (strong, quiet) = (self.style(Tone::Strong), self.style(Tone::Quiet));
        let end = self.put(area, 0, y, said, strong);
        let rule = self.theme.rule().repeat(usize::from(area.width.saturating_sub(end + 1)));
        self.put(area, end + 1, y, &rule, quiet);
    }

    pub fn hit(&mut self, area: Rect, target: Target) {
        self.hits.push(Hit { area: area.intersection(self.buffer.area), target });
    }

    /// A bar of jobs by status; every status that occurs gets a cell.
    pub fn bar(&mut self, area: Rect, x: u16, y: u16, width: u16, counts: &StatusCounts) {
        let total: i64 = counts.iter().sum();
        let width = width.min(area.width.saturating_sub(x));
        let parts: Vec<_> = BAR_ORDER.iter().filter(|s| counts[**s as usize] > 0).collect();
        if total <= 0 || width == 0 || parts.is_empty() {
            return;
        }
        let width = i64::from(width);
        let mut cells: Vec<i64> =
            parts.iter().map(|s| (counts[**s as usize] * width / total).max(1)).collect();
        // The widest gives and takes what rounding left.
        let surplus = cells.iter().sum::<i64>() - width;
        if let Some(widest) = cells.iter_mut().max() {
            *widest = (*widest - surplus).max(1);
        }
        let mut at = x;
        for (status, cells) in parts.iter().zip(cells) {
            let style = self.theme.of(**status);
            let end = x + width as u16;
            let room = i64::from(end.saturating_sub(at));
            let said = self.theme.bar(**status).repeat(cells.min(room).max(0) as usize);
            at = self.put(area, at, y, &said, style);
        }
    }

    /// A curve of one row; the newest values, if there are more than columns.
    pub fn spark(&mut self, area: Rect, y: u16, values: &[i64], style: Style) {
        let width = usize::from(area.width);
        if values.is_empty() || width == 0 {
            return;
        }
        // Slots of a longer history are put together, and each column shows its highest.
        let chunk = values.len().div_ceil(width);
        let columns: Vec<i64> =
            values.chunks(chunk).map(|part| part.iter().copied().max().unwrap_or(0)).collect();
        let top = columns.iter().copied().max().unwrap_or(0).max(1);
        let levels = self.theme.levels();
        let said: String = columns
            .iter()
            .map(|value| match (*value).max(0) {
                0 => levels[0],
                value => levels[(1 + value * 7 / top).clamp(1, 8) as usize],
            })
            .collect();
        self.put(area, 0, y, &said, style);
    }

    /// An empty box in the middle of an area, with a title. Its inside.
    pub fn window(&mut self, area: Rect, width: u16, height: u16, title: &str) -> Rect {
        let (width, height) = (width.min(area.width), height.min(area.height));
        let outer = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        let outer = outer.intersection(self.buffer.area);
        for row in outer.rows() {
            for position in row.positions() {
                if let Some(cell) = self.buffer.cell_mut(position) {
                    cell.reset();
                }
            }
        }
        if outer.width < 4 || outer.height < 3 {
            return outer;
        }
        let [horizontal, vertical, corners @ ..] = match self.theme.ascii {
            true => ["-", "|", "+", "+", "+", "+"],
            false => ["─", "│", "┌", "┐", "└", "┘"],
        };
        let quiet = self.style(Tone::Quiet);
        let line = horizontal.repeat(usize::from(outer.width - 2));
        self.put(outer, 0, 0, &format!("{}{line}{}", corners[0], corners[1]), quiet);
        for y in 1..outer.height - 1 {
            self.put(outer, 0, y, vertical, quiet);
            self.put(outer, outer.width - 1, y, vertical, quiet);
        }
        self.put(outer, 0, outer.height - 1, &format!("{}{line}{}", corners[2], corners[3]), quiet);
        let room = usize::from(outer.width - 4);
        let strong = self.style(Tone::Strong);
        self.put_fit(outer, 2, 0, &format!(" {title} "), room, strong);
        Rect { x: outer.x + 2, y: outer.y + 1, width: outer.width - 4, height: outer.height - 2 }
    }

    /// What is typed, with the cursor; the part around it if it is long.
    pub fn editor(&mut self, area: Rect, x: u16, y: u16, editor: &crate::state::Editor) -> u16 {
        let area = area.intersection(self.buffer.area);
        let room = usize::from(area.width.saturating_sub(x)).saturating_sub(1);
        let before = text::line(&editor.text[..editor.at]).into_owned();
        let shown = text::tail(&before, room);
        let strong = self.style(Tone::Strong);
        let at = self.put(area, x, y, shown, strong);
        if y < area.height && at < area.width {
            self.cursor = Some((area.x + at, area.y + y));
        }
        self.put(area, at, y, &editor.text[editor.at..], strong)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    pub title: &'static str,
    pub width: u16,
    pub is_right: bool,
    /// Columns with a higher number go first when there is no room.
    pub rank: u8,
    /// Columns that it takes at most of what is left.
    pub grows: u16,
}

/// What stands in a cell.
#[derive(Clone, Debug)]
pub enum Cell {
    Text(String, Style),
    /// Both ends are worth more than the middle.
    Name(String, Style),
    Bar(StatusCounts),
}

/// Columns that fit, with their places: number, x, width.
pub fn layout(columns: &[TableColumn], width: u16) -> Vec<(usize, u16, u16)> {
    const GAP: u16 = 2;
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let needed = |kept: &[usize]| -> u16 {
        kept.iter().map(|at| columns[*at].width + GAP).sum::<u16>().saturating_sub(GAP)
    };
    while kept.len() > 1 && needed(&kept) > width {
        let Some(worst) = kept.iter().copied().max_by_key(|at| columns[*at].rank) else { break };
        kept.retain(|at| *at != worst);
    }
    // What is left is shared out evenly among the columns that grow, cell by cell.
    let mut spare = width.saturating_sub(needed(&kept));
    let mut more = vec![0; columns.len()];
    while spare > 0 {
        let before = spare;
        for at in &kept {
            if spare > 0 && more[*at] < columns[*at].grows {
                more[*at] += 1;
                spare -= 1;
            }
        }
        if spare == before {
            break;
        }
    }
    let mut x = 0;
    kept.into_iter()
        .map(|at| {
            let (begin, own) = (x, (columns[at].width + more[at]).min(width));
            x += own + GAP;
            (at, begin, own)
        })
        .collect()
}

impl Canvas<'_> {
    pub fn head(
        &mut self,
        area: Rect,
        y: u16,
        columns: &[TableColumn],
        places: &[(usize, u16, u16)],
    ) {
        let style = self.style(Tone::Head);
        for (at, x, width) in places {
            let column = columns[*at];
            let title =
                text::fit(column.title, usize::from(*width), self.theme.more()).into_owned();
            let shift = if column.is_right { *width - text::width(&title) as u16 } else { 0 };
            self.put(area, x + shift, y, &title, style);
        }
    }

    pub fn row(
        &mut self,
        area: Rect,
        y: u16,
        columns: &[TableColumn],
        places: &[(usize, u16, u16)],
        cells: &[Cell],
    ) {
        for (at, x, width) in places {
            let room = usize::from(*width);
            let Some(cell) = cells.get(*at) else { continue };
            let (said, style) = match cell {
                Cell::Bar(counts) => {
                    self.bar(area, *x, y, *width, counts);
                    continue;
                }
                Cell::Text(said, style) => {
                    let safe = text::line(said);
                    (text::fit(&safe, room, self.theme.more()).into_owned(), *style)
                }
                Cell::Name(said, style) => {
                    let safe = text::line(said);
                    (text::fit_middle(&safe, room, self.theme.more()).into_owned(), *style)
                }
            };
            let shift = match columns[*at].is_right {
                true => room.saturating_sub(text::width(&said)) as u16,
                false => 0,
            };
            self.put(area, x + shift, y, &said, style);
        }
    }
}
