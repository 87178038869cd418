//! Locks from a configuration file: the address picks the backend, and the program says what it relies on.
//!
//! `cargo run --example config`

use lockwell::LockConfig;

/// In a real program this is a part of its configuration file.
const FILE: &str = r#"
    # Another day: "postgres://app:secret@db/app". Nothing else changes, neither here nor in the program.
    url = "memory://"
    ttl = "10s"
    wait = "1m 30s"
    label = "billing, host 7"
    # Demands on the backend. If it cannot meet them, the program fails at its start and not in the night.
    require = ["fencing", "fifo"]
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockwell::Result<()> {
    let config = LockConfig::from_toml(FILE)?;
    println!("{config:?}");

    let locks = lockwell::connect_with(config.clone()).await?;
    let guard = locks.lock("invoices/2031").await?;
    for holder in locks.inspect("invoices/2031").await?.holders {
        println!("held by {}, {:?} left", holder.label, holder.ttl_left);
    }
    guard.release().await?;

    // This backend lives in the memory of one process. A program that runs on many hosts says so, and is safe
    // from it.
    let many_hosts = config.require("across-hosts".parse()?);
    match lockwell::connect_with(many_hosts).await {
        Err(error) => println!("refused at the start: {error}"),
        Ok(_) => println!("this should have been refused"),
    }
    Ok(())
}
