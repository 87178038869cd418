//! A table of a page.

use maud::{Markup, html};

/// A table whose cells are text.
pub(super) fn grid(head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div { table {
            thead { tr { @for cell in head { th { (cell) } } } }
            tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
        } }
    }
}
