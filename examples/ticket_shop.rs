//! Four shops sell the tickets of one stock: read the number, think, write the next number back.
//!
//! First without a lock: two shops read the same number, and sell the same ticket. Then with a lock.
//! The stock is a file; in a database a conditional update does this without a lock.
//!
//! ```text
//! cargo run --example ticket_shop --features sqlite  # processes of this host, by an SQLite file
//! cargo run --example ticket_shop --features postgres -- --url postgres://user:password@host/database
//! cargo run --example ticket_shop --features zk -- --url zk://host1,host2,host3/locks
//! ```
//!
//! The shops are real processes. This program starts itself once for each of them. [`sell_with_lock`] is all
//! that an application has to write.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use lockwell::LockConfig;

const TICKETS: u32 = 100;
const SHOPS: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One shop. A lock makes "read, think, write" one step for all shops, in whatever process or host they are.
async fn sell_with_lock(stock: &Stock) -> Result<u32> {
    // The address picks the backend: nothing else in this program changes with it. `lockwell::connect(url)`
    // does it, too; a `LockConfig` can also say what the program demands of the backend.
    let locks = lockwell::connect_with(LockConfig::from_env()?).await?;
    let mut sold = 0;
    loop {
        // Waits for our turn; without `wait`, for as long as it takes. From now on a thread of the library
        // renews the lease, however long we think. If this process dies, the lock ends with its ttl
        // (`.ttl(...)`, else 10 s).
        let guard = locks.lock("ticket-shop/stock").wait(Duration::from_secs(60)).await?;

        let found_one = stock.sell_one().await?;

        // Dropping the guard releases the lock in the background. `release` waits for the answer, and fails
        // if the lock was lost before: then another shop may have sold the same ticket, and that must not
        // pass unnoticed.
        guard.release().await?;

        if !found_one {
            return Ok(sold);
        }
        sold += 1;
    }
}

/// The same shop without a lock.
async fn sell_without_lock(stock: &Stock) -> Result<u32> {
    let mut sold = 0;
    while stock.sell_one().await? {
        sold += 1;
    }
    Ok(sold)
}

/// The number of tickets that are left, in a file. It knows nothing of locks, as most things worth locking.
struct Stock {
    file: PathBuf,
}

impl Stock {
    /// Sells one ticket; false if there is none left.
    async fn sell_one(&self) -> Result<bool> {
        let left: u32 = fs::read_to_string(&self.file)?.trim().parse()?;
        // Here is the gap: whoever reads the file now sees the ticket that we are about to sell.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let Some(left) = left.checked_sub(1) else { return Ok(false) };
        self.write(left)?;
        Ok(true)
    }

    /// Replaces the file in one step: the gap is what we want to see, not half-written files.
    fn write(&self, left: u32) -> io::Result<()> {
        let new = self.file.with_extension(std::process::id().to_string());
        fs::write(&new, left.to_string())?;
        fs::rename(new, &self.file)
    }
}

/// What all shops together did.
struct Summary {
    title: &'static str,
    sold: u32,
    took: Duration,
}

impl Summary {
    fn is_right(&self) -> bool {
        self.sold == TICKETS
    }

    fn print(&self) {
        let verdict = match self.sold {
            TICKETS => "each ticket once".to_owned(),
            sold if sold > TICKETS => format!("oversold by {}", sold - TICKETS),
            sold => format!("{} not sold", TICKETS - sold),
        };
        let Self { title, sold, took } = self;
        println!("{title:<13} sold {sold:>3} of {TICKETS} tickets in {:.1} s: {verdict}", took.as_secs_f32());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => compare(env::var(LockConfig::ENV).ok()),
        ["--url", url] => compare(Some(url.to_owned())),
        ["shop", kind, file] => {
            let stock = Stock { file: file.into() };
            let sold = match kind {
                "with-lock" => sell_with_lock(&stock).await?,
                _ => sell_without_lock(&stock).await?,
            };
            // The shop's report to the process that started it.
            println!("{sold}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("usage: ticket_shop [--url URL]");
            Ok(ExitCode::from(64))
        }
    }
}

/// Opens the shops twice, without a lock and with it. Under the lock each ticket must be sold once.
fn compare(url: Option<String>) -> Result<ExitCode> {
    let folder = tempfile::tempdir()?;
    let url = url.unwrap_or_else(|| format!("sqlite://{}", folder.path().join("locks.db").display()));

    let without = open_shops("without lock", "without-lock", folder.path(), &url)?;
    without.print();
    let with = open_shops("with lock", "with-lock", folder.path(), &url)?;
    with.print();
    Ok(if with.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the shops on a full stock, and adds up what they sold.
fn open_shops(title: &'static str, kind: &str, folder: &Path, url: &str) -> Result<Summary> {
    let stock = Stock { file: folder.join(kind) };
    stock.write(TICKETS)?;
    let begun = Instant::now();
    let shop = || {
        Command::new(env::current_exe()?)
            .args(["shop", kind])
            .arg(&stock.file)
            // Not on the command line, where every user of the machine could read the password in it.
            .env(LockConfig::ENV, url)
            .stdout(Stdio::piped())
            .spawn()
    };
    let shops = (0..SHOPS).map(|_| shop()).collect::<io::Result<Vec<_>>>()?;
    let mut sold = 0;
    for shop in shops {
        let report = shop.wait_with_output()?;
        if !report.status.success() {
            return Err(format!("a shop failed: {}", report.status).into());
        }
        sold += String::from_utf8(report.stdout)?.trim().parse::<u32>()?;
    }
    Ok(Summary { title, sold, took: begun.elapsed() })
}
