//! Computes how long a session is valid, which means that it certainly exists at the servers. These are pure
//! functions: time is an argument.
//!
//! On a single server the time of a session starts again at each request. So the session lives at least until
//! the sending of an answered request plus its timeout.
//!
//! In an ensemble only the leader ends sessions. Every half tick it pings the server of the session, and the
//! answer reports the heartbeats of clients. But a leader may have lost its majority without noticing it,
//! while another leader counts the time of the session from its own election. An answered *write* proves two
//! things. A majority followed this leader when the write was sent, so no other leader had begun to count
//! before. And the server of the session was connected to this leader, so every request that was sent more
//! than half a tick before has been reported. These requests count. Reads and `sync`, which a leader answers
//! by itself, prove neither.
//!
//! A server that takes over a session may grant it a shorter timeout than the server before. The new timeout
//! is known when all servers have answered a request for it. Until then the shortest of their last answers
//! counts, or the shortest timeout that the servers allow, if a server has never answered.

use std::collections::VecDeque;
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::valid_until;

/// The number of heartbeats that are remembered.
const REMEMBERED: usize = 16;

#[derive(Debug)]
pub(crate) struct Validity {
    timeout: Duration,
    /// The shortest timeout that a server is known to grant when it takes this session over.
    least: Duration,
    /// How much older than an answered write a heartbeat must be to be certainly reported. Zero on a single
    /// server.
    lag: Duration,
    /// That time in an ensemble.
    lag_of_ensemble: Duration,
    /// The number of moves of the session after which its server said what `lag` is.
    kind_at: u64,
    /// When the latest heartbeat was sent that has certainly reached the leader.
    confirmed: Moment,
    /// When the session was opened, or when the latest answered request was sent.
    heard: Moment,
    /// When the latest answered write was sent; on a single server, the latest answered request.
    proof: Moment,
    /// Answered requests that are not old enough to be reported, in order.
    recent: VecDeque<Moment>,
    /// The number of moves of the session; `asked_at` is that number at the time of the latest requests to
    /// the servers.
    moves: u64,
    moved_at: Moment,
    asked_at: u64,
    /// A server has granted a shorter timeout than the first one.
    shortened: bool,
}

impl Validity {
    /// A session that was requested at `asked` and opened at `opened`.
    ///
    /// Its time counts from `asked`. But the client may have tried several servers in between, for longer
    /// than the timeout. Such a session is not silent, and is valid as soon as writes are answered.
    pub(crate) fn new(
        timeout: Duration,
        least: Duration,
        lag: Duration,
        (asked, opened): (Moment, Moment),
    ) -> Self {
        Self {
            timeout,
            least,
            lag,
            lag_of_ensemble: lag,
            kind_at: 0,
            confirmed: asked,
            heard: opened,
            proof: asked,
            recent: VecDeque::new(),
            moves: 0,
            moved_at: asked,
            asked_at: 0,
            shortened: false,
        }
    }

    /// The lag if the servers become an ensemble.
    pub(crate) fn in_ensemble(self, lag_of_ensemble: Duration) -> Self {
        Self { lag_of_ensemble, ..self }
    }

    /// How much older than an answered write a heartbeat must be to be certainly reported. The server that
    /// has taken the session over may be a member of an ensemble, until it says what it is.
    pub(crate) fn lag(&self) -> Duration {
        if self.kind_at == self.moves { self.lag } else { self.lag_of_ensemble }
    }

    /// What the server of the session is after this number of moves: a single server, or a member of an
    /// ensemble with this lag.
    pub(crate) fn served_by(&mut self, moves: u64, ensemble: bool, lag_of_ensemble: Duration) {
        self.lag_of_ensemble = lag_of_ensemble;
        if moves != self.moves {
            return;
        }
        (self.kind_at, self.lag) = (moves, if ensemble { lag_of_ensemble } else { Duration::ZERO });
        if let Some(&last) = self.recent.back().filter(|&&last| !ensemble && last > self.moved_at) {
            // What it has answered since then proves as much as writes.
            self.touched(last);
        }
    }

    /// A request was sent at `sent` and has been answered.
    pub(crate) fn touched(&mut self, sent: Moment) {
        self.heard = self.heard.max(sent);
        if self.lag().is_zero() {
            self.confirmed = self.confirmed.max(sent);
            self.proof = self.proof.max(sent);
        } else if self.recent.back().is_none_or(|last| sent.since(*last) >= self.lag() / 8) {
            // A busy session need not remember every request.
            self.recent.push_back(sent);
            if self.recent.len() > REMEMBERED {
                self.recent.pop_front();
            }
        }
    }

