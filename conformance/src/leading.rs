//! Leader election.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::stage::{KEPT, Stage, assert_within, done, holder, millis, pause, queued, secs, ttl_of};
use super::time::now;
use lockwell_core::{ErrorKind, Loss, Requirement};

/// One leads, the next follows when it resigns, and observers see both.
pub(super) async fn one_leads_and_the_next_follows(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("scheduler");
    let mut observer = three.observe(&name).every(millis(20));
    assert_eq!(observer.next().await.expect("an answer"), None);
    let first = one.campaign(&name).label("first").await.expect("nobody leads");
    assert!(first.is_held());
    let seen = done("the observer", secs(5), observer.next()).await.expect("an answer").expect("one leads");
    assert_eq!((seen.token, seen.label.as_str()), (first.token(), "first"));
    assert!(two.campaign(&name).try_now().await.expect("an answer").is_none());
    let second = tokio::spawn(two.campaign(&name).label("second").wait(secs(20)).into_future());
    queued(&three, &name, 1, secs(5)).await;
    let token = first.token();
    first.release().await.expect("it leads");
    let second = done("the next leader", secs(5), second).await.expect("no panic").expect("its turn comes");
    assert!(second.token() > token || !one.capabilities().promises(Requirement::Fencing));
    let began = now();
    loop {
        // It may have seen the moment between the two.
        let seen = done("the observer", secs(5), observer.next()).await.expect("an answer");
        if seen.is_some_and(|leader| leader.token == second.token() && leader.label == "second") {
            break;
        }
        assert_within(began, secs(5), || "the observer saw no second leader".to_owned());
    }
    let ttl_news = done("the news", secs(30), async {
        assert_eq!(three.force_release(&name).await.expect("an answer"), 1);
        second.lost().await
    });
    assert!(matches!(ttl_news.await, Loss::Taken | Loss::Expired));
    assert!(!second.is_held());
    assert_eq!(second.release().await.expect_err("it was lost").kind(), ErrorKind::Lost);
}

/// Work for leaders is cancelled with leadership, begins anew with the next term, and ends for good with its
/// value.
pub(super) async fn work_is_restarted_with_each_term(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("scheduler");
    let ttl = ttl_of(&one, KEPT);
    let (terms, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let work = tokio::spawn({
        let (terms, ended) = (Arc::clone(&terms), Arc::clone(&ended));
        one.campaign(&name).ttl(ttl).run_as_leader(move |leading| {
            let term = terms.fetch_add(1, Ordering::SeqCst) + 1;
            let ended = Arc::clone(&ended);
            async move {
                assert!(leading.is_held());
                if term < 3 {
                    std::future::pending::<()>().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
                (term, leading.token())
            }
        })
    });
    let mut highest = None;
    for term in 1..3 {
        let leader = done("a term", secs(20), async {
            loop {
                let leader = holder(&two, &name).await;
                if leader > highest && terms.load(Ordering::SeqCst) == term {
                    return leader;
                }
                pause(5).await;
            }
        })
        .await;
        highest = leader;
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    }
    let (term, token) =
        done("the last term", ttl + secs(20), work).await.expect("no panic").expect("a value");
    assert_eq!((term, ended.load(Ordering::SeqCst)), (3, 1));
    assert!(Some(token) > highest || !one.capabilities().promises(Requirement::Fencing));
    assert_eq!(holder(&two, &name).await, None, "leadership was resigned");
    let bad = one.run_as_leader("", |_| async {}).await.expect_err("not a name");
    assert_eq!(bad.kind(), ErrorKind::InvalidInput, "{bad:#}");
}

/// A campaign that says how long it waits ends then, if somebody else leads.
pub(super) async fn a_campaign_ends_with_its_wait(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("leader");
    let leading = one.campaign(&name).await.expect("nobody leads");
    let began = now();
    let campaign = two.campaign(&name).wait(millis(300)).run_as_leader(async |_| panic!("another leads"));
    let error = done("the campaign", secs(20), campaign).await.expect_err("another leads");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    assert!(now().since(began) >= millis(300));
    leading.release().await.expect("it still leads");
    let value = done("a term", secs(20), two.campaign(&name).wait(secs(15)).run_as_leader(async |_| 7)).await;
    assert_eq!(value.expect("nobody else leads"), 7);
}
