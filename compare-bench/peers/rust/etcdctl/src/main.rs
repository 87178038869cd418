//! The command `etcdctl lock` under the workloads of `compare-bench --peers`.

use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use peer_common::{Library, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many processes at once: each needs some megabytes.
const MOST: usize = 64;

#[derive(Clone)]
struct EtcdCtl {
    endpoints: String,
    version: String,
    places: Arc<Semaphore>,
}

struct Held {
    process: Child,
    _place: OwnedSemaphorePermit,
}

impl Library for EtcdCtl {
    type Held = Held;

    async fn connect(urls: &[&str]) -> Result<Self> {
        let output = Command::new("etcdctl").arg("version").env("ETCDCTL_API", "3").output().await;
        let output = output.map_err(|error| format!("etcdctl: {error} (apt install etcd-client has it)"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("etcdctl version: ")).unwrap_or("?");
        let (version, places) = (version.trim().to_owned(), Arc::new(Semaphore::new(MOST)));
        Ok(Self { endpoints: urls.join(","), version, places })
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn setup(&self) -> String {
        format!(
            "etcdctl lock NAME, a process for each lock, as in a script; SIGINT releases it; at most {MOST} at once"
        )
    }

    fn lacks(&self) -> &'static str {
        "the end of its command when the lock is lost; a connection that is used again"
    }

    async fn acquire(&self, name: &str) -> Result<Held> {
        let place = Arc::clone(&self.places).acquire_owned().await?;
        let mut process = Command::new("etcdctl")
            .args(["--endpoints", &self.endpoints, "lock", name])
            .env("ETCDCTL_API", "3")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        // It writes the key once it has the lock.
        let output = process.stdout.as_mut().ok_or("etcdctl has no output")?;
        let mut key = String::new();
        BufReader::new(output).read_line(&mut key).await?;
        if key.is_empty() { Err("etcdctl got no lock".into()) } else { Ok(Held { process, _place: place }) }
    }

    async fn release(&self, mut held: Held) -> Result<()> {
        let process = held.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(process.ok_or("etcdctl has ended")?, Signal::INT)?;
        let status = held.process.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("etcdctl ended with {status}").into()) }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<EtcdCtl>().await
}
