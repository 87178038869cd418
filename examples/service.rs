//! A web service that sells tickets. Any number of copies of it can run, on any lock server.
//!
//! The configuration file names the lock server and what the service needs of it. Another server is another
//! line there, and no change of the program:
//!
//! ```toml
//! listen = "127.0.0.1:8080"
//! stock = "/shared/stock"            # a file with the number of tickets that are left
//!
//! [locks]
//! url = "postgres://app:secret@db/app"
//! # url = "redis://cache"
//! # url = "zk://zk1,zk2,zk3/app/locks"
//! ttl = "10s"
//! wait = "5s"
//! require = ["across-hosts", "durable"]   # memory:// and sqlite:// are refused at the start
//!                                         # with "failover-safe", too, postgres:// and redis:// are
//! ```
//!
//! ```text
//! cargo run --example service --features postgres,redis,zk -- service.toml
//! curl -X POST http://127.0.0.1:8080/tickets
//! ```

use std::error::Error;
use std::future::IntoFuture;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use lockwell::{ErrorKind, LockConfig, Locks};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Deserialize)]
struct Config {
    listen: String,
    stock: PathBuf,
    locks: LockConfig,
}

#[derive(Clone)]
struct Shop {
    locks: Locks,
    stock: PathBuf,
}

/// The answer to a client: a status and one line.
type Answer = (StatusCode, String);

async fn sell(State(shop): State<Shop>) -> Answer {
    // One copy of the service at a time, in one of its requests. The wait is that of the configuration.
    let sold = shop.locks.lock("tickets").run(async |_| shop.take_one().await).await;
    match sold {
        Ok(Ok(Some(ticket))) => (StatusCode::OK, format!("ticket {ticket}\n")),
        Ok(Ok(None)) => (StatusCode::GONE, "sold out\n".to_owned()),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(error) => refused(error.kind(), &error),
    }
}

/// The kind of an error says what the client can do about it.
fn refused(kind: ErrorKind, error: &dyn Error) -> Answer {
    match kind {
        ErrorKind::TimedOut | ErrorKind::Unreachable => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

impl Shop {
    /// Reads how many tickets are left, and writes back one less. Only the lock keeps others out between the
    /// two.
    async fn take_one(&self) -> std::io::Result<Option<u32>> {
        let left = tokio::fs::read_to_string(&self.stock).await?;
        let left: u32 = left.trim().parse().map_err(std::io::Error::other)?;
        let Some(rest) = left.checked_sub(1) else { return Ok(None) };
        let new = self.stock.with_extension("new");
        tokio::fs::write(&new, rest.to_string()).await?;
        tokio::fs::rename(&new, &self.stock).await?;
        Ok(Some(left))
    }
}

/// TERM, which service managers send, or Ctrl-C.
async fn shutdown() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: service CONFIG.toml")?;
    let config: Config = toml::from_str(&std::fs::read_to_string(file)?)?;

    // Fails here if the server cannot be reached, or does not promise what `require` lists.
    let locks = lockwell::connect_with(config.locks).await?;
    let shop = Shop { locks: locks.clone(), stock: config.stock };

    let listener = TcpListener::bind(&config.listen).await?;
    println!("selling at http://{}, locks on {}", listener.local_addr()?, locks.capabilities().backend());
    let app = Router::new().route("/tickets", post(sell)).with_state(shop);
    axum::serve(listener, app).with_graceful_shutdown(shutdown()).into_future().await?;

    // The requests are done, so all locks are released or on their way. Waits for the answers, so that the
    // next copy need not wait for a lease to end.
    locks.close_within(Duration::from_secs(5)).await?;
    println!("closed");
    Ok(())
}
