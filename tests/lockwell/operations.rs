//! The examples for operations, as programs of their own: what is observed, what is released at the end, who
//! leads, who does a job.

#![cfg(all(unix, feature = "sqlite"))]

use std::thread;
use std::time::{Duration, Instant};

use crate::running::Running;
use lockwell::blocking::block_on;
use tempfile::TempDir;

/// Long enough for what is said to happen soon, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn database() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("locks.db").display());
    (folder, url)
}

/// Polls until there is an answer.
fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come")
}

/// The status and the text of an answer; nothing if there is none.
fn ask(request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Option<(u16, String)> {
    let mut answer = request.config().http_status_as_error(false).build().call().ok()?;
    let text = answer.body_mut().read_to_string().ok()?;
    Some((answer.status().as_u16(), text))
}

fn last_word(line: &str) -> String {
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_service_that_stops_releases_the_locks_of_its_requests() {
    let (_folder, url) = database();
    let locks = block_on(lockwell::connect(&url)).expect("a client");
    let service = Running::start("graceful_shutdown", &[&url, "127.0.0.1:0"]);
    let address = last_word(&service.says("listening"));
    let requests = ["monthly", "yearly"].map(|name| {
        let report = format!("{address}/reports/{name}");
        thread::spawn(move || {
            let request = ureq::post(report).config().http_status_as_error(false).build();
            request.send_empty().expect("an answer").status().as_u16()
        })
    });
    let names = ["report/monthly", "report/yearly"];
    for name in names {
        eventually("a holder", || block_on(locks.inspect(name)).expect("an answer").is_held().then_some(()));
    }
    assert!(service.terminate().contains("all locks are released"));
    // The leases would have lasted for a minute.
    for name in names {
        assert!(block_on(locks.lock(name).try_now()).expect("an answer").is_some(), "{name} is held still");
    }
    for request in requests {
        assert_eq!(request.join().expect("an answer"), 503, "it was cancelled in words");
    }
}

#[test]
fn the_leader_serves_until_it_dies() {
    let (_folder, url) = database();
    let copies = [(); 2].map(|()| {
        let copy = Running::start("leading_service", &[&url, "127.0.0.1:0"]);
        let address = last_word(&copy.says("listening"));
        (copy, address)
    });
    // Whichever is asked, the leader answers.
    let served = |by: &str| {
        let (status, text) = ask(ureq::get(by))?;
        (status == 200).then_some(text)
    };
    let leader = eventually("a leader", || served(&copies[0].1));
    assert_eq!(eventually("the same leader", || served(&copies[1].1)), leader);
    let [(dead, _), (other, address)] = if leader.contains(&copies[0].1) {
        copies
    } else {
        let [first, second] = copies;
        [second, first]
    };
    drop(dead);
    let next = eventually("the next leader", || served(&address));
    assert!(next.contains(&address));
    let token = |text: &str| last_word(text.trim_end()).parse::<u64>().expect("a token");
    assert!(token(&next) > token(&leader));
    // A service that is asked to stop resigns, so the next leads before the end of the lease.
    other.terminate();
    let locks = block_on(lockwell::connect(&url)).expect("a client");
    assert!(block_on(locks.lock("leading-service").try_now()).expect("an answer").is_some());
}

#[test]
fn a_job_survives_its_host() {
    let (_folder, url) = database();
    // Six seconds: on a busy machine, too, each is in the queue while the other does the job, and the next
    // one can do it within the period.
    let host = || Running::start("scheduled_job", &[&url, "6"]);
    let period = |line: &str| line.split(' ').next().unwrap_or_default().parse::<u64>().expect("a period");
    let first = host();
    first.says("is done");
    let second = host();
    second.says("was done by another");
    first.lines.try_iter().for_each(drop);
    let begins = |host: &Running| host.lines.try_iter().find(|line| line.contains("begins"));
    let (first_dies, begun) = eventually("a job that begins", || {
        let line = begins(&first).map(|line| (true, line)).or_else(|| Some((false, begins(&second)?)));
        line.map(|(first_dies, line)| (first_dies, period(&line)))
    });
    let (dies, survivor) = if first_dies { (first, second) } else { (second, first) };
    drop(dies);
    // The survivor takes over what was begun, and goes on with the next. What it says of earlier periods is
    // no matter.
    let mut done = 0;
    while done < begun {
        done = period(&survivor.says("is done"));
    }
    assert_eq!(done, begun, "it was left undone");
    assert!(period(&survivor.says("is done")) > begun);
}

#[cfg(feature = "metrics")]
mod metrics {
    use std::collections::BTreeSet;
    use std::sync::{Arc, LazyLock};
    use std::time::SystemTime;

    use lockwell::backend::MemoryLock;
    use lockwell::testing::TestServer;
    use lockwell::{ErrorKind, Locks, Operation};
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

    use super::*;

    /// The names of series in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        words.filter(|word| word.starts_with("lockwell_")).collect()
    }

    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let dashboard = include_str!("../../examples/observed/dashboard.json");
        let parsed: serde_json::Value = serde_json::from_str(dashboard).expect("it is JSON");
        for panel in parsed["panels"].as_array().expect("panels") {
            let asks = panel["targets"].as_array().expect("questions");
            assert!(
                !asks.is_empty() && asks.iter().all(|ask| !names(&ask.to_string()).is_empty()),
                "{panel}"
            );
        }
        let mut asked = names(dashboard);
        asked.extend(names(include_str!("../../examples/observed/alerts.yml")));
        let program = Running::start("observed", &["memory://", "127.0.0.1:0"]);
        let url = last_word(&program.says("metrics at"));
        eventually("the last series", || {
            let (_, text) = ask(ureq::get(&url))?;
            let there = names(&text);
            let missing: Vec<_> = asked.difference(&there).collect();
            let granted = text.lines().find(|line| {
                line.starts_with("lockwell_acquires_total") && line.contains(r#"outcome="granted""#)
            });
            let many = granted.and_then(|line| last_word(line).parse::<u64>().ok());
            (missing.is_empty() && many > Some(0)).then_some(()).or_else(|| {
                println!("missing: {missing:?}");
                None
            })
        });
        // And the guide has all of them.
        let listed = listed(include_str!("../../docs/operations.md"));
        eventually("what the guide lists", || {
            let (_, text) = ask(ureq::get(&url))?;
            let there = exported(&text);
            println!("differs: {:?}", there.symmetric_difference(&listed));
            (there == listed).then_some(())
        });
    }

    /// The series in a text, with their labels.
    fn exported(text: &str) -> BTreeSet<String> {
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE lockwell_")?.split_once(' '));
        let series = kinds.map(|(name, kind)| {
            let of = text.lines().filter_map(|line| line.strip_prefix("lockwell_")?.split_once('{'));
            // A histogram has several lines, whose names are longer.
            let samples =
                of.filter(|(of, _)| ["", "_bucket"].iter().any(|end| *of == format!("{name}{end}")));
            let labels =
                samples.flat_map(|(_, labels)| labels.split(',').filter_map(|it| it.split_once('=')));
            let labels: BTreeSet<_> = labels.map(|(label, _)| label).filter(|it| *it != "le").collect();
            format!("lockwell_{name} {kind} {labels:?}")
        });
        series.collect()
    }

    /// The series in the guide, as Prometheus gets them.
    fn listed(guide: &str) -> BTreeSet<String> {
        let rows = guide.lines().filter(|line| line.starts_with("| `lockwell."));
        let series = rows.map(|row| {
            let cells: Vec<_> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
            let [_, name, kind, unit, labels, ..] = &cells[..] else { panic!("{row}") };
            let unit = if unit == "s" { "_seconds" } else { "" };
            let total = if kind == "counter" { "_total" } else { "" };
            let all = labels.split(", ").filter(|label| !label.is_empty()).chain(["backend"]);
            format!("{}{unit}{total} {kind} {:?}", name.replace('.', "_"), all.collect::<BTreeSet<_>>())
        });
        series.collect()
    }

    /// The value of a series, by its name, its backend and one of its other labels.
    fn value(text: &str, name: &str, backend: &str, label: &str) -> f64 {
        let backend = format!("backend=\"{backend}\"");
        let mut lines = text.lines().filter(|line| line.starts_with(name) && line.contains(&backend));
        let line = lines.find(|line| line.contains(label));
        last_word(line.unwrap_or_else(|| panic!("no {name} {label}:\n{text}"))).parse().expect("a number")
    }

    /// The recorder of this process.
    fn recorder() -> &'static PrometheusHandle {
        static RECORDER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
            let builder =
                PrometheusBuilder::new().with_recommended_naming(true).set_buckets(&[1.0]).expect("a bucket");
            builder.install_recorder().expect("it is the only one")
        });
        &RECORDER
    }

    #[tokio::test]
    async fn each_series_counts_what_it_says() {
        let handle = recorder();
        let server = TestServer::new();
        let locks = server.locks().expect("a client");
        let of = |name: &str, label: &str| value(&handle.render(), name, "test", label);
        let is = |wanted: f64, name: &str, label: &str| (of(name, label) - wanted).abs() < f64::EPSILON;
        // The keeper counts after it has announced the loss, so the count may come a moment later.
        let becomes = async |wanted: f64, name: &str, label: &str| {
            let end = Instant::now() + TIMEOUT;
            while !is(wanted, name, label) {
                assert!(Instant::now() < end, "{name} {label}: {}, not {wanted}", of(name, label));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(is(0.0, "lockwell_losses_total", r#"reason="taken""#), "what has not happened is zero");

        let guard = locks.lock("a").ttl(Duration::from_secs(9)).await.expect("a free lock");
        assert!(locks.lock("a").try_now().await.expect("an answer").is_none());
        assert!(is(1.0, "lockwell_acquires_total", r#"outcome="granted""#));
        assert!(is(1.0, "lockwell_acquires_total", r#"outcome="held""#));
        assert!(is(1.0, "lockwell_held", "backend"));

        let waiting = tokio::spawn(locks.lock("a").into_future());
        tokio::task::yield_now().await;
        assert!(is(1.0, "lockwell_waiters", "backend"));
        waiting.abort();
        drop(waiting.await);

        // The renewal is due after three seconds, and is tried again when it has failed.
        let renewed = async |outcome: &str| becomes(1.0, "lockwell_renewals_total", outcome).await;
        server.fail_times(Operation::Renew, ErrorKind::Unreachable, 1);
        server.advance(Duration::from_secs(3));
        renewed(r#"outcome="unknown""#).await;
        server.advance(Duration::from_secs(2));
        renewed(r#"outcome="extended""#).await;
        assert!(
            is(0.0, "lockwell_renewal_margin_seconds_bucket", r#"le="1""#),
            "there were four seconds left"
        );
        let margin = of("lockwell_renewal_margin_seconds_sum", "backend");
        assert!((3.0..4.0).contains(&margin), "{margin}");

        server.lose("a").await.expect("a lock");
        guard.lost().await;
        becomes(1.0, "lockwell_losses_total", r#"reason="taken""#).await;
        becomes(1.0, "lockwell_hold_duration_seconds_count", r#"outcome="lost""#).await;
        becomes(0.0, "lockwell_held", "backend").await;
        drop(guard);
        locks.lock("b").await.expect("a free lock").release().await.expect("it is held");
        becomes(1.0, "lockwell_hold_duration_seconds_count", r#"outcome="released""#).await;
        becomes(0.0, "lockwell_waiters", "backend").await;
        becomes(0.0, "lockwell_held", "backend").await;
        becomes(1.0, "lockwell_acquires_total", r#"outcome="cancelled""#).await;
    }

    #[tokio::test]
    async fn a_job_has_the_time_of_its_last_success() {
        let handle = recorder();
        let of = |name: &str, job: &str| {
            let text = handle.render();
            let job = format!(r#"job_name="{job}""#);
            let line = text.lines().find(|line| line.starts_with(name) && line.contains(&job));
            line.map(|line| last_word(line).parse::<f64>().expect("a number"))
        };
        let (attempts, success) = ("lockwell_job_attempts_total", "lockwell_job_success_timestamp_seconds");
        let now = || SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs_f64();
        // Not the backend of the test above, whose series these are.
        let server = Arc::new(MemoryLock::new());
        let host = || Locks::new(Arc::clone(&server) as _).expect("a client");
        let locks = host();
        let run = async |name: &str, key: &str, works: bool| {
            let work = async |_| works.then_some(()).ok_or(lockwell::Error::new(ErrorKind::Held, "it fails"));
            drop(locks.once(name, key).try_run(work).await);
        };
        let began = now();
        run("metered", "1", false).await;
        assert_eq!((of(attempts, "metered"), of(success, "metered")), (Some(1.0), None));
        run("metered", "1", true).await;
        let first = of(success, "metered").expect("it was done");
        // To a millisecond.
        assert!((began - 0.01..=now()).contains(&first), "{first}");
        assert_eq!(of(attempts, "metered"), Some(2.0));
        // Another host, which comes later, knows of it, and makes no attempt.
        drop(host().once("metered", "1").try_run(async |_| Ok::<_, lockwell::Error>(())).await);
        run("metered", "2", false).await;
        assert_eq!((of(attempts, "metered"), of(success, "metered")), (Some(3.0), Some(first)));
        // The number of names is limited.
        for number in 0..105 {
            run(&format!("job-{number}"), "1", true).await;
        }
        let series = handle.render().lines().filter(|line| line.starts_with(attempts)).count();
        assert_eq!((series, of(attempts, "other")), (101, Some(6.0)));
        assert!(of(success, "other").is_some());
    }

    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn the_end_of_a_grace_period_is_told() {
        use testbed::{Durability, Options, Redis, if_installed};

        let now = || SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs_f64();
        let handle = recorder();
        let options = Options::new().durability(Durability::OsCache);
        let Some(server) = if_installed(Redis::start_with(&options).await) else { return };
        let url = format!("{}?durability=grace&longest_ttl=4s", server.url());
        let config = lockwell::LockConfig::new(&url).ttl(Duration::from_secs(4)).wait(TIMEOUT);
        let locks = lockwell::connect_with(config).await.expect("a client");
        let left = || value(&handle.render(), "lockwell_grace_end_timestamp_seconds", "redis", "") - now();
        locks.lock("a").await.expect("a free lock").release().await.expect("it is held");
        assert!(left() <= 0.0, "{}", left());
        locks.begin_grace().await.expect("it begins");
        let later = left();
        assert!((0.0..4.2).contains(&later), "{later}");
        locks.lock("a").await.expect("after that time").release().await.expect("it is held");
        assert!(left() <= 0.0, "{}", left());
    }

    /// A server that is restarted is reached by new connections, and they are counted.
    #[cfg(all(feature = "postgres", feature = "redis", feature = "zk", feature = "etcd"))]
    mod reconnections {
        use lockwell::Locks;
        use testbed::{Durability, Etcd, Options, Postgres, Redis, Server, ZooKeeper, if_installed};

        use super::*;

        fn options() -> Options {
            Options::new().durability(Durability::OsCache)
        }

        async fn use_lock(locks: &Locks) -> lockwell::Result<()> {
            locks.lock("a").wait(Duration::from_secs(30)).await?.release().await
        }

        async fn are_counted(url: &str, backend: &str, server: &Server) {
            let handle = recorder();
            let locks = lockwell::connect(url).await.expect("a client");
            // One that is not connected yet counts under the same name.
            let lazy = lockwell::connect_lazy(url).expect("an address");
            assert_eq!(lazy.capabilities().backend(), locks.capabilities().backend());
            let many = || value(&handle.render(), "lockwell_reconnections_total", backend, "");
            let before = many();
            use_lock(&locks).await.expect("a free lock");
            assert!((many() - before).abs() < f64::EPSILON, "the first connection replaces none");
            server.kill().expect("it runs");
            server.restart().await.expect("it comes back");
            let end = Instant::now() + TIMEOUT;
            while many() <= before {
                assert!(Instant::now() < end, "no reconnection is counted");
                if let Err(error) = use_lock(&locks).await {
                    println!("not yet: {error:#}");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }

        #[tokio::test]
        async fn of_postgres() {
            let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
            are_counted(&server.url(), "postgres", &server).await;
        }

        #[tokio::test]
        async fn of_redis() {
            let Some(server) = if_installed(Redis::start_with(&options()).await) else { return };
            are_counted(&server.url(), "redis", &server).await;
        }

        #[tokio::test]
        async fn of_etcd() {
            let Some(server) = if_installed(Etcd::start_with(&options()).await) else { return };
            are_counted(&server.url(), "etcd", &server).await;
        }

        #[tokio::test]
        async fn of_zookeeper() {
            let Some(server) = if_installed(ZooKeeper::start_with(&options()).await) else { return };
            are_counted(&server.url(), "zookeeper", &server).await;
        }
    }
}
