//! What the tests could not run on this machine. Libtest counts such a test as passed, since a test cannot
//! tell it anything else. So the test writes a line into a file, see `testbed/src/lacking.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::shell::Result;

/// A test, or a part of one, that was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotRun {
    /// The program of the test, or a target of the suite.
    pub(crate) program: String,
    /// Empty if that is not known, or if it is more than a test.
    pub(crate) test: String,
    /// Empty for the whole test.
    pub(crate) part: String,
    pub(crate) why: String,
    /// Whether `cargo xtask test --install` cannot change it.
    pub(crate) is_beyond: bool,
}

impl NotRun {
    /// A line of the file of this program.
    fn parse(program: &str, line: &str) -> Option<Self> {
        let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
        let [kind, test, part, why]: [String; 4] = fields.try_into().ok()?;
        Some(Self { program: program.to_owned(), test, part, why, is_beyond: kind == "beyond" })
    }

    /// The line for a file that is of no program.
    fn line(&self) -> String {
        let Self { program, test, part, why, is_beyond } = self;
        let kind = if *is_beyond { "beyond" } else { "missing" };
        let name = format!("{program} {test}");
        testbed::not_run_line([kind, &name, part, why])
    }
}

/// Removes the file of an earlier run.
pub(crate) fn clear(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(problem(path, &error)),
        _ => Ok(()),
    }
}

/// What the tests of this program have written. Without a file they ran all.
pub(crate) fn read(path: &Path, program: &str) -> Result<Vec<NotRun>> {
    match fs::read(path) {
        Ok(text) => Ok(parse(program, &String::from_utf8_lossy(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(problem(path, &error)),
    }
}

fn parse(program: &str, text: &str) -> Vec<NotRun> {
    text.lines().filter_map(|line| NotRun::parse(program, line)).collect()
}

/// Adds them to a file, as the tests do.
pub(crate) fn write(path: &Path, all: &[NotRun]) -> Result<()> {
    let lines: String = all.iter().map(NotRun::line).collect();
    let file = File::options().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|error| problem(path, &error))
}

fn problem(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The lines for the end of a run. A server that is missing can be the reason of a hundred tests: they have
/// one line in each program.
pub(crate) fn remarks(all: &[NotRun]) -> Vec<String> {
    let mut alike = BTreeMap::<_, BTreeSet<&str>>::new();
    for NotRun { program, test, part, why, is_beyond } in all {
        alike.entry((*is_beyond, program, part, why)).or_default().insert(test);
    }
    let mut remarks = Vec::new();
    for ((is_beyond, program, part, why), tests) in alike {
        let begin = if is_beyond { "cannot be run here" } else { "not run" };
        let first = tests.first().copied().unwrap_or_default();
        let more = if tests.len() > 1 { format!("and {} more", tests.len() - 1) } else { String::new() };
        let part = if part.is_empty() { String::new() } else { format!("[{part}]") };
        let words = [program.as_str(), first, &more, &part].into_iter().filter(|word| !word.is_empty());
        remarks.push(format!("{begin}: {} ({why})", words.collect::<Vec<_>>().join(" ")));
    }
    remarks
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of a test that misses a server.
    pub(crate) fn missing(program: &str, test: &str) -> NotRun {
        NotRun {
            program: program.to_owned(),
            test: test.to_owned(),
            part: String::new(),
            why: "no etcd".to_owned(),
            is_beyond: false,
        }
    }

    #[test]
    fn the_lines_of_the_tests_are_read() {
        let text = "missing\ta::b\t\tno etcd\nbeyond\ta::c\tINT\tit is ignored here\nof an older form\n";
        let beyond = NotRun {
            part: "INT".into(),
            why: "it is ignored here".into(),
            is_beyond: true,
            ..missing("x/y", "a::c")
        };
        assert_eq!(parse("x/y", text), [missing("x/y", "a::b"), beyond.clone()]);
        assert_eq!(
            parse("", &beyond.line()),
            [NotRun { program: String::new(), test: "x/y a::c".into(), ..beyond }]
        );
        assert_eq!(missing("redis8", "").line(), "missing\tredis8\t\tno etcd\n");
    }

    #[test]
    fn they_are_kept_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not-run");
        clear(&path).unwrap();
        assert!(read(&path, "x/y").unwrap().is_empty());
        write(&path, &[missing("", "a")]).unwrap();
        write(&path, &[missing("", "b")]).unwrap();
        assert_eq!(read(&path, "x/y").unwrap(), [missing("x/y", "a"), missing("x/y", "b")]);
        clear(&path).unwrap();
        assert!(read(&path, "x/y").unwrap().is_empty());
    }

    #[test]
    fn one_reason_has_one_line_in_each_program() {
        let beyond = NotRun { is_beyond: true, part: "INT".into(), ..missing("cli/cli", "signals::all") };
        let all = [
            beyond.clone(),
            missing("x/y", "b"),
            missing("x/y", "a"),
            missing("x/y", "b"),
            missing("x/z", "a"),
            missing("redis8", ""),
            beyond,
        ];
        let expected = [
            "not run: redis8 (no etcd)",
            "not run: x/y a and 1 more (no etcd)",
            "not run: x/z a (no etcd)",
            "cannot be run here: cli/cli signals::all [INT] (no etcd)",
        ];
        assert_eq!(remarks(&all), expected);
    }
}
