//! The figures of one group: a row for each lock.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table};

use crate::terminal::wrap::{WIDTH, wrapped_to};
use crate::view::Group;
use crate::view::cells::cells;

const HEADER: [&str; 5] = ["", "lock", "median [95 %]", "p99", "to raw"];

/// Of a row.
const INDENT: usize = 2;

/// Of remarks below a row, which begin below the name of the lock.
const BELOW: usize = 8;

/// Remarks stand behind the figures where they fit there, or else below them in lines of the whole width.
pub(super) fn table(group: &Group, is_bold: bool) -> Vec<String> {
    let shown: Vec<String> = figures(group, is_bold).lines().collect();
    let Some((head, rows)) = shown.split_first() else { return Vec::new() };
    let width = INDENT + head.chars().count() + 1;
    let mut lines = vec![indented(head)];
    for (row, line) in rows.split(|line| is_separator(line)).zip(&group.lines) {
        let remarks = line.remarks.join(", ");
        match row {
            [only] if width + remarks.chars().count() <= WIDTH => {
                lines.push(indented(&format!("{only} {remarks}")));
            }
            _ => {
                lines.extend(row.iter().map(|line| indented(line)));
                let below = wrapped_to(&remarks, WIDTH - BELOW);
                lines.extend(below.iter().map(|line| format!("{:BELOW$}{line}", "")));
            }
        }
    }
    lines
}

/// Between the rows are lines of `-`: a long name takes several lines of its row.
fn figures(group: &Group, is_bold: bool) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING.row_separator(LineStyle::none().fill('-')));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(98);
    if is_bold {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(HEADER);
    for line in &group.lines {
        let cell = |(place, text): (usize, String)| {
            let alignment = if place == 1 { CellAlignment::Left } else { CellAlignment::Right };
            let cell = Cell::new(text).set_alignment(alignment);
            if is_bold && line.rank == Some(1) { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        let figures = cells(group, line).into_iter();
        table.add_row(figures.enumerate().map(cell).collect::<Vec<_>>());
    }
    // Figures stay in one line.
    for place in [0, 2, 3, 4] {
        if let Some(column) = table.column_mut(place) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

fn is_separator(line: &str) -> bool {
    !line.is_empty() && line.chars().all(|it| it == '-')
}

fn indented(line: &str) -> String {
    format!("{:INDENT$}{}", "", line.trim_end())
}
