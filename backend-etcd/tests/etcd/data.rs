//! Snapshots that are restored, compaction, and a server that is full.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{
    Claim, DistributedLock, ErrorKind, LockName, Locks, Mode, Moment, Renewal, Severity, Wait,
};
use lockwell_etcd::EtcdGuarded;

use crate::support::{backend, claim, locks, options, secs, server, take, waiting_claim};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).expect("a copy");
        }
    }
}

/// The revisions go back with the data. A client that was there before raises the floor of the tokens, and
/// those that come later see it.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_over_a_restored_snapshot() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let early = take(&client, "snapshot", secs(30)).await;
    client.release(early.claim()).await.expect("an answer");
    let (data, copied) = (etcd.folder().join("data"), etcd.folder().join("copy"));
    etcd.stop().await.expect("it ends");
    copy(&data, &copied);
    etcd.restart().await.expect("it starts");
    let mut last = early.token();
    for _ in 0..5 {
        let grant = take(&client, "snapshot", secs(30)).await;
        last = grant.token();
        client.release(grant.claim()).await.expect("an answer");
    }
    etcd.stop().await.expect("it ends");
    std::fs::remove_dir_all(&data).expect("the data are there");
    copy(&copied, &data);
    etcd.restart().await.expect("it starts");
    let again = take(&client, "snapshot", secs(30)).await;
    assert!(again.token() > last, "{} after {last}", again.token());
    assert_eq!(
        again.token(),
        client.inspect(again.claim().name()).await.expect("an answer").holders[0].token
    );
    client.release(again.claim()).await.expect("an answer");
    let newcomer = backend(&etcd.url()).await.expect("a client");
    let next = take(&newcomer, "snapshot", secs(30)).await;
    assert!(next.token() > again.token(), "{} after {}", next.token(), again.token());
}

/// A watch whose revision was compacted fails, and the next one tells the holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told_after_a_compaction() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "compacted", secs(60)).await;
    for _ in 0..3 {
        let other = take(&client, "other", secs(60)).await;
        client.release(other.claim()).await.expect("an answer");
    }
    let token = grant.token().get();
    let answer =
        etcd.call("/v3/kv/compaction", &format!("{{\"revision\":\"{}\"}}", token + 4)).expect("an answer");
    assert!(answer.contains("header"), "{answer}");
    let lost = tokio::time::timeout(secs(20), async {
        let forced = async {
            // After the watch that begins before what was compacted.
            tokio::time::sleep(secs(1)).await;
            client.force_release(grant.claim().name()).await
        };
        tokio::join!(client.lost(&grant), forced)
    });
    assert_eq!(lost.await.expect("the news of the loss").1.expect("an answer"), 1);
    let renewals = client.renew(std::slice::from_ref(&grant), Moment::now().after(secs(3))).await;
    assert!(matches!(renewals[..], [Renewal::Lost]), "{renewals:?}");
}

/// A server without space keeps the locks that are held, and says what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_keeps_its_locks_and_says_what_to_do() {
    let Some(etcd) = server(&options().setting("quota-backend-bytes", "300000")).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "kept", secs(30)).await;
    let value = "QUJD".repeat(20_000);
    let put = format!("{{\"key\":\"Zg==\",\"value\":\"{value}\"}}");
    let mut answer = String::new();
    // It counts what it has written to its file, which it does every 100 ms.
    let end = Moment::now().after(secs(10));
    while !answer.contains("space exceeded") && !end.has_passed() {
        answer = etcd.call("/v3/kv/put", &put).expect("an answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(answer.contains("space exceeded"), "{answer}");
    let error = client.acquire(&claim("another", secs(30))).await.expect_err("no space");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("etcdctl alarm disarm"), "{error:#}");
    let findings = client.examine().await.expect("an answer");
    let space = findings.iter().find(|finding| finding.subject == "space").expect("a finding");
    assert_eq!(space.severity, Severity::Doubtful, "{space:?}");
    // A member may report it after it has executed the transaction.
    let write = grant.guarded().expect("it is held").put("written", "x");
    let error = write.commit().await.expect_err("no space");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    let renewals = client.renew(std::slice::from_ref(&grant), Moment::now().after(secs(3))).await;
    assert!(matches!(renewals[..], [Renewal::Renewed(_)]), "{renewals:?}");
    client.release(grant.claim()).await.expect("an answer");
    let status = client.inspect(grant.claim().name()).await.expect("an answer");
    assert!(!status.is_held());
}

