//! The picture of `lockwell top` in the README, `docs/top.svg`: a screen of the program, drawn as a terminal. The folder
//! of the lock file alone has another name there.
//!
//! With `LOCKWELL_DRAW=1` in the environment the test draws it again.

use std::fmt::Write as _;
use std::future::IntoFuture as _;
use std::path::PathBuf;
use std::time::Duration;

use lockwell::{LockGuard, Locks};
use tokio::runtime::Runtime;

use crate::support::{Site, wait_until};

/// The height of a letter, its width, which is 0.6 of that in a monospaced font, and the height of a line, in pixels.
const SIZE: usize = 13;
const LETTER: usize = 8;
const LINE: usize = 19;

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/top.svg"))
}

/// A terminal with these lines.
fn drawn(lines: &[&str]) -> String {
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (longest * LETTER + 32, lines.len() * LINE + 56);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n\
         <g fill=\"#484f58\"><circle cx=\"20\" cy=\"18\" r=\"5\"/><circle cx=\"38\" cy=\"18\" r=\"5\"/>\
         <circle cx=\"56\" cy=\"18\" r=\"5\"/></g>\n\
         <g font-family=\"monospace\" font-size=\"{SIZE}\" fill=\"#e6edf3\">\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let line = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let y = 52 + row * LINE;
        writeln!(svg, "<text x=\"16\" y=\"{y}\" xml:space=\"preserve\">{line}</text>").unwrap();
    }
    svg + "</g>\n</svg>\n"
}

/// The lines of a picture.
fn lines(svg: &str) -> Vec<String> {
    let text = |line: &str| Some(line.split_once("preserve\">")?.1.strip_suffix("</text>")?.to_owned());
    let lines = svg.lines().filter_map(text);
    lines.map(|line| line.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")).collect()
}

/// The cells of a line, without what differs from one moment to the next: numbers and times.
fn cells(line: &str) -> Vec<String> {
    let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '>');
    let one = |cell: &str| {
        if is_number(cell) { "#".to_owned() } else { cell.replace(|c: char| c.is_ascii_digit(), "#") }
    };
    cells.map(one).collect()
}

/// Locks that are in use as a shop may use them, and their holders.
async fn a_busy_shop(site: &Site) -> (Vec<LockGuard>, Vec<Locks>) {
    let (mut guards, mut clients) = (Vec::new(), Vec::new());
    for n in 1..=4 {
        let locks = site.locks().await;
        let invoices = locks.lock("invoices/2026-11").label(format!("billing-{n}"));
        let mails = locks.permit("mail-gateway", 3).label(format!("mailer-{n}"));
        if n == 1 {
            guards.push(invoices.await.unwrap());
            guards.push(locks.lock("leader/scheduler").label("node-a").await.unwrap());
        } else {
            tokio::spawn(invoices.into_future());
        }
        if n == 4 {
            tokio::spawn(mails.into_future());
        } else {
            guards.push(mails.await.unwrap());
        }
        if n < 3 {
            guards.push(locks.read("prices").label(format!("web-{n}")).await.unwrap());
            let shop = locks.clone();
            tokio::spawn(async move {
                loop {
                    let guard = shop.lock("tickets").label(format!("shop-{n}")).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        clients.push(locks);
    }
    (guards, clients)
}

#[test]
fn the_picture_shows_a_screen_of_today() {
    let (site, runtime) = (Site::new(), Runtime::new().unwrap());
    let shop = runtime.block_on(a_busy_shop(&site));
    let is_drawn = std::env::var_os("LOCKWELL_DRAW").is_some();
    let told = if is_drawn { Vec::new() } else { lines(&std::fs::read_to_string(path()).unwrap()) };
    let every = if is_drawn { "12s" } else { "100ms" };
    let mut command = site.lockwell(&["top", "--once", "--every", every]);
    // A lock that is passed on may be free, or have no waiter, for a moment.
    wait_until("a screen as in docs/top.svg, which LOCKWELL_DRAW=1 draws again", || {
        let screen = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let screen = screen.replace(site.path("").to_str().unwrap(), "/var/lib/shop/");
        let screen: Vec<_> = std::iter::once("$ lockwell top").chain(screen.lines()).collect();
        if is_drawn {
            std::fs::write(path(), drawn(&screen)).unwrap();
            return true;
        }
        let is_same = told.iter().map(|line| cells(line)).eq(screen.iter().map(|line| cells(line)));
        if !is_same {
            println!("{}\n", screen.join("\n"));
        }
        is_same
    });
    drop(shop);
    runtime.shutdown_background();
}
