//! Writes a report. Any number of copies of this service can run: one of them at a time writes.

use std::error::Error;
use std::future::IntoFuture;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use lockwell::{ErrorKind, LockConfig, Locks};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const PAGES: u32 = 20;

/// The answer to a client: a status and one line.
type Answer = (StatusCode, String);
/// An error of the lock or of the work under it.
type Failure = Box<dyn Error + Send + Sync>;

/// Writes the report under its lock. `page` writes one page of it.
async fn write<F: Future<Output = io::Result<()>>>(locks: &Locks, mut page: impl FnMut(u32) -> F) -> Answer {
    let request = locks.lock("report").wait(Duration::from_millis(200));
    let written = request.try_run(async |_held| {
        for number in 1..=PAGES {
            page(number).await?;
        }
        Ok::<_, Failure>(())
    });
    match written.await {
        Ok(()) => (StatusCode::OK, "the report is written\n".to_owned()),
        Err(error) => (status(&*error), format!("{error}\n")),
    }
}

/// The kind of an error of lockwell says what a client can do about it.
fn status(error: &(dyn Error + 'static)) -> StatusCode {
    match error.downcast_ref().map(lockwell::Error::kind) {
        // Another copy is writing.
        Some(ErrorKind::TimedOut) => StatusCode::CONFLICT,
        // The lock server is away: to be tried again.
        Some(ErrorKind::Unreachable) => StatusCode::SERVICE_UNAVAILABLE,
        // Of the file; or `Lost`: the report is not complete, and another copy may be writing.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A page takes a second.
async fn page(number: u32) -> io::Result<()> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut file = OpenOptions::new().create(true).append(true).open("report.txt").await?;
    file.write_all(format!("page {number}\n").as_bytes()).await?;
    file.flush().await
}

async fn report(State(locks): State<Locks>) -> Answer {
    write(&locks, page).await
}

/// TERM, which service managers send, or Ctrl-C.
async fn stopped() {
    let mut terminate = signal(SignalKind::terminate()).expect("a handler of signals");
    tokio::select! {
        _ = terminate.recv() => (),
        _ = tokio::signal::ctrl_c() => (),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).ok_or("usage: reports HOST:PORT")?;
    // Before the client, so that all series begin with zero.
    let metrics = PrometheusBuilder::new().with_recommended_naming(true).install_recorder()?;
    // The address is in the variable LOCKWELL_URL. This is an error if the server cannot be reached, refuses
    // the password, or does not promise what the address requires.
    let locks = lockwell::connect_with(LockConfig::from_env()?).await?;

    let app = Router::new()
        .route("/report", post(report))
        .route("/metrics", get(move || std::future::ready(metrics.render())))
        .with_state(locks.clone());
    let listener = TcpListener::bind(listen).await?;
    println!("listening at {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stopped()).into_future().await?;

    // The requests are done. Waits until their locks are released at the server.
    locks.close_within(Duration::from_secs(5)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use lockwell::Operation;
    use lockwell::testing::TestServer;

    use super::*;

    #[tokio::test]
    async fn one_copy_at_a_time_writes() {
        let server = TestServer::new();
        // Each client stands for a copy of the service.
        let (here, elsewhere) = (server.locks().unwrap(), server.locks().unwrap());
        let held = elsewhere.lock("report").await.unwrap();
        let later = async { server.advance(Duration::from_secs(1)) };
        let (answer, ()) = tokio::join!(write(&here, |_| ready(Ok(()))), later);
        assert_eq!(answer.0, StatusCode::CONFLICT);
        held.release().await.unwrap();
        assert_eq!(write(&here, |_| ready(Ok(()))).await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn no_page_is_written_without_the_lock() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let mut last = 0;
        let answer = write(&locks, |number| {
            last = number;
            let server = server.clone();
            async move {
                if number == 2 {
                    server.lose("report").await.unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        });
        assert_eq!(answer.await.0, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(last, 2);
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_tried_later() {
        let server = TestServer::new();
        server.fail(Operation::Acquire, ErrorKind::Unreachable);
        let locks = server.locks().unwrap();
        let later = async { server.advance(Duration::from_secs(1)) };
        let (answer, ()) = tokio::join!(write(&locks, |_| ready(Ok(()))), later);
        assert_eq!(answer.0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
