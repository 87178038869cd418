//! Ranges that are too long for one answer.

use lockwell_core::{ErrorKind, Result};

use crate::client::ClientInner;
use crate::messages::{KeyValue, Range, Txn};

/// How many keys are read at a time. The longest has about 2 KiB with its value, and gRPC takes no answer
/// over 4 MiB.
const PAGE: u16 = 1000;

/// How often a range is read because etcd compacts the revision of the first page before the last is read.
const TRIES: u32 = 5;

/// Reads all keys of a range as they are at one moment, page by page. `each` adds a page to what is returned.
pub(crate) async fn read<T: Default>(
    inner: &ClientInner,
    range: Range,
    mut each: impl FnMut(&mut T, Vec<KeyValue>),
) -> Result<T> {
    let mut tries = 1;
    loop {
        match once(inner, range.clone(), &mut each).await {
            Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

async fn once<T: Default>(
    inner: &ClientInner,
    range: Range,
    each: &mut impl FnMut(&mut T, Vec<KeyValue>),
) -> Result<T> {
    let mut all = T::default();
    let mut rest = Range { limit: PAGE.into(), ..range };
    loop {
        let answer = inner.txn(None, &Txn::reads([rest.clone()])).await?;
        if rest.revision == 0 {
            rest.revision = answer.revision;
        }
        let page = answer.found.into_iter().next().unwrap_or_default();
        let Some(last) = page.last().filter(|_| page.len() >= usize::from(PAGE)) else {
            each(&mut all, page);
            return Ok(all);
        };
        // It goes on with the next key that there could be.
        rest.key = [&last.key[..], &[0]].concat();
        each(&mut all, page);
    }
}

#[cfg(test)]
mod tests {
    use testbed::{Etcd, if_installed};

    use super::*;
    use crate::messages::{Op, Put, below};
    use crate::options::EtcdOptions;

    fn compact(etcd: &Etcd) {
        // The key `other`.
        let put = etcd.call("/v3/kv/put", "{\"key\":\"b3RoZXI=\"}").expect("an answer");
        let revision = put.split("\"revision\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let compaction = format!("{{\"revision\":\"{}\"}}", revision.expect("a revision"));
        let answer = etcd.call("/v3/kv/compaction", &compaction).expect("an answer");
        assert!(answer.contains("header"), "{answer}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_range_whose_revision_is_compacted_is_read_again() {
        let Some(etcd) = if_installed(Etcd::start().await) else { return };
        let options = EtcdOptions::read(&etcd.url().parse().expect("an address")).expect("an address");
        let inner = ClientInner::new(options).expect("a client");
        for hundred in 0..15 {
            let put = |number: u32| {
                let key = format!("many/{hundred}/{number}").into();
                Op::Put(Put { key, value: Vec::new(), lease: 0 })
            };
            inner.txn(None, &Txn::new([], (0..100).map(put), [])).await.expect("an answer");
        }
        let mut pages = 0;
        let note = |keys: &mut Vec<KeyValue>, page: Vec<KeyValue>| {
            pages += 1;
            if pages == 1 {
                compact(&etcd);
            }
            keys.extend(page);
        };
        let keys = read(&inner, below("many/"), note).await.expect("it is read again");
        // The first page twice.
        assert_eq!((keys.len(), pages), (1500, 3));
    }
}
