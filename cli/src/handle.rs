//! What `acquire` prints and `release` takes: `lw1.MODE.OWNER.TOKEN.NAME`.
//!
//! The name comes last, since it may have dots, with all but plain characters percent-encoded, so that a
//! handle is one word for every shell.

use lockwell::backend::{Claim, OwnerId};
use lockwell::{FencingToken, LockName, Mode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;

use crate::exit::Failure;

const VERSION: &str = "lw1";

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/').remove(b':');

pub(crate) fn write(claim: &Claim, token: FencingToken) -> String {
    let name = utf8_percent_encode(claim.name().as_str(), PLAIN);
    format!("{VERSION}.{}.{:032x}.{token}.{name}", claim.mode().code(), claim.owner().as_u128())
}

/// The claim that can be released by this handle, and the token of its hold. No complaint quotes it, since
/// whoever knows it can free the lock.
pub(crate) fn read(text: &str) -> Result<(Claim, FencingToken), Failure> {
    let parse = || {
        let mut parts = text.trim().splitn(5, '.');
        if parts.next()? != VERSION {
            return None;
        }
        let mode = Mode::from_code(parts.next()?.parse().ok()?)?;
        let owner = OwnerId::from_u128(Uuid::try_parse(parts.next()?).ok()?.as_u128());
        let token = FencingToken::new(parts.next()?.parse().ok()?);
        let name = percent_decode_str(parts.next()?).decode_utf8().ok()?;
        Some((Claim::of_owner(LockName::new(name.as_ref()).ok()?, mode, owner), token))
    };
    parse().ok_or_else(|| {
        Failure::usage(
            "that is no handle of lockwell acquire, such as lw1.0.5b0c..5f.7.NAME; to free a lock by its name whoever holds \
             it, add --force",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn handles_go_both_ways() {
        let limit = NonZeroU32::new(3).unwrap();
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { limit }] {
            for name in ["a", "orders/42 ü", "a.b.c", "%41", "$(rm)"] {
                let claim = Claim::of_owner(LockName::new(name).unwrap(), mode, OwnerId::random());
                let text = write(&claim, FencingToken::new(u64::MAX));
                assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:%".contains(c)), "{text}");
                let (back, token) = read(&format!("{text}\n")).unwrap();
                assert_eq!(token.get(), u64::MAX);
                assert_eq!((back.name(), back.mode(), back.owner()), (claim.name(), mode, claim.owner()));
            }
        }
    }

    #[test]
    fn what_is_no_handle_is_not_quoted() {
        for text in ["", "a", "lw2.0.00000000000000000000000000000000.7.a", "lw1.0.secret.7.a", "lw1.0"] {
            let failure = read(text).err().unwrap();
            assert!(failure.status == 64 && !failure.message.contains("secret"), "{text}");
        }
    }
}
