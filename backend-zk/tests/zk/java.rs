//! A server whose Java machine is told more than testbed has words for: what is needed for TLS, SASL, read only mode.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use lockcore::Moment;
use tempfile::TempDir;

use crate::servers::missing;

/// The first two are what testbed uses. The server's own list lacks what it needs of Netty for TLS.
const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:\
                    /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// So many times another port is tried if somebody took the first.
const ATTEMPTS: u32 = 5;

/// Ends with its value. Should this process be killed before that, it ends after some minutes.
pub(crate) struct JavaServer {
    child: Child,
    folder: TempDir,
    port: u16,
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl JavaServer {
    /// Starts one with these lines in `zoo.cfg` and these arguments for Java; `None` where it is not installed.
    pub(crate) async fn start(settings: &[(&str, String)], java: &[String]) -> Option<Self> {
        if missing("ZooKeeper", testbed::ZooKeeper::installed()) {
            return None;
        }
        for _ in 0..ATTEMPTS {
            let mut server = Self::launch(settings, java);
            let end = Moment::now().after(Duration::from_mins(1));
            while server.child.try_wait().expect("our child").is_none() {
                if server.four_letter("srvr").is_some_and(|answer| answer.contains("Mode: ")) {
                    return Some(server);
                }
                assert!(!end.has_passed(), "the server does not start: {}", server.log());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(server.log().contains("already in use"), "the server ended: {}", server.log());
        }
        panic!("no free port");
    }

    fn launch(settings: &[(&str, String)], java: &[String]) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("data")).expect("a folder");
        std::fs::write(path("data/myid"), "1").expect("a file");
        let own = [
            ("tickTime", "200".to_owned()),
            ("maxSessionTimeout", "90000".to_owned()),
            ("dataDir", path("data").display().to_string()),
            ("clientPort", port.to_string()),
            ("clientPortAddress", "127.0.0.1".to_owned()),
            ("admin.enableServer", "false".to_owned()),
            ("4lw.commands.whitelist", "*".to_owned()),
        ];
        let lines: Vec<_> =
            own.iter().chain(settings).map(|(name, value)| format!("{name}={value}\n")).collect();
        std::fs::write(path("zoo.cfg"), lines.concat()).expect("a file");
        let log = File::create(path("log")).expect("a file");
        let child = Command::new("timeout")
            .args(["300", "java", "-Xmx128m", "-XX:-UsePerfData", "-Dzookeeper.jmx.log4j.disable=true"])
            .args(java)
            .args(["-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arg(path("zoo.cfg"))
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("timeout is installed");
        Self { child, folder, port }
    }

    /// Where clients connect to without TLS.
    pub(crate) fn addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a file")
    }

    /// The answer to a command of four letters, if there is one.
    pub(crate) fn four_letter(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.addr()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for JavaServer {
    fn drop(&mut self) {
        // `timeout` passes this on, which it could not do with a harder signal. It fails only if all is over.
        let done = Command::new("kill").arg(self.child.id().to_string()).status();
        if done.is_ok_and(|status| status.success()) {
            drop(self.child.wait());
        }
    }
}
