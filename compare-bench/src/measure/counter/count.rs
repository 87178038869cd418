//! What a server counts.

/// Since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    /// `None` where the server does not count them.
    pub(crate) wakeups: Option<u64>,
}

impl Count {
    pub(super) fn since(self, before: Self) -> Self {
        let wakeups = self.wakeups.zip(before.wakeups);
        Self {
            requests: self.requests.saturating_sub(before.requests),
            wakeups: wakeups.map(|(after, before)| after.saturating_sub(before)),
        }
    }

    /// The count without this number of known requests.
    pub(crate) fn without(self, requests: u64) -> Self {
        Self { requests: self.requests.saturating_sub(requests), ..self }
    }

    pub(super) fn and(self, other: Self) -> Self {
        let wakeups = self.wakeups.zip(other.wakeups).map(|(one, other)| one + other);
        Self { requests: self.requests + other.requests, wakeups }
    }
}
