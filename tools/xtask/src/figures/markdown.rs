//! Tables in Markdown.

pub(super) fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

pub(super) fn rule(columns: usize) -> String {
    format!("|{}\n", "---|".repeat(columns))
}
