//! What a checker has to know of a grant.

use lockwell_core::{FencingToken, Mode, Moment};

/// A grant of a lock, and the interval in which its holder considered itself the holder.
pub trait Held {
    /// How the lock was held.
    fn mode(&self) -> Mode;

    /// The token of the grant.
    fn token(&self) -> FencingToken;

    /// The call of the acquire.
    fn asked(&self) -> Moment;

    /// The return of the acquire.
    fn from(&self) -> Moment;

    /// The call of release, the deadline, or the noticed loss, whichever came first. The interval ends just
    /// before it.
    fn until(&self) -> Moment;
}

impl<H: Held> Held for &H {
    fn mode(&self) -> Mode {
        (**self).mode()
    }

    fn token(&self) -> FencingToken {
        (**self).token()
    }

    fn asked(&self) -> Moment {
        (**self).asked()
    }

    fn from(&self) -> Moment {
        (**self).from()
    }

    fn until(&self) -> Moment {
        (**self).until()
    }
}
