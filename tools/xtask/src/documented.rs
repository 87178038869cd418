//! The programs of this repository understand the commands that its documentation shows.

use std::fs;
use std::process::Command as Process;

use clap::Parser;

use crate::shell::{root, text};

/// A page of the documentation, and a command on it.
type Told = (String, String);

/// Programs that a reader may be told to start.
const PROGRAMS: [&str; 14] = [
    "cargo ",
    "rustup ",
    "lockwell ",
    "compare-bench ",
    ".ci/run",
    "prometheus ",
    "redis-cli ",
    "psql ",
    "mysql ",
    "apt-get ",
    "npm ",
    "pip ",
    "kubectl ",
    "docker ",
];

/// What checks the commands that begin so. `lockwell` is parsed by a test of the command, which also runs the
/// blocks of `sh`.
const CHECKED: [&str; 7] = [
    "cargo xtask ",
    "cargo run ",
    "cargo test ",
    "cargo nextest run ",
    "cargo install --path ",
    "compare-bench ",
    "lockwell ",
];

/// Steps of `.ci/run`, as they are told.
const STEPS: [&str; 3] =
    ["cargo fmt --all", "cargo clippy --workspace --all-targets --all-features", "cargo deny check"];

/// What no test runs: it changes the machine, or takes a program that is not there; and the beginnings of
/// commands.
const TOLD_ONLY: [&str; 7] = [
    ".ci/run",
    "cargo new --lib table-lock",
    "docker build --file cli/Dockerfile --tag lockwell target/x86_64-unknown-linux-musl/release",
    "cargo fuzz",
    "cargo fuzz run --fuzz-dir tools/fuzz addresses target/corpus tools/fuzz/seeds/addresses",
    "cargo xtask",
    "prometheus --config.file=examples/observed/prometheus.yml",
];

/// The pages of the documentation, one in a line.
fn pages() -> String {
    let mut git = Process::new("git");
    text(git.arg("-C").arg(root()).args(["ls-files", "--", "*.md"])).expect("git lists the pages")
}

/// Where a line `[NAME]: TARGET`, or links `[text](TARGET)` within it, lead.
fn targets(line: &str) -> Vec<&str> {
    within(line).chain(definition(line).map(|(_, target)| target)).collect()
}

fn within(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[').and_then(|line| line.split_once("]: "))
}

/// Whether the page has a heading with this anchor.
fn has_anchor(page: &str, anchor: &str) -> bool {
    let mut headings = page.lines().filter(|line| line.starts_with('#')).map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.replace(|c: char| !c.is_alphanumeric() && !['-', '_'].contains(&c), "")
    });
    headings.any(|it| it == anchor)
}

#[test]
fn links_lead_to_files_that_are_there() {
    let mut number = 0;
    for page in pages().lines() {
        let path = root().join(page);
        let text = fs::read_to_string(&path).expect("a page");
        for target in text.lines().flat_map(targets).filter(|target| !target.contains([' ', ':'])) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            assert!(file.exists(), "{page}: {target}");
            if !anchor.is_empty() {
                let there = fs::read_to_string(file).expect("a page");
                assert!(has_anchor(&there, anchor), "{page}: {target}");
            }
            number += 1;
        }
    }
    assert!(number > 50, "{number}");
}

/// The guides are modules in the documentation of the library, where the name of a file leads nowhere: each
/// of their links has a name that `guide_links.md` leads to a module.
#[test]
fn links_of_the_guides_lead_to_modules() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect("a file");
    let links = read("src/guide_links.md");
    let links: Vec<_> = links.lines().filter_map(definition).collect();
    for (_, target) in &links {
        let Some((module, anchor)) = target.strip_prefix("crate::guides::").and_then(|it| it.split_once('#'))
        else {
            continue;
        };
        assert!(has_anchor(&read(&format!("docs/{}.md", module.replace('_', "-"))), anchor), "{target}");
    }
    let library = read("src/lib.rs");
    // The names hold in the page that follows them.
    let included = library.split("include_str!(\"").filter_map(|rest| rest.split('"').next());
    let included: Vec<_> = included.collect();
    assert!(included.len() >= 25, "{included:?}");
    for pair in included.windows(2) {
        let Some(page) = pair[1].strip_prefix("../") else { continue };
        let links = if pair[0] == "guide_links.md" { &*links } else { &[] };
        for line in read(page).lines() {
            let file = within(line).find(|target| target.contains(".md") && !target.contains(':'));
            assert_eq!(file, None, "{page}: it needs a name, below and in guide_links.md");
            if let Some((name, _)) = definition(line).filter(|(_, target)| target.contains(".md")) {
                assert!(
                    links.iter().any(|(it, _)| *it == name),
                    "{page}: guide_links.md does not lead [{name}]"
                );
            }
        }
    }
}

