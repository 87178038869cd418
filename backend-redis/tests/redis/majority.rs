//! Sentinels that do not agree on the master: a client believes their majority.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LockGuard, Locks};
use testbed::Redis;

use crate::servers::{client, keys, redis, refusal, until};

/// What a sentinel says.
#[derive(Clone, Copy)]
enum Says {
    /// The master, and the election that has made it one.
    Master(SocketAddr, u64),
    Nothing,
}

/// A sentinel that says what it is told to.
struct Fake {
    addr: SocketAddr,
    says: Arc<Mutex<(Says, Duration)>>,
}

impl Fake {
    fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let says = Arc::new(Mutex::new((says, Duration::ZERO)));
        let shared = Arc::clone(&says);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let says = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &says));
            }
        });
        Self { addr, says }
    }

    fn say(&self, says: Says) {
        self.says.lock().expect("no panic").0 = says;
    }

    fn delay(&self, by: Duration) {
        self.says.lock().expect("no panic").1 = by;
    }
}

/// Answers until the other side goes away.
fn serve(stream: TcpStream, says: &Mutex<(Says, Duration)>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut writer = stream;
    while let Some(words) = command(&mut reader) {
        let (says, delay) = *says.lock().expect("no panic");
        std::thread::sleep(delay);
        let Says::Master(addr, epoch) = says else { continue };
        let (host, port, epoch) = (addr.ip().to_string(), addr.port().to_string(), epoch.to_string());
        let answer = match words.get(1).map(|word| word.to_uppercase()).as_deref() {
            Some("MASTER") => list(&["name", "mymaster", "config-epoch", &epoch]),
            Some("GET-MASTER-ADDR-BY-NAME") => list(&[&host, &port]),
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let many = number(reader)?;
    let words = (0..many).map(|_| {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        String::from_utf8(word).ok()
    });
    words.collect()
}

fn number(reader: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn list(words: &[&str]) -> String {
    let texts: Vec<_> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{}", words.len(), texts.concat())
}

struct Group {
    old: Redis,
    new: Redis,
    sentinels: Vec<Fake>,
}

impl Group {
    /// Three sentinels that name the same server, and another server that is a master, too.
    async fn start() -> Option<Self> {
        let (old, new) = (redis().await?, redis().await?);
        let says = Says::Master(old.addr(), 1);
        let sentinels = (0..3).map(|_| Fake::start(says)).collect();
        Some(Self { old, new, sentinels })
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|one| one.addr.to_string()).collect();
        format!("redis+sentinel://{}/mymaster", hosts.join(","))
    }

    fn promote(&self, sentinels: &[usize]) {
        for at in sentinels {
            self.sentinels[*at].say(Says::Master(self.new.addr(), 2));
        }
    }
}

const LOCK: &str = "lockwell:a";

async fn lock(locks: &Locks) -> LockGuard {
    locks.lock("a").await.expect("a free lock")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_sentinel_is_not_believed() {
    let Some(group) = Group::start().await else { return };
    group.promote(&[1, 2]);
    // The stale one is the first to answer.
    group.sentinels[1].delay(Duration::from_millis(200));
    group.sentinels[2].delay(Duration::from_millis(100));
    for _ in 0..3 {
        let guard = lock(&client(&group.url()).await).await;
        assert_eq!(keys(&group.new), [LOCK]);
        assert_eq!(keys(&group.old), [""; 0]);
        guard.release().await.expect("held");
    }
}

/// The runtime of the application and the keeper go on at the server that the majority names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_connected_follows_the_majority() {
    let Some(group) = Group::start().await else { return };
    let locks = client(&group.url()).await;
    let kept = locks.lock("kept").ttl(Duration::from_secs(6)).await.expect("a free lock");
    // The keeper has a connection, too.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(kept.is_held());
    group.promote(&[1, 2]);
    let began = Instant::now();
    loop {
        let guard = lock(&locks).await;
        let moved = keys(&group.new) == [LOCK];
        // It may have moved since it was granted.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
        }
        if moved {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "it stays at the former master");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("at the new master after {:?}", began.elapsed());
    // The new master does not have it, and it is extended at no other.
    tokio::time::timeout(Duration::from_secs(6), kept.lost()).await.expect("told in time");
    until("the lease at the former master ends", || keys(&group.old).is_empty()).await;
    for _ in 0..20 {
        let guard = lock(&locks).await;
        assert_eq!(keys(&group.old), [""; 0]);
        guard.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_granted() {
    let Some(group) = Group::start().await else { return };
    let locks = client(&group.url()).await;
    let guard = locks.lock("kept").ttl(Duration::from_secs(60)).await.expect("a free lock");
    // A server that a later election has made the master is another.
    group.promote(&[2]);
    let error = refusal(&group.url()).await;
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error:#}");
    let text = "2 of 3 sentinels must name the same master";
    assert!(error.to_string().contains(text) && error.to_string().contains("by election 2"), "{error:#}");
    for at in [1, 2] {
        group.sentinels[at].say(Says::Nothing);
    }
    let error = refusal(&group.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(error.to_string().contains("2 did not answer"), "{error:#}");
    // Their last word counts for a while.
    let began = Instant::now();
    let error = loop {
        match locks.lock("a").try_now().await {
            Ok(guard) => guard.expect("a free lock").release().await.expect("held"),
            Err(error) => break error,
        }
        assert!(began.elapsed() < Duration::from_secs(10), "for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    // They are back, and nothing was lost.
    group.sentinels[1].say(Says::Master(group.old.addr(), 1));
    let end = Instant::now() + Duration::from_secs(10);
    while let Err(error) = locks.lock("a").try_now().await {
        assert!(error.is_retryable() && Instant::now() < end, "{error:#}");
    }
    assert!(guard.is_held());
    guard.release().await.expect("held");
}
