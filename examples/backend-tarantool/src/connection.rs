//! One connection: calls of stored procedures, many at a time.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rmpv::{Value, decode::read_value, encode::write_value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

/// What the procedure returned, or why the server refuses the call.
type Answer = std::result::Result<Value, String>;

/// Who waits for the answers, by the numbers of the requests.
type Waiting = Mutex<HashMap<u64, oneshot::Sender<Answer>>>;

#[derive(Clone)]
pub(crate) struct Connection {
    requests: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
    last: Arc<AtomicU64>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.read_exact(&mut [0; 128]).await?; // a greeting
        let (reader, mut writer) = stream.into_split();
        let (requests, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        let this = Self { requests, waiting: Arc::default(), last: Arc::default() };
        let waiting = Arc::clone(&this.waiting);
        // It ends with the stream, or when all clones of the connection are gone.
        tokio::spawn(async move {
            let write = async {
                while let Some(message) = queue.recv().await {
                    writer.write_all(&message).await?;
                }
                Result::Ok(())
            };
            tokio::select! { _ = read(reader, &waiting) => (), _ = write => () }
            drop(queue);
            waiting.lock().unwrap().clear();
        });
        Ok(this)
    }

    /// Fails if it is unknown whether the procedure was executed.
    pub(crate) async fn call(&self, function: &str, arguments: Value) -> Result<Answer> {
        let (sender, answer) = oneshot::channel();
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().unwrap().insert(number, sender);
        let header = vec![(0x00.into(), 0x0a.into()), (0x01.into(), number.into())]; // to call; the number
        let body = vec![(0x22.into(), function.into()), (0x21.into(), arguments)];
        let mut message = vec![0xce, 0, 0, 0, 0];
        write_value(&mut message, &Value::Map(header))?;
        write_value(&mut message, &Value::Map(body))?;
        let length = u32::try_from(message.len() - 5).map_err(Error::other)?;
        message[1..5].copy_from_slice(&length.to_be_bytes());
        self.requests.send(message).map_err(|_| ErrorKind::ConnectionAborted)?;
        answer.await.map_err(|_| ErrorKind::ConnectionAborted.into())
    }
}

async fn read(mut reader: OwnedReadHalf, waiting: &Waiting) -> Result<()> {
    loop {
        reader.read_u8().await?; // the type of the number that follows
        let mut message = vec![0; reader.read_u32().await? as usize];
        reader.read_exact(&mut message).await?;
        let mut rest = &message[..];
        let header = read_value(&mut rest).map_err(Error::other)?;
        let body = read_value(&mut rest).map_err(Error::other)?;
        let answer = match field(&body, 0x30) {
            Some(values) => Ok(values[0].clone()),
            None => Err(field(&body, 0x31).and_then(Value::as_str).unwrap_or("no reason").to_owned()),
        };
        let number = field(&header, 0x01).and_then(Value::as_u64).unwrap_or_default();
        let caller = waiting.lock().unwrap().remove(&number);
        drop(caller.map(|caller| caller.send(answer))); // it may not wait any more
    }
}

fn field(map: &Value, key: u64) -> Option<&Value> {
    map.as_map()?.iter().find(|(found, _)| found.as_u64() == Some(key)).map(|(_, value)| value)
}
