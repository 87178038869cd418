//! `cargo xtask package`: the command as others install it: its manual pages and completions, a Debian
//! package, and a program that needs no library of the system. Each is tried in an empty folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::shell::{Result, cargo, line, root, text};

/// What a program needs that is linked to no library of the system.
const MUSL: &str = "x86_64-unknown-linux-musl";

const SHELLS: [(&str, &str); 3] = [("bash", "lockwell"), ("zsh", "_lockwell"), ("fish", "lockwell.fish")];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Package an unoptimised program, and build no static one.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let folder = root().join("target/package-cli");
    emptied(&folder)?;
    let program = installed(&folder.join("installed"), options.quick)?;
    let version = text(Command::new(&program).arg("--version"))?;
    println!("built: {}, {}", version.lines().next().unwrap_or_default(), size(&program)?);

    text(Command::new(&program).arg("man").arg(folder.join("man")))?;
    fs::create_dir_all(folder.join("completions")).map_err(|error| error.to_string())?;
    for (shell, file) in SHELLS {
        let script = text(Command::new(&program).args(["completions", shell]))?;
        write(&folder.join("completions").join(file), &script)?;
    }
    shown(&folder.join("man"))?;
    println!("{}: manual pages and completions", folder.display());
    tried(&program, &folder.join("tried"))?;

    if is_there("cargo-deb") {
        debian(&folder, options.quick)?;
    } else {
        println!("NOT BUILT: the Debian package takes cargo-deb: cargo install cargo-deb --locked");
    }
    if options.quick {
        return Ok(ExitCode::SUCCESS);
    }
    if has_std(MUSL) && is_there("musl-gcc") {
        build_for(MUSL)?;
        let program = target().join(MUSL).join("release/lockwell");
        needs_no_library(&program)?;
        tried(&program, &folder.join("tried-static"))?;
        println!("{}: static and tried, {}", program.display(), size(&program)?);
    } else {
        println!(
            "NOT BUILT: the static program takes musl-gcc (the package musl-tools) and rustup target add {MUSL}"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The program as `cargo install` installs it below this folder.
fn installed(folder: &Path, quick: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.current_dir(root()).args(["install", "--path", "cli", "--locked", "--root"]).arg(folder);
    if quick {
        command.arg("--debug");
    }
    eprintln!("xtask: {}", line(&command));
    text(&mut command)?;
    Ok(folder.join("bin/lockwell"))
}

fn build_for(system: &str) -> Result<()> {
    let mut command = cargo();
    command.current_dir(root());
    command.args(["build", "--release", "--locked", "--package", "lockwell-cli", "--target", system]);
    eprintln!("xtask: {}", line(&command));
    text(&mut command).map(drop)
}

/// The Debian package, by `[package.metadata.deb]` in cli/Cargo.toml, of the program that was built before.
fn debian(folder: &Path, quick: bool) -> Result<()> {
    let mut command = cargo();
    command
        .current_dir(root())
        .args(["deb", "--no-build", "--package", "lockwell-cli", "--output"])
        .arg(folder);
    if quick {
        command.args(["--profile", "dev"]);
    }
    eprintln!("xtask: {}", line(&command));
    text(&mut command)?;
    let package = files(folder)?.into_iter().find(|file| file.extension().is_some_and(|it| it == "deb"));
    let package = package.ok_or("cargo deb has left no package")?;
    let unpacked = folder.join("unpacked");
    text(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked))?;
    for file in [
        "usr/share/man/man1/lockwell.1.gz",
        "usr/share/man/man1/lockwell-run.1.gz",
        "usr/share/bash-completion/completions/lockwell",
        "usr/share/zsh/vendor-completions/_lockwell",
        "usr/share/fish/vendor_completions.d/lockwell.fish",
        "usr/share/doc/lockwell/copyright",
        // The folder that the examples name.
        "etc/lockwell/README",
    ] {
        if !unpacked.join(file).exists() {
            return Err(format!("{} has no {file}", package.display()));
        }
    }
    tried(&unpacked.join("usr/bin/lockwell"), &folder.join("tried-deb"))?;
    println!("{}: unpacked and tried, {}", package.display(), size(&package)?);
    Ok(())
}

/// Whether `man` shows all pages, and without a warning.
fn shown(folder: &Path) -> Result<()> {
    if !is_there("man") {
        println!("NOT TRIED: the manual pages take man-db");
        return Ok(());
    }
    for page in files(folder)? {
        let output = Command::new("man").args(["--warnings", "--local-file"]).arg(&page).output();
        let output = output.map_err(|error| format!("man: {error}"))?;
        if !output.status.success() || !output.stderr.is_empty() || output.stdout.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} is not shown as it should: {said}", page.display()));
        }
    }
    Ok(())
}

