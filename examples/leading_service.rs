//! A service of which any number of copies run and one serves, the leader. The others send its clients there.
//!
//! When the leader dies, another leads after the end of the lease. Whatever a leader writes carries its
//! token, so that a former leader, which was paused and does not know it yet, can be refused.
//!
//! ```text
//! cargo run --example leading_service --features sqlite -- sqlite:///tmp/locks.db 127.0.0.1:8081
//! cargo run --example leading_service --features sqlite -- sqlite:///tmp/locks.db 127.0.0.1:8082
//! curl -L http://127.0.0.1:8082/
//! ```

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lockwell::{LockHandle, Locks};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const NAME: &str = "leading-service";

#[derive(Clone)]
struct Copy {
    locks: Locks,
    url: String,
    /// The present term, if this copy leads.
    term: watch::Receiver<Option<LockHandle>>,
}

async fn serve(State(copy): State<Copy>) -> Response {
    let term = copy.term.borrow().clone();
    // The clock decides: a term that is over is none, even if nobody has noticed yet.
    if let Some(term) = term.filter(LockHandle::is_held) {
        return format!("served by {}, token {}\n", copy.url, term.token()).into_response();
    }
    // Who leads is history by the time it is read: the client may be sent on once more.
    match copy.locks.inspect(NAME).await.map(|status| status.holders.into_iter().next()) {
        Ok(Some(leader)) if leader.label != copy.url => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, leader.label)]).into_response()
        }
        Ok(_) => (StatusCode::SERVICE_UNAVAILABLE, "nobody leads\n").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory://".to_owned());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let locks = lockwell::connect(url).await?;
    let listener = TcpListener::bind(listen).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!("listening at {url}");

    let (tell, term) = watch::channel(None);
    let ttl = locks.capabilities().min_ttl().max(Duration::from_secs(1));
    // The label is what the others read: where the leader is found.
    let campaign = locks.campaign(NAME).ttl(ttl).label(&url);
    let leading = tokio::spawn(campaign.run_as_leader(move |held| {
        println!("leading, token {}", held.token());
        tell.send_replace(Some(held));
        // A term has no end of its own. When leadership is lost, this is dropped, and the campaign begins
        // anew.
        std::future::pending::<()>()
    }));

    let copy = Copy { locks: locks.clone(), url, term };
    let app = Router::new().route("/", get(serve)).with_state(copy);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        terminate.recv().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).into_future().await?;

    // Leadership is resigned, so that the next leader need not wait for the end of the lease.
    leading.abort();
    drop(leading.await);
    locks.close().await?;
    Ok(())
}
