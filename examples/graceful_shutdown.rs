//! A web service that releases all its locks when it is stopped, whatever its requests are doing.
//!
//! A request writes a report, alone of its name, which may take minutes. When the service is stopped, reports
//! have a moment to finish; then they are cancelled, their locks are released, and the service ends when the
//! server has confirmed that. The next copy need not wait for a lease to end.
//!
//! ```text
//! cargo run --example graceful_shutdown --features sqlite -- sqlite:///tmp/locks.db 127.0.0.1:8080
//! curl -X POST http://127.0.0.1:8080/reports/monthly
//! ```

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use lockwell::Locks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How long a report may go on after the order to stop.
const LONGEST_END: Duration = Duration::from_millis(300);

#[derive(Clone)]
struct Service {
    locks: Locks,
    /// True when reports are to be cancelled.
    stop: watch::Receiver<bool>,
}

async fn write_report(
    State(mut service): State<Service>,
    Path(name): Path<String>,
) -> Result<String, (StatusCode, String)> {
    // A lease of a minute: a copy that crashed would leave the lock behind for as long.
    let lock = service.locks.lock(format!("report/{name}")).ttl(Duration::from_secs(60));
    let report = lock.wait(Duration::from_secs(5)).run(async |held| {
        println!("writing {name}, token {}", held.token());
        tokio::time::sleep(Duration::from_secs(120)).await;
        format!("{name} is written\n")
    });
    tokio::select! {
        written = report => written.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))),
        // The future of `run` is dropped, and the work with it: the lock is released in the background.
        _ = service.stop.wait_for(|stop| *stop) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, format!("{name} was cancelled: the service stops\n")))
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory://".to_owned());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let locks = lockwell::connect(url).await?;

    let (order, stop) = watch::channel(false);
    let service = Service { locks: locks.clone(), stop };
    let app = Router::new().route("/reports/{name}", post(write_report)).with_state(service);

    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        terminate.recv().await;
        // From here on no connection is accepted.
        tokio::spawn(async move {
            tokio::time::sleep(LONGEST_END).await;
            order.send_replace(true);
        });
    };
    let listener = TcpListener::bind(listen).await?;
    println!("listening at http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(shutdown).into_future().await?;

    // All requests have their answers, so all locks are released or on their way.
    locks.close_within(Duration::from_secs(5)).await?;
    println!("all locks are released");
    Ok(())
}
