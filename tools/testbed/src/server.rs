//! A throwaway server process: start, kill, pause, stop, restart.

mod launch;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use self::launch::{Run, TIMEOUT, launch, make_data, tail};
use crate::{
    Error, Options,
    kind::{Kind, Site},
    port, proctree,
    supervisor::Supervisor,
};

/// How often a start is tried again because somebody else took the port.
const ATTEMPTS: u32 = 8;

/// A running (or, on purpose, not running) throwaway server.
///
/// A cheap handle: clones are the same server. When the last one is dropped, or this process ends in whatever
/// way, the server is killed and its folder removed.
///
/// The methods that are not `async` block for some milliseconds. They take turns: a [`Server::kill`] while a
/// [`Server::restart`] is under way waits for it.
#[derive(Clone)]
pub struct Server {
    inner: Arc<ServerInner>,
}

struct ServerInner {
    kind: Box<dyn Kind>,
    options: Options,
    addr: SocketAddr,
    more_ports: Vec<u16>,
    folder: PathBuf,
    run: Mutex<Run>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("kind", &self.inner.kind.name())
            .field("addr", &self.inner.addr)
            .field("folder", &self.inner.folder)
            .finish_non_exhaustive()
    }
}

/// Whoever has a server is one.
macro_rules! is_a_server {
    ($whoever:ty) => {
        impl std::ops::Deref for $whoever {
            type Target = crate::Server;

            fn deref(&self) -> &crate::Server {
                &self.server
            }
        }
    };
}
pub(crate) use is_a_server;

impl Server {
    pub(crate) async fn start(kind: impl Kind, options: &Options) -> Result<Self, Error> {
        let options = options.clone();
        blocking(move || ServerInner::start(Box::new(kind), options))
            .await
            .map(|inner| Self { inner: inner.into() })
    }

    /// The address on which it listens, also after a restart.
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// The server's own folder. Its log is the file `log` in it.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// The process id of the server, `None` if it is not running.
    pub fn pid(&self) -> Option<u32> {
        self.inner.run().live_pid()
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        tail(&self.log())
    }

    /// All of the log.
    pub(crate) fn log(&self) -> String {
        self.inner.site().read("log")
    }

    /// The value of a setting that its options gave it.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.inner.options.value(name)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The other ports that were chosen for it.
    pub(crate) fn more_ports(&self) -> &[u16] {
        &self.inner.more_ports
    }

    /// Kills all processes of the server with SIGKILL, paused or not. Returns when they are gone.
    pub fn kill(&self) -> Result<(), Error> {
        let mut run = self.inner.run();
        match run.live_pid() {
            Some(pid) => proctree::kill(pid).and_then(|()| run.forget()),
            None => Ok(()),
        }
    }

    /// Stops all processes of the server with SIGSTOP. Connections stay open, and the kernel goes on taking
    /// new ones: they hang.
    pub fn pause(&self) -> Result<(), Error> {
        let run = self.inner.run();
        proctree::stop(run.live_pid().ok_or_else(|| self.inner.down())?).map(drop)
    }

    /// Lets a paused server go on.
    pub fn resume(&self) -> Result<(), Error> {
        let run = self.inner.run();
        proctree::resume(run.live_pid().ok_or_else(|| self.inner.down())?)
    }

    /// Ends the server in good order, paused or not. Returns when it has ended.
    pub async fn stop(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        blocking(move || inner.stop()).await
    }

    /// Starts the server again, on the same data and the same port. It must not be running.
    pub async fn restart(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        blocking(move || inner.restart()).await
    }
}

impl ServerInner {
    fn start(kind: Box<dyn Kind>, options: Options) -> Result<Self, Error> {
        let mut supervisor = Supervisor::start(&options.parent_folder(), kind.name())?;
        let folder = supervisor.folder().to_owned();
        let site = Site { folder: &folder, options: &options, more_ports: &[] };
        site.write("hooks.sh", kind.hooks())?;
        make_data(&*kind, &site, &mut supervisor)?;
        let mut run = Run { supervisor, pid: None };
        let mut attempt = 1;
        loop {
            let addr = port::free().map_err(Error::io("a free port"))?;
            let more = (0..kind.more_ports()).map(|_| port::free().map(|addr| addr.port()));
            let more_ports: Vec<u16> = more.collect::<Result<_, _>>().map_err(Error::io("a free port"))?;
            let site = Site { folder: &folder, options: &options, more_ports: &more_ports };
            match launch(&*kind, &site, addr, &mut run) {
                Ok(()) => return Ok(Self { kind, options, addr, more_ports, folder, run: Mutex::new(run) }),
                Err(error) if attempt < ATTEMPTS && error.port_taken() => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn restart(&self) -> Result<(), Error> {
        let mut run = self.run();
        if run.live_pid().is_some() {
            return Err(Error::State(format!("{} on {} is running", self.kind.name(), self.addr)));
        }
        // It may have ended by itself.
        run.forget()?;
        let mut attempt = 1;
        loop {
            match launch(&*self.kind, &self.site(), self.addr, &mut run) {
                Err(error) if attempt < ATTEMPTS && error.port_taken() => attempt += 1,
                done => return done,
            }
            thread::sleep(Duration::from_millis(250));
        }
    }

    fn stop(&self) -> Result<(), Error> {
        let mut run = self.run();
        let Some(pid) = run.live_pid() else { return run.forget() };
        proctree::signal(pid, self.kind.stop_signal())?;
        proctree::resume(pid)?;
        let deadline = Instant::now() + TIMEOUT;
        while proctree::alive(pid) {
            if Instant::now() > deadline {
                let log = self.site().read("log");
                let text = format!("{} has not ended after {TIMEOUT:?}:\n{}", self.kind.name(), tail(&log));
                return Err(Error::State(text));
            }
            thread::sleep(Duration::from_millis(5));
        }
        run.forget()
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn site(&self) -> Site<'_> {
        Site { folder: &self.folder, options: &self.options, more_ports: &self.more_ports }
    }

    fn down(&self) -> Error {
        Error::State(format!("{} on {} is not running", self.kind.name(), self.addr))
    }
}

impl Run {
    fn live_pid(&self) -> Option<u32> {
        self.pid.filter(|pid| proctree::alive(*pid))
    }

    /// Collects the dead server process.
    fn forget(&mut self) -> Result<(), Error> {
        match self.pid.take() {
            Some(pid) => self.supervisor.collect(pid).map(drop),
            None => Ok(()),
        }
    }
}

/// Runs what blocks where it does not hold up the caller's other tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::State("the runtime is shutting down".into())),
    }
}
