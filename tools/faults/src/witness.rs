//! Two witnesses outside the library: counters that workers raise while they hold a lock, in the process of
//! the runner.
//!
//! For each lock there is one that nothing guards, and one that checks the fencing token, atomically with
//! what it does. Each raise is a read, and a write of one more: two who hold the lock at once read the same
//! and one raise is lost. The guarded counter takes note of the token of a read, too: otherwise the next
//! holder could read before a stale write, and lose it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// What the guard accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A token that is higher than the highest seen, or equal to it and from the owner that it is known of.
    #[default]
    ByOwner,
    /// A token that is not lower than the highest seen. It is wrong, and here to show that it is found out.
    #[cfg(test)]
    NotLower,
}

/// The counters of one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    plain: u64,
    plain_writes: u64,
    guarded: u64,
    guarded_writes: u64,
    refused: u64,
    highest: u64,
    owner: u64,
}

impl Counters {
    /// Whether the guard lets this holder pass.
    fn admits(&mut self, guard: Guard, token: u64, owner: u64) -> bool {
        let passes = token > self.highest
            || token == self.highest
                && match guard {
                    Guard::ByOwner => owner == self.owner,
                    #[cfg(test)]
                    Guard::NotLower => true,
                };
        if passes {
            (self.highest, self.owner) = (token, owner);
        } else {
            self.refused += 1;
        }
        passes
    }
}

/// What the witnesses have to say about all locks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Testimony {
    pub(crate) plain_writes: u64,
    pub(crate) plain_lost: u64,
    pub(crate) guarded_writes: u64,
    pub(crate) guarded_lost: u64,
    /// Reads and writes of stale holders that the guard has refused.
    pub(crate) refused: u64,
}

#[derive(Debug, Default)]
struct State {
    guard: Guard,
    locks: Mutex<HashMap<u32, Counters>>,
}

/// A holder, as the witnesses know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) lock: u32,
    pub(crate) token: u64,
    /// Different for each grant, whatever its token is.
    pub(crate) owner: u64,
}

/// What a holder has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    plain: u64,
    /// `None`: refused.
    guarded: Option<u64>,
}

impl Read {
    /// Whether the guard refused it.
    pub(crate) fn is_refused(self) -> bool {
        self.guarded.is_none()
    }
}

/// The witnesses. They end with this.
#[derive(Debug)]
pub(crate) struct Witness {
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

/// A request: what (0 read, 1 write), the holder, and for a write both values; and an answer: two numbers and
/// whether the guard let the holder pass.
const REQUEST: usize = 6;
const ANSWER: usize = 3;
const READ: u64 = 0;
const WRITE: u64 = 1;

impl Witness {
    /// Listens at this path.
    pub(crate) fn start(path: &Path, guard: Guard) -> Result<Self> {
        let listener = UnixListener::bind(path)?;
        let state = Arc::new(State { guard, locks: Mutex::default() });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                drop(tokio::spawn(async move { serve(&state, stream).await }));
            }
        });
        Ok(Self { state, accepting })
    }

    /// What was seen so far.
    pub(crate) fn testimony(&self) -> Testimony {
        let locks = self.state.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Testimony::default();
        for counters in locks.values() {
            sum.plain_writes += counters.plain_writes;
            sum.plain_lost += counters.plain_writes - counters.plain;
            sum.guarded_writes += counters.guarded_writes;
            sum.guarded_lost += counters.guarded_writes - counters.guarded;
            sum.refused += counters.refused;
        }
        sum
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Answers one client until it goes away.
async fn serve(state: &State, mut stream: UnixStream) {
    while let Ok(request) = receive::<REQUEST>(&mut stream).await {
        let answer = state.answer(request);
        if send(&mut stream, &answer).await.is_err() {
            return;
        }
    }
}

impl State {
    fn answer(&self, [what, lock, token, owner, plain, guarded]: [u64; REQUEST]) -> [u64; ANSWER] {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = locks.entry(u32::try_from(lock).unwrap_or(u32::MAX)).or_default();
        let passes = counters.admits(self.guard, token, owner);
        if what == WRITE {
            counters.plain = plain;
            counters.plain_writes += 1;
            // One whose read was refused has nothing to write.
            if passes && guarded > 0 {
                counters.guarded = guarded;
                counters.guarded_writes += 1;
            }
        }
        [counters.plain, counters.guarded, u64::from(passes)]
    }
}

/// A worker's way to the witnesses.
#[derive(Debug)]
pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) async fn connect(path: &Path) -> Result<Self> {
        Ok(Self(UnixStream::connect(path).await?))
    }

    /// Reads both counters.
    pub(crate) async fn read(&mut self, holder: Holder) -> Result<Read> {
        let [plain, guarded, passes] = self.ask(READ, holder, 0, 0).await?;
        Ok(Read { plain, guarded: (passes == 1).then_some(guarded) })
    }

    /// Writes one more than was read to both. Returns whether the guard let it pass.
    pub(crate) async fn write(&mut self, holder: Holder, read: Read) -> Result<bool> {
        let guarded = read.guarded.map_or(0, |value| value + 1);
        let [.., passes] = self.ask(WRITE, holder, read.plain + 1, guarded).await?;
        Ok(passes == 1)
    }

    async fn ask(&mut self, what: u64, holder: Holder, plain: u64, guarded: u64) -> Result<[u64; ANSWER]> {
        let Holder { lock, token, owner } = holder;
        send(&mut self.0, &[what, u64::from(lock), token, owner, plain, guarded]).await?;
        receive(&mut self.0).await.map_err(|error| Error::failed(format!("the witness: {error}")))
    }
}

async fn send<const N: usize>(stream: &mut UnixStream, words: &[u64; N]) -> std::io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    stream.write_all(&bytes).await
}

async fn receive<const N: usize>(stream: &mut UnixStream) -> std::io::Result<[u64; N]> {
    let mut words = [0; N];
    let mut bytes = vec![0; N * 8];
    stream.read_exact(&mut bytes).await?;
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn witness() -> (tempfile::TempDir, Witness, Client, Client) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("witness");
        let witness = Witness::start(&path, Guard::ByOwner).unwrap();
        let (a, b) = (Client::connect(&path).await.unwrap(), Client::connect(&path).await.unwrap());
        (folder, witness, a, b)
    }

    fn holder(token: u64, owner: u64) -> Holder {
        Holder { lock: 1, token, owner }
    }

    /// Both read, then both write: in either order, and with equal tokens.
    #[tokio::test]
    async fn of_two_at_once_the_guard_takes_one() {
        for tokens in [(1, 2), (2, 1), (3, 3)] {
            let (_folder, witness, mut a, mut b) = witness().await;
            let (first, second) = (holder(tokens.0, 10), holder(tokens.1, 20));
            let (read_a, read_b) = (a.read(first).await.unwrap(), b.read(second).await.unwrap());
            let written = [a.write(first, read_a).await.unwrap(), b.write(second, read_b).await.unwrap()];
            assert_eq!(written.iter().filter(|passed| **passed).count(), 1, "{tokens:?}");
            let seen = witness.testimony();
            assert_eq!((seen.plain_lost, seen.guarded_lost), (1, 0), "{tokens:?}: {seen:?}");
        }
    }
}
