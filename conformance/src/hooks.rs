//! What the suite gets to know from within the core.

use lockwell_core::suite::{Hooks, set_hooks};

use crate::canary;
use crate::rest::rest_when_idle;

/// It must come before the keeper starts: a thread that cannot say that it rests does, for the clock, never.
pub(crate) fn set() {
    set_hooks(Hooks {
        new_owner: canary::note,
        new_runtime: |builder| {
            rest_when_idle(builder);
        },
    });
}

#[cfg(test)]
mod tests {
    use lockwell_core::OwnerId;

    use super::*;

    #[test]
    fn every_new_owner_is_noted() {
        set();
        let owner = OwnerId::random();
        assert!(canary::shows_an_owner(&format!("{:032x}", owner.as_u128())));
    }
}
