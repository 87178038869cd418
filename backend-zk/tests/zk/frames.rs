//! A proxy that knows the frames of the protocol: it counts requests, and answers some of them itself.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Operations of the protocol.
pub(crate) const DELETE: i32 = 2;
pub(crate) const EXISTS: i32 = 3;
pub(crate) const GET_DATA: i32 = 4;
pub(crate) const SET_DATA: i32 = 5;
pub(crate) const LIST: i32 = 8;
pub(crate) const CREATE: i32 = 15;
pub(crate) const CREATE_CONTAINER: i32 = 19;
/// The first frame of a connection, which has no number in the protocol.
pub(crate) const CONNECT: i32 = 1000;

/// The error of a server that has too many requests.
pub(crate) const THROTTLED: i32 = -127;

/// A proxy in front of one server. It ends with the runtime.
pub(crate) struct Frames {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The errors with which the next requests of an operation are answered.
    refusals: HashMap<i32, VecDeque<i32>>,
    counts: HashMap<i32, usize>,
    /// An operation whose requests wait, and those behind them.
    stopped: Option<i32>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frames {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let state = Arc::<Mutex<State>>::default();
        tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let Ok(server) = TcpStream::connect(server).await else { continue };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let refused = Arc::<Mutex<HashMap<i32, i32>>>::default();
                    tokio::spawn(requests(from_client, to_server, Arc::clone(&state), Arc::clone(&refused)));
                    tokio::spawn(answers(from_server, to_client, refused));
                }
            }
        });
        Self { addr, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("zk://{}", self.addr)
    }

    /// The next requests of this operation, so many, are not executed, and are answered with this error.
    pub(crate) fn refuse(&self, operation: i32, error: i32, times: usize) {
        lock(&self.state).refusals.entry(operation).or_default().extend(std::iter::repeat_n(error, times));
    }

    /// How many of the refusals are left.
    pub(crate) fn refusals_left(&self) -> usize {
        lock(&self.state).refusals.values().map(VecDeque::len).sum()
    }

    /// From now on requests of this operation wait, and all that come after them; those of none go on.
    pub(crate) fn stop_before(&self, operation: Option<i32>) {
        lock(&self.state).stopped = operation;
    }

    /// How many requests of this operation have come so far.
    pub(crate) fn count(&self, operation: i32) -> usize {
        lock(&self.state).counts.get(&operation).copied().unwrap_or(0)
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = from.read_i32().await?;
    let mut frame = vec![0; usize::try_from(length).expect("a length")];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).expect("short").to_be_bytes();
    to.write_all(&[&length, frame].concat()).await
}

fn number(frame: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// Passes requests on. Instead of one that is refused, the server gets a question that changes nothing, so
/// that answers stay in their order.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: Arc<Mutex<State>>,
    refused: Arc<Mutex<HashMap<i32, i32>>>,
) -> io::Result<()> {
    let mut operation = CONNECT;
    loop {
        let mut frame = read_frame(&mut from).await?;
        if operation != CONNECT {
            operation = number(&frame, 4);
        }
        let refusal = {
            let mut state = lock(&state);
            *state.counts.entry(operation).or_default() += 1;
            state.refusals.get_mut(&operation).and_then(VecDeque::pop_front)
        };
        while lock(&state).stopped == Some(operation) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if let Some(error) = refusal {
            refused.lock().expect("no panic").insert(number(&frame, 0), error);
            frame.truncate(4);
            frame.extend(EXISTS.to_be_bytes());
            frame.extend([&1i32.to_be_bytes()[..], b"/", &[0]].concat());
        }
        write_frame(&mut to, &frame).await?;
        operation = 0;
    }
}

/// Passes answers on, and those of refused requests with their error.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    refused: Arc<Mutex<HashMap<i32, i32>>>,
) -> io::Result<()> {
    // The answer to the first frame has another form.
    let first = read_frame(&mut from).await?;
    write_frame(&mut to, &first).await?;
    loop {
        let mut frame = read_frame(&mut from).await?;
        let refusal = refused.lock().expect("no panic").remove(&number(&frame, 0));
        if let Some(error) = refusal {
            frame.truncate(12);
            frame.extend(error.to_be_bytes());
        }
        write_frame(&mut to, &frame).await?;
    }
}
