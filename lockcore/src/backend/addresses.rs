//! The addresses of a server's name.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;

use crate::system::{looked_up, run_blocking};

/// How long to wait for the addresses of a name.
const LOOKUP: Duration = Duration::from_secs(1);

/// An address that has not answered by then is not waited for alone. A login of six round trips is faster
/// than that across an ocean, and five addresses have their turns within two seconds.
const NEXT: Duration = Duration::from_millis(400);

/// The addresses of a host in the order in which the system names them, each once. None if the host is
/// unknown, or not resolved within a second.
///
/// # Cancel safety
/// Cancel safe.
pub async fn addresses_of(host: &str, port: u16) -> Vec<SocketAddr> {
    let name = host.trim_matches(['[', ']']).to_owned();
    if let Ok(ip) = name.parse() {
        return vec![SocketAddr::new(ip, port)];
    }
    // The resolver of the system blocks.
    let looking = run_blocking("lockwell-lookup", move || looked_up(&name, port));
    let found = timeout(LOOKUP, looking).await.ok().and_then(Result::ok).and_then(Result::ok);
    let mut each = Vec::new();
    for address in found.unwrap_or_default() {
        if !each.contains(&address) {
            each.push(address);
        }
    }
    each
}

/// Asks a server for an answer, such as a connection, at its name; if it has none, or is slow, also at each
/// address of the name, one after the other. The first answer counts.
///
/// A client crate that connects to a name takes the first address that accepts the connection. A server that
/// is stopped or hung accepts it, too, and never answers.
///
/// `open` gets `None` for the name. It has a time limit of its own, or the caller has one. A refusal that is
/// that of all addresses is an answer: an `Err` is followed by the next address.
///
/// # Errors
/// The first one, if there is no answer at any address.
///
/// # Cancel safety
/// Drops what `open` has returned.
pub async fn at_each_address<T, E, F>(
    host: &str,
    port: u16,
    open: impl Fn(Option<SocketAddr>) -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut opening = FuturesUnordered::from_iter([open(None)]);
    let mut failure = match timeout(NEXT, opening.next()).await {
        Ok(Some(Ok(answer))) => return Ok(answer),
        Ok(Some(Err(error))) => Some(error),
        Ok(None) | Err(_) => None,
    };
    let mut looking = pin!(addresses_of(host, port));
    let mut found = loop {
        tokio::select! {
            Some(opened) = opening.next() => match opened {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = Some(error),
            },
            found = &mut looking => break found,
        }
    };
    if found.len() > 1 {
        // The name has led to the first one, most likely.
        found.rotate_left(1);
    } else {
        found.clear();
    }
    let mut left = found.into_iter();
    loop {
        opening.extend(left.next().map(|address| open(Some(address))));
        let pause = if left.len() == 0 { Duration::MAX } else { NEXT };
        match (timeout(pause, opening.next()).await, failure) {
            (Ok(Some(Ok(answer))), _) => return Ok(answer),
            (Ok(Some(Err(error))), None) => failure = Some(error),
            (Ok(None), Some(error)) => return Err(error),
            (_, earlier) => failure = earlier,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::suite::set_lookup;
    use crate::system::lock;

    /// A name with three addresses.
    const NAME: &str = "three.test";

    fn three(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
        let place = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
        (host == NAME).then(|| [1, 2, 2, 3].map(place).to_vec())
    }

    /// Where it was asked, in this order, if only these addresses answer, and all others are silent or refuse.
    async fn asked(host: &str, good: &[u8], silent: bool) -> (Result<u8, u8>, Vec<u8>) {
        set_lookup(three);
        let asked = Mutex::new(Vec::new());
        let open = |place: Option<SocketAddr>| {
            let last = place.map_or(0, |place| place.ip().to_string().pop().map_or(0, |it| it as u8 - b'0'));
            lock(&asked).push(last);
            async move {
                match good.contains(&last) {
                    true => Ok(last),
                    false if silent => std::future::pending().await,
                    false => Err(last),
                }
            }
        };
        let answer = timeout(NEXT * 20, at_each_address(host, 1, open)).await.unwrap_or(Err(u8::MAX));
        (answer, asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn each_address_has_its_turn() {
        for silent in [false, true] {
            assert_eq!(asked(NAME, &[0], silent).await, (Ok(0), vec![0]));
            assert_eq!(asked(NAME, &[2, 3], silent).await, (Ok(2), vec![0, 2]));
            assert_eq!(asked(NAME, &[1], silent).await, (Ok(1), vec![0, 2, 3, 1]));
        }
        assert_eq!(asked(NAME, &[], false).await, (Err(0), vec![0, 2, 3, 1]));
        assert_eq!(asked(NAME, &[], true).await, (Err(u8::MAX), vec![0, 2, 3, 1]));
        // One address has been asked by then.
        assert_eq!(asked("[::1]", &[1], false).await, (Err(0), vec![0]));
        assert_eq!(asked("-no-such-host.invalid", &[1], false).await, (Err(0), vec![0]));
    }

    #[tokio::test]
    async fn an_address_is_its_own() {
        assert_eq!(addresses_of("127.0.0.1", 7).await, ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(addresses_of("[::1]", 7).await, ["[::1]:7".parse().unwrap()]);
    }
}
