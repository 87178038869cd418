//! A TCP proxy that causes the faults of networks: delay, loss, resets, late delivery.

mod alarm;
mod http2;
mod link;
mod pipe;
mod switches;
mod way;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

use self::switches::{Flow, HeldBack, ProxyState};
use crate::way::{TO_CLIENT, TO_SERVER};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
    /// Both ways.
    Both,
}

impl Direction {
    /// The indices into arrays that hold a value for each way.
    fn ways(self) -> &'static [usize] {
        match self {
            Self::ToServer => &[TO_SERVER],
            Self::ToClient => &[TO_CLIENT],
            Self::Both => &[TO_SERVER, TO_CLIENT],
        }
    }
}

/// A TCP proxy in front of one server, with faults that can be switched on and off.
///
/// It runs on a thread and a runtime of its own, so it goes on while a test blocks its runtime, and its
/// methods can be called from anywhere. A fault applies to the connections that exist and to new ones. Once
/// the call has returned, no byte passes in spite of it.
///
/// Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<ProxyState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one on a free loopback port. The server need not be up.
    // Async, since it may do more one day; opening a port does not block.
    #[allow(clippy::unused_async)]
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_blocking(upstream)
    }

    /// Like [`Proxy::start`], for callers that are not async.
    pub fn start_blocking(upstream: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let shared = Arc::new(ProxyState::to(upstream));
        let (stop, stopped) = oneshot::channel::<()>();
        let accepting = link::accept(listener, shared.clone());
        let thread = thread::Builder::new().name(format!("proxy {addr}")).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accepting => {}
                    // Also when the sender is dropped.
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { addr, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on new connections lead to another server. The present ones stay where they are.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.shared.redirect(upstream);
    }

    /// From now on bytes take this long, each way, like on a long line: their order and the gaps between them
    /// stay. Opening a connection is not delayed. Bytes already under way are not sped up.
    pub fn delay(&self, each_way: Duration) {
        self.shared.switch(|mode| mode.delay = each_way);
    }

    /// Resets all connections, and every new one as soon as it is made, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.shared.switch(|mode| mode.cut = true);
        self.settle();
    }

    /// Resets the present connections. New ones work.
    pub fn cut_existing(&self) {
        let shared = &self.shared;
        shared.switch(|mode| mode.closed_below = shared.next_id.load(Ordering::SeqCst));
        self.settle();
    }

    /// Swallows all bytes that go this way, the end of a connection too. Connections stay open, and new ones
    /// are taken and hang. The other way, and a fault put on it before, stays as it is.
    ///
    /// On [`Proxy::heal`] every connection that has lost something is reset: its stream would have a hole.
    pub fn blackhole(&self, direction: Direction) {
        self.flow(direction, Flow::Swallow);
    }

    /// Holds all bytes that go this way, and delivers them late, on [`Proxy::heal`]. New connections hang
    /// until then.
    pub fn hold(&self, direction: Direction) {
        self.flow(direction, Flow::Hold);
    }

    /// Ends [`Proxy::hold`] or [`Proxy::blackhole`] for this way only, and no other fault. What was held is
    /// delivered.
    pub fn pass(&self, direction: Direction) {
        self.flow(direction, Flow::Pass);
    }

    /// Keeps from now on what comes on the connections that are open now, both ways. New connections work as
    /// usual: a client that repeats a request on a new connection gets an answer, and its first request can
    /// still arrive, with [`Proxy::deliver`]. What is kept outlives its client.
    pub fn hold_back(&self) {
        self.hold_back_only(Direction::Both);
    }

    /// The same for what goes this way.
    pub fn hold_back_only(&self, direction: Direction) {
        let shared = &self.shared;
        shared.switch(|mode| {
            mode.late_below = shared.next_id.load(Ordering::SeqCst);
            mode.holding_back = true;
            mode.excepted = [TO_SERVER, TO_CLIENT].map(|way| !direction.ways().contains(&way));
        });
    }

    /// Delivers what [`Proxy::hold_back`] has kept, and ends holding back. Returns how many bytes the servers
    /// have got by that.
    ///
    /// If the client has closed a connection meanwhile, the server sees a normal end of the connection a
    /// moment later, and its answers are lost. Where the client is still there, the connection goes on.
    pub fn deliver(&self) -> u64 {
        let kept = self.shared.held_back();
        self.shared.switch(|mode| mode.holding_back = false);
        wait_while(|| kept.iter().any(|kept| kept.is_waiting(&self.shared)));
        // Waits for writes that are under way.
        self.shared.switch(|_| ());
        kept.iter().map(HeldBack::delivered).sum()
    }

    fn flow(&self, direction: Direction, flow: Flow) {
        self.shared.switch(|mode| direction.ways().iter().for_each(|way| mode.flow[*way] = flow));
        self.settle();
    }

    /// Swallows the reply to the `k`-th request from now on, counted over all connections, and resets the
    /// connection: the request was carried out, and the client cannot know. 0 disarms it.
    ///
    /// A request is a turn of the conversation: the client's first bytes after the server's last ones. Where
    /// the client speaks HTTP/2, which is recognised without TLS only, each of its streams is a conversation
    /// of its own: a unary call of gRPC is one request, and so is each message of a stream that has been
    /// answered. To find out which turn is which, run the same steps once and look at [`Proxy::turns`].
    pub fn drop_reply(&self, k: u64) {
        self.shared.arm(k);
    }

    /// Back to normal: no delay, no fault, nothing armed. What was held, or held back, is delivered;
    /// connections that have lost bytes are reset.
    pub fn heal(&self) {
        self.shared.arm(0);
        self.shared.switch(|mode| {
            mode.delay = Duration::ZERO;
            mode.flow = [Flow::Pass; 2];
            mode.cut = false;
            mode.holding_back = false;
        });
        self.settle();
    }

    /// How many connections are open, those included that hang.
    pub fn connections(&self) -> usize {
        self.shared.open().len()
    }

    /// How many connections have been taken so far, those included that were reset at once.
    pub fn accepted(&self) -> u64 {
        self.shared.next_id.load(Ordering::SeqCst)
    }

    /// How many bytes have been delivered so far.
    pub fn bytes(&self, direction: Direction) -> u64 {
        direction.ways().iter().map(|way| self.shared.bytes(*way)).sum()
    }

    /// How many requests have been seen so far, as [`Proxy::drop_reply`] counts them.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::SeqCst)
    }

    /// How many replies [`Proxy::drop_reply`] has swallowed so far.
    pub fn dropped_replies(&self) -> u64 {
        self.shared.dropped_replies.load(Ordering::SeqCst)
    }

    /// Waits until connections that are to be reset have been reset. They deliver nothing in any case; this
    /// is for the counters, and for tests that check at once.
    fn settle(&self) {
        wait_while(|| self.shared.must_reset());
    }
}

/// Waits for the proxy's thread, which has no long work, but not for ever.
fn wait_while(unfinished: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while unfinished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic over there has been printed; here it would only hide the test's own.
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(addr = %self.addr, "the proxy's thread had panicked");
        }
    }
}