/// The lock is another's by then. The watch of the holder has not begun, and its lease goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_after_the_key_was_deleted_reports_the_loss() {
    let Some(etcd) = server(&options()).await else { return };
    let [one, two] =
        [locks(&etcd.url()).await.expect("a client"), locks(&etcd.url()).await.expect("a client")];
    for round in 0..5 {
        let name = format!("deleted {round}");
        let held = one.write(&name).ttl(secs(30)).await.expect("a free lock");
        let held = if round == 0 { held.downgrade().await.expect("a reader") } else { held };
        // From `lockwell/deleted` to what comes after it.
        let range = "{\"key\":\"bG9ja3dlbGwvZGVsZXRlZA==\",\"range_end\":\"bG9ja3dlbGwvZGVsZXRlZQ==\"}";
        let answer = etcd.call("/v3/kv/deleterange", range).expect("an answer");
        assert!(answer.contains("\"deleted\":\"1\""), "{answer}");
        let next = two.lock(&name).ttl(secs(30)).try_now().await.expect("an answer").expect("a free lock");
        let error = held.release().await.expect_err("another holds it");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
        next.release().await.expect("it is held");
    }
}

/// An operator has written the floor with a line feed after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_floor_that_was_written_by_hand_counts() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let early = take(&client, "floor", secs(30)).await;
    client.release(early.claim()).await.expect("an answer");
    let put = |value: &str| {
        // `lockwell/.floor`.
        let put = format!("{{\"key\":\"bG9ja3dlbGwvLmZsb29y\",\"value\":\"{value}\"}}");
        assert!(etcd.call("/v3/kv/put", &put).expect("an answer").contains("header"));
    };
    // 1000000 and a line feed.
    put("MTAwMDAwMAo=");
    for client in [&client, &backend(&etcd.url()).await.expect("a client")] {
        let grant = take(client, "floor", secs(30)).await;
        assert!(grant.token().get() > 1_000_000, "{}", grant.token());
        client.release(grant.claim()).await.expect("an answer");
    }
    // A text that is no number.
    put("bm9uZQ==");
    let error = client.acquire(&claim("floor", secs(30))).await.expect_err("no floor");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    let error = backend(&etcd.url()).await.expect_err("no floor");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
}

/// The floor was deleted, and a client knows that its tokens were higher.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_over_a_deleted_floor() {
    let Some(etcd) = server(&options()).await else { return };
    // `lockwell/.floor` and 1000000.
    let put = "{\"key\":\"bG9ja3dlbGwvLmZsb29y\",\"value\":\"MTAwMDAwMA==\"}";
    assert!(etcd.call("/v3/kv/put", put).expect("an answer").contains("header"));
    let client = backend(&etcd.url()).await.expect("a client");
    let early = take(&client, "floor", secs(30)).await;
    client.release(early.claim()).await.expect("an answer");
    let delete = "{\"key\":\"bG9ja3dlbGwvLmZsb29y\"}";
    assert!(etcd.call("/v3/kv/deleterange", delete).expect("an answer").contains("\"deleted\""));
    let next = take(&client, "floor", secs(30)).await;
    assert!(next.token() > early.token(), "{} after {}", next.token(), early.token());
}

