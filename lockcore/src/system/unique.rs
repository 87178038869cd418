//! Random bits that nobody else has.

use rand::TryRng;
use rand::rngs::SysRng;

/// 128 random bits from the operating system, for names that must differ from all others.
///
/// A generator in this process would not do: a forked child and a copy of a virtual machine have its state,
/// and so make the same numbers. Two clients with equal ids would hold one lock, since a claim with a known
/// id is a repetition.
///
/// # Panics
/// If the operating system has no random bits.
pub fn unique_bits() -> u128 {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes).expect("random bits of the operating system");
    u128::from_ne_bytes(bytes)
}
