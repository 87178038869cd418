//! A catalogue: many read it at the same time, one writes it alone.
//!
//! The writer turns into a reader when it has written, without a gap: so it can look at its own work,
//! together with the other readers, and be sure that nobody has written in between.
//!
//! `cargo run --example catalogue`, or `--features postgres -- postgres://user:password@host/database` and
//! any other address

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell::{ErrorKind, Locks, Requirement, Result};

struct Catalogue {
    /// Two copies of one text. Whoever sees them differ has read while another wrote.
    copies: Mutex<[String; 2]>,
    readers: AtomicUsize,
}

impl Catalogue {
    fn copy(&self, which: usize) -> String {
        self.copies.lock().expect("nobody panics")[which].clone()
    }

    async fn read(&self, locks: &Locks) -> Result<String> {
        let guard = locks.read("catalogue").await?;
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        let first = self.copy(0);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(first, self.copy(1), "a writer among the readers");
        self.readers.fetch_sub(1, Ordering::SeqCst);
        guard.release().await?;
        Ok(format!("{first} ({readers} at a time)"))
    }

    async fn write(&self, locks: &Locks, text: &str) -> Result<()> {
        let guard = locks.write("catalogue").await?;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader beside the writer");
        for copy in 0..2 {
            text.clone_into(&mut self.copies.lock().expect("nobody panics")[copy]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !locks.capabilities().promises(Requirement::Downgrade) {
            return guard.release().await;
        }
        let token = guard.token();
        let reading = guard.downgrade().await?;
        println!("writer: has written {:?}, and reads it as the holder of token {token}", self.copy(0));
        assert_eq!((reading.token(), self.copy(1).as_str()), (token, text));
        reading.release().await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = lockwell::connect(url).await?;
    if !locks.capabilities().promises(Requirement::Shared) {
        println!("{} has no reader-writer locks", locks.capabilities().backend());
        return Ok(());
    }
    let catalogue = Arc::new(Catalogue { copies: Mutex::default(), readers: AtomicUsize::new(0) });
    catalogue.write(&locks, "spring").await?;

    let mut readers = Vec::new();
    for reader in 0..6 {
        let (locks, catalogue) = (locks.clone(), Arc::clone(&catalogue));
        readers.push(tokio::spawn(async move {
            for _ in 0..4 {
                println!("reader {reader}: {}", catalogue.read(&locks).await?);
            }
            Ok::<_, lockwell::Error>(())
        }));
    }
    // Readers who keep coming do not keep the writer out: they queue behind it.
    tokio::time::sleep(Duration::from_millis(30)).await;
    catalogue.write(&locks, "summer").await?;
    for reader in readers {
        reader.await.expect("no reader panics")?;
    }

    // A reader cannot become a writer: two that tried would wait for each other. A request of an owner fails
    // at once.
    let owner = locks.owner();
    let _reading = owner.read("catalogue").await?;
    match owner.write("catalogue").await {
        Err(error) if error.kind() == ErrorKind::WouldDeadlock => println!("upgrade: {error}"),
        other => println!("this should have been refused: {other:?}"),
    }
    Ok(())
}
