//! What runs are made of. A run of other code, with longer holds or on other servers is another run.

use serde::{Deserialize, Serialize};
use testbed::{Checkout, Family, Release};

use crate::kind::{Kind, Setup};
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

impl Made {
    /// Whether a run that is made of this need not be made again.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        is_of_commit(self.commit.as_deref()) && self == other
    }
}

/// Nobody knows whether the changes of a checkout are those of the last time.
fn is_of_commit(commit: Option<&str>) -> bool {
    commit.is_some_and(|commit| !commit.ends_with('+'))
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
    pub(crate) fn look<'a>(runs: impl IntoIterator<Item = (&'a Scenario, Kind)>) -> Self {
        let mut releases: Vec<(Family, String)> = Vec::new();
        for family in runs.into_iter().flat_map(|(scenario, kind)| families(scenario.setup, kind)) {
            if !releases.iter().any(|(known, _)| known == family) {
                releases.push((*family, release(*family)));
            }
        }
        let contender = worker::contender().map(|program| program.to_string_lossy().into_owned());
        Self { commit: commit(), releases, contender }
    }

    /// Whether the same call goes on where this one is stopped.
    pub(crate) fn is_of_commit(&self) -> bool {
        is_of_commit(self.commit.as_deref())
    }

    /// What a run of this scenario on this backend is made of.
    pub(crate) fn made(&self, scenario: &Scenario, kind: Kind) -> Made {
        let needed = families(scenario.setup, kind);
        let releases = self.releases.iter().filter(|(family, _)| needed.contains(family));
        let takes_contenders = kind != Kind::Memory && worker::takes_contenders(&scenario.crew);
        Made {
            commit: self.commit.clone(),
            hold_us: Some(scenario.crew.hold),
            releases: releases.map(|(_, release)| release.clone()).collect(),
            contender: self.contender.clone().filter(|_| takes_contenders),
        }
    }

    /// That of a commit, without servers.
    #[cfg(test)]
    pub(crate) fn of(commit: &str) -> Self {
        Self { commit: Some(commit.to_owned()), ..Self::default() }
    }
}

fn commit() -> Option<String> {
    let Checkout { commit, has_changes } = Checkout::look();
    Some(commit? + if has_changes? { "+" } else { "" })
}

/// The servers that are started. The file of `SQLite` needs none: the library is a part of the program.
fn families(setup: Setup, kind: Kind) -> &'static [Family] {
    match kind {
        Kind::Memory | Kind::Sqlite => &[],
        Kind::Postgres if setup == Setup::Pooler => &[Family::Postgres, Family::PgBouncer],
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
    use crate::plan::{Crew, Misuse};
    use crate::soak::SOAK;

    fn origin() -> Origin {
        let releases = [(Family::Redis, "redis7 7.0.15"), (Family::Etcd, "etcd3.4 3.4.23")];
        let releases = releases.map(|(family, release)| (family, release.to_owned())).into();
        Origin { releases, contender: Some("contender.py".to_owned()), ..Origin::of("0123") }
    }

    #[test]
    fn a_run_of_other_code_with_other_holds_or_on_other_servers_is_another() {
        let made = origin().made(&SOAK, Kind::Redis);
        assert_eq!(made.releases, ["redis7 7.0.15"]);
        assert!(made.is_same(&origin().made(&SOAK, Kind::Redis)));
        let (mut committed, mut upgraded, mut alone) = (origin(), origin(), origin());
        committed.commit = Some("4567".to_owned());
        upgraded.releases[0].1 = "redis8 8.0.2".to_owned();
        alone.contender = None;
        for other in [&committed, &upgraded, &alone] {
            assert!(!made.is_same(&other.made(&SOAK, Kind::Redis)), "{other:?}");
        }
        let quick = Scenario { crew: Crew { hold: 30_000, ..SOAK.crew }, ..SOAK };
        assert!(!made.is_same(&origin().made(&quick, Kind::Redis)));
        // Another Redis is nothing to etcd.
        assert!(origin().made(&SOAK, Kind::Etcd).is_same(&upgraded.made(&SOAK, Kind::Etcd)));
    }

    #[test]
    fn what_is_of_no_commit_is_never_the_same() {
        for commit in [None, Some("0123+".to_owned())] {
            let origin = Origin { commit, ..origin() };
            let made = origin.made(&SOAK, Kind::Redis);
            assert!(!origin.is_of_commit() && !made.is_same(&made), "{origin:?}");
        }
        assert!(origin().is_of_commit());
    }

    #[test]
    fn contenders_count_where_there_are_such() {
        let contender = |scenario: &Scenario, kind| origin().made(scenario, kind).contender;
        assert_eq!(contender(&SOAK, Kind::Sqlite).as_deref(), Some("contender.py"));
        assert_eq!(contender(&SOAK, Kind::Memory), None);
        let crew = Crew { misuse: Misuse::StarvesRuntime, ..SOAK.crew };
        assert_eq!(contender(&Scenario { crew, ..SOAK }, Kind::Sqlite), None);
    }

    #[test]
    fn a_pooler_is_a_server() {
        assert_eq!(families(Setup::Pooler, Kind::Postgres), [Family::Postgres, Family::PgBouncer]);
        assert_eq!(families(Setup::Usual, Kind::Postgres), [Family::Postgres]);
    }
}
