//! A histogram as a result file keeps it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Reader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Of each latency. With three, a file would be ten times as large.
const DIGITS: u8 = 2;

/// A histogram in two columns. The buckets rise, do not overlap, and empty ones are left out. A bucket is at
/// most 1 % wide, so that any percentile of it is as near to that of the latencies themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buckets {
    /// The highest latency that each bucket counts, in nanoseconds.
    pub(crate) up_to_ns: Vec<u64>,
    /// How many it counts.
    pub(crate) counts: Vec<u64>,
}

impl Buckets {
    pub(crate) fn of(nanos: &Histogram<u64>) -> Self {
        let recorded = nanos.iter_recorded().map(|it| (it.value_iterated_to(), it.count_at_value()));
        Self::columns(&coarse(recorded))
    }

    fn columns(histogram: &Histogram<u64>) -> Self {
        let recorded = histogram.iter_recorded();
        let (up_to_ns, counts) = recorded.map(|it| (it.value_iterated_to(), it.count_at_value())).unzip();
        Self { up_to_ns, counts }
    }
}

/// A histogram of latencies, and how often each came.
fn coarse(latencies: impl Iterator<Item = (u64, u64)>) -> Histogram<u64> {
    let mut coarse = Histogram::new(DIGITS).expect("two digits are allowed");
    for (latency, count) in latencies {
        coarse.record_n(latency, count).expect("the histogram grows as needed");
    }
    coarse
}

/// As one text, which tools for `HdrHistogram` read: a file has thousands of histograms.
impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.counts.is_empty() {
            return serializer.serialize_str("");
        }
        let columns = self.up_to_ns.iter().copied().zip(self.counts.iter().copied());
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&coarse(columns), &mut bytes).map_err(S::Error::custom)?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Buckets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        let histogram: Histogram<u64> = Reader::new()
            .deserialize(&mut &*bytes)
            .map_err(|error| D::Error::custom(format!("no histogram: {error:?}")))?;
        Ok(Self::columns(&histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_comes_back_from_its_text() {
        let latencies = [(700, 3), (1_000, 1), (52_000, 40), (3_600_000_000_000, 1)];
        let buckets = Buckets::columns(&coarse(latencies.into_iter()));
        assert_eq!(buckets.counts, [3, 1, 40, 1]);
        for (up_to, (latency, _)) in buckets.up_to_ns.iter().zip(latencies) {
            assert!((latency..=latency + latency / 100).contains(up_to), "{up_to} for {latency}");
        }
        let text = serde_json::to_string(&buckets).unwrap();
        // How each text of this form begins.
        assert!(text.starts_with("\"HISTF") && text.len() < 150, "{text}");
        assert_eq!(serde_json::from_str::<Buckets>(&text).unwrap(), buckets);
    }

    #[test]
    fn nothing_and_nonsense() {
        let none = Buckets::default();
        assert_eq!(serde_json::to_string(&none).unwrap(), "\"\"");
        assert_eq!(serde_json::from_str::<Buckets>("\"\"").unwrap(), none);
        for bad in ["\"HISTF\"", "\"AAAA\"", "{}"] {
            assert!(serde_json::from_str::<Buckets>(bad).is_err(), "{bad}");
        }
    }
}
