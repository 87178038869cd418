//! Another process that holds a lock, which cases kill or stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

use lockwell_core::{FencingToken, LockName, Locks, Moment, Result};

const ADDRESS: &str = "LOCKWELL_HOLDER_ADDRESS";
const NAME: &str = "LOCKWELL_HOLDER_NAME";
const TTL: &str = "LOCKWELL_HOLDER_TTL_MS";
/// A program that is started instead of this one, and does what [`serve_if_asked`] does: in another language.
const PROGRAM: &str = "LOCKWELL_HOLDER";

/// A process that waits for a lock and then holds it until it is killed. Dropping this handle kills it.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    words: mpsc::UnboundedReceiver<String>,
}

impl Holder {
    /// Starts the process: this program again, whose `main` calls [`serve_if_asked`], or the program that the
    /// environment variable `LOCKWELL_HOLDER` names.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn start(address: &str, name: &LockName, ttl: Duration) -> Self {
        let program = std::env::var_os(PROGRAM)
            .unwrap_or_else(|| std::env::current_exe().expect("the path of this program").into());
        let mut child = Command::new(program)
            .env(ADDRESS, address)
            .env(NAME, name.as_str())
            .env(TTL, ttl.as_millis().to_string())
            // It ends when its input ends, so none is left behind.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, words) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, words }
    }

    /// Waits until it holds the lock, and returns its token.
    ///
    /// # Panics
    /// If it prints something else, or nothing for a long time.
    pub async fn held(&mut self) -> FencingToken {
        let word = self.word("held").await;
        FencingToken::new(word.parse().expect("a token"))
    }

    /// Waits until it has noticed that it lost the lock.
    ///
    /// # Panics
    /// If it prints something else, or nothing for a long time.
    pub async fn lost(&mut self) {
        self.word("lost").await;
    }

    async fn word(&mut self, expected: &str) -> String {
        let word = tokio::time::timeout(Duration::from_secs(30), self.words.recv()).await;
        let word = word.ok().flatten();
        match word.as_deref().and_then(|word| word.split_once(' ')) {
            Some((what, rest)) if what == expected => rest.to_owned(),
            _ => panic!("the other process was expected to say {expected:?}, and said {word:?}"),
        }
    }

    /// Kills it with SIGKILL. Returns the moment just before.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Moment {
        let now = Moment::now();
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process ends");
        now
    }

    /// Stops it with SIGSTOP.
    ///
    /// # Panics
    /// If it has ended.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it with SIGCONT.
    ///
    /// # Panics
    /// If it has ended.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).expect("the process is there");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It fails only if it has ended.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// If this process was started by a case, acts as the other process and does not return. The `main` of the
/// program that runs the suite calls this first.
///
/// # Panics
/// If the lock cannot be acquired; the case then gets no output.
pub fn serve_if_asked<C, F>(connect: C)
where
    C: FnOnce(String) -> F,
    F: Future<Output = Result<Locks>>,
{
    let (Ok(address), Ok(name), Ok(ttl)) = (std::env::var(ADDRESS), std::env::var(NAME), std::env::var(TTL))
    else {
        return;
    };
    let ttl = Duration::from_millis(ttl.parse().expect("a number of milliseconds"));
    std::thread::spawn(|| {
        // Nothing is ever written to it: it ends with the process that started us.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let locks = connect(address).await.expect("a client");
        let guard = locks.lock(name.as_str()).ttl(ttl).await.expect("the lock");
        say("held", &guard.token().to_string());
        let mut looked = Moment::now();
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            // The first check after a stop that was longer than the lease must say no, whatever the keeper
            // knows.
            let (now, held) = (Moment::now(), guard.is_held());
            if held && now.since(looked) > ttl {
                say("stale", &format!("is_held after a stop of {:?}", now.since(looked)));
            }
            looked = now;
            if !held {
                break;
            }
        }
        say("lost", &format!("{:?}", guard.lost().await));
        std::future::pending::<()>().await;
    });
}

fn say(what: &str, rest: &str) {
    let mut output = std::io::stdout().lock();
    // If nobody listens, this process is about to end.
    drop(writeln!(output, "{what} {rest}").and_then(|()| output.flush()));
}
