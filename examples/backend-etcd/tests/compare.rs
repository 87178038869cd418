//! The comparison measures this backend by its address: `cargo test --features compare --test compare`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

/// How long etcd may take to start.
const STARTING: Duration = Duration::from_secs(30);

struct Etcd {
    process: Child,
    addr: SocketAddr,
    folder: PathBuf,
}

impl Etcd {
    fn start() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (addr, peer) = (free_address(), free_address());
        let (clients, peers) = (format!("http://{addr}"), format!("http://{peer}"));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program etcd is in the path");
        let etcd = Self { process, addr, folder };
        let end = Instant::now() + STARTING;
        while TcpStream::connect(addr).is_err() {
            assert!(Instant::now() < end, "etcd takes no connections");
            thread::sleep(Duration::from_millis(50));
        }
        etcd
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

#[test]
fn a_short_run_measures_etcd() {
    let etcd = Etcd::start();
    let results = etcd.folder.join("results.json");
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--smoke", "--only", "uncontended,handoff"])
        .args(["--url", &format!("etcd://{}/lockwell", etcd.addr)])
        .arg("--json")
        .arg(&results)
        .current_dir(&etcd.folder)
        .output()
        .expect("the comparison runs");
    let (shown, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}\n{complaints}");
    let report: Value = serde_json::from_slice(&fs::read(&results).expect("results")).expect("JSON");
    assert_eq!(report["backends"][0]["name"], "etcd");
    for workload in ["uncontended", "handoff"] {
        let of_workload = |result: &&Value| result["backend"] == "etcd" && result["workload"] == workload;
        let measured = report["results"].as_array().expect("a list").iter().any(|one| of_workload(&one));
        assert!(measured, "{workload} was not measured: {shown}\n{complaints}");
    }
    for field in ["missing", "failures"] {
        assert_eq!(report[field], Value::Array(Vec::new()), "{field}");
    }
}
