//! The faults and counters of a proxy, which its owner and its connections share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::http2::Http2;
use crate::way::{TO_CLIENT, TO_SERVER};

/// What happens to bytes at the end of their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Flow {
    /// They are delivered.
    #[default]
    Pass,
    /// They wait.
    Hold,
    /// They are lost.
    Swallow,
}

/// The present faults.
#[derive(Debug, Default)]
pub(super) struct Mode {
    pub(super) delay: Duration,
    pub(super) flow: [Flow; 2],
    /// All connections are reset.
    pub(super) cut: bool,
    /// Connections with a lower number are reset.
    pub(super) closed_below: u64,
    /// Connections with a lower number are held back, or have been.
    pub(super) late_below: u64,
    /// They are held back now.
    pub(super) holding_back: bool,
    /// For each way: whether bytes pass although the connection is held back.
    pub(super) excepted: [bool; 2],
}

/// One connection, as its two directions and the owner see it.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    /// For each way: bytes have been lost.
    holed: [AtomicBool; 2],
    conversation: Mutex<Conversation>,
    /// Bytes for the server that have been read and are still here.
    kept: AtomicU64,
    /// Bytes that the server has got.
    delivered: AtomicU64,
}

impl Connection {
    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that went this way has been lost.
    pub(super) fn lose(&self, way: usize) {
        self.holed[way].store(true, Ordering::SeqCst);
    }

    /// What happens to bytes that go this way. Other faults do not affect a connection that is held back.
    pub(super) fn flow(&self, mode: &Mode, way: usize) -> Flow {
        if mode.holding_back && self.is_late(mode) && !mode.excepted[way] {
            Flow::Hold
        } else {
            mode.flow[way]
        }
    }

    /// True if the connection is held back, or has been: the client may have closed it, and the server must
    /// not notice that before it has received what the client had sent.
    pub(super) fn is_late(&self, mode: &Mode) -> bool {
        self.id < mode.late_below
    }

    /// Counts bytes for the server that have arrived here.
    pub(super) fn keep(&self, length: usize) {
        self.kept.fetch_add(length as u64, Ordering::SeqCst);
    }

    /// Counts bytes for the server that were delivered or lost.
    pub(super) fn let_go(&self, length: usize) {
        self.kept.fetch_sub(length as u64, Ordering::SeqCst);
    }

    /// True if the connection must be reset now.
    pub(super) fn must_reset(&self, mode: &Mode) -> bool {
        let holed = |way: usize| self.holed[way].load(Ordering::SeqCst) && mode.flow[way] != Flow::Swallow;
        mode.cut || self.id < mode.closed_below || holed(TO_SERVER) || holed(TO_CLIENT)
    }
}

/// The conversation on a connection.
#[derive(Debug, Default)]
enum Conversation {
    /// The client has not sent anything yet.
    #[default]
    NotStarted,
    /// Requests and replies in turns.
    Turns {
        /// The client has sent the last bytes.
        client_spoke_last: bool,
        /// The next reply is to be dropped.
        drop_reply: bool,
    },
    /// Several streams at a time.
    Streams(Http2),
}

/// The state that the owner of the proxy and its connections share.
#[derive(Debug)]
pub(super) struct ProxyState {
    /// Where new connections lead.
    upstream: Mutex<SocketAddr>,
    mode: watch::Sender<Mode>,
    pub(super) next_id: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    bytes: [AtomicU64; 2],
    pub(super) turns: AtomicU64,
    pub(super) dropped_replies: AtomicU64,
    /// How many requests are still to come up to the one whose reply is dropped; 0 for none.
    armed: Mutex<u64>,
}

impl ProxyState {
    pub(super) fn to(upstream: SocketAddr) -> Self {
        Self {
            upstream: Mutex::new(upstream),
            mode: watch::Sender::default(),
            next_id: AtomicU64::default(),
            open: Mutex::default(),
            bytes: Default::default(),
            turns: AtomicU64::default(),
            dropped_replies: AtomicU64::default(),
            armed: Mutex::default(),
        }
    }

