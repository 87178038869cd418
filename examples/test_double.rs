//! How an application tests what it does about locks: with a lock server in memory that fails, is slow and
//! takes locks away as the test says, and whose clock stands still until the test moves it.
//!
//! `cargo test --example test_double`

use lockwell::{ErrorKind, Locks};

/// What became of a night's work.
#[derive(Debug, PartialEq, Eq)]
enum Night {
    /// All pages were written.
    Done(usize),
    /// Another host is at it.
    Elsewhere,
    /// The lock server cannot be reached: to be tried again.
    Later,
    /// The lock was lost. Another may have begun: nothing more is written.
    Stopped,
}

/// The code under test: writes this number of pages under the lock, one after the other.
async fn write_report<F: Future<Output = ()>>(
    locks: &Locks,
    mut page: impl FnMut(usize) -> F,
) -> lockwell::Result<Night> {
    const PAGES: usize = 3;
    let guard = match locks.lock("report").try_now().await {
        Ok(Some(guard)) => guard,
        Ok(None) => return Ok(Night::Elsewhere),
        Err(error) if error.is_retryable() => return Ok(Night::Later),
        Err(error) => return Err(error),
    };
    for number in 1..=PAGES {
        tokio::select! {
            biased;
            _ = guard.lost() => return Ok(Night::Stopped),
            () = page(number) => (),
        }
    }
    match guard.release().await {
        Err(error) if error.kind() == ErrorKind::Lost => Ok(Night::Stopped),
        // The pages were written under the lock. It is released in the background.
        _ => Ok(Night::Done(PAGES)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockwell::Result<()> {
    let locks = Locks::in_memory();
    let night = write_report(&locks, async |number| println!("page {number}")).await?;
    println!("{night:?}");
    locks.close().await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockwell::testing::TestServer;
    use lockwell::{Loss, Operation};

    use super::*;

    #[tokio::test]
    async fn one_host_writes_the_report() {
        let server = TestServer::new();
        // Each client stands for a host.
        let (here, elsewhere) = (server.locks().unwrap(), server.locks().unwrap());
        let night = write_report(&here, async |_| {
            assert_eq!(write_report(&elsewhere, async |_| ()).await.unwrap(), Night::Elsewhere);
        });
        assert_eq!(night.await.unwrap(), Night::Done(3));
        assert_eq!(write_report(&elsewhere, async |_| ()).await.unwrap(), Night::Done(3), "it was released");
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_tried_later() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        server.fail(Operation::Acquire, ErrorKind::Unreachable);
        assert_eq!(write_report(&locks, async |_| ()).await.unwrap(), Night::Later);
        server.fail(Operation::Acquire, ErrorKind::Refused);
        assert_eq!(write_report(&locks, async |_| ()).await.unwrap_err().kind(), ErrorKind::Refused);
        server.heal();
        assert_eq!(write_report(&locks, async |_| ()).await.unwrap(), Night::Done(3));
    }

    #[tokio::test]
    async fn no_page_is_written_without_the_lock() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let mut pages = Vec::new();
        let night = write_report(&locks, |number| {
            pages.push(number);
            let server = server.clone();
            async move {
                if number == 2 {
                    // An operator takes the lock away. The page is not finished.
                    server.lose("report").await.unwrap();
                    std::future::pending::<()>().await;
                }
            }
        });
        assert_eq!(night.await.unwrap(), Night::Stopped);
        assert_eq!(pages, [1, 2]);
    }

    #[tokio::test]
    async fn a_host_that_was_stopped_for_long_does_not_go_on() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        // The clock stands still otherwise: nothing here sleeps.
        let night = write_report(&locks, |_| {
            server.advance(Duration::from_secs(60));
            std::future::ready(())
        });
        assert_eq!(night.await.unwrap(), Night::Stopped);
        let guard = locks.lock("report").await.unwrap();
        server.advance(Duration::from_secs(60));
        assert_eq!(guard.lost().await, Loss::Expired);
    }
}
