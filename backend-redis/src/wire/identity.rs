//! Which server answers on a connection: whether it is the one that made the last grants.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::Moment;
use redis::RedisResult;

use crate::wire::link::Link;
use crate::words::error::NO_IDENTITY;
use crate::words::info::Info;

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The run of the program and the history of its data. A server that starts has another run, and one that
    /// is promoted begins another history: it may have forgotten grants. A master that was a replica for a
    /// while keeps its run, so the run alone is not enough.
    pub(crate) text: Arc<str>,
    pub(crate) history: Arc<str>,
    /// For how long the server had been up without being promoted when it said so, if it has never been, by
    /// its own clock.
    up_for: Option<Duration>,
    asked: Moment,
}

/// What is known of the server behind a connection.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) identity: Identity,
    /// When it was last asked whether it is still the same.
    pub(crate) verified: Moment,
    /// Whether it may grant locks.
    pub(crate) is_open: bool,
}

impl Identity {
    fn parse(info: &Info) -> Option<Self> {
        let (run, history) = (info.get("run_id"), info.get("master_replid"));
        if run.is_empty() || history.is_empty() {
            return None;
        }
        let before = info.get("master_replid2");
        let is_first = !before.is_empty() && before.bytes().all(|digit| digit == b'0');
        let up_for = info.uptime().filter(|_| is_first);
        let text = format!("{run}:{history}").into();
        Some(Self { text, history: history.into(), up_for, asked: Moment::now() })
    }

    /// For how long the server has been up without being promoted, if it has never been.
    pub(crate) fn up_for(&self) -> Option<Duration> {
        // Not since when: that may be before the zero of this machine's clock.
        Some(self.up_for?.saturating_add(Moment::now().since(self.asked)))
    }

    /// Asks the server.
    pub(crate) async fn ask(link: &mut Link) -> RedisResult<Self> {
        let info = Info::of(link.query(&redis::cmd("INFO")).await?);
        Self::parse(&info).ok_or_else(|| {
            let text = "durability=grace needs a server whose INFO has run_id and master_replid";
            redis::make_extension_error(NO_IDENTITY.to_owned(), Some(text.to_owned()))
        })
    }

    /// Asks the server whether it is still the same, and a master. A connection ends with the run, so only
    /// the history can be another.
    pub(crate) async fn is_still(&self, link: &mut Link) -> RedisResult<bool> {
        let info = Info::of(link.query(redis::cmd("INFO").arg("replication")).await?);
        Ok(info.is_master() && info.get("master_replid") == &*self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_its_run_and_the_history_of_its_data() {
        let of = |text: &str| Identity::parse(&Info::parse(text));
        let master = of("run_id:a\r\nrole:master\r\nmaster_replid:b\r\n").unwrap();
        assert_eq!(&*master.text, "a:b");
        assert_eq!(of("role:master\r\nrun_id:a\r\n"), None);
    }

    /// A replica that is promoted has the history of its master as its second one.
    #[test]
    fn one_that_was_promoted_does_not_say_since_when() {
        let up_for = |second: &str| {
            let text = format!("run_id:a\r\nmaster_replid:b\r\nuptime_in_seconds:9\r\n{second}");
            Identity::parse(&Info::parse(&text)).unwrap().up_for().map(|up| up.as_secs())
        };
        assert_eq!(up_for("master_replid2:0000000000000000\r\n"), Some(8));
        assert_eq!(up_for("master_replid2:00000000000000a0\r\n"), None);
        assert_eq!(up_for(""), None);
    }
}
