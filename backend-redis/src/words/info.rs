//! What a server says about itself: the answers to `INFO` and `CONFIG GET`, and what they mean.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::words::error::loading;

/// The fields of `INFO`.
#[derive(Debug, Default)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub(crate) fn of(answer: Value) -> Self {
        Self::parse(&one_text(answer))
    }

    /// What a server says that may have just started. While it reads its files it says that it has no
    /// append-only file, so that is an error: [`loading`].
    pub(crate) fn of_loaded(answer: RedisResult<Value>) -> RedisResult<Self> {
        let info = Self::of(answer?);
        if matches!(info.get("loading"), "" | "0") { Ok(info) } else { Err(loading()) }
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_master(&self) -> bool {
        self.get("role") == "master"
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.get("role") == "slave"
    }

    pub(crate) fn is_sentinel(&self) -> bool {
        self.get("redis_mode") == "sentinel"
    }

    pub(crate) fn is_in_cluster(&self) -> bool {
        self.get("cluster_enabled") == "1"
    }

    /// Whether locks survive a clean restart of the server, as far as it has told: it keeps an append-only
    /// file. A snapshot (`save`) does not count, since `INFO` does not say whether the server makes one when
    /// it stops. Nor does a grace period: in it holders make their locks anew, and the server has forgotten
    /// them.
    pub(crate) fn survives_restart(&self) -> bool {
        self.get("aof_enabled") == "1"
    }

    /// For how long the server has been up at least. The figure is the difference of two times that were
    /// rounded down, so it can be a second too high.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        let seconds: u64 = self.get("uptime_in_seconds").parse().ok()?;
        Some(Duration::from_secs(seconds.saturating_sub(1)))
    }
}

/// Asks when changes reach the disk. A pattern, since servers before Redis 7 take only one name.
pub(crate) fn config() -> Cmd {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("*appendfsync*");
    command
}

/// Whether a setting has this value, by an answer to `CONFIG GET`. `None`: the answer does not name it.
pub(crate) fn setting_is(answer: &Value, name: &str, value: &str) -> Option<bool> {
    let words: Vec<&Value> = match answer {
        Value::Map(pairs) => pairs.iter().flat_map(|(name, value)| [name, value]).collect(),
        Value::Array(words) => words.iter().collect(),
        _ => return None,
    };
    let is = |word: &Value, text: &str| matches!(word, Value::BulkString(bytes) if bytes == text.as_bytes());
    let pair = words.chunks(2).find(|pair| is(pair[0], name))?;
    pair.get(1).map(|word| is(word, value))
}

/// The text of an answer.
pub(crate) fn one_text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        _ => String::new(),
    }
}
