//! Which scheme belongs to which backend.

use std::sync::Arc;

use lockcore::{DistributedLock, Error, ErrorKind, MemoryLock, Result, ServerUrl};

/// Every scheme that lockwell knows, and the feature that compiles it in.
const SCHEMES: [(&str, &str, bool); 16] = [
    ("memory", "", true),
    ("sqlite", "sqlite", cfg!(feature = "sqlite")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
    ("postgresql", "postgres", cfg!(feature = "postgres")),
    ("mysql", "mysql", cfg!(feature = "mysql")),
    ("mariadb", "mysql", cfg!(feature = "mysql")),
    ("redis", "redis", cfg!(feature = "redis")),
    ("rediss", "redis", cfg!(feature = "redis")),
    ("redis+unix", "redis", cfg!(feature = "redis")),
    ("redis+sentinel", "redis", cfg!(feature = "redis")),
    ("rediss+sentinel", "redis", cfg!(feature = "redis")),
    ("redis+cluster", "redis", cfg!(feature = "redis")),
    ("rediss+cluster", "redis", cfg!(feature = "redis")),
    ("redlock", "redis", cfg!(feature = "redis")),
    ("redlocks", "redis", cfg!(feature = "redis")),
    ("zk", "zk", cfg!(feature = "zk")),
];

/// The schemes that are compiled in.
pub(crate) fn compiled() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().filter(|(_, _, on)| *on).map(|(name, ..)| *name)
}

#[cfg_attr(
    not(any(
        feature = "postgres",
        feature = "mysql",
        feature = "sqlite",
        feature = "redis",
        feature = "zk"
    )),
    allow(clippy::unused_async, reason = "memory needs no connection")
)]
pub(crate) async fn connect(url: &ServerUrl) -> Result<Arc<dyn DistributedLock>> {
    let scheme = url.scheme();
    check(scheme)?;
    match scheme {
        "memory" => Ok(Arc::new(MemoryLock::from_url(url)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(backend_sql::SqliteLock::connect(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(backend_sql::PostgresLock::connect(url).await?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(backend_sql::MySqlLock::connect(url).await?)),
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => Ok(Arc::new(backend_redis::Redlock::connect(url).await?)),
        #[cfg(feature = "redis")]
        _ if scheme.starts_with("redis") => Ok(Arc::new(backend_redis::RedisLock::connect(url).await?)),
        #[cfg(feature = "zk")]
        "zk" => Ok(Arc::new(backend_zk::ZkLock::connect(url).await?)),
        _ => Err(Error::new(ErrorKind::Internal, format!("the scheme {scheme} is listed but not handled"))),
    }
}

fn check(scheme: &str) -> Result<()> {
    let compiled: Vec<_> = compiled().map(|name| format!("{name}://")).collect();
    let compiled = compiled.join(", ");
    match SCHEMES.iter().find(|(name, ..)| *name == scheme) {
        Some((_, _, true)) => Ok(()),
        Some((_, feature, false)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{scheme}:// needs the feature {feature:?} of lockwell; compiled in are {compiled}"),
        )),
        None => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("no backend is known for {scheme}://; compiled in are {compiled}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_gets_the_list() {
        let error = check("mongodb").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("compiled in are memory://"), "{error}");
    }

    #[test]
    fn a_scheme_that_is_off_names_its_feature() {
        for (scheme, feature, on) in SCHEMES {
            match check(scheme) {
                Ok(()) => assert!(on),
                Err(error) => {
                    assert!(!on);
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert!(error.to_string().contains(&format!("{feature:?}")), "{error}");
                }
            }
        }
    }
}
