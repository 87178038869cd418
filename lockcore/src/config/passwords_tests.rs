use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;
use crate::{LockConfig, ServerUrl};

/// The address of a configuration whose password comes from this function.
fn asking<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> ServerUrl
where
    F: Future<Output = Result<String, std::io::Error>> + 'static,
{
    let config = LockConfig::new("postgres://ann@db/app").password_from(ask);
    let (url, config) = config.resolve().unwrap();
    assert!(!format!("{url} {url:?} {config:?} {:?}", url.passwords()).contains("hunter2"));
    url
}

#[tokio::test]
async fn each_connection_asks_again() {
    let calls = AtomicU32::new(0);
    let url = asking(move || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(format!("hunter2-{call}"))
        }
    });
    assert!(url.password().is_none() && url.to_string() == "postgres://ann:***@db/app");
    let passwords = url.passwords().unwrap();
    // Those that ask at a time share a call.
    let (one, two) = tokio::join!(passwords.current(), passwords.current());
    assert_eq!((one.unwrap().expose(), two.unwrap().expose()), ("hunter2-0", "hunter2-0"));
    let present = passwords.current().await.unwrap();
    assert_eq!(present.expose(), "hunter2-1");
    assert_eq!(passwords.other_than(&present).await.unwrap().expose(), "hunter2-2");
    let url = url.with_present_password().await.unwrap();
    assert_eq!(url.password().unwrap().expose(), "hunter2-3");
}

#[tokio::test]
async fn a_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "hunter2-a\n").unwrap();
    let toml = format!("url = \"mysql://ann@db/app\"\npassword_file = {:?}", path.to_str().unwrap());
    let (url, _) = LockConfig::from_toml(&toml).unwrap().resolve().unwrap();
    assert_eq!(url.password().unwrap().expose(), "hunter2-a");
    let passwords = url.passwords().unwrap();
    std::fs::write(&path, "hunter2-b\n").unwrap();
    assert_eq!(passwords.current().await.unwrap().expose(), "hunter2-b");
    assert!(passwords.other_than(&Secret::new("hunter2-b")).await.is_none());
    // While it is being replaced, there may be nothing in it.
    std::fs::write(&path, "").unwrap();
    let error = passwords.current().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unreachable, true));
    assert!(error.to_string().contains("password_file: ") && !format!("{error:?}").contains("hunter2"));
    let twice = LockConfig::new("mysql://ann:hunter2@db/app").password_file("/no/such/file").resolve();
    assert!(twice.unwrap_err().to_string().contains("twice"));
}

#[tokio::test]
async fn a_function_that_fails_or_panics_is_called_again() {
    let calls = AtomicU32::new(0);
    let url = asking(move || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        assert_ne!(call, 1, "as expected");
        async move {
            match call {
                0 => Err(std::io::Error::other("the vault is sealed")),
                2 => panic!("as expected"),
                3 => Ok(String::new()),
                4 => Ok("hunter2\n".to_owned()),
                _ => Ok("hunter2".to_owned()),
            }
        }
    });
    let passwords = url.passwords().unwrap();
    for why in ["the vault is sealed", "panicked", "panicked", "is empty", "U+000A"] {
        let error = passwords.current().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(format!("{error:#}").contains(why), "{error:#}");
        assert!(!format!("{error:#} {error:?}").contains("hunter2"), "{error:#}");
    }
    assert_eq!(passwords.current().await.unwrap().expose(), "hunter2");
}

/// One that never returns keeps a thread, so there is a bound for them.
#[tokio::test]
async fn a_function_that_hangs_stops_nobody_for_ever() {
    let hangs = asking(|| async {
        std::thread::park();
        std::future::pending().await
    });
    let works = asking(|| async { Ok("hunter2".to_owned()) });
    let passwords = hangs.passwords().unwrap();
    let began = Instant::now();
    for _ in 0..2 {
        let error = passwords.current().await.unwrap_err();
        assert!(error.to_string().contains("no password within 1.5s"), "{error}");
        assert!(error.is_retryable());
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(Arc::strong_count(&passwords.0.under_way), 2, "the second waits for the first");
    assert_eq!(works.passwords().unwrap().current().await.unwrap().expose(), "hunter2");
    // As if much time had passed since each of them.
    for _ in 1..CALLS_UNDER_WAY {
        *lock(&passwords.0.latest) = None;
        drop(passwords.call().unwrap());
    }
    *lock(&passwords.0.latest) = None;
    let error = passwords.current().await.unwrap_err();
    assert!(error.to_string().contains("4 calls have not returned"), "{error}");
}

#[tokio::test]
async fn a_function_that_is_late_serves_the_next_connection() {
    let calls = AtomicU32::new(0);
    let url = asking(move || {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(if call == 0 { WAIT + Duration::from_millis(500) } else { Duration::ZERO })
                .await;
            Ok(format!("hunter2-{call}"))
        }
    });
    let passwords = url.passwords().unwrap();
    passwords.current().await.unwrap_err();
    assert_eq!(passwords.current().await.unwrap().expose(), "hunter2-0", "it is waited for");
    assert_eq!(passwords.current().await.unwrap().expose(), "hunter2-1");
    // Nobody waits for the first call any more when it ends.
    let slow = asking(|| async {
        tokio::time::sleep(WAIT + Duration::from_millis(300)).await;
        Ok("hunter2-slow".to_owned())
    });
    let passwords = slow.passwords().unwrap();
    passwords.current().await.unwrap_err();
    let mut call = lock(&passwords.0.latest).as_ref().unwrap().answer.clone();
    call.wait_for(Option::is_some).await.unwrap();
    let began = Instant::now();
    assert_eq!(passwords.current().await.unwrap().expose(), "hunter2-slow");
    assert!(began.elapsed() < WAIT, "it has not been called again");
}
