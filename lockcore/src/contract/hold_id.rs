//! The public identity of a hold.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, ErrorKind, OwnerId, Result};

/// Identifies a hold. A resource stores it to recognise its last writer. It has 128 bits, and no other hold
/// has the same.
///
/// Beside the [token](crate::FencingToken) it tells a repetition of the holder's own write from the write of
/// another holder with the same token, which a failover can make. Unlike the owner id of the
/// [claim](crate::Claim) it is not secret: it is a hash of it, from which nobody can compute the owner id. So
/// whoever knows the id cannot release the lock, and a server can compute it (`lockwell schema --verify`).
///
/// All guards of a hold have the same id: those of an [owner](crate::Owner) that takes its lock again, and
/// the reader that a writer became. Tasks that pass a lock on ([`hand_off`](crate::Locks::hand_off)) on a
/// backend without [`token_blocks`](crate::Requirement::TokenBlocks) share a token, and also this id.
///
/// It is written as 32 hexadecimal digits, also by serde, and with the feature `sqlx` in columns of text.
///
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// use lockwell::HoldId;
/// let locks = lockwell::Locks::in_memory();
/// let guard = locks.lock("orders/42").await?;
/// let text = guard.hold_id().to_string();
/// assert_eq!(text.len(), 32);
/// assert_eq!(text.parse::<HoldId>()?, guard.hold_id());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HoldId(u128);

impl HoldId {
    /// Of the last hold of this owner: the first half of SHA-256 of the 16 bytes of its id, which databases
    /// have, too.
    pub(super) fn of(owner: OwnerId) -> Self {
        let whole: [u8; 32] = Sha256::digest(owner.as_u128().to_be_bytes()).into();
        let mut first = [0; 16];
        first.copy_from_slice(&whole[..16]);
        Self(u128::from_be_bytes(first))
    }

    /// The 128 bits, for columns of another type than text.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The id with these bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HoldId({self})")
    }
}

/// Reads the 32 hexadecimal digits.
impl FromStr for HoldId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        bits.map(Self).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("the id of a hold has 32 hexadecimal digits, and {text:?} is none"),
            )
        })
    }
}

impl From<HoldId> for String {
    fn from(id: HoldId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for HoldId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Claim, LockName, Locks, Mode, Wait};

    #[tokio::test]
    async fn a_hold_has_one_id_and_no_other_hold_has_it() {
        let locks = Locks::in_memory();
        let first = locks.lock("a").await.unwrap();
        let id = first.hold_id();
        assert_eq!((first.handle().hold_id(), first.grant().hold_id()), (id, id));
        let other = locks.lock("b").await.unwrap();
        assert_ne!(other.hold_id(), id);
        let reader = first.downgrade().await.unwrap();
        assert_eq!(reader.hold_id(), id, "a downgrade is the same hold");
        let second = locks.read("a").await.unwrap();
        assert_ne!(second.hold_id(), id);
        reader.release().await.unwrap();
        second.release().await.unwrap();
        let owner = locks.owner();
        let outer = owner.lock("a").await.unwrap();
        let inner = owner.lock("a").await.unwrap();
        assert_ne!(outer.hold_id(), id);
        assert_eq!(outer.hold_id(), inner.hold_id(), "a lock that is taken again is the same hold");
    }

    #[tokio::test]
    async fn tasks_that_pass_a_lock_on_have_ids_of_their_own() {
        let locks = Locks::in_memory().hand_off(10, Duration::from_secs(10));
        let first = locks.lock("a").await.unwrap();
        let (id, token) = (first.hold_id(), first.token());
        let next = tokio::spawn(locks.lock("a").into_future());
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.release().await.unwrap();
        let next = next.await.unwrap().unwrap();
        assert!(next.token() > token);
        assert_ne!(next.hold_id(), id);
    }

    #[test]
    fn it_does_not_show_the_owner() {
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(1), Wait::No, "test".into());
        assert_ne!(claim.hold_id().as_u128(), claim.owner().as_u128());
        assert_eq!(claim.downgraded().hold_id(), claim.hold_id());
        let again = Claim::of_owner(claim.name().clone(), claim.mode(), claim.owner());
        assert_eq!(again.hold_id(), claim.hold_id(), "a server that knows the owner knows it");
        let known = HoldId::of(OwnerId::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
        assert_eq!(known.to_string(), "be45cb2605bf36bebde684841a28f0fd");
    }

    #[test]
    fn its_text_goes_both_ways() {
        let id = HoldId::from_u128(0x2a);
        assert_eq!(id.to_string(), "0000000000000000000000000000002a");
        assert_eq!(format!("{id:?}"), "HoldId(0000000000000000000000000000002a)");
        assert_eq!(id.to_string().to_uppercase().parse::<HoldId>().unwrap(), id);
        for bad in ["", "2a", "+000000000000000000000000000002a", "0000000000000000000000000000002g"] {
            assert_eq!(bad.parse::<HoldId>().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