    pub(super) fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn redirect(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Changes the faults. Waits for writes that are under way, so that none is against the new state.
    pub(super) fn switch(&self, change: impl FnOnce(&mut Mode)) {
        self.mode.send_modify(change);
    }

    pub(super) fn mode(&self) -> watch::Receiver<Mode> {
        self.mode.subscribe()
    }

    /// Acts on the faults as they are: they do not change meanwhile.
    pub(super) fn with_mode<T>(&self, act: impl FnOnce(&Mode) -> T) -> T {
        act(&self.mode.borrow())
    }

    /// How many bytes have been delivered this way. Waits for writes that are under way: who has received a
    /// byte finds it counted.
    pub(super) fn bytes(&self, way: usize) -> u64 {
        self.mode.send_if_modified(|_| false);
        self.bytes[way].load(Ordering::SeqCst)
    }

    /// Counts what has been delivered. To be called inside [`ProxyState::with_mode`], together with the
    /// write.
    pub(super) fn count(&self, connection: &Connection, way: usize, length: usize) {
        self.bytes[way].fetch_add(length as u64, Ordering::SeqCst);
        if way == TO_SERVER {
            connection.delivered.fetch_add(length as u64, Ordering::SeqCst);
        }
    }

    /// What is kept now on each connection that is held back.
    pub(super) fn held_back(&self) -> Vec<HeldBack> {
        let open = self.open();
        let mode = self.mode.borrow();
        let held = open.values().filter(|connection| mode.holding_back && connection.is_late(&mode));
        held.map(|connection| HeldBack {
            length: connection.kept.load(Ordering::SeqCst),
            before: connection.delivered.load(Ordering::SeqCst),
            connection: connection.clone(),
        })
        .collect()
    }

    pub(super) fn delay(&self) -> Duration {
        self.mode.borrow().delay
    }

    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a new connection. It leaves when the returned guard is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        // Under the lock, so that whoever looks for a number below the next one also finds it.
        let mut open = self.open();
        let connection = Arc::new(Connection {
            id: self.next_id.fetch_add(1, Ordering::SeqCst),
            holed: Default::default(),
            conversation: Mutex::default(),
            kept: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        });
        open.insert(connection.id, connection.clone());
        drop(open);
        Entry { connection, shared: self.clone() }
    }

    /// True if a connection that has to go is still there.
    pub(super) fn must_reset(&self) -> bool {
        let open = self.open();
        let mode = self.mode.borrow();
        open.values().any(|connection| connection.must_reset(&mode))
    }

    pub(super) fn arm(&self, k: u64) {
        *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = k;
    }

    /// The client has sent something. Counts the requests that begin in it.
    pub(super) fn on_request_bytes(&self, connection: &Connection, bytes: &[u8]) {
        let mut conversation = connection.conversation();
        if let Conversation::NotStarted = *conversation {
            let turns = Conversation::Turns { client_spoke_last: false, drop_reply: false };
            *conversation = Http2::recognise(bytes).map_or(turns, Conversation::Streams);
        }
        match &mut *conversation {
            Conversation::Turns { client_spoke_last, drop_reply } if !*client_spoke_last => {
                *client_spoke_last = true;
                *drop_reply = self.begins();
            }
            Conversation::Streams(http2) => http2.on_request_bytes(bytes, || self.begins()),
            _ => (),
        }
    }

    /// A request begins. True if its reply is to be dropped.
    fn begins(&self) -> bool {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        self.turns.fetch_add(1, Ordering::SeqCst);
        let was_armed = *armed > 0;
        *armed = armed.saturating_sub(1);
        was_armed && *armed == 0
    }

    /// The server has sent something. False if that is the reply to be dropped, and the connection with it.
    pub(super) fn on_reply_bytes(&self, connection: &Connection, bytes: &[u8]) -> bool {
        let drop_reply = match &mut *connection.conversation() {
            // The server sends the first bytes.
            Conversation::NotStarted => false,
            Conversation::Turns { client_spoke_last, drop_reply } => {
                *client_spoke_last = false;
                *drop_reply
            }
            Conversation::Streams(http2) => http2.on_reply_bytes(bytes),
        };
        if drop_reply {
            self.dropped_replies.fetch_add(1, Ordering::SeqCst);
        }
        !drop_reply
    }
}

/// What is kept on a connection that is held back.
#[derive(Debug)]
pub(super) struct HeldBack {
    connection: Arc<Connection>,
    length: u64,
    /// What the server had got before.
    before: u64,
}

impl HeldBack {
    /// How much of it has been delivered. Not what the client has sent since.
    pub(super) fn delivered(&self) -> u64 {
        (self.connection.delivered.load(Ordering::SeqCst) - self.before).min(self.length)
    }

    /// True while there is still something to deliver.
    pub(super) fn is_waiting(&self, shared: &ProxyState) -> bool {
        let left = self.connection.kept.load(Ordering::SeqCst) > 0;
        left && self.delivered() < self.length && shared.open().contains_key(&self.connection.id)
    }
}

/// A connection's place in the list of those that are open.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) connection: Arc<Connection>,
    pub(super) shared: Arc<ProxyState>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.open().remove(&self.connection.id);
    }
}
