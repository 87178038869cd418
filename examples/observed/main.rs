//! A program that can be observed: metrics for Prometheus, a dashboard for Grafana, events, and spans in the
//! log.
//!
//! ```text
//! RUST_LOG=lockwell=debug cargo run --example observed --features metrics -- memory:// 127.0.0.1:9187
//! curl http://127.0.0.1:9187/metrics
//! prometheus --config.file=examples/observed/prometheus.yml
//! ```
//!
//! Grafana imports `examples/observed/dashboard.json`.

use std::error::Error;
use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use lockwell::{LockEvent, Locks};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// From a millisecond to five minutes: locks are held for very different times.
const BUCKETS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

const MINUTE: Duration = Duration::from_secs(60);

/// One of several workers that want the same lock.
async fn work(locks: Locks, ttl: Duration) {
    loop {
        let request = locks.lock("orders/42").class("orders").ttl(ttl);
        let done = request.run(|_| tokio::time::sleep(Duration::from_millis(20))).await;
        if let Err(error) = done {
            println!("not done: {error}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A job that runs once a minute, over all copies of this program.
async fn report(locks: Locks) {
    loop {
        let minute = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / 60;
        let work = async |_| Ok::<_, lockwell::Error>(());
        if let Err(error) = locks.once("report", minute.to_string()).wait(MINUTE).try_run(work).await {
            println!("not reported: {error}");
        }
        tokio::time::sleep(MINUTE).await;
    }
}

/// Losses are rare, and each of them is worth a line.
async fn tell(locks: Locks) {
    let mut events = locks.events();
    while let Some(event) = events.next().await {
        match event {
            LockEvent::Lost { name, token, loss } => println!("{name} (token {token}) is lost: {loss:?}"),
            LockEvent::Missed(many) => println!("{many} events were missed"),
            _ => (),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory://".to_owned());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:9187".to_owned());

    // A line for each span that has ended, with its fields and times.
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env());
    log.with_span_events(FmtSpan::CLOSE).with_writer(std::io::stderr).init();

    // Before the client is made: what has not happened yet is then shown as zero, with its description.
    let metrics = PrometheusBuilder::new().with_recommended_naming(true).set_buckets(&BUCKETS)?;
    let metrics = metrics.install_recorder()?;
    let locks = lockwell::connect(url).await?;

    let ttl = locks.capabilities().min_ttl().max(Duration::from_millis(600));
    for _ in 0..3 {
        tokio::spawn(work(locks.clone(), ttl));
    }
    tokio::spawn(tell(locks.clone()));
    tokio::spawn(report(locks.clone()));
    // It is held until the end, and renewed.
    let leading = locks.lock("leader").ttl(ttl).await?;

    let upkeep = metrics.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let listener = TcpListener::bind(listen).await?;
    println!("metrics at http://{}/metrics", listener.local_addr()?);
    let app = Router::new().route("/metrics", get(move || std::future::ready(metrics.render())));
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(stop).into_future().await?;
    leading.release().await?;
    locks.close().await?;
    Ok(())
}