/// The text of the files of the repository whose names begin so.
fn sources(beginning: &str) -> String {
    let mut git = Process::new("git");
    let listed =
        text(git.arg("-C").arg(root()).args(["ls-files", "--", beginning])).expect("git lists files");
    let read = |file| fs::read_to_string(root().join(file)).expect("a file");
    let is_rust = |file: &&str| std::path::Path::new(file).extension().is_some_and(|end| end == "rs");
    listed.lines().filter(is_rust).map(read).collect()
}

/// Each row of the tables of what happens names tests or scenarios of faults that show it, and they exist.
#[test]
fn the_tests_of_what_happens_are_there() {
    let scenarios = sources("tools/faults/src/table");
    let mut number = 0;
    for page in pages().lines() {
        let page_text = fs::read_to_string(root().join(page)).expect("a page");
        for told in page_text.split("with the tests that show it (in `").skip(1) {
            let tests = sources(told.split('`').next().unwrap_or_default());
            let rows = told.lines().skip_while(|line| !line.starts_with('|'));
            // After the head.
            for row in rows.take_while(|line| line.starts_with('|')).skip(2) {
                let before = number;
                let words: Vec<_> = row.split('`').collect();
                // What stands before a word, and the word.
                let mut of_scenarios = false;
                for pair in words.chunks_exact(2) {
                    of_scenarios = pair[0].contains("scenario") || of_scenarios && pair[0] == ", ";
                    if of_scenarios {
                        assert!(scenarios.contains(&format!("name: \"{}\"", pair[1])), "{page}: {}", pair[1]);
                    } else if pair[1].matches('_').count() > 1 {
                        assert!(tests.contains(&format!("fn {}(", pair[1])), "{page}: {}", pair[1]);
                    } else {
                        continue;
                    }
                    number += 1;
                }
                assert!(number > before, "{page}: nothing shows it: {row}");
            }
        }
    }
    assert!(number > 60, "{number}");
}

/// Everybody reads it first.
#[test]
fn the_readme_has_eight_kilobytes_at_most() {
    let length = fs::read(root().join("README.md")).expect("a README").len();
    assert!(length <= 8 * 1024, "{length} bytes");
}

/// The commands of all pages with this beginning: lines of blocks, up to two spaces, and code within the
/// text.
fn told(beginning: &str) -> Vec<Told> {
    let mut told = Vec::new();
    for page in pages().lines().filter(|page| *page != "docs/CHANGELOG.md") {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        told.extend(commands(&text, beginning).into_iter().map(|command| (page.to_owned(), command)));
    }
    told
}

