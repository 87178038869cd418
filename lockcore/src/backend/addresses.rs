//! The addresses of a server's name.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;

use crate::system::{looked_up, run_blocking};

/// How long to wait for the addresses of a name.
const LOOKUP: Duration = Duration::from_secs(2);

/// An address that has not answered by then is not waited for alone. A login of six round trips is faster
/// than that across an ocean, and five addresses have their turns within two seconds.
const NEXT: Duration = Duration::from_millis(400);

/// The addresses of a host in the order in which the system names them, each once. A client crate that looks
/// names up with tokio panics where the operating system starts no more threads.
///
/// # Errors
/// The host is unknown, or not resolved within two seconds, or no thread can be started.
///
/// # Cancel safety
/// Cancel safe.
pub async fn addresses_of(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let name = host.trim_matches(['[', ']']).to_owned();
    if let Ok(ip) = name.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    // The resolver of the system blocks.
    let looking = run_blocking("lockwell-lookup", move || looked_up(&name, port));
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the host name is not resolved in time");
    let found = timeout(LOOKUP, looking).await.map_err(late)?.map_err(io::Error::other)??;
    let mut each = Vec::new();
    for address in found {
        if !each.contains(&address) {
            each.push(address);
        }
    }
    if each.is_empty() { Err(io::Error::other("the host name has no address")) } else { Ok(each) }
}

/// Asks a server for an answer, such as a connection, at each address of its name, one after the other: the
/// next one if it has none, or is slow. The first answer counts.
///
/// A client crate that connects to a name takes the first address that accepts the connection. A server that
/// is stopped or hung accepts it, too, and never answers.
///
/// `open` has a time limit of its own, or the caller has one. A refusal that is that of all addresses is an
/// answer: an `Err` is followed by the next address.
///
/// # Errors
/// The first one, if there is no answer at any address; that of the look-up, if there is none.
///
/// # Cancel safety
/// Drops what `open` has returned.
pub async fn at_each_address<T, E, F>(host: &str, port: u16, open: impl Fn(SocketAddr) -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: From<io::Error>,
{
    in_turn(FuturesUnordered::new(), None, addresses_of(host, port).await?, open).await
}

/// As [`at_each_address`], for a client crate that takes no address beside the name, which TLS or the server
/// wants to know. `open` gets `None` for the name first, and then, if the name has several addresses, each of
/// them.
///
/// # Errors
/// The first one, if there is no answer.
///
/// # Cancel safety
/// Drops what `open` has returned.
pub async fn by_name_or_address<T, E, F>(
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
            found = &mut looking => break found.unwrap_or_default(),
        }
    };
    if found.len() > 1 {
        // The name has led to the first one, most likely.
        found.rotate_left(1);
    } else {
        found.clear();
    }
    in_turn(opening, failure, found, |address| open(Some(address))).await
}

/// Goes on with these addresses. There is one, or a failure, or something under way.
async fn in_turn<T, E, F>(
    mut opening: FuturesUnordered<F>,
    mut failure: Option<E>,
    addresses: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut left = addresses.into_iter();
    loop {
        opening.extend(left.next().map(&open));
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

    /// The address that fails, by its last number.
    #[derive(Debug, PartialEq)]
    struct Last(u8);

    /// The look-up fails.
    impl From<io::Error> for Last {
        fn from(_: io::Error) -> Self {
            Self(u8::MAX - 1)
        }
    }

    /// Where it was asked, in this order, if only these addresses answer, and all others are silent or refuse.
    async fn asked(host: &str, by_name: bool, good: &[u8], silent: bool) -> (Result<u8, Last>, Vec<u8>) {
        set_lookup(three);
        let asked = Mutex::new(Vec::new());
        let open = |place: Option<SocketAddr>| {
            let last = place.map_or(0, |place| place.ip().to_string().pop().map_or(0, |it| it as u8 - b'0'));
            lock(&asked).push(last);
            async move {
                match good.contains(&last) {
                    true => Ok(last),
                    false if silent => std::future::pending().await,
                    false => Err(Last(last)),
                }
            }
        };
        let asking = async {
            if by_name {
                by_name_or_address(host, 1, open).await
            } else {
                at_each_address(host, 1, |address| open(Some(address))).await
            }
        };
        let answer = timeout(NEXT * 20, asking).await.unwrap_or(Err(Last(u8::MAX)));
        (answer, lock(&asked).clone())
    }

    #[tokio::test]
    async fn each_address_has_its_turn_after_the_name() {
        for silent in [false, true] {
            let asked = |good| asked(NAME, true, good, silent);
            assert_eq!(asked(&[0]).await, (Ok(0), vec![0]));
            assert_eq!(asked(&[2, 3]).await, (Ok(2), vec![0, 2]));
            assert_eq!(asked(&[1]).await, (Ok(1), vec![0, 2, 3, 1]));
            let failure = Last(if silent { u8::MAX } else { 0 });
            assert_eq!(asked(&[]).await, (Err(failure), vec![0, 2, 3, 1]));
        }
        // One address has been asked by then.
        assert_eq!(asked("[::1]", true, &[1], false).await, (Err(Last(0)), vec![0]));
        assert_eq!(asked("-no-such-host.invalid", true, &[1], false).await, (Err(Last(0)), vec![0]));
    }

    #[tokio::test]
    async fn each_address_has_its_turn_without_the_name() {
        for silent in [false, true] {
            let asked = |good| asked(NAME, false, good, silent);
            assert_eq!(asked(&[1]).await, (Ok(1), vec![1]));
            assert_eq!(asked(&[3]).await, (Ok(3), vec![1, 2, 3]));
            let failure = Last(if silent { u8::MAX } else { 1 });
            assert_eq!(asked(&[]).await, (Err(failure), vec![1, 2, 3]));
        }
        assert_eq!(asked("[::1]", false, &[1], false).await, (Ok(1), vec![1]));
        assert_eq!(
            asked("-no-such-host.invalid", false, &[0], false).await,
            (Err(Last(u8::MAX - 1)), vec![])
        );
    }

    #[tokio::test]
    async fn an_address_is_its_own() {
        assert_eq!(addresses_of("127.0.0.1", 7).await.unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(addresses_of("[::1]", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
    }
}
