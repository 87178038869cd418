//! Every command that the documentation and the examples show is run.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Finished, Running, Site};

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A script with `lockwell` and what is in the folder of its own in its path. That folder is in the place of the
/// folders that the text names.
pub(crate) fn shell(site: &Site, text: &str) -> Command {
    let folder = site.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    let bin = Path::new(env!("CARGO_BIN_EXE_lockwell"));
    let text = text
        .replace("/usr/bin/lockwell", bin.to_str().unwrap())
        .replace("${CREDENTIALS_DIRECTORY}/lockwell-url", "/etc/lockwell/url")
        .replace("/run/secrets/lockwell", "/etc/lockwell")
        .replace("/tmp/term", "term");
    let text = ["/var/lib/app", "/etc/lockwell", "/usr/local/bin"]
        .into_iter()
        .fold(text, |text, name| text.replace(name, folder));
    let usual = std::env::var("PATH").unwrap();
    let path = format!("{folder}:{}:{usual}", bin.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &text]).current_dir(folder).env("PATH", path);
    shell.env_remove("LOCKWELL_URL").env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn script(site: &Site, text: &str) -> Finished {
    Running::start(&mut shell(site, text)).finish_within(std::time::Duration::from_mins(1))
}

/// What cron and systemd make of a command, and Kubernetes of a variable.
pub(crate) fn filled_in(command: &str) -> String {
    let command = command.replace("\\%", "%").replace("%%", "%").replace("$$", "$");
    command.replace("$(JOB)", "nightly-report-29389")
}

/// The blocks of shell commands of a page.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        // Within a list it is indented.
        if line.trim_start() == "```sh" {
            let block = lines.by_ref().map(str::trim_start).take_while(|line| *line != "```");
            blocks.push(block.flat_map(|line| [line, "\n"]).collect());
        }
    }
    blocks
}

/// A block that ends with the first line whose exit status is not 0, or not what its comment says.
fn checked(block: &str) -> String {
    let check = |line: &str| {
        let expected = line.rsplit_once("# exit status ").map_or("0", |(_, status)| status.trim());
        // What goes on beside the others is waited for.
        if line.ends_with('&') || line.starts_with("wait") {
            return format!("{line}\n");
        }
        format!(
            "{line}\ns=$?; [ $s -eq {expected} ] || {{ echo \"status $s, not {expected}\" >&2; exit 99; }}\n"
        )
    };
    block.lines().map(check).collect()
}

#[test]
fn the_pages() {
    let pages = [
        "docs/command.md",
        "docs/hold.md",
        "docs/jobs.md",
        "docs/migrating.md",
        "docs/production.md",
        "README.md",
    ];
    let pages = pages.map(|page| blocks(&file(page)));
    assert!(pages[0].len() >= 7 && pages.iter().all(|blocks| !blocks.is_empty()), "{pages:?}");
    for block in pages.concat() {
        let site = Site::new();
        let block = if block.contains("LOCKWELL_URL") {
            block
        } else {
            format!("export LOCKWELL_URL=sqlite:///var/lib/app/locks.db\n{block}")
        };
        let run = script(&site, &checked(&block));
        assert_eq!(run.status, 0, "{block}\n{}\n{}", run.out, run.err);
        assert!(!run.out.contains("never"), "{block}\n{}", run.out);
    }
}

/// A page with shell commands that nobody runs would not be noticed otherwise. `first_day.rs` runs
/// those of the first day.
#[test]
fn no_page_is_forgotten() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        if path.extension().is_some_and(|it| it == "md")
            && !["command.md", "first-day.md", "hold.md", "jobs.md", "migrating.md", "production.md"]
                .contains(&name)
        {
            assert!(blocks(&file(&format!("docs/{name}"))).is_empty(), "{name}");
        }
    }
}

/// Runs the command of an example, with a report that leaves a trace.
fn example(site: &Site, command: &str) {
    for program in ["nightly-report", "scheduler", "migrate"] {
        std::fs::write(site.path(program), "#!/bin/sh\necho $LOCKWELL_NAME > ran\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(site.path(program), mode).unwrap();
    }
    std::fs::write(site.path("url"), site.url()).unwrap();
    std::fs::write(site.path("ran"), "").unwrap();
    let command = filled_in(command);
    let run = script(site, &command);
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{command}");
    assert!(command.contains(&site.read("ran")) && !site.read("ran").is_empty(), "{command}");
}

#[test]
fn the_example_for_cron() {
    let text = file("examples/cron/nightly-report");
    let line = text.lines().find(|line| line.starts_with("0 3")).unwrap();
    let fields: Vec<_> = line.splitn(7, ' ').collect();
    assert_eq!(fields[5], "root");
    example(&Site::new(), fields[6]);
}

#[test]
fn the_examples_for_systemd() {
    for unit in ["nightly-report.service", "scheduler.service"] {
        let text = file(&format!("examples/systemd/{unit}"));
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        example(&Site::new(), start);
    }
}

#[test]
fn systemd_knows_each_line_of_its_examples() {
    let site = Site::new();
    let units = ["nightly-report.service", "nightly-report.timer", "scheduler.service"];
    for unit in units {
        let text = file(&format!("examples/systemd/{unit}"));
        let text = text.replace("/usr/bin/lockwell", env!("CARGO_BIN_EXE_lockwell"));
        std::fs::write(site.path(unit), text).unwrap();
    }
    let paths = units.map(|unit| site.path(unit));
    let mut command = Command::new("systemd-analyze");
    let Ok(found) = command.arg("verify").args(&paths).env("SYSTEMD_PAGER", "").output() else {
        return testbed::cannot_run("", "there is no systemd-analyze");
    };
    // It may also complain of units of the machine.
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    let ours: Vec<_> = said.lines().filter(|line| units.iter().any(|unit| line.contains(unit))).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn the_example_for_kubernetes() {
    let text = file("examples/kubernetes/cronjob.yaml");
    let (_, rest) = text.split_once("command:\n").unwrap();
    let words = rest.lines().map_while(|line| line.trim().strip_prefix("- "));
    let words: Vec<_> = words.map(|word| word.trim_matches('"')).collect();
    assert_eq!(words.last(), Some(&"/usr/local/bin/nightly-report"));
    // As Kubernetes fills it in.
    example(&Site::new(), &words.join(" ").replace("$(JOB)", "nightly-report-29341620"));
}

#[test]
fn the_deployments_for_kubernetes() {
    for name in ["leader", "migrations"] {
        let text = file(&format!("examples/kubernetes/{name}.yaml"));
        example(&Site::new(), &words(&text));
    }
}

/// The words of the first command of a part of a manifest. YAML and shells quote alike here.
pub(crate) fn words(manifest: &str) -> String {
    let (_, list) = manifest.split_once("command: [").unwrap();
    let (list, _) = list.split_once("]\n").unwrap();
    let words: Vec<_> = list.split([' ', '\n']).filter(|word| !word.is_empty()).collect();
    words.iter().map(|word| word.strip_suffix(',').unwrap_or(word)).collect::<Vec<_>>().join(" ")
}
