//! Until when a session is valid, that is alive at the servers for certain. Pure: time is an argument.
//!
//! A single server starts the session's time again at each request. So the session lives at least until the sending of
//! an answered request plus its timeout.
//!
//! In an ensemble only the leader ends sessions, and it hears of a sign of life when it next pings the server that we
//! are connected to: every half tick. And it may have lost its majority without knowing it, while another leader counts
//! the time of our session from its own election. An answered *write* proves both: a majority followed this leader when
//! it was sent, so that no other leader had begun to count before; and our server was still in touch, so that
//! everything sent more than half a tick before has been reported. That is what is counted. Reads, and `sync`, which a
//! leader answers by itself, prove neither.
//!
//! A server that takes over a session may grant it less time than the one before. Which time the session has since then
//! is known once the servers have been asked; until then it is the least that one of them granted when it was asked last,
//! or the shortest that they grant at all while one of them has never been asked.

use std::collections::VecDeque;
use std::time::Duration;

use lockcore::Moment;
use lockcore::backend::valid_until;

/// How many signs of life are remembered.
const REMEMBERED: usize = 16;

#[derive(Debug)]
pub(crate) struct Validity {
    timeout: Duration,
    /// The least timeout that a server is known to grant to a session that takes this one over.
    least: Duration,
    /// How much older than an answered write a sign of life must be to have been reported. Zero on a single server.
    lag: Duration,
    /// When the latest sign of life was sent that has arrived for certain.
    confirmed: Moment,
    /// When the session was opened, or the latest request was sent that has been answered.
    heard: Moment,
    /// When the latest request was sent that has been answered and proves what the servers have: a write, or anything on
    /// a single server.
    proof: Moment,
    /// Answered requests that are not old enough yet, in order.
    recent: VecDeque<Moment>,
    /// How often another connection has taken the session over, and how often that was when the servers were asked.
    moves: u64,
    moved_at: Moment,
    asked_at: u64,
    /// A server has granted less than the first one.
    shortened: bool,
}

impl Validity {
    /// A session whose making was asked for at `asked`, and which was there at `opened`.
    ///
    /// Its time counts from the first. But several servers may have been tried in between, for longer than that time: such
    /// a session is not silent, and is valid as soon as writes are answered.
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

    /// A request was sent at `sent` and has been answered.
    pub(crate) fn touched(&mut self, sent: Moment) {
        self.heard = self.heard.max(sent);
        if self.lag.is_zero() {
            self.confirmed = self.confirmed.max(sent);
            self.proof = self.proof.max(sent);
        } else if self.recent.back().is_none_or(|last| sent.since(*last) >= self.lag / 8) {
            // A busy session need not remember every request.
            self.recent.push_back(sent);
            if self.recent.len() > REMEMBERED {
                self.recent.pop_front();
            }
        }
    }

    /// A write was sent at `sent` and has been answered.
    pub(crate) fn confirmed(&mut self, sent: Moment) {
        let reported = sent.before(self.lag);
        while let Some(&older) = self.recent.front().filter(|&&older| older <= reported) {
            self.confirmed = self.confirmed.max(older);
            self.recent.pop_front();
        }
        self.proof = self.proof.max(sent);
        self.touched(sent);
    }

    /// Another connection has taken the session over, as is known `now`.
    pub(crate) fn moved(&mut self, now: Moment) {
        self.moves += 1;
        self.moved_at = now;
    }

    /// How often the session was taken over.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The least timeout that the servers grant to a session like this, as they said when it had been taken over so
    /// often.
    pub(crate) fn granted(&mut self, moves: u64, timeout: Duration) {
        self.asked_at = self.asked_at.max(moves);
        if timeout < self.timeout {
            self.timeout = timeout;
            self.shortened = true;
        }
    }

    /// All servers have been asked, and grant so much at least.
    pub(crate) fn know(&mut self, least: Duration) {
        self.least = least;
    }

    /// The session's timeout as far as it is sure.
    pub(crate) fn timeout(&self) -> Duration {
        if self.asked_at == self.moves { self.timeout } else { self.timeout.min(self.least) }
    }

    /// Until when locks are valid that were granted for longer; `None` while the first timeout stands.
    ///
    /// Whoever takes a session over counts its time from then, and from each request after that. So there is time to ask
    /// what it has granted, even if the last sign of life before that is older than the shortest timeout.
    pub(crate) fn cut_short(&self) -> Option<Moment> {
        if self.asked_at == self.moves {
            return self.shortened.then(|| self.deadline());
        }
        let taken_over = valid_until(self.heard.max(self.moved_at), self.least).before(self.lag);
        Some(self.deadline().max(taken_over))
    }

    /// Whether another connection has just taken the session over, and it is not known yet what time that grants.
    pub(crate) fn is_settling(&self, now: Moment) -> bool {
        self.asked_at != self.moves && now.since(self.moved_at) < self.timeout / 2
    }

    /// Until when the session is valid.
    pub(crate) fn deadline(&self) -> Moment {
        valid_until(self.confirmed, self.timeout())
    }

    /// When the latest request was sent that has been answered.
    pub(crate) fn heard(&self) -> Moment {
        self.heard
    }

    /// When the latest request was sent that proves what the servers have; `None` if another connection has taken the
    /// session over since then.
    pub(crate) fn proof(&self) -> Option<Moment> {
        (self.moves == 0 || self.proof > self.moved_at).then_some(self.proof)
    }

    /// Whether nothing has been answered for so long that there is no use in waiting.
    pub(crate) fn is_silent(&self) -> bool {
        valid_until(self.heard, self.timeout).has_passed()
    }

    /// Whether it has been silent for so long again that it is over, whatever the client crate says.
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

    #[test]
    fn what_a_server_answers_by_itself_proves_nothing() {
        let start = Moment::now();
        let mut validity = Validity::new(T, LEAST, ms(1000), (start, start));
        for at in 0..500 {
            validity.touched(start.after(ms(at * 100)));
        }
        assert_eq!(validity.deadline(), valid_until(start, T));
        assert!(validity.recent.len() <= REMEMBERED);
        // But it is a sign of life, and the next write tells that it was reported.
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
