//! What a server may forget: the options `durability` and `longest_ttl`.

use std::time::Duration;

use lockwell_core::backend::GraceOptions;
use lockwell_core::{Claim, Error, ErrorKind, Result, ServerUrl};

/// The options of the address.
pub(crate) const OPTIONS: [&str; 2] = ["durability", "longest_ttl"];

/// Reads the options: the longest lease that the server may forget. `None`: the server is trusted to keep
/// each grant. One for which another can take its place is not, unless the address says so.
pub(crate) fn read(url: &ServerUrl, can_move: bool) -> Result<Option<Duration>> {
    let read = if can_move { GraceOptions::of_forgetful } else { GraceOptions::read };
    let options = read(url, "server")?;
    Ok(options.is_grace.unwrap_or(can_move).then(|| options.longest()))
}

/// Refuses a claim with a lease that would outlast the grace period.
pub(crate) fn check(claim: &Claim, longest: Option<Duration>) -> Result<()> {
    let lease = claim.ttl();
    match longest {
        Some(longest) if lease > longest => {
            let text = format!(
                "a lease of {lease:?} is longer than longest_ttl={longest:?}, the longest that this server may \
                 forget: ask for a shorter one, or raise longest_ttl in the address of all clients"
            );
            Err(Error::new(ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::{LockName, Mode, Wait};

    use super::*;

    #[test]
    fn a_lease_with_its_lock_delay_is_no_longer_than_a_grace_period() {
        let checked = |ttl, delay| {
            let name = LockName::new("a").unwrap();
            let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(ttl), Wait::No, "test".into());
            check(&claim.with_lock_delay(Duration::from_secs(delay)), Some(Duration::from_secs(9)))
        };
        for (ttl, delay) in [(9, 0), (5, 4), (1, 8)] {
            checked(ttl, delay).unwrap();
        }
        for (ttl, delay) in [(10, 0), (5, 5)] {
            let error = checked(ttl, delay).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("a lease of 10s is longer than longest_ttl=9s"), "{error}");
        }
    }

    #[test]
    fn defaults_and_bounds() {
        let of = |query: &str| read(&format!("redis://a?{query}").parse().unwrap(), false);
        let moving = |query: &str| read(&format!("redis+cluster://a?{query}").parse().unwrap(), true);
        assert_eq!(moving("").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(moving("longest_ttl=9s").unwrap(), Some(Duration::from_secs(9)));
        assert_eq!(moving("durability=server").unwrap(), None);
        assert!(moving("durability=server&longest_ttl=9s").is_err());
        assert_eq!(of("").unwrap(), None);
        assert_eq!(of("durability=server").unwrap(), None);
        assert_eq!(of("durability=grace").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(of("durability=grace&longest_ttl=4s").unwrap(), Some(Duration::from_secs(4)));
        for (query, part) in [
            ("longest_ttl=10s", "durability=grace"),
            ("durability=server&longest_ttl=10s", "durability=grace"),
            ("durability=grace&longest_ttl=3s", "at least 4s"),
            ("durability=disk", "server or grace"),
        ] {
            let error = of(query).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(part), "{query}: {error}");
        }
    }
}
