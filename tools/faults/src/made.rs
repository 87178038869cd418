//! What runs are made of: the code, the holds, and the servers.

use serde::{Deserialize, Serialize};
use testbed::{Checkout, Family, Release};

use crate::kind::Kind;
use crate::scenario::Scenario;
use crate::worker;

/// What a run was made of. Files of earlier versions have the commit alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// What git said about the program's checkout when the program began: the commit, with a `+` if there
    /// were changes.
    #[serde(default)]
    pub commit: Option<String>,
    /// The longest of the usual holds, in microseconds.
    #[serde(default)]
    pub hold_us: Option<u64>,
    /// The releases of the servers, each with the version that its program says.
    #[serde(default)]
    pub releases: Vec<String>,
    /// The program that every second worker was, if it was another one.
    #[serde(default)]
    pub contender: Option<String>,
}

/// What the runs of one call are made of. It is looked at once, at the start: who commits or installs
/// something meanwhile does not change the program that is running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    commit: Option<String>,
    releases: Vec<(Family, String)>,
    contender: Option<String>,
}

impl Origin {
    /// Looks at what these runs need. Blocks while programs say their versions.
    pub(crate) fn look(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut releases: Vec<(Family, String)> = Vec::new();
        for family in kinds.into_iter().flat_map(families) {
            if !releases.iter().any(|(known, _)| known == family) {
                releases.push((*family, release(*family)));
            }
        }
        let contender = worker::contender().map(|program| program.to_string_lossy().into_owned());
        Self { commit: commit(), releases, contender }
    }

    /// What a run of this scenario on this backend is made of.
    pub(crate) fn made(&self, scenario: &Scenario, kind: Kind) -> Made {
        let needed = families(kind);
        let releases = self.releases.iter().filter(|(family, _)| needed.contains(family));
        let takes_contenders = kind != Kind::Memory && scenario.crew.takes_contenders();
        Made {
            commit: self.commit.clone(),
            hold_us: Some(scenario.crew.hold),
            releases: releases.map(|(_, release)| release.clone()).collect(),
            contender: self.contender.clone().filter(|_| takes_contenders),
        }
    }
}

fn commit() -> Option<String> {
    let Checkout { commit, has_changes } = Checkout::look();
    Some(commit? + if has_changes? { "+" } else { "" })
}

/// The servers that are started. The file of `SQLite` needs none: the library is a part of the program.
fn families(kind: Kind) -> &'static [Family] {
    match kind {
        Kind::Memory | Kind::Sqlite => &[],
        Kind::Postgres => &[Family::Postgres],
        Kind::Mariadb => &[Family::MySql],
        Kind::Redis | Kind::Sentinel | Kind::Redlock3 => &[Family::Redis],
        Kind::Zookeeper | Kind::Zookeeper3 => &[Family::ZooKeeper],
        Kind::Etcd | Kind::Etcd3 => &[Family::Etcd],
    }
}

/// What servers of this family are. A program that does not say it does not run either.
fn release(family: Family) -> String {
    let said = Release::chosen(family)
        .and_then(|release| release.version().map(|version| format!("{} {version}", release.name())));
    said.unwrap_or_else(|error| format!("{family:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::soak::SOAK;

    #[test]
    fn a_run_names_the_servers_and_contenders_that_it_has() {
        let releases = [(Family::Redis, "redis7 7.0.15"), (Family::Etcd, "etcd3.4 3.4.23")];
        let releases = releases.map(|(family, release)| (family, release.to_owned())).into();
        let origin = Origin { commit: None, releases, contender: Some("contender.py".to_owned()) };
        let made = |kind| origin.made(&SOAK, kind);
        assert_eq!(made(Kind::Redis).releases, ["redis7 7.0.15"]);
        assert_eq!(made(Kind::Sqlite).contender.as_deref(), Some("contender.py"));
        assert_eq!(made(Kind::Memory).contender, None);
    }
}
