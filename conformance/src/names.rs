//! Names are compared byte by byte, and none has a meaning.

use super::stage::{Stage, holder, is_refused, release};
use lockwell_core::{FencingToken, LockName};

/// Names that a server could mix up, or could interpret.
fn odd_names(unique: &str) -> Vec<LockName> {
    // The unique part leaves room for odd beginnings and odd ends.
    let unique = &unique[unique.len() - 16..];
    let ends = [
        "",
        "a",
        "A",
        "a ",
        "a  ",
        " a",
        "/",
        "a/b",
        "a//b",
        "a/",
        "/a",
        ".",
        "..",
        "a/..",
        "a/../a",
        "\\",
        "{a}",
        "{",
        "}",
        "{}",
        "'",
        "\"",
        "`",
        "''",
        "'; DROP TABLE lockwell_locks; --",
        "%",
        "%20",
        "_",
        "a%",
        "a_",
        "?",
        "*",
        "$1",
        ":a",
        "@",
        "#",
        "\u{1f512}",
        "\u{1f513}",
        "ß",
        "ss",
        "SS",
        "é",
        "e\u{301}",
        "É",
        "e",
        "ı",
        "i",
        "I",
        "İ",
        "ﬁ",
        "fi",
        "\u{200d}",
        "\u{a0}",
        "\u{feff}",
        "Ａ",
        "日本",
        "日本 ",
        "null",
        "NULL",
        "-lock-1",
        "0",
        "00",
        "1e1",
        "10",
    ];
    let beginnings = [" ", "/", ".", "../", "{", "%", "\u{feff}", "\\", "'", "A", "a"];
    let mut names: Vec<String> = ends.iter().map(|end| format!("{unique}{end}")).collect();
    names.extend(beginnings.iter().map(|beginning| format!("{beginning}{unique}")));
    // As long as it gets, different only in the last character.
    for last in ["é", "è", "e\u{20}", "E\u{20}"] {
        names.push(format!("{unique}{}{last}", "é".repeat(247)));
    }
    names.push("x".repeat(LockName::MAX_BYTES - unique.len()) + unique);
    names.iter().map(|name| LockName::new(name).expect("an allowed name")).collect()
}

/// All of them are held at the same time, each by itself.
pub(super) async fn odd_names_are_different_locks(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names = odd_names(&stage.unique);
    let mut guards = Vec::new();
    for name in &names {
        let guard = one.lock(name).try_now().await.unwrap_or_else(|error| panic!("{name:?}: {error:#}"));
        let guard =
            guard.unwrap_or_else(|| panic!("{name:?} is held under another name: {}", taken(&guards)));
        guards.push((name, guard));
    }
    for (name, guard) in &guards {
        let status = two.inspect(*name).await.unwrap_or_else(|error| panic!("{name:?}: {error:#}"));
        let tokens: Vec<FencingToken> = status.holders.iter().map(|holder| holder.token).collect();
        assert_eq!(&status.name, *name);
        assert_eq!(tokens, [guard.token()], "{name:?}");
        is_refused(&two, name, guard, "held").await;
    }
    // One after the other is released, and only this one gets free.
    while let Some((name, guard)) = guards.pop() {
        let token = guard.token();
        release(guard).await;
        assert_eq!(holder(&two, name).await, None, "{name:?}, held with token {token}, was released");
        for (other, guard) in guards.iter().rev().take(3) {
            assert_eq!(
                holder(&two, other).await,
                Some(guard.token()),
                "{other:?}, after a release of {name:?}"
            );
        }
    }
}

fn taken<T>(guards: &[(&LockName, T)]) -> String {
    format!("{:?}", guards.iter().map(|(name, _)| name).collect::<Vec<_>>())
}