/// A claim that does not wait, or waits in vain, for a name that is a mutex leaves no lease behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_clash_leaves_no_lease() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "clash", secs(300)).await;
    let permit = Mode::from_code(3).expect("three permits");
    let name = grant.claim().name().clone();
    let claim = |wait| Claim::new(name.clone(), permit, secs(300), wait, "test".into());
    let error = client.acquire(&claim(Wait::No)).await.expect_err("it is a mutex");
    assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
    let waiting = claim(Wait::Until(Moment::now().after(secs(1))));
    assert!(client.acquire(&waiting).await.expect("an answer").is_none());
    client.release(&waiting).await.expect("an answer");
    let leases = etcd.call("/v3/lease/leases", "{}").expect("an answer");
    assert_eq!(leases.matches("\"ID\"").count(), 1, "{leases}");
}

/// Another application has a prefix that lies in a lock of this one. Who waits is told so, and leaves no
/// lease behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_within_a_lock_is_reported() {
    let Some(etcd) = server(&options()).await else { return };
    let other = backend(&format!("{}/lockwell/a", etcd.url())).await.expect("a client");
    take(&other, "prod", secs(300)).await;
    let client = backend(&format!("{}/lockwell", etcd.url())).await.expect("a client");
    let error = client.acquire(&waiting_claim("a", secs(300), secs(30))).await.expect_err("strange keys");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("prefix"), "{error:#}");
    let leases = etcd.call("/v3/lease/leases", "{}").expect("an answer");
    assert_eq!(leases.matches("\"ID\"").count(), 1, "{leases}");
}

/// Whoever asks is told that the lock is held, and by what. An operator frees it by force.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_others_holds_the_lock_in_which_it_lies() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let mine = take(&client, "mine", secs(300)).await;
    for (number, (key, named)) in [
        ("note", "the key lockwell/0/note ("),
        ("s/x", "below lockwell/1/s/ "),
        ("w/x", "below lockwell/2/w/ "),
        ("p1x/y", "below lockwell/3/p1x/ "),
    ]
    .into_iter()
    .enumerate()
    {
        let name = number.to_string();
        let write = mine.guarded().expect("a grant").put(format!("lockwell/{name}/{key}"), "text");
        write.commit().await.expect("the lock is held");
        let of = LockName::new(&*name).expect("a name");
        let permit = Mode::from_code(3).expect("three permits");
        for mode in [Mode::Exclusive, Mode::Shared, permit] {
            let claim = |wait| Claim::new(of.clone(), mode, secs(300), wait, "test".into());
            let wait = Wait::Until(Moment::now().after(secs(1)));
            for (claim, waits) in [(claim(Wait::No), false), (claim(wait), true)] {
                match client.acquire(&claim).await {
                    Ok(grant) => assert!(grant.is_none(), "{key} {mode:?} {waits}"),
                    Err(error) if error.kind() == ErrorKind::Misconfigured => {
                        assert!(waits && error.to_string().contains(named), "{key} {mode:?}: {error:#}");
                    }
                    // The key looks like that of a writer.
                    Err(error) => {
                        let found = (error.kind(), key, mode, waits);
                        assert_eq!(found, (ErrorKind::KindClash, "w/x", permit, false));
                    }
                }
                client.release(&claim).await.expect("an answer");
            }
        }
        let status = client.inspect(&of).await.expect("an answer");
        assert_eq!((status.holders.len(), status.waiters), (1, 0), "{status:?}");
        assert!(status.holders[0].label.contains(named), "{status:?}");
        assert_eq!(client.force_release(&of).await.expect("an answer"), 1, "{key}");
        let grant = take(&client, &name, secs(30)).await;
        client.release(grant.claim()).await.expect("an answer");
    }
}

/// More keys than one answer may have.
#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_many_locks_are_read_in_pages() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "mine", secs(300)).await;
    for hundred in 0..100 {
        let mut write = grant.guarded().expect("a grant of etcd");
        for number in 0..100 {
            write = write.put(format!("lockwell/{hundred}-{number}{}/w/0", "-".repeat(450)), "");
        }
        write.commit().await.expect("the lock is held");
    }
    assert_eq!(client.names().await.expect("an answer").len(), 10_001);
}