    /// A write was sent at `sent` and has been answered.
    pub(crate) fn confirmed(&mut self, sent: Moment) {
        let reported = sent.before(self.lag());
        while let Some(&older) = self.recent.front().filter(|&&older| older <= reported) {
            self.confirmed = self.confirmed.max(older);
            self.recent.pop_front();
        }
        self.proof = self.proof.max(sent);
        self.touched(sent);
    }

    /// Another connection has taken the session over, which was noticed at `now`.
    pub(crate) fn moved(&mut self, now: Moment) {
        self.moves += 1;
        self.moved_at = now;
    }

    /// The number of moves of the session.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The shortest timeout that the servers grant to a session like this, by their answers after this number
    /// of moves.
    pub(crate) fn granted(&mut self, moves: u64, timeout: Duration) {
        self.asked_at = self.asked_at.max(moves);
        if timeout < self.timeout {
            self.timeout = timeout;
            self.shortened = true;
        }
    }

    /// All servers have answered, and grant at least this timeout.
    pub(crate) fn know(&mut self, least: Duration) {
        self.least = least;
    }

    /// The timeout that the session certainly has.
    pub(crate) fn timeout(&self) -> Duration {
        if self.asked_at == self.moves { self.timeout } else { self.timeout.min(self.least) }
    }

    /// The end of the validity of locks that were granted for a longer timeout; `None` while the first
    /// timeout holds.
    ///
    /// A server that takes a session over counts its time from that moment, and from each later request. So
    /// there is time to request the new timeout, even if the last heartbeat before the move is older than the
    /// shortest timeout.
    pub(crate) fn cut_short(&self) -> Option<Moment> {
        if self.asked_at == self.moves {
            return self.shortened.then(|| self.deadline());
        }
        let taken_over = valid_until(self.heard.max(self.moved_at), self.least).before(self.lag);
        Some(self.deadline().max(taken_over))
    }

    /// Whether another connection has just taken the session over, and the new timeout is not known yet.
    pub(crate) fn is_settling(&self, now: Moment) -> bool {
        self.asked_at != self.moves && now.since(self.moved_at) < self.timeout / 2
    }

    /// The end of the session's validity.
    pub(crate) fn deadline(&self) -> Moment {
        valid_until(self.confirmed, self.timeout())
    }

    /// When the latest answered request was sent.
    pub(crate) fn heard(&self) -> Moment {
        self.heard
    }

    /// When the latest answered write was sent (on a single server, the latest answered request); `None` if
    /// another connection has taken the session over since then.
    pub(crate) fn proof(&self) -> Option<Moment> {
        (self.moves == 0 || self.proof > self.moved_at).then_some(self.proof)
    }

    /// Whether no request has been answered for so long that waiting is of no use.
    pub(crate) fn is_silent(&self) -> bool {
        valid_until(self.heard, self.timeout).has_passed()
    }

