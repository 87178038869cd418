//! The JSON Schema of the result files, which is in the repository, too: `compare-bench schema` writes it.

use crate::record::Report;

/// The schema as text, with a line break at the end.
pub(crate) fn text() -> String {
    let schema = schemars::schema_for!(Report);
    let text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_the_repository_is_that_of_the_program() {
        let file = include_str!("../../result.schema.json");
        assert!(file == text(), "cargo run -p compare-bench -- schema > compare-bench/result.schema.json");
    }
}
