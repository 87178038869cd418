//! What a server says about itself when a client connects: whether locks are safe on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockcore::{Error, ErrorKind, Moment, Result};
use redis::{Cmd, ErrorKind as Kind, RedisResult, ServerErrorKind, Value};

use crate::answers::text;
use crate::error::{Verdict, fatal, no_answer, verdict};
use crate::keys::Keys;
use crate::options::Options;
use crate::script::RIGHTS;
use crate::wire::Wire;

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

    /// What is wrong with keeping locks on this server.
    fn doubts(&self) -> Vec<&'static str> {
        let mut doubts = Vec::new();
        // Every lock has an expiry, so that the policies which evict "volatile" keys evict locks.
        let evicts = !matches!(self.get("maxmemory_policy"), "" | "noeviction");
        if evicts && self.get("maxmemory") != "0" {
            doubts.push("its maxmemory-policy lets it evict locks that are held: set it to noeviction");
        }
        if self.get("aof_enabled") == "0" {
            doubts.push("it has no append-only file: locks and queues are lost when it restarts");
        }
        if self.get("role") == "master"
            && self.get("cluster_enabled") == "0"
            && !matches!(self.get("connected_slaves"), "" | "0")
        {
            doubts.push("it has replicas: a failover to one that lags behind can grant a lock twice (see wait_replicas)");
        }
        doubts
    }
}

/// Reaches the server, and warns of (or with `strict=true` refuses) one that may lose locks.
pub(crate) async fn server(wire: &Arc<Wire>, options: &Options) -> Result<()> {
    let misconfigured = |text: &str| Err(Error::new(ErrorKind::Misconfigured, text));
    let info = info(wire, options.timeout).await?;
    if info.get("redis_mode") == "sentinel" {
        return misconfigured("the server is a sentinel: use redis+sentinel:// to reach its master");
    }
    if info.get("role") == "slave" {
        return misconfigured("the server is a replica, and read only: connect to its master");
    }
    if info.get("cluster_enabled") == "1" && !wire.address.is_cluster() {
        return misconfigured("the server is part of a cluster: use redis+cluster:// to reach it");
    }
    if options.strict && info.get("role").is_empty() {
        return Err(Error::new(ErrorKind::Refused, "strict=true needs the right to INFO"));
    }
    let doubts = info.doubts();
    if doubts.is_empty() {
        return Ok(());
    }
    if options.strict {
        return misconfigured(&format!("strict=true, and this server may lose locks: {}", doubts.join("; ")));
    }
    for doubt in doubts {
        tracing::warn!(address = ?wire.address.place, "this Redis server may lose locks: {doubt}");
    }
    Ok(())
}

/// Checks that the user has every right that will be needed: one that came to light at a release would leave a lock
/// behind.
pub(crate) async fn rights(wire: &Arc<Wire>, keys: &Keys, more: &[&str], timeout: Duration) -> Result<()> {
    // By its text: a look that leaves nothing to the next one.
    let mut command = RIGHTS.call(true, 0);
    command.arg(keys.probe()).arg(keys.channel("rights")).arg(more);
    let answer = match ask(wire, &command, timeout).await? {
        Ok(answer) => answer,
        Err(error) => return Err(fatal(&error, Some(&RIGHTS))),
    };
    let missing = match answer {
        Value::Array(names) => names.iter().map(|name| text(Some(name))).collect::<Result<Vec<_>>>()?,
        _ => Vec::new(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    let namespace = keys.namespace();
    let text = format!(
        "the user lacks rights, or the server lacks commands: {} on the keys ~{namespace}* and the channels &{namespace}*",
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Refused, text))
}

/// The server's `INFO`, empty where the user has no right to it.
pub(crate) async fn info(wire: &Arc<Wire>, timeout: Duration) -> Result<Info> {
    match ask(wire, &redis::cmd("INFO"), timeout).await? {
        Ok(value) => Ok(Info::parse(&one_text(value))),
        Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoPerm) => {
            tracing::info!(%error, "INFO is not allowed: the server is not checked");
            Ok(Info::default())
        }
        Err(error) => Err(fatal(&error, None)),
    }
}

/// Asks with patience for a server that is loading, busy or just restarting. The inner error is the server's final word.
async fn ask(wire: &Arc<Wire>, command: &Cmd, timeout: Duration) -> Result<RedisResult<Value>> {
    let end = Moment::now().after(timeout);
    let mut last = None;
    while !end.has_passed() {
        let asked = tokio::time::timeout(end.remaining(), async {
            let (mut link, generation) = wire.link().await.map_err(|error| (error, 0))?;
            link.query(command).await.map_err(|error| (error, generation))
        });
        let (error, generation) = match asked.await {
            Err(_) => break,
            Ok(Ok(value)) => return Ok(Ok(value)),
            Ok(Err(failed)) => failed,
        };
        match verdict(&error, true) {
            Verdict::Again => (),
            Verdict::Broken => wire.hang_up(generation),
            Verdict::Unknown | Verdict::Fatal => return Ok(Err(error)),
        }
        last = Some(error);
        tokio::time::sleep(Duration::from_millis(50).min(end.remaining())).await;
    }
    Err(no_answer(last.as_ref()))
}

/// The text of an answer; of a cluster's answers the first.
fn one_text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        Value::Map(pairs) => pairs.into_iter().next().map(|(_, value)| one_text(value)).unwrap_or_default(),
        Value::Array(values) => values.into_iter().next().map(one_text).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_told() {
        let safe = "role:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert!(Info::parse(safe).doubts().is_empty());
        assert!(Info::parse("").doubts().is_empty());
        let evicts = "maxmemory:1000\r\nmaxmemory_policy:volatile-lru\r\naof_enabled:0\r\n";
        let doubts = Info::parse(evicts).doubts();
        assert!(doubts.len() == 2 && doubts[0].contains("noeviction") && doubts[1].contains("append-only"));
        let replicated = "role:master\r\ncluster_enabled:0\r\nconnected_slaves:1\r\naof_enabled:1\r\n";
        assert!(Info::parse(replicated).doubts()[0].contains("twice"));
    }
}
