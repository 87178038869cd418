//! What a server says about itself.

use std::collections::HashMap;

use redis::Value;

/// The fields of `INFO`.
#[derive(Debug, Default)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether the server reads its files, after its start. Meanwhile it says that it has no append-only
    /// file.
    pub(crate) fn is_loading(&self) -> bool {
        !matches!(self.get("loading"), "" | "0")
    }
}

/// The text of an answer.
pub(crate) fn one_text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        _ => String::new(),
    }
}
