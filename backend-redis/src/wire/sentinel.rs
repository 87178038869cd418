//! Finds the master by its sentinels, and asks them again while it is used.
//!
//! One sentinel that is cut off names the former master for as long as that lasts, and the former master may
//! still answer. So the master is what a majority of the sentinels of the address names, unless another of
//! them names a server by a later election (`config-epoch`). A sentinel never goes back to an earlier one, and
//! any two majorities have a sentinel in common. So once a client has been led to a new master, no request
//! that is sent to the sentinels later leads another client to the former one.
//!
//! All runtimes of a client share one decision. Calls are made only while it [counts](COUNTS), and a lease is
//! believed in no longer than the longest lease after the last request that led to it. A new master grants
//! nothing for a grace period from when a client was led to it, so those leases have ended by then.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use lockwell_core::Moment;
use lockwell_core::backend::lock;
use redis::{
    ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, Value,
};
use tokio::time::Instant;

use crate::gather::next_until;
use crate::wire::dial::{open, unreachable_now};
use crate::wire::link::Link;
use crate::wire::slots::Name;
use crate::words::address::{Address, Topology, tcp};
use crate::words::error::{ErrorClass, NO_MAJORITY, SENTINEL_LOGIN, classify, is_denied};

/// How long one sentinel may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long the others are waited for when a majority agrees.
const PATIENCE: Duration = Duration::from_millis(50);

/// How often the sentinels are asked while calls are made.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// For how long the last word of a majority counts.
pub(super) const COUNTS: Duration = Duration::from_secs(5);

/// The master as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: Name,
    /// The election by which it became the master; 0 if the sentinel does not tell.
    epoch: u64,
}

/// Which master the sentinels have named: one decision for all runtimes of a client.
#[derive(Debug)]
pub(crate) struct Decision(Mutex<Decided>);

#[derive(Debug)]
struct Decided {
    named: Option<Named>,
    /// The number of the decision.
    number: u64,
    /// When the last request was sent whose answers name it, and when the last one was sent at all.
    confirmed: Moment,
    asked: Moment,
}

impl Decision {
    pub(crate) fn new() -> Self {
        let now = Moment::now();
        Self(Mutex::new(Decided { named: None, number: 0, confirmed: now, asked: now }))
    }

    fn note_asked(&self) -> Moment {
        let now = Moment::now();
        lock(&self.0).asked = now;
        now
    }

    /// Takes in what the answers to requests that were sent then agree on. `None`: others have led to a later
    /// election.
    fn take(&self, found: &Named, sent: Moment) -> Option<(Name, u64)> {
        let mut state = lock(&self.0);
        let decided = &mut *state;
        match &decided.named {
            Some(known) if known == found => decided.confirmed = decided.confirmed.max(sent),
            // Sentinels that were set up anew count from 0.
            Some(known) if found.epoch < known.epoch && !decided.confirmed.after(COUNTS).has_passed() => {
                return None;
            }
            Some(known) if found.epoch == known.epoch && sent < decided.confirmed => (),
            _ => {
                decided.named = Some(found.clone());
                decided.number += 1;
                decided.confirmed = sent;
            }
        }
        decided.named.as_ref().map(|named| (named.name.clone(), decided.number))
    }
}

/// The sentinels, as one runtime asks them.
pub(super) struct Sentinels {
    decision: Arc<Decision>,
    /// A connection to each that has answered.
    links: Vec<Mutex<Option<Link>>>,
}

impl Sentinels {
    /// For an address that names sentinels.
    pub(super) fn of(address: &Address, decision: &Arc<Decision>) -> Option<Self> {
        let Topology::Sentinel { sentinels, .. } = &address.topology else { return None };
        let links = sentinels.iter().map(|_| Mutex::default()).collect();
        Some(Self { decision: Arc::clone(decision), links })
    }

    /// When the last request was sent that led to the master of this number, if that still counts.
    pub(super) fn confirmed(&self, number: u64) -> Option<Moment> {
        let decided = lock(&self.decision.0);
        let counts = decided.number == number && !decided.confirmed.after(COUNTS).has_passed();
        counts.then_some(decided.confirmed)
    }

