//! Whether the threads of a clock have come to rest.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::Thread;

use lockwell_core::backend::lock;
use lockwell_core::suite::{ClockThreads, KEEPER};

use crate::rest::RESTS;

/// What the system says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum ThreadState {
    /// It rests. How often it has begun to wait for something.
    Rests(u64),
    Works,
    Gone,
}

/// The threads that use one clock.
#[derive(Default)]
pub(crate) struct Threads {
    /// Threads that have ended are removed when the others are looked at.
    joined: Mutex<Vec<Arc<status::Status>>>,
    holds: AtomicIsize,
    governor: OnceLock<Thread>,
    is_idle: AtomicBool,
}

impl Threads {
    pub(crate) fn set_governor(&self, governor: Thread) {
        // Set once.
        drop(self.governor.set(governor));
    }

    /// The thread that skips time has nobody to wake.
    pub(crate) fn idle(&self) {
        self.is_idle.store(true, Ordering::SeqCst);
    }

    pub(crate) fn add_keeper(&self) {
        let (send, receive) = mpsc::channel();
        drop(KEEPER.spawn(async move { drop(send.send(status::Status::of_this_thread())) }));
        // Not under the lock, which the keeper may want for a sleep.
        let keeper = receive.recv().ok().flatten();
        lock(&self.joined).extend(keeper.map(Arc::new));
    }

    /// Whether all of them have rested at one moment, and none had been woken by then.
    ///
    /// A thread that rests at two looks, and has not begun to wait again in between, has rested all the time.
    /// So if that is so for all of them, they have all rested at the moment between the two looks. A thread
    /// that was woken and does not run yet is no sleeping thread for the system. A thread that waits for a
    /// mutex, of the logs for instance, has not [said](crate::rest::note_rest) that it has no work: other threads than
    /// these may hold that mutex.
    pub(crate) fn are_at_rest(&self) -> bool {
        // Not looked at under the lock: one that waits for the lock does not rest.
        let joined = lock(&self.joined).clone();
        let look = || joined.iter().map(|one| one.read()).collect::<Vec<_>>();
        let first = look();
        if first.contains(&ThreadState::Gone) {
            lock(&self.joined).retain(|one| one.read() != ThreadState::Gone);
            return false;
        }
        let all_rest = !first.is_empty() && first.iter().all(|one| matches!(one, ThreadState::Rests(_)));
        all_rest
            && look() == first
            && self.holds.load(Ordering::SeqCst) == 0
            && lock(&self.joined).len() == joined.len()
    }
}

impl ClockThreads for Threads {
    /// Adds the calling thread, until its end.
    fn join(&self) {
        let mut joined = lock(&self.joined);
        if !joined.iter().any(|one| one.is_of_this_thread()) {
            joined.extend(status::Status::of_this_thread().map(Arc::new));
        }
    }

    fn note_sleeper(&self) {
        self.join();
        if self.is_idle.swap(false, Ordering::SeqCst) {
            if let Some(governor) = self.governor.get() {
                governor.unpark();
            }
        }
    }

    fn hold(&self, more: isize) {
        self.holds.fetch_add(more, Ordering::SeqCst);
    }
}

#[cfg(target_os = "linux")]
mod status {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::threads::ThreadState;

    thread_local! {
        static NUMBER: Option<String> = {
            let link = std::fs::read_link("/proc/thread-self").ok();
            link.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()))
        };
    }

    pub(super) struct Status {
        number: String,
        file: File,
        rests: Arc<AtomicBool>,
    }

    impl Status {
        pub(super) fn of_this_thread() -> Option<Self> {
            let number = NUMBER.with(Clone::clone)?;
            let file = File::open(format!("/proc/self/task/{number}/status")).ok()?;
            Some(Self { number, file, rests: super::RESTS.with(Arc::clone) })
        }

        pub(super) fn is_of_this_thread(&self) -> bool {
            NUMBER.with(|number| number.as_ref() == Some(&self.number))
        }

        pub(super) fn read(&self) -> ThreadState {
            let mut text = [0; 4096];
            let Ok(length) = self.file.read_at(&mut text, 0) else { return ThreadState::Gone };
            let text = String::from_utf8_lossy(&text[..length]);
            let value = |name| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            match (value("State:"), value("voluntary_ctxt_switches:")) {
                (Some(state), Some(switches))
                    if state.starts_with('S') && self.rests.load(Ordering::SeqCst) =>
                {
                    ThreadState::Rests(switches.parse().unwrap_or_default())
                }
                (Some(state), _) if state.starts_with(['X', 'Z']) => ThreadState::Gone,
                _ => ThreadState::Works,
            }
        }
    }
}

/// Elsewhere nothing is known of a thread, and no time is skipped.
#[cfg(not(target_os = "linux"))]
mod status {
    use crate::threads::ThreadState;

    pub(super) struct Status(std::convert::Infallible);

    impl Status {
        pub(super) fn of_this_thread() -> Option<Self> {
            None
        }

        pub(super) fn is_of_this_thread(&self) -> bool {
            match self.0 {}
        }

        pub(super) fn read(&self) -> ThreadState {
            match self.0 {}
        }
    }
}
