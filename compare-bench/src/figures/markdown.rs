//! Tables of Markdown.

/// A table with this head, and a line for each row.
pub(super) fn table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: String = rows.into_iter().map(|cells| row(&cells)).collect();
    format!("{}|{}\n{rows}", row(head), "---|".repeat(head.len()))
}
