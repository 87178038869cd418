//! What this lockwell is a part of: the traceparent that is stored beside its label.
//!
//! The parent id in it is a path of up to four parts: each lockwell adds a random one to the path of the lockwell
//! that runs it, and zeros are the rest. So who looks at the server sees whose end a holder waits for: that of
//! the claims whose paths begin with its own. Commands side by side have different paths, although they may be
//! of one trace. The ids of other programs are random. What has no zeros at its end is not taken for a path: the
//! parts of a program may run side by side, and requests of one traceparent may be those of several hosts.

use std::env;
use std::num::NonZeroU16;
use std::sync::OnceLock;

use lockwell::TraceParent;

/// The path of the lockwell that runs this one. It is not `TRACEPARENT`: without one around it, a command that
/// traces begins a trace of its own, and would record nothing as a part of one that is not sampled.
pub(crate) const TRACE: &str = "LOCKWELL_TRACE";

const PARTS: usize = 4;

/// The traceparent of this process.
pub(crate) fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let given = |name| env::var(name).ok()?.parse::<TraceParent>().ok();
        extended(given(TRACE).as_ref(), given("TRACEPARENT").as_ref())
    })
}

/// The path below that of the lockwell around this one, or a new path in the trace of the caller, if it has one.
fn extended(around: Option<&TraceParent>, caller: Option<&TraceParent>) -> String {
    let new = format!("{:04x}", rand::random::<NonZeroU16>());
    let trace = around.or(caller);
    let id = trace
        .map_or_else(|| format!("{:032x}", rand::random::<u128>().max(1)), |one| one.trace_id().to_owned());
    let flags = trace.map_or("00", TraceParent::flags);
    let mut parts: Vec<&str> = around.map_or_else(Vec::new, path);
    // A lockwell that is deeper than that counts as the one around it.
    if parts.len() < PARTS {
        parts.push(&new);
    }
    format!("00-{id}-{:0<16}-{flags}", parts.concat())
}

/// The parts of a path.
fn path(trace: &TraceParent) -> Vec<&str> {
    let id = trace.parent_id();
    let parts = (0..PARTS).filter_map(|part| id.get(4 * part..4 * part + 4));
    parts.take_while(|part| *part != "0000").collect()
}

/// Whether the end of the claim is awaited by the holder: it is the holder's own, or that of a command below it. Only
/// of a holder with a path of fewer parts than there may be that is known.
pub(crate) fn is_below(claim: &TraceParent, holder: &TraceParent) -> bool {
    let parts = path(holder);
    let is_path = (1..PARTS).contains(&parts.len())
        && holder.parent_id()[4 * parts.len()..].bytes().all(|it| it == b'0');
    is_path && claim.trace_id() == holder.trace_id() && path(claim).starts_with(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_those_that_it_begins_with() {
        let new = |around: Option<&TraceParent>, caller: Option<&TraceParent>| -> TraceParent {
            extended(around, caller).parse().unwrap()
        };
        let caller: TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        let outer = new(None, Some(&caller));
        assert_eq!((outer.trace_id(), outer.flags()), (caller.trace_id(), "01"));
        let inner = new(Some(&outer), None);
        assert!(is_below(&inner, &outer) && is_below(&outer, &outer) && !is_below(&outer, &inner));
        // 1 in 65,536 is the same by chance.
        let differ = |make: &dyn Fn() -> TraceParent| (0..3).any(|_| !is_below(&make(), &inner));
        assert!(differ(&|| new(Some(&outer), None)), "a command beside it");
        assert!(differ(&|| new(None, Some(&caller))), "a command of the same trace");
        let mut deep = inner;
        for depth in 2..=PARTS + 1 {
            let next = new(Some(&deep), None);
            assert!(is_below(&next, &outer));
            // From then on those below are the same as those beside.
            assert_eq!(is_below(&next, &deep), depth < PARTS);
            deep = next;
        }
        assert!(!is_below(&caller, &caller), "the id of a span, whose parts may run side by side");
        assert!(!is_below(&new(None, None), &new(None, None)));
    }
}
