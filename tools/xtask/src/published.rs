//! Each package that is published says what it is, and has its licences.

use std::fs;

use serde_json::Value;

use crate::shell::{cargo, root, text};

/// The packages of the workspace that are published.
fn published() -> Vec<Value> {
    let mut command = cargo();
    command.current_dir(root()).args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&text(&mut command).expect("metadata")).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    // Without a list of registries a package goes to every one.
    packages.filter(|package| package["publish"].is_null()).cloned().collect()
}

/// The files of a package, as they are uploaded.
fn files(name: &str) -> Vec<String> {
    let mut command = cargo();
    command.current_dir(root()).args(["package", "--list", "--allow-dirty", "--package", name]);
    text(&mut command).expect("files").lines().map(str::to_owned).collect()
}

#[test]
fn each_package_says_what_it_is() {
    let packages = published();
    assert_eq!(packages.len(), 9, "{packages:?}");
    for package in packages {
        let of = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let name = of("name");
        assert!(!of("description").is_empty(), "{name}");
        assert_eq!(of("license"), "MIT OR Apache-2.0", "{name}");
        assert!(of("repository").starts_with("https://"), "{name}");
        assert_eq!(of("documentation"), format!("https://docs.rs/{name}"));
        let files = files(&name);
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.iter().any(|one| one == file), "{name} is published without {file}: {files:?}");
        }
        let manifest = std::path::PathBuf::from(of("manifest_path"));
        let readme = fs::read_to_string(manifest.with_file_name("README.md")).expect("a README");
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: {readme}");
    }
}

/// Nothing was published before the first release.
#[test]
fn the_changelog_begins_with_the_first_release() {
    let changelog = fs::read_to_string(root().join("docs/CHANGELOG.md")).expect("a changelog");
    let releases: Vec<_> = changelog.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(releases.last().is_some_and(|first| first.starts_with("0.1.0")), "{releases:?}");
}
