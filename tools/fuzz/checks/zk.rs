//! Untrusted input from servers and other programs: no parser panics, and what lockwell writes can be read
//! back.

use std::collections::HashSet;

use lockwell_core::{LockName, ServerUrl};

use crate::names::{base_path, lock_path};
use crate::options::ZkOptions;
use crate::queue::child::{Child, Data};
use crate::session::four_letters::{read_conf, state};

/// An address, with its options.
pub fn address(text: &str) {
    let Ok(url) = text.parse::<ServerUrl>() else { return };
    if let Ok(options) = ZkOptions::read(&url) {
        assert!(options.base.is_empty() || options.base.starts_with('/'), "{text:?}");
        drop(format!("{options:?}"));
    }
}

/// Names of nodes, one per line, as other programs may have made them.
pub fn node_names(text: &str) {
    let names: Vec<_> = text.lines().map(str::to_owned).collect();
    let queue = Child::queue(names.clone());
    assert!(queue.len() <= names.len());
    assert!(queue.windows(2).all(|pair| pair[0].sequence <= pair[1].sequence));
    for child in queue {
        assert_eq!(Child::parse(child.name.clone()), Some(child));
    }
}

/// The data of a node.
pub fn node_data(data: &[u8]) {
    let read = Data::read(data);
    assert!(!read.label.contains('\n'));
    assert!(read.ttl.is_some() || !(read.reads || read.holds));
}

/// Base paths, and lock names as nodes below them: no two names share a node.
pub fn paths(text: &str) {
    // The path of an address begins with a slash, if there is one.
    let path = if text.starts_with('/') { text } else { "" };
    if let Ok(base) = base_path(path) {
        assert!(base.is_empty() || (base.starts_with('/') && !base.ends_with('/')), "{base:?}");
    }
    let names: HashSet<_> = text.split('\n').filter_map(|name| LockName::new(name).ok()).collect();
    let paths: HashSet<_> = names.iter().map(|name| lock_path("/b", name)).collect();
    assert_eq!(paths.len(), names.len());
    assert!(paths.iter().all(|path| !path["/b/".len()..].contains('/') && path.len() > "/b/".len()));
}

/// Answers of a server to four-letter commands.
pub fn four_letters(text: &str) {
    assert!(!state(&Ok(text.to_owned())).is_empty());
    assert!(read_conf(text).is_none() || text.contains("tickTime="));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn any_text(text in "(\\PC{0,12}\n?){0,4}", data in any::<Vec<u8>>()) {
            super::node_names(&text);
            super::paths(&text);
            super::four_letters(&text);
            super::node_data(&data);
            super::node_data(text.as_bytes());
        }

        #[test]
        fn addresses(
            text in "zk://([a-z%:@\\[\\],.0-9]{0,20})(/[a-z%@/.0-9-]{0,8})?(\\?((acl|auth|session|tick|strict|recipe|timeout)=[a-z0-9%,-]{0,20}&?){0,2})?"
        ) {
            super::address(&text);
        }

        #[test]
        fn names_like_those_of_nodes(
            text in "((_c_)?[-a-f0-9]{0,36}(-lock-|__lock__|__WRIT__|__READ__|-permit-[0-9]{0,11}-|é)-?[0-9]{8,12}\n){0,4}"
        ) {
            super::node_names(&text);
        }

        #[test]
        fn data_like_ours(text in "[a-z ]{0,6}\n?(lockwell ttl=)?[0-9]{0,22}( reader| held)?( [a-z]{1,3})?") {
            super::node_data(text.as_bytes());
        }

        #[test]
        fn answers_like_those_of_servers(text in "((tickTime|syncLimit|Mode)(=|: )?-?[0-9a-z]{0,12}\n){0,4}") {
            super::four_letters(&text);
        }
    }
}
