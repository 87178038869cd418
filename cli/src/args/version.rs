//! What `--version` says.

/// The version and what is compiled in.
pub(super) fn text() -> String {
    let features = [
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
        ("sqlite", cfg!(feature = "sqlite")),
        ("redis", cfg!(feature = "redis")),
        ("zk", cfg!(feature = "zk")),
        ("etcd", cfg!(feature = "etcd")),
        ("tls", cfg!(feature = "tls")),
        ("sasl", cfg!(feature = "sasl")),
    ];
    let on: Vec<_> = features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    let on = if on.is_empty() { "none".to_owned() } else { on.join(", ") };
    format!("{} (features: {on})", env!("CARGO_PKG_VERSION"))
}