/// A queue of 5 MiB, and gRPC takes no answer over 4.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_is_read_in_pages() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "mine", secs(300)).await;
    let name = LockName::new("/".repeat(512)).expect("a name");
    let (folder, value) = (format!("lockwell/{}/w", "%2F".repeat(512)), format!("+0 1 {}", "-".repeat(255)));
    for hundred in 0..30 {
        let mut write = grant.guarded().expect("a grant of etcd");
        for number in 0..100 {
            write = write.put(format!("{folder}/{hundred:016x}{number:016x}"), &*value);
        }
        write.commit().await.expect("the lock is held");
    }
    assert_eq!(client.inspect(&name).await.expect("an answer").waiters, 2_999);
}

/// Tools that copy keys to another cluster leave the leases behind. Such a key holds its lock until an
/// operator frees it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_copied_without_its_lease_is_a_holder() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "mine", secs(300)).await;
    let write = grant.guarded().expect("a grant of etcd").put("lockwell/a/w/0", "+0 1 copied");
    write.commit().await.expect("the lock is held");
    assert!(client.acquire(&claim("a", secs(30))).await.expect("an answer").is_none());
    let name = LockName::new("a").expect("a name");
    let status = client.inspect(&name).await.expect("an answer");
    assert_eq!((status.holders.len(), status.holders[0].label.as_str()), (1, "copied"), "{status:?}");
    assert_eq!(client.force_release(&name).await.expect("an answer"), 1);
    assert_eq!(client.force_release(&name).await.expect("an answer"), 0);
    take(&client, "a", secs(30)).await;
    assert!(client.inspect(grant.claim().name()).await.expect("an answer").is_held(), "another lock");
}

/// A write that the lock guards is refused when the lock is lost, whoever still writes under it.
#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_write_needs_the_lock() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "guarded", secs(30)).await;
    let write = || grant.guarded().expect("a grant of etcd").put("app/row", "1").delete("app/old");
    write().commit().await.expect("the lock is held");
    let reader = client.downgrade(&grant).await.expect("the lock is held");
    reader.guarded().expect("a grant").put("app/row", "2").commit().await.expect("still held");
    client.force_release(grant.claim().name()).await.expect("an answer");
    tokio::time::sleep(Duration::from_millis(10)).await;
    let error = reader.guarded().expect("a grant").put("app/row", "3").commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    // What the server refuses was not done, and is not sent again.
    let error = write().put("app/row", "4").commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    let row = etcd.call("/v3/kv/range", "{\"key\":\"YXBwL3Jvdw==\"}").expect("an answer");
    assert!(row.contains("\"Mg==\""), "{row}");
}

/// A write that the lock guards is refused when the lock has gone to another task of the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_write_belongs_to_one_task() {
    let Some(etcd) = server(&options()).await else { return };
    let client = Arc::new(backend(&etcd.url()).await.expect("a client"));
    let locks = Locks::new(client.clone()).expect("a keeper").hand_off(1000, secs(60));
    let request = || locks.lock("guarded").ttl(secs(60)).wait(secs(60)).into_future();
    let mut guard = request().await.expect("a free lock");
    for bound in [false, true] {
        loop {
            let before = guard.grant().clone();
            let write = bound.then(|| before.guarded().expect("it is held").put("app/row", "1"));
            let mut next = Box::pin(request());
            assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err(), "it is held");
            let next = tokio::spawn(next);
            drop(guard);
            guard = next.await.expect("no panic").expect("its turn comes");
            let error = match write {
                Some(write) => write.commit().await.unwrap_err(),
                None if guard.grant().claim().owner() == before.claim().owner() => {
                    before.guarded().unwrap_err()
                }
                // On a machine that is busy, it may have come from the server.
                None => continue,
            };
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            break;
        }
    }
    guard.release().await.expect("it is held");
}
