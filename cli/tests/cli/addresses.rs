//! An address means one server, however it was written down.

use std::process::Command;

use crate::support::{Finished, Site, block_on, finish, lockwell};

/// What files, secrets and shells add to an address.
const AROUND: [(&str, &str); 4] = [("", "\n"), ("", "\r\n"), ("", " "), ("\t ", " \r\n\n")];

/// The lock `a` is held at this server. Whoever has white space around the address sees it held, too.
pub(crate) fn white_space_is_not_another_server(url: &str) {
    let site = Site::new();
    let is_held = |run: &Finished| {
        assert!(run.status == 0 && run.out.contains("a: held"), "{run:?}");
    };
    for (before, after) in AROUND {
        let text = format!("{before}{url}{after}");
        let at = |args: &[&str]| -> Command { lockwell(&[&["status", "a"], args].concat()) };
        is_held(&finish(at(&[]).env("LOCKWELL_URL", &text)));
        is_held(&finish(&mut at(&["--url", &text])));
        std::fs::write(site.path("url"), &text).unwrap();
        is_held(&finish(&mut at(&["--url-file", site.path("url").to_str().unwrap()])));
        std::fs::write(site.path("toml"), format!("url = {text:?}\n")).unwrap();
        is_held(&finish(&mut at(&["--config", site.path("toml").to_str().unwrap()])));
        let by_code = async {
            let locks = lockwell::connect(&text).await.unwrap();
            assert!(locks.inspect("a").await.unwrap().is_held(), "{text:?}");
            assert!(locks.lock("a").try_now().await.unwrap().is_none(), "{text:?}: two holders");
            locks.close().await.unwrap();
        };
        // The caller may be within a runtime.
        std::thread::scope(|scope| scope.spawn(|| block_on(by_code)).join().unwrap());
    }
}

#[test]
fn white_space_around_the_address_of_a_file_is_ignored() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    let before = std::fs::read_dir(site.path("")).unwrap().count();
    white_space_is_not_another_server(&site.url());
    assert_eq!(std::fs::read_dir(site.path("")).unwrap().count(), before, "another file");
    site.end(holder);
}

#[test]
fn an_address_that_cannot_be_meant_is_64() {
    let site = Site::new();
    let url = site.url();
    for (text, part) in [
        (format!("{url}/"), "names a folder"),
        (format!("{url}#x"), "%23"),
        (format!("\u{feff}{url}"), "byte order mark"),
        (format!("\"{url}\""), "quotes"),
        (format!("'{url}'"), "quotes"),
        (format!("{url}%0A"), "control characters"),
        (format!("{url}\u{a0}"), "U+00A0"),
        (format!("{url} ?ttl=3s"), "%20"),
        (format!("{url}?ttl=3s#x"), "%23"),
    ] {
        for verb in [&["run", "a", "--", "true"][..], &["status"], &["doctor"], &["wait", "a"]] {
            finish(lockwell(verb).env("LOCKWELL_URL", &text)).complains(64, part);
        }
        std::fs::write(site.path("url"), format!("{text}\n")).unwrap();
        let file = site.path("url");
        finish(&mut lockwell(&["run", "--url-file", file.to_str().unwrap(), "a", "--", "true"]))
            .complains(64, part);
        std::fs::write(site.path("toml"), format!("url = '''{text}'''\n")).unwrap();
        let file = site.path("toml");
        finish(&mut lockwell(&["run", "--config", file.to_str().unwrap(), "a", "--", "true"]))
            .complains(64, part);
        let error = block_on(lockwell::connect(&text)).unwrap_err();
        assert!(error.kind() == lockwell::ErrorKind::InvalidInput && error.to_string().contains(part));
    }
    let names: Vec<_> = std::fs::read_dir(site.path("")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name == "url" || name == "toml"), "{names:?}");
}

#[test]
fn an_address_that_is_not_utf_8_is_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let url = std::ffi::OsStr::from_bytes(b"sqlite:///l\xff.db");
    finish(lockwell(&["status"]).env("LOCKWELL_URL", url)).complains(64, "LOCKWELL_URL is not UTF-8");
}
