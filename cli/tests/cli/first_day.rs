//! The steps of docs/first-day.md, as a reader takes them: each block of the page is used as it stands there.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::Postgres;

use crate::support::{Group, Running, Site, block_on};

const PAGE: &str = include_str!("../../../docs/first-day.md");
/// Cargo compiles the service and what it needs, on a machine that may be busy.
const TIMEOUT: Duration = Duration::from_mins(15);

/// The blocks of the page, with their kinds.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((kind, block.flat_map(|line| [line, "\n"]).collect()));
        }
    }
    blocks
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A shell line that ends the script if it fails, or does not say what its comment says.
fn checked(line: &str) -> String {
    if line.contains(" & ") {
        return format!("{line}\n");
    }
    let (command, says) = line.split_once("# says: ").unwrap_or((line, ""));
    let says =
        if says.is_empty() { String::new() } else { format!("&& grep -qF {} $SAID", quoted(says.trim())) };
    // Not in a shell of its own, since it may set a variable.
    format!(
        "echo '$' {line}\n{{ {command}\n}} > $SAID 2>&1; s=$?; cat $SAID\n\
         [ $s -eq 0 ] {says} || {{ echo \"status $s\"; exit 99; }}\n",
        line = quoted(line),
    )
}

fn written(text: &str, to: &str) -> String {
    format!("cat {to} <<'END OF THE FILE'\n{text}END OF THE FILE\n")
}

/// The page as one script. A reader's service is compiled by its commands of cargo; without them it was before.
fn script(page: &str, compiles: bool) -> String {
    let mut script = String::new();
    for (kind, block) in blocks(page) {
        match kind {
            "sh" => {
                let lines = block.lines();
                let is_run = |line: &&str| compiles || !(line.starts_with("cargo ") || *line == "cd reports");
                script.extend(lines.filter(is_run).map(checked));
            }
            "rust,ignore" if !compiles => (),
            "rust,ignore" if block.contains("fn main()") => script += &written(&block, "> src/main.rs"),
            "rust,ignore" => script += &written(&format!("\n{block}"), ">> src/main.rs"),
            "yaml" => script += &written(&block, "> prometheus.yml"),
            // An administrator runs it.
            "sql" => (),
            other => panic!("nothing uses a block of {other:?}"),
        }
    }
    script
}

/// Where cargo compiles; it stays for the next run. No other process uses it as long as the file is open.
fn target() -> (PathBuf, File) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-day");
    fs::create_dir_all(&folder).unwrap();
    let turn = File::create(folder.join("turn")).unwrap();
    turn.lock().unwrap();
    (folder, turn)
}

/// A server that asks the service for its password, with the statements of the page.
async fn server() -> Postgres {
    let server = Postgres::start().await.unwrap();
    let rules = server.folder().join("data/pg_hba.conf");
    let old = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("host all reports 127.0.0.1/32 scram-sha-256\n{old}")).unwrap();
    let blocks = blocks(PAGE).into_iter();
    let sql: String = blocks.filter(|(kind, _)| *kind == "sql").map(|(_, sql)| sql).collect();
    server.admin_sql(&format!("{sql}SELECT pg_reload_conf();")).await.unwrap();
    server
}

/// A port on which nobody listens at present.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// The example is the service of the page.
#[test]
fn the_page_has_the_example() {
    let of_page = blocks(PAGE).into_iter().filter(|(kind, _)| *kind == "rust,ignore").map(|(_, block)| block);
    let example = include_str!("../../../examples/reports.rs");
    assert_eq!(of_page.collect::<Vec<_>>().join("\n"), example);
}

#[test]
fn the_first_day() {
    // Where cargo puts the examples of all packages.
    let folder = Path::new(env!("CARGO_BIN_EXE_lockwell")).with_file_name("examples");
    assert!(folder.join("reports").exists(), "cargo build --all-features --example reports");
    walk(&folder, &script(PAGE, false));
}

#[test]
#[ignore = "it compiles a service"]
fn as_a_reader_takes_it() {
    let (target, _turn) = target();
    // The library is that of this repository, and cargo has the versions of its Cargo.lock.
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().unwrap();
    let repository = repository.to_str().unwrap();
    let text = script(PAGE, true)
        .replace("{ cd reports\n", &format!("{{ cd reports && cp {repository}/Cargo.lock .\n"))
        .replace("cargo add lockwell ", &format!("cargo add --path {repository} lockwell "));
    // The service has another path in each run, and cargo would keep all of them.
    walk(&target.join("debug"), &(text + &checked("cargo clean --quiet --package reports")));
}

/// Takes these steps, with the service that is in this folder.
fn walk(service: &Path, text: &str) {
    if !testbed::is_installed(Postgres::installed()) {
        return;
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return testbed::lacks("there is no curl");
    }
    // Outside of this repository: cargo would count the service to its workspace.
    let site = Site::new();
    let folder = site.path("");
    let server = block_on(server());
    let text = text
        .replace("target/debug/", &format!("{}/", service.display()))
        .replace("127.0.0.1/app", &format!("{}/postgres", server.addr()))
        .replace("/etc/reports", folder.to_str().unwrap().trim_end_matches('/'))
        .replace("8081", &free_port())
        .replace("8082", &free_port());

    let bin = Path::new(env!("CARGO_BIN_EXE_lockwell")).parent().unwrap();
    let out = File::create(site.path("log")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &text]).current_dir(&folder).process_group(0);
    shell.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    shell
        .env("SAID", site.path("said"))
        .env("CARGO_TARGET_DIR", service.parent().unwrap())
        .env("CARGO_NET_OFFLINE", "true");
    shell.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_TERM_COLOR", "never");
    for variable in ["LOCKWELL_URL", "LOCKWELL_HELD", "RUST_LOG"] {
        shell.env_remove(variable);
    }
    shell.stdin(Stdio::null()).stderr(out.try_clone().unwrap()).stdout(out);
    let shell = Running::start(&mut shell);
    // What the script has left behind if it failed.
    let _group = Group(shell.pid());
    let run = shell.finish_within(TIMEOUT);
    println!("{}", site.read("log"));
    assert_eq!(run.status, 0);
}
