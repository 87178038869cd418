use std::num::NonZeroU32;
use std::time::Duration;

use lockwell::{LockName, Mode};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::read(&line.split_whitespace().map(Into::into).collect::<Vec<_>>())
}

fn run(line: &str) -> RunArgs {
    match parse(line).map(|cli| cli.command) {
        Ok(Command::Run(args)) => args,
        Ok(_) => panic!("{line}"),
        Err(error) => panic!("{line}: {error}"),
    }
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn modes() {
    let mode = |line| run(line).claim.mode();
    assert_eq!(mode("lockwell run a -- true"), Mode::Exclusive);
    assert_eq!(mode("lockwell run --read a -- true"), Mode::Shared);
    let limit = NonZeroU32::new(3).unwrap();
    assert_eq!(mode("lockwell run --permits 3 a -- true"), Mode::Permit { limit });
}

#[test]
fn a_wait_without_a_unit_is_in_seconds() {
    assert_eq!(run("lockwell run --wait 5 a -- true").claim.wait, Some(Duration::from_secs(5)));
}

#[test]
fn several_names() {
    let names = run("lockwell run --also b --also c a -- true").names();
    assert_eq!(names.iter().map(LockName::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// As `flock` takes it. What comes after the command's name is for the command.
#[test]
fn two_hyphens_before_the_command_may_be_left_out() {
    for (line, mode, command) in [
        ("lockwell run a make -j 2 --read -q", Mode::Exclusive, "make -j 2 --read -q"),
        ("lockwell run --read a make -- -q", Mode::Shared, "make -- -q"),
        ("lockwell run a --read make -q", Mode::Shared, "make -q"),
        ("lockwell run a --read -- make -q -- -j", Mode::Shared, "make -q -- -j"),
        ("lockwell run a -- --read", Mode::Exclusive, "--read"),
    ] {
        let args = run(line);
        let found: Vec<_> = args.command.iter().map(|one| one.to_str().unwrap()).collect();
        assert_eq!((found.join(" ").as_str(), args.claim.mode()), (command, mode), "{line}");
        assert!(!args.holding.quiet, "{line}");
    }
    let Ok(Command::Lead(args)) = parse("lockwell lead a make --quiet").map(|cli| cli.command) else {
        panic!()
    };
    assert!(args.command.len() == 2 && !args.holding.quiet);
}

#[test]
fn what_is_refused() {
    for line in [
        "lockwell run a",
        "lockwell run a --",
        "lockwell run -- a true",
        "lockwell lead --quiet -- a true",
        "lockwell run --read --permits 3 a -- true",
        "lockwell run --read --also b a -- true",
        "lockwell run --permits 0 a -- true",
        "lockwell run --wait 5s --no-wait a -- true",
        "lockwell run --wait 5x a -- true",
        "lockwell run -q -v a -- true",
        "lockwell run --exit-code-held 256 a -- true",
        "lockwell run --url x --url-file y a -- true",
        "lockwell acquire a",
        "lockwell hold",
        "lockwell hold --read --permits 3 a",
        "lockwell release",
        "lockwell release --yes a",
        "lockwell top --most 0",
        "lockwell top --every x",
        "lockwell wait",
        "lockwell completions tcl",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let name = "x".repeat(LockName::MAX_BYTES + 1);
    let error = parse(&format!("lockwell status {name}")).err().expect("refused").to_string();
    assert!(error.contains("at most 512 bytes"), "{error}");
}

/// The pages for users.
fn pages() -> Vec<(String, String)> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|it| it == "md"));
    let read = |path: std::path::PathBuf| {
        (path.display().to_string(), std::fs::read_to_string(path).unwrap().replace('\n', " "))
    };
    pages.chain([root.join("README.md")]).map(read).collect()
}

/// Code within the text of a page that begins so.
fn codes<'a>(page: &'a str, beginning: &str) -> Vec<&'a str> {
    let code = format!("`{beginning}");
    let found = page.match_indices(&code);
    found.map(|(at, _)| page[at + 1..].split('`').next().unwrap_or_default()).collect()
}

#[test]
fn commands_within_a_text_are_understood() {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument};
    let mut seen = 0;
    for (page, text) in pages() {
        for code in codes(&text, "lockwell ") {
            seen += 1;
            // A text may name the beginning of a command alone.
            let allowed = [MissingRequiredArgument, DisplayHelpOnMissingArgumentOrSubcommand];
            if let Err(error) = parse(code) {
                assert!(allowed.contains(&error.kind()), "{page}: `{code}`: {error}");
            }
        }
    }
    assert!(seen >= 8, "{seen}");
    assert!(!codes("see `lockwell run`", "lockwell ").is_empty());
}

#[test]
fn options_within_the_guides_exist() {
    let command = Cli::command();
    let verbs = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let known: Vec<_> = verbs.filter_map(clap::Arg::get_long).collect();
    for (guide, least) in [("command.md", 10), ("hold.md", 3)] {
        let text = pages().into_iter().find(|(page, _)| page.ends_with(guide)).unwrap().1;
        let options = codes(&text, "--");
        assert!(options.len() >= least, "{guide}: {options:?}");
        for option in options {
            let long = option[2..].split([' ', '=']).next().unwrap_or_default();
            assert!(known.contains(&long), "{guide}: {option}");
        }
    }
}

/// The exit statuses of the help and the guide are those of the program.
#[test]
fn the_exit_statuses_are_told_alike() {
    let numbers = |text: &str| -> Vec<u8> {
        let words = text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        words.filter(|number| (64..128).contains(number)).collect()
    };
    let sorted = |mut numbers: Vec<u8>| {
        numbers.sort_unstable();
        numbers
    };
    let first_cells = |page: &str| -> Vec<u8> {
        let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
        rows.flat_map(|row| numbers(row.split(" |").next().unwrap_or_default())).collect()
    };
    let (statuses, _) = texts::RUN_HELP.split_once("Signals:").unwrap();
    let help = statuses.lines().filter_map(|line| line.trim_start().split("  ").next());
    let help = sorted(help.flat_map(numbers).collect());
    assert_eq!(help, [64, 69, 70, 75, 76, 77, 78, 126, 127]);
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command.md");
    assert_eq!(sorted(first_cells(&std::fs::read_to_string(guide).unwrap())), help);
}
