//! The commands of this repository that its documentation tells are understood by the programs that they are for.

use std::fs;
use std::process::Command as Process;

use clap::Parser;

use crate::shell::{root, text};

/// A page of the documentation, and a command on it.
type Told = (String, String);

/// The commands of all pages that begin so: lines of blocks, up to the remark behind two blanks, and code within the text.
fn told(beginning: &str) -> Vec<Told> {
    let mut git = Process::new("git");
    let pages =
        text(git.arg("-C").arg(root()).args(["ls-files", "--", "*.md"])).expect("git lists the pages");
    let mut told = Vec::new();
    for page in pages.lines().filter(|page| *page != "CHANGELOG.md") {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        told.extend(commands(&text, beginning).into_iter().map(|command| (page.to_owned(), command)));
    }
    told
}

fn commands(page: &str, beginning: &str) -> Vec<String> {
    let lines = page.lines().filter(|line| line.starts_with(beginning));
    let lines = lines.map(|line| line.split("  ").next().unwrap_or(line).trim().to_owned());
    let code = format!("`{beginning}");
    let within = page.match_indices(&code).map(|(at, _)| {
        let code = page[at + 1..].split('`').next().unwrap_or_default();
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    lines.chain(within).collect()
}

/// A value for what a page leaves open, or the word.
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
    assert!(told.len() >= 20, "{told:?}");
    for (page, command) in told {
        let rest = command.trim_start_matches("cargo xtask ");
        if let Some(rest) = rest.strip_prefix("compare") {
            compare_bench::understands(words("compare-bench", rest))
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

/// What `cargo run` and `cargo test` are told to run is there: examples, tests, and packages.
#[test]
fn what_cargo_is_told_to_run_is_there() {
    let told: Vec<_> =
        ["cargo run ", "cargo test ", "cargo install --path "].into_iter().flat_map(told).collect();
    assert!(told.len() >= 5, "{told:?}");
    for (page, command) in told {
        let words: Vec<_> = command.split_whitespace().collect();
        for pair in words.windows(2) {
            let places = match pair {
                ["--example", name] => {
                    vec![format!("examples/{name}.rs"), format!("examples/{name}/main.rs")]
                }
                ["--test", name] => vec![format!("tests/{name}.rs")],
                ["--path", path] => vec![format!("{path}/Cargo.toml")],
                _ => continue,
            };
            assert!(places.iter().any(|place| root().join(place).exists()), "{page}: {command}");
        }
    }
}

#[test]
fn commands_are_found_in_blocks_and_in_text() {
    let page =
        "```text\ncargo xtask a --b 5    a remark\n```\nSee `cargo xtask c\n--d`, and cargo xtask e.\n";
    assert_eq!(commands(page, "cargo xtask "), ["cargo xtask a --b 5", "cargo xtask c --d"]);
    assert!(compare_bench::understands(["c", "--no-such-option"].map(str::to_owned)).is_err());
}