    /// Whether the session has been silent for twice that time, so that it counts as over, whatever the
    /// client crate reports.
    pub(crate) fn is_over(&self) -> bool {
        valid_until(self.heard, self.timeout).after(self.timeout).has_passed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(10);
    const LEAST: Duration = Duration::from_secs(4);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_single_server_counts_from_the_last_answer() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, Duration::ZERO, (start, start));
        assert_eq!(validity.deadline(), valid_until(start, T));
        validity.touched(start.after(ms(500)));
        assert_eq!(validity.deadline(), valid_until(start.after(ms(500)), T));
        // Answers may come out of order.
        validity.confirmed(start.after(ms(200)));
        assert_eq!(validity.deadline(), valid_until(start.after(ms(500)), T));
    }

    #[test]
    fn an_ensemble_counts_what_was_reported() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, ms(1000), (start, start));
        validity.confirmed(start.after(ms(500)));
        assert_eq!(validity.deadline(), valid_until(start, T), "not reported yet");
        validity.confirmed(start.after(ms(1400)));
        assert_eq!(validity.deadline(), valid_until(start, T));
        validity.confirmed(start.after(ms(1500)));
        assert_eq!(validity.deadline(), valid_until(start.after(ms(500)), T));
        for at in 1501..4000 {
            validity.confirmed(start.after(ms(at)));
        }
        assert!(validity.recent.len() <= 10, "{}", validity.recent.len());
        assert!(validity.deadline() >= valid_until(start.after(ms(2800)), T));
    }

    #[test]
    fn a_session_that_was_opened_slowly_is_not_silent() {
        let opened = Moment::now();
        let mut validity = Validity::new(T, LEAST, ms(1000), (opened.before(T * 3), opened));
        assert!(!validity.is_silent() && !validity.is_over());
        assert!(validity.deadline().has_passed(), "it may have been made when it was asked for");
        validity.confirmed(opened);
        validity.confirmed(opened.after(ms(1000)));
        assert_eq!(validity.deadline(), valid_until(opened, T));
        assert!(Validity::new(T, LEAST, ms(1000), (opened.before(T * 3), opened.before(T * 3))).is_over());
    }

    /// A server that was alone may have become a member of an ensemble, whose answers to reads prove nothing.
    #[test]
    fn a_session_that_moved_asks_what_its_server_is() {
        let start = Moment::now();
        let at = |millis| start.after(ms(millis));
        let alone = || Validity::new(T, T, Duration::ZERO, (start, start)).in_ensemble(ms(1000));
        let mut validity = alone();
        validity.touched(at(100));
        validity.moved(at(200));
        validity.granted(1, T);
        for millis in [300, 800, 2000] {
            validity.touched(at(millis));
        }
        assert_eq!((validity.deadline(), validity.proof()), (valid_until(at(100), T), None));
        // It is alone, so all of its answers count.
        validity.served_by(0, false, ms(1000));
        assert_eq!(validity.deadline(), valid_until(at(100), T), "that was before the move");
        validity.served_by(1, false, ms(1000));
        assert_eq!((validity.deadline(), validity.proof()), (valid_until(at(2000), T), Some(at(2000))));
        validity.touched(at(2100));
        assert_eq!(validity.deadline(), valid_until(at(2100), T));
        // It is a member of an ensemble.
        let mut validity = alone();
        validity.moved(at(200));
        validity.granted(1, T);
        validity.touched(at(1000));
        validity.served_by(1, true, ms(500));
        validity.touched(at(1500));
        assert_eq!(validity.deadline(), valid_until(start, T));
        validity.confirmed(at(1600));
        assert_eq!(validity.deadline(), valid_until(at(1000), T));
    }

    #[test]
    fn what_a_server_answers_by_itself_proves_nothing() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, ms(1000), (start, start));
        for at in 0..500 {
            validity.touched(start.after(ms(at * 100)));
        }
        assert_eq!(validity.deadline(), valid_until(start, T));
        assert!(validity.recent.len() <= REMEMBERED);
        // But it is a heartbeat, and the next write proves that it was reported.
        validity.confirmed(start.after(ms(50_000)));
        assert_eq!(validity.deadline(), valid_until(start.after(ms(49_000)), T));
    }

    #[test]
    fn what_is_proven_is_of_the_present_connection() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, ms(1000), (start, start));
        validity.touched(start.after(ms(200)));
        assert_eq!((validity.proof(), validity.heard()), (Some(start), start.after(ms(200))));
        validity.confirmed(start.after(ms(300)));
        assert_eq!(validity.proof(), Some(start.after(ms(300))));
        validity.moved(start.after(ms(400)));
        assert_eq!(validity.proof(), None);
        validity.confirmed(start.after(ms(500)));
        assert_eq!(validity.proof(), Some(start.after(ms(500))));
        let mut alone = Validity::new(T, LEAST, Duration::ZERO, (start, start));
        alone.touched(start.after(ms(200)));
        assert_eq!(alone.proof(), Some(start.after(ms(200))));
    }

    #[test]
    fn a_session_that_was_taken_over_has_the_least_until_the_servers_are_asked() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, Duration::ZERO, (start, start));
        validity.moved(start.after(ms(100)));
        assert_eq!(validity.deadline(), valid_until(start, LEAST));
        assert_eq!(validity.cut_short(), Some(valid_until(start.after(ms(100)), LEAST)));
        assert!(validity.is_settling(start.after(ms(5000))) && !validity.is_settling(start.after(ms(5100))));
        validity.granted(1, T);
        assert!(!validity.is_settling(start.after(ms(200))));
        assert_eq!((validity.deadline(), validity.cut_short()), (valid_until(start, T), None));
        validity.moved(start.after(ms(3000)));
        validity.moved(start.after(ms(5000)));
        validity.granted(2, ms(6000));
        assert_eq!(validity.deadline(), valid_until(start, LEAST), "asked before it was taken over again");
        assert_eq!(
            validity.cut_short(),
            Some(valid_until(start.after(ms(5000)), LEAST)),
            "counted from when it was taken over"
        );
        validity.know(ms(5000));
        assert_eq!(validity.cut_short(), Some(valid_until(start.after(ms(5000)), ms(5000))));
        validity.granted(3, T);
        let deadline = valid_until(start, ms(6000));
        assert_eq!((validity.deadline(), validity.cut_short()), (deadline, Some(deadline)));
    }
}
