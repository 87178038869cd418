//! Which master serves which slots, as a node answers it.

use redis::{RedisError, Value};

/// A node as the cluster names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The masters and their slots: first, last, who. In order.
pub(crate) type View = Vec<(u16, u16, Name)>;

/// Reads the answer to `CLUSTER SLOTS`. A node that names no host means the one at which it was asked.
pub(crate) fn view(answer: &Value, asked: &str) -> Option<View> {
    let Value::Array(ranges) = answer else { return None };
    let mut view: View = ranges.iter().filter_map(|range| self::range(range, asked)).collect();
    view.sort_unstable_by_key(|(first, ..)| *first);
    (!view.is_empty()).then_some(view)
}

fn range(range: &Value, asked: &str) -> Option<(u16, u16, Name)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &**parts else { return None };
    let [host, Value::Int(port), ..] = &**master else { return None };
    let host = match host {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    let host = match &*host {
        "" | "0.0.0.0" | "::" => asked.to_owned(),
        // Its name is not known yet.
        "?" => return None,
        _ => host,
    };
    let name = Name { host, port: u16::try_from(*port).ok()? };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, name))
}

/// Where a `MOVED` or an `ASK` of this node leads.
pub(crate) fn redirect(error: &RedisError, from: &str) -> Option<Name> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { from } else { host };
    Some(Name { host: host.to_owned(), port: port.parse().ok()? })
}

/// The slot map that most nodes report; on a tie, the first.
pub(crate) fn most_common(views: &[View]) -> Option<&View> {
    let count = |view: &View| views.iter().filter(|other| *other == view).count();
    views.iter().rev().max_by_key(|view| count(view))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let replica = node(Value::BulkString(b"replica".to_vec()));
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host), replica])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn name(host: &str, port: u16) -> Name {
        Name { host: host.to_owned(), port }
    }

    #[test]
    fn masters_and_their_slots() {
        let answer = Value::Array(vec![
            slots(10, 20, text("b"), 2),
            slots(0, 9, text("::1"), 1),
            slots(21, 30, Value::Nil, 3),
            slots(31, 40, text(""), 4),
            slots(41, 50, text("?"), 5),
        ]);
        let expected = vec![
            (0, 9, name("::1", 1)),
            (10, 20, name("b", 2)),
            (21, 30, name("me", 3)),
            (31, 40, name("me", 4)),
        ];
        assert_eq!(view(&answer, "me"), Some(expected));
        assert_eq!(view(&Value::Array(Vec::new()), "me"), None);
        assert_eq!(view(&Value::Okay, "me"), None);
    }

    #[test]
    fn redirections() {
        let error = |text: &str| {
            redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
                .and_then(Value::extract_error)
                .unwrap_err()
        };
        let to = |text| redirect(&error(text), "me");
        assert_eq!(to("MOVED 3999 127.0.0.1:6381"), Some(name("127.0.0.1", 6381)));
        assert_eq!(to("ASK 3999 ::1:6381"), Some(name("::1", 6381)));
        assert_eq!(to("MOVED 3999 :6381"), Some(name("me", 6381)));
        assert_eq!(to("TRYAGAIN Multiple keys"), None);
    }

    #[test]
    fn the_view_of_most() {
        let (one, two) = (vec![(0, 1, name("a", 1))], vec![(0, 1, name("b", 1))]);
        assert_eq!(most_common(&[one.clone(), two.clone(), two.clone()]), Some(&two));
        assert_eq!(most_common(&[one.clone(), two.clone()]), Some(&one));
        assert_eq!(most_common(&[]), None);
    }
}