fn commands(page: &str, beginning: &str) -> Vec<String> {
    // A variable may be set for a command.
    let lines = page.lines().map(|line| line.strip_prefix("RUST_LOG=lockwell=debug ").unwrap_or(line));
    let lines = lines
        .filter(|line| line.starts_with(beginning))
        .map(|line| line.split("  ").next().unwrap_or(line).trim().to_owned());
    let code = format!("`{beginning}");
    let within = page.match_indices(&code).map(|(at, _)| {
        let code = page[at + 1..].split('`').next().unwrap_or_default();
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    lines.chain(within).collect()
}

/// A value for a placeholder of a page, or the word itself.
fn filled(word: &str) -> &str {
    match word {
        "N" => "1",
        "B" => "redis",
        "NAME" => "calm",
        other => other,
    }
}

fn words<'a>(program: &'a str, rest: &'a str) -> impl Iterator<Item = String> + 'a {
    std::iter::once(program).chain(rest.split_whitespace().map(filled)).map(str::to_owned)
}

#[test]
fn xtask_understands_what_is_told() {
    let told = told("cargo xtask ");
    assert!(told.len() >= 18, "{told:?}");
    for (page, command) in told {
        let rest = command.trim_start_matches("cargo xtask ");
        if let Some(rest) = rest.strip_prefix("compare") {
            // This one is for xtask itself.
            let rest = rest.replace(" --install", "");
            compare_bench::understands(words("compare-bench", &rest))
                .unwrap_or_else(|error| panic!("{page}: {command}: {error}"));
        } else if let Err(error) = crate::Command::try_parse_from(words("xtask", rest)) {
            panic!("{page}: {command}: {error}");
        }
    }
}

#[test]
fn the_comparison_understands_what_is_told() {
    let told = told("compare-bench ");
    assert!(told.len() >= 3, "{told:?}");
    for (page, command) in told {
        let rest = command.trim_start_matches("compare-bench ");
        compare_bench::understands(words("compare-bench", rest))
            .unwrap_or_else(|error| panic!("{page}: {command}: {error}"));
    }
}

/// Where a command of xtask is run: by a step of `.ci/run` or by a test. These are not run, for their reason:
const NOT_RUN: [(&str, &str); 1] =
    [("compare", "it builds the comparison for release, and runs as its tests do")];

/// These run for minutes or hours. The tests of the comparison run `--smoke`, which has the same cases.
const LONG: [&str; 4] = ["--quick", "--full", "--repeat", "--at-once"];

#[test]
fn each_command_of_xtask_is_run() {
    let steps = fs::read_to_string(root().join(".ci/run")).expect("the steps");
    let tests = fs::read_to_string(root().join("tools/xtask/tests/servers.rs")).expect("the tests");
    let mut not_run = Vec::new();
    for (page, command) in told("cargo xtask ") {
        let verb = command.split_whitespace().nth(2).expect("a verb");
        if let Some((verb, _)) = NOT_RUN.iter().find(|(it, _)| *it == verb) {
            not_run.push(*verb);
            continue;
        }
        let is_run = steps.contains(&format!("xtask\" {verb}")) || tests.contains(&format!("\"{verb}\""));
        assert!(is_run, "{page}: nothing runs {command:?}");
    }
    for (verb, _) in NOT_RUN {
        assert!(not_run.contains(&verb), "nobody is told {verb} any more");
        assert!(!steps.contains(&format!("xtask\" {verb}")), "{verb} is run");
    }
}

/// Its tests run the program with every option and verb that the documentation shows.
#[test]
fn what_the_comparison_is_told_is_run_by_its_tests() {
    let tests = root().join("compare-bench/tests");
    let files = ["faults.rs", "results.rs", "smoke/main.rs", "smoke/special.rs"];
    let tests = files.map(|file| fs::read_to_string(tests.join(file)).expect("tests")).concat();
    let used: Vec<_> = tests.split(['"', ' ']).collect();
    let told = told("cargo xtask compare").into_iter().chain(told("compare-bench "));
    for (page, command) in told {
        let words = command.split_whitespace();
        let verb = ["render", "diff", "faults", "soak"];
        let words = words.filter(|word| word.starts_with("--") || verb.contains(word));
        for word in words.filter(|word| *word != "--install") {
            assert!(used.contains(&word) || LONG.contains(&word), "{page}: no test runs {command:?}: {word}");
        }
    }
}

/// The examples, tests and packages that `cargo run` and `cargo test` name exist.
#[test]
fn what_cargo_is_told_to_run_is_there() {
    let told: Vec<_> = ["cargo run ", "cargo test ", "cargo nextest run ", "cargo install --path "]
        .into_iter()
        .flat_map(told)
        .collect();
    assert!(told.len() >= 5, "{told:?}");
    for (page, command) in told {
        let words: Vec<_> = command.split_whitespace().collect();
        let package = words.windows(2).find(|pair| pair[0] == "-p").map_or(".", |pair| pair[1]);
        for pair in words.windows(2) {
            let places = match pair {
                ["--example", name] => {
                    vec![format!("examples/{name}.rs"), format!("examples/{name}/main.rs")]
                }
                ["--test", name] => {
                    vec![format!("{package}/tests/{name}.rs"), format!("{package}/tests/{name}/main.rs")]
                }
                ["--path", path] => vec![format!("{path}/Cargo.toml")],
                _ => continue,
            };
            assert!(places.iter().any(|place| root().join(place).exists()), "{page}: {command}");
        }
    }
}

/// A command of another kind would be run and parsed by nobody. `first_day.rs` of the command's tests runs all commands of
/// its page.
#[test]
fn no_command_is_forgotten() {
    let steps = fs::read_to_string(root().join(".ci/run")).expect("the steps");
    let mut told_only = Vec::new();
    let told = PROGRAMS.into_iter().flat_map(told);
    for (page, command) in told.filter(|(page, _)| page != "docs/first-day.md") {
        if CHECKED.iter().any(|beginning| command.starts_with(beginning)) {
            continue;
        }
        if let Some(step) = STEPS.iter().find(|step| command.starts_with(**step)) {
            assert!(steps.contains(step), "{page}: {command}: no step of .ci/run");
            continue;
        }
        assert!(TOLD_ONLY.contains(&&*command), "{page}: nothing checks {command:?}");
        told_only.push(command);
    }
    for listed in TOLD_ONLY {
        assert!(told_only.iter().any(|command| command == listed), "nobody is told {listed:?} any more");
    }
}

#[test]
fn commands_are_found_in_blocks_and_in_text() {
    let page =
        "```text\ncargo xtask a --b 5    a remark\n```\nSee `cargo xtask c\n--d`, and cargo xtask e.\n";
    assert_eq!(commands(page, "cargo xtask "), ["cargo xtask a --b 5", "cargo xtask c --d"]);
    assert!(compare_bench::understands(["c", "--no-such-option"].map(str::to_owned)).is_err());
}