/// Fails if the program loads a library of the system.
fn needs_no_library(program: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if is_static(&said) {
        return Ok(());
    }
    Err(format!("{} is not static: {said}", program.display()))
}

/// What `ldd` says of a program that needs no library, with and without relocations.
fn is_static(said: &str) -> bool {
    ["statically linked", "not a dynamic executable"].contains(&said.trim())
}

fn size(file: &Path) -> Result<String> {
    let bytes = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    Ok(format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20))
}

/// Runs a copy of the program alone in an empty folder, without any environment.
fn tried(program: &Path, folder: &Path) -> Result<()> {
    emptied(folder)?;
    let copy = folder.join("lockwell");
    fs::copy(program, &copy).map_err(|error| format!("{}: {error}", program.display()))?;
    let address = format!("sqlite://{}", folder.join("locks.db").display());
    let run = |words: &[&str]| {
        let mut command = Command::new(&copy);
        text(command.env_clear().current_dir(folder).args(words))
    };
    let said = run(&["run", "--url", &address, "report", "--", "/bin/echo", "alone"])?;
    let status = run(&["status", "--url", &address, "--json", "report"])?;
    if said.trim() == "alone" && status.replace(' ', "").contains("\"held\":false") {
        return Ok(());
    }
    Err(format!("{} does not work in an empty folder: {said}{status}", program.display()))
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether the standard library for this system is installed.
fn has_std(system: &str) -> bool {
    let found = text(Command::new("rustc").args(["--print", "target-libdir", "--target", system]));
    found.is_ok_and(|folder| Path::new(folder.trim()).exists())
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

fn emptied(folder: &Path) -> Result<()> {
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(problem)?;
    }
    fs::create_dir_all(folder).map_err(problem)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(problem)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(problem)).collect()
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn cli() -> Value {
        let mut command = cargo();
        command.current_dir(root()).args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
        let metadata: Value = serde_json::from_str(&text(&mut command).unwrap()).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        packages.iter().find(|package| package["name"] == "lockwell-cli").unwrap().clone()
    }

    /// Machines without cargo-deb do not see otherwise that a file was moved.
    #[test]
    fn what_the_debian_package_has_is_there() {
        let package = &cli()["metadata"]["deb"];
        let assets: Vec<Vec<&str>> = package["assets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|asset| asset.as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect())
            .collect();
        for asset in assets.iter().filter(|asset| !asset[0].contains("target/")) {
            let path = root().join("cli").join(asset[0].trim_end_matches('*'));
            assert!(path.exists(), "{asset:?}");
        }
        for file in package["conf-files"].as_array().unwrap() {
            let file = file.as_str().unwrap();
            assert!(assets.iter().any(|asset| asset[1] == file.trim_start_matches('/')), "{file}");
        }
    }

    /// What is installed and packaged is the default build.
    #[test]
    fn the_command_has_every_backend() {
        let cli = cli();
        let features = cli["features"].as_object().unwrap();
        let by_default = features["default"].as_array().unwrap();
        for feature in features.keys().filter(|feature| *feature != "default") {
            assert!(by_default.iter().any(|one| one == feature), "{feature} is not in the default build");
        }
    }

    #[test]
    fn a_program_that_loads_a_library_is_not_static() {
        assert!(is_static("\tstatically linked\n") && is_static("\tnot a dynamic executable\n"));
        assert!(!is_static("\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n"));
        assert!(needs_no_library(&std::env::current_exe().unwrap()).unwrap_err().contains("libc"));
    }
}
