//! A process whose writes are recorded, by a library that is compiled here and preloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const DATABASE: usize = 0;
pub(crate) const LOG: usize = 1;
pub(crate) const MARKS: usize = 2;

/// What was done to a file.
#[derive(Debug)]
pub(crate) struct Op {
    kind: u64,
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
}

impl Op {
    pub(crate) fn is_sync(&self) -> bool {
        self.kind == 3
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.kind == 2
    }
}

/// Runs the process, and answers with all that it did to `file`, its log and its marks. `None`: this cannot
/// be tested here.
pub(crate) async fn record(file: &str, process: impl FnOnce() -> Command) -> Option<Vec<Op>> {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("record");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/record_writes.c");
    let library = available(testbed::preloaded(Path::new(source), folder.path()))?;
    let mut process = process();
    process.env("LD_PRELOAD", &library).env("LOCKWELL_RECORD", file).env("LOCKWELL_RECORD_TO", &to);
    let done =
        tokio::task::spawn_blocking(move || process.output().expect("it runs")).await.expect("no panic");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    let bytes = std::fs::read(to).expect("a record");
    let ops = parse(&bytes);
    assert_eq!(ops.last().map(|op| op.data.as_slice()), Some(b"end".as_slice()), "it came to its end");
    assert!([DATABASE, LOG].iter().all(|file| ops.iter().any(|op| op.file == *file && op.is_sync())));
    Some(ops)
}

/// A library to preload. As with servers: a laptop may lack the compiler, the machine that decides may not.
pub(crate) fn available(library: Result<PathBuf, String>) -> Option<PathBuf> {
    if let Err(why) = &library {
        testbed::lacks(why);
    }
    library.ok()
}

fn parse(mut bytes: &[u8]) -> Vec<Op> {
    let mut ops = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<32>() {
        let field = |n: usize| u64::from_ne_bytes(head[n * 8..n * 8 + 8].try_into().expect("eight bytes"));
        let kind = field(0);
        let (data, rest) =
            rest.split_at(if kind == 1 { usize::try_from(field(3)).expect("small") } else { 0 });
        // Nothing is removed while the process runs, for it never closes the last connection.
        assert!(kind < 4, "a file was removed");
        let file = usize::try_from(field(1)).expect("small") - 1;
        ops.push(Op { kind, file, offset: field(2), data: data.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a record");
    ops
}
