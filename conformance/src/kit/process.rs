//! A server that is one process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell_core::async_trait;
use rustix::process::{Pid, Signal, kill_process};

use crate::Server;
use crate::kit::connect::{Connecting, Missing};
use lockwell_core::Moment;

/// A shell script: runs its arguments as a command, prints the process id, and kills the command when its
/// input ends, that is when this process ends in any way.
const KEEPER: &str = r#"exec 3<&0
"$@" </dev/null 3<&- >&2 &
server=$!
echo $server
{ read -r line <&3; kill -9 $server; } >/dev/null 2>&1 &
watch=$!
wait $server
status=$?
kill $watch 2>/dev/null
exit $status"#;

/// The exit status of a shell if the program does not exist.
const NOT_FOUND: i32 = 127;

/// How long a server may take until a client can connect.
const STARTING: Duration = Duration::from_secs(60);

/// How long a clean shutdown of a server may take.
const STOPPING: Duration = Duration::from_secs(30);

/// The address and the folder of a server, for the command that starts it. They are the same at each start.
#[derive(Debug)]
pub struct Site {
    addr: SocketAddr,
    peer_addr: SocketAddr,
    folder: PathBuf,
}

impl Site {
    /// The address for clients: a free port on this machine.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Another free port, for servers that need a second one.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Its folder: empty at the first start, and removed at the end. It is in memory if the machine has such
    /// a file system.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn choose() -> std::io::Result<Self> {
        // Both at a time, so that they differ.
        let ports =
            [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("lockwell-{:016x}", rand::random::<u64>()));
        fs::create_dir(&folder)?;
        Ok(Self { addr: ports[0].local_addr()?, peer_addr: ports[1].local_addr()?, folder })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It stays behind if a file in it cannot be removed, which harms no test.
        drop(fs::remove_dir_all(&self.folder));
    }
}

pub(super) type MakeCommand = Arc<dyn Fn(&Site) -> Command + Send + Sync>;
type Client = Box<dyn Fn(SocketAddr) -> Connecting + Send + Sync>;

/// A server process, which is started again at the same site after each stop.
pub(super) struct ServerProcess {
    command: MakeCommand,
    client: Client,
    running: Mutex<Option<Running>>,
    site: Site,
}

struct Running {
    keeper: Child,
    server: Pid,
    /// Kept open, so that the shell script does not fail when it writes.
    _words: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts the process, and waits until a client can connect.
    pub(super) async fn start(
        command: MakeCommand,
        client: impl Fn(SocketAddr) -> Connecting + Send + Sync + 'static,
    ) -> Result<Self, Missing> {
        let site =
            Site::choose().map_err(|error| Missing::Broken(format!("a place for a server: {error}")))?;
        let this = Self { command, client: Box::new(client), running: Mutex::new(None), site };
        this.begin().await?;
        Ok(this)
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.site.addr
    }

    async fn begin(&self) -> Result<(), Missing> {
        self.launch().map_err(|error| Missing::Broken(format!("a server: {error}")))?;
        let end = Moment::now().after(STARTING);
        loop {
            let why = match tokio::time::timeout(Duration::from_secs(5), (self.client)(self.site.addr)).await
            {
                Ok(Ok(client)) => {
                    // It has done nothing that could fail to end.
                    drop(client.close().await);
                    return Ok(());
                }
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            if end.has_passed() {
                return Err(Missing::Broken(format!("no client can connect within {STARTING:?}: {why}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn log(&self) -> PathBuf {
        self.site.folder.join("log")
    }

    /// Starts the process; the server may need a while until it answers.
    fn launch(&self) -> std::io::Result<()> {
        let command = (self.command)(&self.site);
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => keeper.env(name, value),
                None => keeper.env_remove(name),
            };
        }
        keeper.current_dir(command.get_current_dir().unwrap_or(&self.site.folder));
        let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut words = BufReader::new(keeper.stdout.take().expect("it is piped"));
        let mut line = String::new();
        words.read_line(&mut line)?;
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        let server = server.ok_or_else(|| std::io::Error::other(format!("no process id: {line:?}")))?;
        *self.running() = Some(Running { keeper, server, _words: words });
        Ok(())
    }

    /// If it has ended: the reason.
    fn ended(&self) -> Option<Missing> {
        let status = self.running().as_mut()?.keeper.try_wait().ok()??;
        if status.code() == Some(NOT_FOUND) {
            let command = (self.command)(&self.site);
            let program = command.get_program().to_string_lossy();
            return Some(Missing::NotInstalled(format!("{program} is not found")));
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let from = log.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        Some(Missing::Broken(format!(
            "the server ended with {status}; the end of its log:\n{}",
            &log[from..]
        )))
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        // Not in one expression: each of them takes the mutex.
        let has_begun = self.running().is_some();
        has_begun && self.ended().is_none()
    }

    /// # Panics
    /// If the server does not run.
    fn signal(&self, signal: Signal) {
        let server = self.running().as_ref().map(|running| running.server).expect("the server runs");
        kill_process(server, signal).expect("the server is there");
    }

    /// Shuts it down cleanly.
    ///
    /// # Panics
    /// If it does not end.
    async fn stop(&self) {
        self.signal(Signal::TERM);
        for _ in 0..STOPPING.as_millis() / 20 {
            if self.ended().is_some() {
                *self.running() = None;
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server does not end within {STOPPING:?} after SIGTERM");
    }
}

#[async_trait]
impl Server for ServerProcess {
    async fn pause(&self) {
        self.signal(Signal::STOP);
    }

    async fn resume(&self) {
        if self.is_running() {
            self.signal(Signal::CONT);
        } else {
            self.begin().await.expect("the server starts again");
        }
    }

    async fn restart(&self) {
        self.stop().await;
        self.begin().await.expect("the server starts again");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut running) = self.running().take() {
            // The keeper then kills the server, and ends with it.
            drop(running.keeper.stdin.take());
            drop(running.keeper.wait());
        }
    }
}
