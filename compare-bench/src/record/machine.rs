//! On what the figures were taken.

use std::fs;

use procfs::{CpuInfo, Current, CurrentSI, KernelStats, LoadAverage, Meminfo};
use serde::{Deserialize, Serialize};
use testbed::Checkout;

use crate::stats::{as_float, round3};

/// How this program was built. A compiler does not tell the name of a profile, and `cargo xtask compare`
/// does.
pub(crate) const PROFILE: &str = match option_env!("LOCKWELL_COMPARE_PROFILE") {
    _ if cfg!(debug_assertions) => "debug",
    Some(profile) => profile,
    None => "release",
};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Its name.
    pub(crate) host: String,
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) memory_mib: u64,
}

/// The program that took the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    pub(crate) version: String,
    /// "release", "quick", which was not optimised when it was linked, or "debug", whose figures mean
    /// nothing.
    pub(crate) profile: String,
    pub(crate) git_commit: Option<String>,
    /// Whether the checkout had changes that were not committed.
    pub(crate) git_dirty: Option<bool>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpu = CpuInfo::current().ok();
        let cpu = cpu.as_ref().and_then(|cpu| cpu.model_name(0));
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: cpu.unwrap_or(std::env::consts::ARCH).to_owned(),
            kernel: format!("{} {}", std::env::consts::OS, kernel.trim()),
            memory_mib: Meminfo::current().map_or(0, |memory| memory.mem_total) >> 20,
        }
    }
}

impl Build {
    pub(crate) fn look() -> Self {
        let checkout = Checkout::look();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: PROFILE.to_owned(),
            git_commit: checkout.commit,
            git_dirty: checkout.has_changes,
        }
    }
}

/// A machine with less load is quiet: other programs change no figure much.
pub(crate) const QUIET: f64 = 0.5;

/// From this load for each core on, too many threads wait for a core: no figure of such a run is to be used. The runs
/// of the repository began with 1.25 at most.
const LOAD: f64 = 1.5;

/// The load from which on a machine of so many cores is too busy.
pub(crate) fn too_busy(cores: usize) -> f64 {
    LOAD * as_float(u64::try_from(cores.max(1)).unwrap_or(u64::MAX))
}

/// How many processes ran or wanted to run, on the average of the last minute. Zero where nobody knows.
pub(crate) fn load() -> f64 {
    LoadAverage::current().map_or(0.0, |load| round3(load.one.into()))
}

/// What all cores have spent since the machine was started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    pub(crate) fn now() -> Self {
        let Ok(KernelStats { total, .. }) = KernelStats::current() else { return Self::default() };
        let idle = total.idle + total.iowait.unwrap_or(0);
        // The time of guests is in that of the users.
        let others = [total.irq, total.softirq, total.steal].into_iter().flatten().sum::<u64>();
        Self { all: total.user + total.nice + total.system + idle + others, idle }
    }

    /// The share that was spent on anything since then, from 0 to 1.
    pub(crate) fn busy_since(self, before: Self) -> f64 {
        let (all, idle) = (self.all.saturating_sub(before.all), self.idle.saturating_sub(before.idle));
        if all == 0 { 0.0 } else { round3(as_float(all.saturating_sub(idle)) / as_float(all)) }
    }
}

/// The arguments of a command, without the passwords in addresses.
pub(crate) fn arguments(words: impl Iterator<Item = String>) -> Vec<String> {
    let shown = |word: String| {
        let (option, url) = match word.split_once('=') {
            Some((option, rest)) if option.starts_with("--") => (format!("{option}="), rest),
            _ => (String::new(), &*word),
        };
        match url.parse::<lockwell::backend::ServerUrl>() {
            Ok(url) => format!("{option}{url}"),
            // Nothing that looks like an address is shown as it is.
            Err(_) if url.contains("://") => format!("{option}?"),
            Err(_) => word,
        }
    };
    words.map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_kept() {
        let words = [
            "--url",
            "postgres://ann:hunter2@h/db",
            "--url=redis://:hunter2@h",
            "--quick",
            "redis://:hunter2@a b",
        ];
        let kept = arguments(words.map(str::to_owned).into_iter());
        assert!(!format!("{kept:?}").contains("hunter2"), "{kept:?}");
        assert!(kept[1].starts_with("postgres://ann") && kept[2].starts_with("--url=redis://"), "{kept:?}");
        assert_eq!((&*kept[0], &*kept[3]), ("--url", "--quick"));
    }

    #[test]
    fn the_busy_share_is_that_of_the_ticks() {
        let (before, after) = (Ticks { all: 100, idle: 80 }, Ticks { all: 200, idle: 140 });
        assert!((after.busy_since(before) - 0.4).abs() < 1e-9);
        assert!(Ticks::default().busy_since(before).abs() < 1e-9);
        let now = Ticks::now();
        assert!(now.idle > 0 && now.idle < now.all, "{now:?}");
    }
}
