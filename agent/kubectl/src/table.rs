//! Tables, as kubectl prints them.

use crate::style::{Paint, Style};

const GAP: &str = "   ";
/// Gap between columns if the table is too wide.
const NARROW_GAP: &str = "  ";

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// Least width in characters on a narrow terminal. 0 if the column is never cut.
    pub least: usize,
}

impl Column {
    pub const fn new(title: &'static str, least: usize) -> Self {
        Self { title, least }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub paint: Paint,
}

impl Cell {
    pub fn new(text: impl Into<String>, paint: Paint) -> Self {
        Self {
            text: text.into(),
            paint,
        }
    }

    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Paint::Plain)
    }
}

#[derive(Debug)]
pub struct Layout {
    widths: Vec<usize>,
    gap: &'static str,
    /// `true` if longer texts are cut. Otherwise they move the cells after them.
    is_cut: bool,
}

impl Layout {
    /// Computes the widths that these rows need, reduced to those of the screen.
    pub fn of<'a>(
        columns: &[Column],
        rows: impl Iterator<Item = &'a [Cell]>,
        style: Style,
    ) -> Self {
        let mut widths: Vec<usize> = columns.iter().map(|column| column.title.len()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let whole = |widths| Self {
            widths,
            gap: GAP,
            is_cut: false,
        };
        let Some(most) = style.width else {
            return whole(widths);
        };
        let total = |widths: &[usize], gap: &str| {
            let gaps = widths.len().saturating_sub(1).saturating_mul(gap.len());
            widths
                .iter()
                .fold(gaps, |sum, width| sum.saturating_add(*width))
        };
        if total(&widths, GAP) <= most {
            return whole(widths);
        }
        while total(&widths, NARROW_GAP) > most {
            let cut = widths.iter_mut().zip(columns);
            let cut = cut.filter(|(width, column)| column.least > 0 && column.least < **width);
            // The widest is cut first, so that all stay as readable as possible.
            let Some((width, _)) = cut.max_by_key(|(width, _)| **width) else {
                break;
            };
            *width = width.saturating_sub(1);
        }
        Self {
            widths,
            gap: NARROW_GAP,
            is_cut: true,
        }
    }

    pub fn titles(&self, columns: &[Column], style: Style) -> String {
        let titles = columns
            .iter()
            .map(|column| Cell::new(column.title, Paint::Bold));
        self.line(&titles.collect::<Vec<_>>(), style)
    }

    pub fn line(&self, cells: &[Cell], style: Style) -> String {
        let mut line = String::new();
        let mut padding = 0;
        for (n, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            // The last cell has no padding, so that no line ends with spaces.
            line.extend(std::iter::repeat_n(' ', padding));
            if n > 0 {
                line.push_str(self.gap);
            }
            let text = if self.is_cut {
                cut(&cell.text, *width)
            } else {
                cell.text.clone()
            };
            padding = width.saturating_sub(text.chars().count());
            line.push_str(&style.paint(cell.paint, &text));
        }
        line.push('\n');
        line
    }
}

pub fn render(columns: &[Column], rows: &[Vec<Cell>], style: Style) -> String {
    let layout = Layout::of(columns, rows.iter().map(Vec::as_slice), style);
    let mut text = layout.titles(columns, style);
    for row in rows {
        text.push_str(&layout.line(row, style));
    }
    text
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column::new("NODE", 8),
        Column::new("REASON", 6),
        Column::new("AGE", 0),
    ];

    fn of_width(width: Option<usize>) -> Style {
        Style {
            width,
            colors: false,
        }
    }

    #[test]
    fn a_wide_table_is_cut_to_the_screen_and_ages_never_are() {
        let row = ["n".repeat(60), "r".repeat(30), "119m".to_owned()].map(Cell::plain);
        let rows = [row.to_vec()];
        for width in [40, 80, 120] {
            let text = render(&COLUMNS, &rows, of_width(Some(width)));
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest <= width), "{text}");
            assert!(text.ends_with("119m\n"), "{text}");
        }
        let text = render(&COLUMNS, &rows, of_width(None));
        assert!(text.contains(&"n".repeat(60)), "{text}");
        // A row that is printed later, with --watch.
        let layout = Layout::of(&COLUMNS, std::iter::empty(), of_width(Some(80)));
        let later = layout.line(&rows[0], of_width(Some(80)));
        assert!(later.contains(&"n".repeat(60)), "{later}");
    }

    #[test]
    fn columns_are_aligned_also_in_color() {
        let rows = [
            vec![
                Cell::new("a", Paint::Red),
                Cell::plain("b"),
                Cell::plain("1s"),
            ],
            vec![Cell::plain("long"), Cell::plain("b"), Cell::plain("2s")],
        ];
        let plain = render(&COLUMNS, &rows, of_width(None));
        assert_eq!(
            plain,
            "NODE   REASON   AGE\na      b        1s\nlong   b        2s\n"
        );
        let colored = Style {
            width: None,
            colors: true,
        };
        let colored = render(&COLUMNS, &rows, colored);
        assert!(
            colored.contains("\u{1b}[1;31ma\u{1b}[0m      b"),
            "{colored:?}"
        );
    }
}
