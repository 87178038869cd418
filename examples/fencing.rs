//! Fencing: a resource that refuses a holder who does not know yet that the lock is no longer its own.
//!
//! Every lock with a lease can be held by two for a moment, if one of them was paused for longer than its
//! lease lasts. No lock service can prevent that. The resource can: tokens rise with every grant, and it
//! keeps the highest.
//!
//! `cargo run --example fencing`

use lockwell::{FencingToken, HoldId, LockGuard, Locks};

/// A resource with a memory for tokens. In a real one, check and write are one step: one transaction, one
/// script.
#[derive(Default)]
struct Account {
    balance: i64,
    last: Option<(FencingToken, HoldId)>,
}

impl Account {
    fn write(&mut self, balance: i64, guard: &LockGuard) -> Result<(), FencingToken> {
        let (token, hold) = (guard.token(), guard.hold_id());
        if let Some((highest, last)) = self.last {
            // Higher, or the very holder who wrote last. Never "higher or equal": after the failover of a
            // store that copies asynchronously, two holders may have the same number.
            if token < highest || (token == highest && hold != last) {
                return Err(highest);
            }
        }
        self.last = Some((token, hold));
        self.balance = balance;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockwell::Result<()> {
    let locks = Locks::in_memory();
    let mut account = Account::default();

    let slow = locks.lock("account/7").await?;
    println!("slow holder, token {}: writes 100: {:?}", slow.token(), account.write(100, &slow));

    // The slow holder is paused: a long collection of garbage, a suspended machine. Its lease ends, which we
    // shorten here by force, and another takes the lock.
    locks.force_release("account/7").await?;
    let next = locks.lock("account/7").await?;
    println!("next holder, token {}: writes 250: {:?}", next.token(), account.write(250, &next));

    // The slow holder wakes up, and considers itself the holder for one more moment.
    println!("slow holder still considers itself the holder: {}", slow.is_held());
    println!("slow holder, token {}: writes 101: {:?}", slow.token(), account.write(101, &slow));
    println!("balance: {}", account.balance);
    assert_eq!(account.balance, 250, "the late write is refused");
    next.release().await
}
