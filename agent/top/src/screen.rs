//! PURE: places panes on a screen of any size.

use nodepulse_core::escape::{escape, is_unsafe};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::rows::{self, By, Pane, TITLE};
use crate::view::View;

/// Columns from which on two panes are next to each other. Narrower screens lack the right ones.
const TWO_COLUMNS: u16 = 76;

/// Rows of the panes on a screen of 24, titles included: conditions, signals with disks, the
/// busiest, incidents.
const LEAST: [u16; 4] = [7, 7, 4, 5];

/// Draws a frame with the incidents from the `first` one on. What has no room is cut.
pub fn draw(view: &View, first: usize, buffer: &mut Buffer) {
    let Rect { width, height, .. } = buffer.area;
    let half = if width < TWO_COLUMNS {
        width
    } else {
        width / 2
    };
    let (all, column) = (width.into(), half.saturating_sub(1).into());
    let busiest = |by| rows::busiest(view, by, column);
    let bands = [
        vec![rows::conditions(view, all)],
        vec![rows::signals(view, column), rows::disks(view, column)],
        vec![busiest(By::Memory), busiest(By::Cpu)],
        vec![rows::incidents(view, first, all)],
    ];
    let wanted = bands.each_ref().map(|band| {
        let rows = band.iter().map(|pane| pane.rows.len() + 1).max();
        u16::try_from(rows.unwrap_or_default()).unwrap_or(u16::MAX)
    });
    let (mut y, header) = (1, rows::header(view));
    line(buffer, Rect::new(0, 0, width, 1), TITLE, &header);
    for (band, height) in bands.iter().zip(heights(height.saturating_sub(1), wanted)) {
        let places = match band.len() {
            1 => [(0, width), (0, 0)],
            _ => [(0, half.saturating_sub(1)), (half, width - half)],
        };
        for (pane, (x, columns)) in band.iter().zip(places) {
            list(buffer, Rect::new(x, y, columns, height), pane);
        }
        y += height;
    }
}

/// Distributes `left` rows: first the least ones, then what panes want in their order, except that
/// the busiest leave half to the incidents.
fn heights(mut left: u16, wanted: [u16; 4]) -> [u16; 4] {
    let mut heights = [0; 4];
    for is_first in [true, false] {
        let more = [left, left, left / 2, left];
        let most = if is_first { LEAST } else { more };
        for ((height, wanted), most) in heights.iter_mut().zip(wanted).zip(most) {
            let more = (wanted - *height).min(most).min(left);
            *height += more;
            left -= more;
        }
    }
    heights
}

/// Draws a title and rows. If not all have room, the title has the number of missing ones.
fn list(buffer: &mut Buffer, area: Rect, pane: &Pane) {
    let room = usize::from(area.height).saturating_sub(1);
    let title = match pane.rows.len().saturating_sub(room) {
        0 => pane.title.clone(),
        more => format!("{}  (+{more} more)", pane.title),
    };
    let title = std::iter::once((TITLE, &*title));
    let rows = pane.rows.iter().map(|(style, text)| (*style, &**text));
    for ((style, text), row) in title.chain(rows).zip(area.rows()) {
        line(buffer, row, style, text);
    }
}

/// Draws a row with its control characters escaped; `…` shows that it is cut.
fn line(buffer: &mut Buffer, area: Rect, style: Style, text: &str) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let mut safe = String::new();
    // No terminal has more columns.
    for c in text.chars().take(1000) {
        let c = c.to_string();
        safe += &if c.contains(is_unsafe) { escape(c) } else { c };
    }
    let is_cut = usize::from(area.width) < Span::raw(&safe).width();
    let columns = area.width - u16::from(is_cut);
    let (end, y) = buffer.set_stringn(area.x, area.y, &safe, columns.into(), style);
    buffer.set_string(end, y, if is_cut { "…" } else { "" }, style);
}

/// Returns a frame as lines of text without escape sequences.
pub fn text(view: &View, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(view, 0, &mut buffer);
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(width).max(1)) {
        let (mut line, mut columns) = (String::new(), 0);
        for cell in row {
            // The second column of a wide character has no text.
            if columns == 0 {
                line += cell.symbol();
                columns = Span::raw(cell.symbol()).width();
            }
            columns = columns.saturating_sub(1);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
