//! Rows in aligned columns. On a terminal the header is bold and the last column is cut to fit.

use super::{Output, escape};

/// Rows under a header.
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: impl IntoIterator<Item = &'static str>) -> Self {
        Self { header: header.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. What is in it may come from anywhere: control characters are escaped here.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |cell: String| if cell.is_empty() { "-".to_owned() } else { escape(&cell) };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(crate) fn render(&self, out: &Output) -> String {
        let widths = self.widths();
        let header: Vec<String> = self.header.iter().map(|&name| name.to_owned()).collect();
        let mut text = out.bold(&line(&header, &widths, out.width));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&line(row, &widths, out.width));
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let longest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0)
        };
        self.header.iter().enumerate().map(|(column, name)| name.len().max(longest(column))).collect()
    }
}

/// Numbers stand to the right, words to the left.
fn line(cells: &[String], widths: &[usize], width_max: Option<usize>) -> String {
    let mut text = String::new();
    for (column, cell) in cells.iter().enumerate() {
        if column > 0 {
            text.push_str("  ");
        }
        let missing =
            " ".repeat(widths.get(column).copied().unwrap_or(0).saturating_sub(cell.chars().count()));
        let is_number = cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
        let (before, after) = if is_number { (missing.as_str(), "") } else { ("", missing.as_str()) };
        text.push_str(before);
        text.push_str(cell);
        if column + 1 < cells.len() {
            text.push_str(after);
        }
    }
    match width_max {
        Some(width) if text.chars().count() > width => {
            text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(width: Option<usize>) -> Output {
        Output::plain(width)
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["NAME", "COUNT", "ERROR"]);
        table.row(["orders".to_owned(), "1,200".to_owned(), "boom".to_owned()]);
        table.row(["a".to_owned(), "7".to_owned(), String::new()]);
        assert_eq!(table.render(&out(None)), "NAME    COUNT  ERROR\norders  1,200  boom\na           7  -\n");
        assert_eq!(table.render(&out(Some(12))), "NAME    COU…\norders  1,2…\na          …\n");
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do_by_a_cell() {
        let mut table = Table::new(["ERROR"]);
        table.row(["\x1b[2J\u{202e}gone\n".to_owned()]);
        assert_eq!(table.render(&out(None)), "ERROR\n\\u{1b}[2J\\u{202e}gone\\n\n");
    }
}
