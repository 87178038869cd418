//! A store with a plain HTTP interface that refuses a holder who has lost its lock without knowing it.
//!
//! `PUT /NAME` carries two headers: the token of the lock, and the id of the hold. The store keeps the
//! highest token with each value, and compares in the same step as it writes. A lower token is answered with
//! 409, and so is the same token from another hold, since some backends can grant a token twice when they
//! fail over.
//!
//! `cargo run --example fenced_store`

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use lockwell::{LockGuard, Locks};

const TOKEN: &str = "lock-token";
const HOLD: &str = "lock-hold";

/// A value, and who wrote it last.
struct Value {
    text: String,
    token: u64,
    hold: String,
}

type Store = Arc<Mutex<HashMap<String, Value>>>;

/// Writes, if the token is higher than the highest seen, or the same from the hold that it came from.
async fn write(
    State(store): State<Store>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<(), (StatusCode, String)> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(token), Some(hold)) = (header(TOKEN).and_then(|token| token.parse().ok()), header(HOLD)) else {
        return Err((StatusCode::BAD_REQUEST, format!("{TOKEN} or {HOLD} is missing")));
    };
    // One step: nobody reads or writes between the comparison and the write. A database does it in one
    // statement.
    let mut values = store.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = values.get(&name)
        && (token < last.token || (token == last.token && hold != last.hold))
    {
        return Err((StatusCode::CONFLICT, format!("token {} has written already", last.token)));
    }
    values.insert(name, Value { text, token, hold: hold.to_owned() });
    Ok(())
}

async fn read(State(store): State<Store>, Path(name): Path<String>) -> Result<String, StatusCode> {
    let values = store.lock().unwrap_or_else(PoisonError::into_inner);
    values.get(&name).map(|value| value.text.clone()).ok_or(StatusCode::NOT_FOUND)
}

/// Writes under a lock, and prints what the store answers.
async fn send(url: &str, text: &'static str, guard: &LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    let request = ureq::put(url)
        .config()
        .http_status_as_error(false)
        .build()
        .header(TOKEN, guard.token().to_string())
        .header(HOLD, guard.hold_id().to_string());
    // This client blocks, so it gets a thread.
    let answer = tokio::task::spawn_blocking(move || request.send(text)).await??;
    println!("{text:?} under token {}: {}", guard.token(), answer.status());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/report", listener.local_addr()?);
    let store = Router::new().route("/{name}", put(write).get(read)).with_state(Store::default());
    tokio::spawn(axum::serve(listener, store).into_future());

    let locks = Locks::in_memory();
    let slow = locks.lock("report").await?;
    send(&url, "first", &slow).await?;

    // The first holder is paused for longer than its lease, which an operator ends here. Another takes the
    // lock.
    locks.force_release("report").await?;
    let next = locks.lock("report").await?;
    send(&url, "second", &next).await?;

    // The first holder goes on where it was paused.
    send(&url, "first, once more", &slow).await?;

    let text =
        tokio::task::spawn_blocking(move || ureq::get(&url).call()?.body_mut().read_to_string()).await??;
    println!("the store has {text:?}");
    next.release().await?;
    Ok(())
}