    /// Whether it is time to ask again.
    pub(super) fn is_due(&self) -> bool {
        lock(&self.decision.0).asked.after(ASK_AGAIN).has_passed()
    }

    /// Where the master is, and the number of the decision.
    ///
    /// All sentinels are asked at once, so that those that hang or are down do not delay the others.
    pub(super) async fn master(&self, address: &Address) -> RedisResult<(ConnectionAddr, u64)> {
        let Topology::Sentinel { sentinels, master } = &address.topology else {
            return Err(unreachable_now());
        };
        let sent = self.decision.note_asked();
        let mut asks: FuturesUnordered<_> = sentinels
            .iter()
            .zip(&self.links)
            .map(|(sentinel, kept)| async {
                let too_late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
                let asked = tokio::time::timeout(TIMEOUT, ask(address, sentinel, master, kept)).await;
                asked.unwrap_or_else(|_| too_late())
            })
            .collect();
        let (mut answers, mut failures, mut end) = (Vec::new(), Vec::new(), None);
        while let Some(asked) = next_until(&mut asks, end).await {
            match asked {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push(error),
            }
            if end.is_none() && agreed(&answers, sentinels.len()).is_some() {
                end = Some(Instant::now() + PATIENCE);
            }
        }
        let agreed = agreed(&answers, sentinels.len());
        if let Some((Name { host, port }, number)) = agreed.and_then(|found| self.decision.take(found, sent))
        {
            return Ok((address.node(host, port), number));
        }
        let is_final = |error: &RedisError| classify(error, true) == ErrorClass::Fatal;
        if let Some(at) = failures.iter().position(is_final) {
            return Err(failures.swap_remove(at));
        }
        if 2 * answers.iter().filter(|answer| answer.is_none()).count() > sentinels.len() {
            let text = "no sentinel knows a master of this name";
            return Err((ErrorKind::MasterNameNotFoundBySentinel, text).into());
        }
        Err(redis::make_extension_error(NO_MAJORITY.to_owned(), Some(dissent(&answers, sentinels.len()))))
    }
}

/// What is named by the latest election, if a majority of all names it.
fn agreed(answers: &[Option<Named>], all: usize) -> Option<&Named> {
    let many = |named: &Named| answers.iter().flatten().filter(|other| other.name == named.name).count();
    let latest = answers.iter().flatten().max_by_key(|named| (named.epoch, many(named)))?;
    (2 * many(latest) > all).then_some(latest)
}

fn dissent(answers: &[Option<Named>], all: usize) -> String {
    let most = all / 2 + 1;
    let mut text = format!("{most} of {all} sentinels must name the same master, by the latest election: ");
    for Named { name, epoch } in answers.iter().flatten() {
        let written = write!(text, "{}:{} by election {epoch}, ", name.host, name.port);
        written.unwrap_or_default();
    }
    text + &format!("{} did not answer", all - answers.len())
}

/// Which master a sentinel names; `None` if it knows none of this name.
///
/// It is asked without a login first, and with a login only when it requires one. So no password is sent to a
/// sentinel that needs none. If the address has none for the sentinels, the master's is tried: it is no
/// secret to a sentinel, which is trusted to name the server that gets the master's password.
async fn ask(
    address: &Address,
    sentinel: &ConnectionAddr,
    master: &str,
    kept: &Mutex<Option<Link>>,
) -> RedisResult<Option<Named>> {
    let earlier = lock(kept).take();
    if let Some(mut link) = earlier
        && let Ok(named) = named(&mut link, master).await
    {
        *lock(kept) = Some(link);
        return Ok(named);
    }
    let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let asked = async |login| {
        let info = sentinel.clone().into_connection_info()?;
        let mut link = open(address, info.set_redis_settings(login).set_tcp_settings(tcp()), None).await?;
        let named = named(&mut link, master).await?;
        *lock(kept) = Some(link);
        RedisResult::Ok(named)
    };
    match asked(plain.clone()).await {
        Err(error) if wants_login(&error) => {
            let Some(login) = address.sentinel_login(plain) else { return Err(login_refused(&error)) };
            asked(login).await.map_err(|error| {
                let refused = error.kind() == ErrorKind::AuthenticationFailed || wants_login(&error);
                if refused { login_refused(&error) } else { error }
            })
        }
        answer => answer,
    }
}

