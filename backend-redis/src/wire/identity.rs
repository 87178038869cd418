//! Which server answers on a connection: whether it is the one that made the last grants.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::Moment;
use redis::RedisResult;

use crate::wire::link::Link;
use crate::words::error::NO_IDENTITY;
use crate::words::info::Info;
use crate::words::mark::{Mark, Slots};

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The run of the program and the history of its data. A server that starts has another run, and one that
    /// is promoted begins another history: it may have forgotten grants. A master that was a replica for a
    /// while keeps its run, so the run alone is not enough.
    pub(crate) text: Arc<str>,
    pub(crate) history: Arc<str>,
}

/// What is known of the server behind a connection.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) identity: Identity,
    /// When it was last asked whether it is still the same.
    pub(crate) verified: Moment,
    /// Its slots, by its own word.
    pub(crate) own: Slots,
    /// Its mark, as this client knows it.
    pub(crate) mark: Arc<Mark>,
    /// For how long it grants nothing in slots that are not those of the mark.
    pub(crate) left: Duration,
}

impl Identified {
    /// A server of which only this is known, and that it has no mark.
    pub(crate) fn unmarked(own: Slots) -> Self {
        let identity = Identity { text: "".into(), history: "".into() };
        Self { identity, verified: Moment::NEVER, own, mark: Arc::default(), left: Duration::ZERO }
    }
}

impl Identity {
    fn parse(info: &Info) -> Option<Self> {
        let (run, history) = (info.get("run_id"), info.get("master_replid"));
        if run.is_empty() || history.is_empty() {
            return None;
        }
        Some(Self { text: format!("{run}:{history}").into(), history: history.into() })
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
}
