//! The figures of one group: a row for each lock.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table};

use crate::document::wrap::{WIDTH, wrapped_to};
use crate::view::line::Line;
use crate::view::{Group, show};

pub(super) const HEADER: [&str; 5] = ["", "lock", "median [95 %]", "p99", "to raw"];

/// The cells of a line.
pub(super) fn cells(group: &Group, line: &Line) -> [String; 5] {
    [
        line.rank.map_or_else(String::new, |rank| rank.to_string()),
        line.who.clone(),
        show::figure(group.unit, line.median, line.value),
        if line.p99 > 0.0 { show::time(line.p99) } else { "-".to_owned() },
        line.to_floor.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string()),
    ]
}

/// Of a row.
const INDENT: usize = 2;

/// Of remarks below a row, which begin below the name of the lock.
const BELOW: usize = 8;

/// Remarks stand behind the figures where they fit there, or else below them in lines of the whole width.
pub(super) fn table(group: &Group) -> Vec<String> {
    let shown: Vec<String> = figures(group).lines().collect();
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
fn figures(group: &Group) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING.row_separator(LineStyle::none().fill('-')));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(98);
    table.force_no_tty();
    table.set_header(HEADER);
    for line in &group.lines {
        let cell = |(place, text): (usize, String)| {
            let alignment = if place == 1 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(alignment)
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
