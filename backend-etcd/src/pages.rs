//! Ranges that are too long for one answer.

use lockwell_core::Result;

use crate::client::ClientInner;
use crate::messages::{KeyValue, Range, Txn};

/// How many keys are read at a time. The longest has about 2 KiB with its value, and gRPC takes no answer
/// over 4 MiB.
const PAGE: u16 = 1000;

/// Reads all keys of a range as they are at one moment, page by page.
pub(crate) async fn read(
    inner: &ClientInner,
    range: Range,
    mut each: impl FnMut(Vec<KeyValue>),
) -> Result<()> {
    let mut rest = Range { limit: PAGE.into(), ..range };
    loop {
        let answer = inner.txn(None, &Txn::reads([rest.clone()])).await?;
        if rest.revision == 0 {
            rest.revision = answer.revision;
        }
        let page = answer.found.into_iter().next().unwrap_or_default();
        let Some(last) = page.last().filter(|_| page.len() >= usize::from(PAGE)) else {
            each(page);
            return Ok(());
        };
        // It goes on with the next key that there could be.
        rest.key = [&last.key[..], &[0]].concat();
        each(page);
    }
}