async fn named(link: &mut Link, master: &str) -> RedisResult<Option<Named>> {
    let mut beside = link.clone();
    let (about, place) = (command("MASTER", master), command("GET-MASTER-ADDR-BY-NAME", master));
    // Both are one round trip. During a failover the first says where the former master is.
    let (about, place) = tokio::join!(beside.query(&about), link.query(&place));
    let epoch = match about {
        Ok(about) => {
            let mut words = texts(about).into_iter().skip_while(|word| word != "config-epoch");
            words.nth(1).and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
        }
        // Those who may not ask believe the majority alone.
        Err(error) if !error.is_io_error() => 0,
        Err(error) => return Err(error),
    };
    let mut words = texts(place?).into_iter();
    let (Some(host), Some(port)) = (words.next(), words.next()) else { return Ok(None) };
    Ok(port.parse().ok().map(|port| Named { name: Name { host, port }, epoch }))
}

fn command(word: &str, master: &str) -> redis::Cmd {
    let mut command = redis::cmd("SENTINEL");
    command.arg(word).arg(master);
    command
}

fn texts(answer: Value) -> Vec<String> {
    redis::from_redis_value(answer).unwrap_or_default()
}

/// Refuses a server that says that it is no master: it is one no more, or not yet.
pub(super) async fn require_master(link: &mut Link) -> RedisResult<()> {
    match link.query(&redis::cmd("ROLE")).await {
        Ok(Value::Array(parts)) if !is_master(parts.first()) => Err(unreachable_now()),
        // Without the right to ask, a replica shows by refusing to write.
        Err(error) if !is_denied(&error) => Err(error),
        _ => Ok(()),
    }
}

fn is_master(role: Option<&Value>) -> bool {
    matches!(role, Some(Value::BulkString(word)) if word == b"master")
}

fn wants_login(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "NOPERM" | "WRONGPASS"))
}

fn login_refused(error: &RedisError) -> RedisError {
    redis::make_extension_error(SENTINEL_LOGIN.to_owned(), Some(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(port: u16, epoch: u64) -> Named {
        Named { name: Name { host: "host".to_owned(), port }, epoch }
    }

    #[test]
    fn a_majority_of_all_by_the_latest_election() {
        let found = |answers: &[Option<Named>]| agreed(answers, 3).map(|named| named.name.port);
        let (old, new) = (|| Some(named(1, 1)), || Some(named(2, 2)));
        assert_eq!(found(&[old(), old()]), Some(1));
        assert_eq!(found(&[old(), new(), new()]), Some(2));
        assert_eq!(found(&[new(), old(), new()]), Some(2));
        assert_eq!(found(&[new()]), None, "one of three");
        assert_eq!(found(&[new(), None]), None, "one of three");
        assert_eq!(found(&[old(), new()]), None);
        assert_eq!(found(&[old(), old(), new()]), None, "there was a later election");
        let unknown = |port| Some(named(port, 0));
        assert_eq!(found(&[unknown(1), unknown(2), unknown(1)]), Some(1));
        assert_eq!(found(&[unknown(1), unknown(1), unknown(2)]), Some(1));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_decision_does_not_go_back() {
        let decision = Decision::new();
        let (early, late) = (Moment::now(), Moment::now().after(Duration::from_millis(10)));
        let port = |found: Named, sent| decision.take(&found, sent).map(|(name, number)| (name.port, number));
        assert_eq!(port(named(1, 1), early), Some((1, 1)));
        assert_eq!(port(named(2, 2), early), Some((2, 2)));
        assert_eq!(port(named(1, 1), late), None, "an earlier election");
        assert_eq!(port(named(2, 2), late), Some((2, 2)));
        assert_eq!(port(named(1, 2), early), Some((2, 2)), "answers to an earlier request");
        assert_eq!(port(named(1, 3), early), Some((1, 3)), "a later election");
        // Sentinels that were set up anew.
        lock(&decision.0).confirmed = Moment::now().before(COUNTS);
        assert_eq!(port(named(2, 0), late), Some((2, 4)));
    }
}
