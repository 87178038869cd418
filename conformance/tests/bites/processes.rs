//! A lock that another process can use: the memory backend of this one behind a socket, a connection for each
//! question.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell_conformance::{Harness, Need};
use lockwell_core::Locks;
use lockwell_core::backend::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, LockName, LockStatus,
    MemoryLock, Mode, Moment, Released, Renewal, Result, Wait, async_trait, valid_until,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::defect::Defect;

/// For how long the server does what it should not.
const TOO_LONG: Duration = Duration::from_secs(9);

#[derive(Debug)]
pub(crate) struct Served {
    defect: Defect,
    memory: Arc<MemoryLock>,
    addr: SocketAddr,
}

impl Served {
    /// Starts a server, on a thread that ends with this process.
    pub(crate) fn start(defect: Defect) -> Self {
        let memory = Arc::new(MemoryLock::new());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("its address");
        listener.set_nonblocking(true).expect("a socket for tokio");
        let server = Arc::new(Server { defect, memory: Arc::clone(&memory), claims: Mutex::default() });
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let server = Arc::clone(&server);
                    // Whoever asks is told of a failure by the end of the connection.
                    drop(tokio::spawn(async move { server.answer(stream).await }));
                }
            });
        });
        Self { defect, memory, addr }
    }
}

#[async_trait]
impl Harness for Served {
    fn offers(&self) -> Vec<Need> {
        vec![Need::Process, Need::Counted]
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.memory) as Arc<dyn DistributedLock>)
    }

    fn address(&self) -> Option<String> {
        Some(format!("{:?} {}", self.defect, self.addr))
    }
}

struct Server {
    defect: Defect,
    memory: Arc<MemoryLock>,
    /// The claims of other processes, by their owners there.
    claims: Mutex<HashMap<String, Claim>>,
}

impl Server {
    /// Reads one question and answers it.
    async fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut question = String::new();
        stream.read_line(&mut question).await?;
        let words: Vec<_> = question.trim_end().splitn(4, ' ').collect();
        let [what, owner, ttl, name] = words[..] else { return Ok(()) };
        let claim = self.claim(owner, ttl, name);
        let answer = match what {
            "acquire" => {
                let mut end = [0];
                let granted = tokio::select! {
                    granted = self.memory.acquire(&claim) => granted,
                    // Nothing more is ever sent: it is the end of the connection.
                    _ = stream.read(&mut end), if self.defect != Defect::KeepsDeadWaiters => {
                        // It died while it waited, and leaves the queue.
                        drop(self.memory.release(&claim).await);
                        return Ok(());
                    }
                };
                if matches!(self.defect, Defect::KeepsTheDead | Defect::KeepsDeadWaiters) {
                    self.keep(&claim);
                }
                granted.ok().flatten().map_or_else(|| "refused".to_owned(), |grant| grant.token().to_string())
            }
            "renew" => {
                let grant = Grant::new(&claim, FencingToken::new(1), Moment::now());
                let answers = self.memory.renew(&[grant], Moment::now()).await;
                let renewed = matches!(answers[..], [Renewal::Renewed(_)]);
                (if renewed { "renewed" } else { "lost" }).to_owned()
            }
            _ => {
                let answer = self.memory.release(&claim).await;
                let released = matches!(answer, Ok(Released::Released));
                (if released { "released" } else { "nothing" }).to_owned()
            }
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await
    }

    fn claim(&self, owner: &str, ttl: &str, name: &str) -> Claim {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (name, ttl) = (LockName::new(name).expect("a name"), ttl.parse().expect("milliseconds"));
            Claim::new(name, Mode::Exclusive, Duration::from_millis(ttl), Wait::Forever, "other".into())
        };
        claims.entry(owner.to_owned()).or_insert_with(make).clone()
    }

    /// Extends a lease for some time, whatever its holder does.
    fn keep(&self, claim: &Claim) {
        let (memory, claim) = (Arc::clone(&self.memory), claim.clone());
        let grant = Grant::new(&claim, FencingToken::new(1), Moment::now());
        let end = Moment::now().after(TOO_LONG);
        drop(tokio::spawn(async move {
            while !end.has_passed() {
                drop(memory.renew(std::slice::from_ref(&grant), Moment::now()).await);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }));
    }
}

/// The lock as the other process sees it.
#[derive(Debug)]
struct Asking {
    /// What is wrong with it, and where its server is.
    address: String,
}

/// Connects the other process.
pub(crate) fn connect(address: String) -> std::future::Ready<Result<Locks>> {
    std::future::ready(Locks::new(Arc::new(Asking { address })))
}

impl Asking {
    fn parts(&self) -> (&str, &str) {
        self.address.split_once(' ').expect("an address of this harness")
    }

    fn is(&self, defect: Defect) -> bool {
        self.parts().0 == format!("{defect:?}")
    }

    async fn ask(&self, what: &str, claim: &Claim) -> Result<String> {
        let unreachable = |error: std::io::Error| Error::new(ErrorKind::Unreachable, error.to_string());
        let (owner, ttl) = (claim.owner().as_u128(), claim.ttl().as_millis());
        let question = format!("{what} {owner:032x} {ttl} {}\n", claim.name());
        let asked = async {
            let mut stream = BufReader::new(TcpStream::connect(self.parts().1).await?);
            stream.write_all(question.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_line(&mut answer).await?;
            Ok::<_, std::io::Error>(answer.trim_end().to_owned())
        };
        asked.await.map_err(unreachable)
    }

    async fn renew_one(&self, grant: &Grant) -> Renewal {
        let sent = Moment::now();
        match self.ask("renew", grant.claim()).await {
            Ok(answer) if answer == "renewed" => Renewal::Renewed(valid_until(sent, grant.claim().ttl())),
            Ok(_) => Renewal::Lost,
            Err(error) => Renewal::Unknown(error),
        }
    }
}

#[async_trait]
impl DistributedLock for Asking {
    fn capabilities(&self) -> Capabilities {
        MemoryLock::new().capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let sent = Moment::now();
        let answer = self.ask("acquire", claim).await?;
        let Ok(token) = answer.parse() else { return Ok(None) };
        let grant = Grant::new(claim, FencingToken::new(token), sent);
        if self.is(Defect::CountsFromTheQuestion) {
            return Ok(Some(grant));
        }
        if self.is(Defect::ValidForAnHour) {
            return Ok(Some(grant.with_deadline(Moment::now().after(Duration::from_secs(3600)))));
        }
        // It may have waited: the lease is known to last from here.
        match self.renew_one(&grant).await {
            Renewal::Renewed(deadline) => Ok(Some(grant.with_deadline(deadline))),
            _ => Err(Error::new(ErrorKind::Unreachable, "the lease has ended")),
        }
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let mut answers = Vec::new();
        for grant in grants {
            answers.push(match self.renew_one(grant).await {
                Renewal::Lost if self.is(Defect::ValidForAnHour) => {
                    Renewal::Renewed(Moment::now().after(Duration::from_secs(3600)))
                }
                answer => answer,
            });
        }
        answers
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let answer = self.ask("release", claim).await?;
        Ok(if answer == "released" { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        Err(Error::new(ErrorKind::Unsupported, format!("the other process does not look at {name}")))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        Err(Error::new(ErrorKind::Unsupported, format!("the other process does not free {name}")))
    }
}
