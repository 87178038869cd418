//! Figures in the form that people read. Three significant digits are enough for them.

use crate::record::machine::Machine;
use crate::record::{Conditions, Cost, Handing, Holding, Quantity};
use crate::stats::interval::Interval;

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds.
    Time,
    /// Something each second. The only one of which more is better.
    Rate,
    /// Requests, or round trips.
    Count,
}

impl From<Quantity> for Unit {
    fn from(quantity: Quantity) -> Self {
        match quantity {
            Quantity::LatencyUs | Quantity::CpuUs => Self::Time,
            Quantity::PerSecond => Self::Rate,
        }
    }
}

/// A median, and the interval of the rounds around it.
pub(crate) type Figure = (f64, Option<Interval>);

pub(crate) fn time(micros: f64) -> String {
    plain(Unit::Time, micros)
}

pub(crate) fn number(value: f64) -> String {
    match value {
        small if small < 100.0 => format!("{small:.1}"),
        small if small < 10_000.0 => format!("{small:.0}"),
        middle if middle < 1e6 => format!("{:.1} k", middle / 1000.0),
        large => format!("{:.2} M", large / 1e6),
    }
}

/// A figure with its interval, in one unit: `45.2 us [44.1 .. 46.3]`.
pub(crate) fn value(unit: Unit, value: Interval) -> String {
    let (unit, scale, digits) = unit_of(unit, value.median);
    let [median, low, high] = [value.median, value.low, value.high].map(|it| it / scale);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    format!("{median:.digits$}{unit} [{low:.digits$} .. {high:.digits$}]")
}

/// A figure with its interval, or the reason why there is none.
pub(crate) fn figure(unit: Unit, median: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(interval) => value(unit, interval),
        None if median > 0.0 => "too few rounds".to_owned(),
        None => "-".to_owned(),
    }
}

/// A figure alone: `45.2 us`.
pub(crate) fn plain(unit: Unit, median: f64) -> String {
    let (unit, scale, digits) = unit_of(unit, median);
    format!("{:.digits$} {unit}", median / scale).trim_end().to_owned()
}

fn unit_of(unit: Unit, median: f64) -> (&'static str, f64, usize) {
    let (unit, scale) = match unit {
        Unit::Time if median < 1000.0 => ("us", 1.0),
        Unit::Time if median < 1e6 => ("ms", 1e3),
        Unit::Time => ("s", 1e6),
        Unit::Rate if median < 10_000.0 => ("/s", 1.0),
        Unit::Rate if median < 1e6 => ("k/s", 1e3),
        Unit::Rate => ("M/s", 1e6),
        Unit::Count => ("", 1.0),
    };
    let digits = match median / scale {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    (unit, scale, digits)
}

/// Fairness and starvation, and what is wrong. Where the figure is a time, the rate is told, too.
pub(crate) fn sharing(handing: &Handing, quantity: Quantity) -> Vec<String> {
    let mut remarks =
        vec![format!("Jain {:.2}", handing.jain), format!("longest wait {}", time(handing.wait_us.max))];
    let rate = handing.handovers_per_second;
    remarks
        .extend((quantity == Quantity::LatencyUs).then(|| format!("{} hand-overs a second", number(rate))));
    remarks.extend((handing.overlaps > 0).then(|| format!("{} OVERLAPS", handing.overlaps)));
    remarks
}

/// What else it costs.
pub(crate) fn holding(holding: &Holding) -> Vec<String> {
    let of = |who: &str, cost: Cost| {
        format!(
            "{who} {} and {}, {} of it for the locks",
            cpu(cost.cpu_us),
            memory(cost.memory_kib),
            grown(cost)
        )
    };
    let mut remarks: Vec<String> = Vec::new();
    remarks.extend(holding.requests_per_second.map(|rate| format!("{rate:.1} requests a second")));
    remarks.push(of("client", holding.client));
    remarks.extend(holding.server.map(|server| of("server", server)));
    remarks.push(match holding.connections {
        1 => "1 connection".to_owned(),
        several => format!("{several} connections"),
    });
    remarks
}

/// Microseconds in a second, as a share of one core.
fn cpu(micros: f64) -> String {
    format!("{:.2} % of a core", micros / 10_000.0)
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 KiB")]
fn memory(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 KiB")]
fn grown(cost: Cost) -> String {
    format!("{:.1}", cost.grown_kib as f64 / 1024.0)
}

/// What decides about the speed of a machine. Its name does not: a rented one has another each time.
pub(crate) fn machine(of: &Machine) -> String {
    format!("{}, {} cores, {} GiB", of.cpu, of.cores, of.memory_mib.div_ceil(1024))
}

/// What holds for a whole run.
pub(crate) fn conditions(conditions: &Conditions) -> String {
    let Conditions { durability, storage, delay_us } = conditions;
    let durability = match &**durability {
        "disk" => "servers sync each commit",
        "os" => "kept by the operating system",
        "none" => "kept in memory only",
        "default" => {
            "servers as they are by default: Redis keeps locks in memory, the others sync each commit"
        }
        _ => return "servers of others".to_owned(),
    };
    #[expect(clippy::cast_precision_loss, reason = "delays are far below 2^53 us")]
    let delay = if *delay_us == 0 { String::new() } else { format!(", {} away", time(*delay_us as f64)) };
    format!("data on {storage}, {durability}{delay}")
}

/// The same, and what decides about it where a commit waits for the disk: how long a sync takes.
pub(crate) fn setting(of: &Conditions, sync_us: Option<f64>) -> String {
    let told = conditions(of);
    match sync_us {
        Some(sync) if ["disk", "default"].contains(&&*of.durability) => {
            format!("{told}, where a sync takes {}", time(sync))
        }
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(time(0.031), "0.03 us");
        assert_eq!(time(123.4), "123 us");
        assert_eq!(time(12_345.0), "12.3 ms");
        assert_eq!(time(2_345_000.0), "2.35 s");
        assert_eq!(number(8_123.4), "8123");
        assert_eq!(number(81_234.0), "81.2 k");
        assert_eq!(number(8_123_456.0), "8.12 M");
    }

    #[test]
    fn a_figure_and_its_interval_have_one_unit() {
        let interval = |median, low, high| Interval { median, low, high };
        let shown = value(Unit::Time, interval(998.0, 950.0, 1050.0));
        assert_eq!(shown, "998 us [950 .. 1050]");
        let shown = value(Unit::Rate, interval(12_345.0, 9_900.0, 13_000.0));
        assert_eq!(shown, "12.3 k/s [9.9 .. 13.0]");
        assert_eq!(value(Unit::Count, interval(2.0, 1.9, 2.1)), "2.00 [1.90 .. 2.10]");
    }

    #[test]
    fn the_sync_is_told_where_commits_wait_for_it() {
        let told = |durability: &str| {
            let conditions =
                Conditions { durability: durability.to_owned(), storage: "ext4".to_owned(), delay_us: 0 };
            setting(&conditions, Some(72.6))
        };
        assert_eq!(told("disk"), "data on ext4, servers sync each commit, where a sync takes 72.6 us");
        assert_eq!(told("os"), "data on ext4, kept by the operating system");
        assert!(told("default").ends_with("the others sync each commit, where a sync takes 72.6 us"));
    }
}
