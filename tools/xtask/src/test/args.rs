//! The arguments of a run that belong to cargo, and those that belong to the test programs.

use testbed::Release;

/// Options of `cargo test` that choose programs.
const TARGETS: [&str; 6] = ["--lib", "--bin", "--bins", "--test", "--tests", "--example"];
/// Options of `cargo test` that are followed by a value.
const VALUES: [&str; 9] =
    ["-p", "--package", "--exclude", "--bin", "--test", "--example", "--features", "-j", "--jobs"];

/// Which tests to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// For cargo.
    pub(crate) cargo: Vec<String>,
    /// For each program.
    pub(crate) filters: Vec<String>,
    /// Whether single programs were chosen.
    pub(crate) names_targets: bool,
    pub(crate) documentation_only: bool,
}

impl Selection {
    /// As `cargo test` understands them: a word that is no option is a filter for the programs, and so is all
    /// after `--`.
    pub(crate) fn new(args: &[String], servers: Servers) -> Self {
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let (ours, theirs) = (&args[..end], args.get(end + 1..).unwrap_or_default());
        let name = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        let (mut chosen, mut filters) = (Vec::new(), Vec::new());
        for (at, arg) in ours.iter().enumerate() {
            let is_value = at > 0 && VALUES.contains(&ours[at - 1].as_str());
            if arg.starts_with('-') || is_value { &mut chosen } else { &mut filters }.push(arg.clone());
        }
        filters.extend(theirs.iter().cloned());
        let packages = chosen.iter().any(|arg| arg.starts_with("-p") || name(arg) == "--package");
        let documentation_only = chosen.iter().any(|arg| arg == "--doc");
        chosen.retain(|arg| arg != "--doc");
        let names_targets = chosen.iter().any(|arg| TARGETS.contains(&name(arg).as_str()));
        // Beside --workspace, cargo would take no notice of the chosen package.
        let scope = match servers {
            _ if packages => &[][..],
            // The suite, and the backends whose own tests run on fetched releases.
            Servers::Fetched => {
                &["-p", "lockwell", "-p", "lockwell-redis", "-p", "lockwell-zk", "-p", "lockwell-etcd"][..]
            }
            Servers::Usual | Servers::All => &["--workspace"][..],
        };
        let scope = scope.iter().chain(&["--all-features"]).map(|word| (*word).to_owned());
        Self { cargo: scope.chain(chosen).collect(), filters, names_targets, documentation_only }
    }
}

/// Which servers a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Servers {
    Usual,
    Fetched,
    All,
}

impl Servers {
    /// Its name for the conformance suite.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Fetched => "fetched",
            Self::All => "all",
        }
    }

    /// The releases to be fetched for it.
    pub(super) fn needed(self) -> impl Iterator<Item = &'static Release> {
        let fetched = Release::all().iter().filter(|release| release.is_fetched());
        fetched.filter(move |release| self != Self::Usual || release.is_usual())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(line: &str) -> (String, String, bool) {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let Selection { cargo, filters, names_targets, .. } = Selection::new(&words, Servers::Usual);
        (cargo.join(" "), filters.join(" "), names_targets)
    }

    #[test]
    fn everything_is_tested_unless_a_package_or_a_program_is_chosen() {
        let expected = |cargo: &str, filters: &str, names| (cargo.to_owned(), filters.to_owned(), names);
        let all = "--workspace --all-features";
        assert_eq!(selected(""), expected(all, "", false));
        let suite = "--workspace --all-features --test conformance";
        assert_eq!(selected("--test conformance -- -p"), expected(suite, "-p", true));
        assert_eq!(selected("-p lockwell-core"), expected("--all-features -p lockwell-core", "", false));
        let core = "--all-features --package=lockwell-core";
        assert_eq!(selected("--package=lockwell-core lease"), expected(core, "lease", false));
        assert!(Selection::new(&["--doc".to_owned()], Servers::Usual).documentation_only);
    }
}
