//! The backends and their schemes, including backends from other crates.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use lockwell_core::backend::PerProcess;
use lockwell_core::{DistributedLock, Error, ErrorKind, MemoryLock, Result, ServerUrl};

use crate::schemes;

type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn DistributedLock>>> + Send>>;
pub(crate) type Connect = Arc<dyn Fn(ServerUrl) -> Connecting + Send + Sync>;
type Schema = Arc<dyn Fn(&ServerUrl) -> Result<String> + Send + Sync>;

/// The registry that was installed, which a forked child inherits. No thread waits for it: it is set with the mutex of
/// `IN_USE`.
static INSTALLED: OnceLock<&'static Registry> = OnceLock::new();
/// The registry for the free functions of this crate.
static IN_USE: PerProcess<&'static Registry> = PerProcess::new();

/// The schemes of addresses, and the backend of each.
///
/// A new registry has the backends that are compiled in. A backend from another crate is added with its own
/// scheme. It then works in the methods of the registry, in [`connect`](crate::connect) if the registry is
/// [installed](Self::install), in the command (`lockwell_cli::run`) and in the comparison.
///
/// ```
/// use lockwell::{Registry, backend::MemoryLock};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// let registry = Registry::new().with("example", |url| async move {
///     url.allow_options(&[])?;
///     Ok(MemoryLock::named(&url.location()))
/// })?;
/// let locks = registry.connect("example://orders?ttl=10s").await?;
/// locks.lock("42").await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Registry {
    connectors: BTreeMap<String, Connect>,
    schemas: BTreeMap<String, Schema>,
}

impl Registry {
    /// The backends that are compiled in.
    pub fn new() -> Self {
        compiled_in(Self { connectors: BTreeMap::new(), schemas: BTreeMap::new() })
    }

    /// Adds a backend for addresses with this scheme.
    ///
    /// `connect` gets the address without the options that every address understands (`ttl`, `wait`, `label`,
    /// `require`, `server_order`, `hand_off`, `lazy`, `password_file`), and with the present password. It
    /// connects to the server and checks it, so that a wrong password is an error of connecting. For
    /// connections that it makes later it asks [`ServerUrl::passwords`] for the password.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the scheme is taken, or is not lower-case letters,
    /// digits, `+`, `-` and `.`.
    pub fn with<B, F>(
        mut self,
        scheme: &str,
        connect: impl Fn(ServerUrl) -> F + Send + Sync + 'static,
    ) -> Result<Self>
    where
        B: DistributedLock,
        F: Future<Output = Result<B>> + Send + 'static,
    {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(valid) {
            let message =
                format!("{scheme:?} is not a scheme: it has lower-case letters, digits, +, - and . only");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        if self.connectors.contains_key(scheme) {
            let message = format!("{scheme}:// has a backend already");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        // Before the address is handed over, since a backend may know nothing of passwords that change.
        let connect = Arc::new(connect);
        self.add(scheme, move |url: ServerUrl| {
            let connect = Arc::clone(&connect);
            async move { connect(url.with_present_password().await?).await }
        });
        Ok(self)
    }

    /// Adds what an administrator runs once at the servers of a scheme that this registry has, such as
    /// statements that create tables. The command prints it (`lockwell schema`). `schema` gets the address as
    /// `connect` does, and reaches no server.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the scheme is unknown.
    pub fn with_schema(
        mut self,
        scheme: &str,
        schema: impl Fn(&ServerUrl) -> Result<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        if !self.connectors.contains_key(scheme) {
            return Err(self.unknown(scheme));
        }
        self.schemas.insert(scheme.to_owned(), Arc::new(schema));
        Ok(self)
    }

    /// What an administrator runs once at the server of this address. `None`: nothing is needed there.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) or [`Unsupported`](ErrorKind::Unsupported) if the scheme is
    /// unknown, or the backend refuses the address.
    pub fn schema(&self, url: &ServerUrl) -> Result<Option<String>> {
        if !self.connectors.contains_key(url.scheme()) {
            return Err(self.unknown(url.scheme()));
        }
        self.schemas.get(url.scheme()).map(|schema| schema(url)).transpose()
    }

    /// Adds a backend whose scheme is known to be free.
    pub(crate) fn add<B, F>(&mut self, scheme: &str, connect: impl Fn(ServerUrl) -> F + Send + Sync + 'static)
    where
        B: DistributedLock,
        F: Future<Output = Result<B>> + Send + 'static,
    {
        let connect = Arc::new(move |url| {
            let connecting = connect(url);
            Box::pin(async move { Ok(Arc::new(connecting.await?) as Arc<dyn DistributedLock>) }) as Connecting
        });
        self.connectors.insert(scheme.to_owned(), connect);
    }

    /// Adds the statements that create the tables of a scheme of ours.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
    pub(crate) fn add_schema(&mut self, scheme: &str) {
        let statements = |url: &ServerUrl| lockwell_sql::schema(url).map(Option::unwrap_or_default);
        self.schemas.insert(scheme.to_owned(), Arc::new(statements));
    }

    /// The schemes, sorted.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.connectors.keys().map(String::as_str)
    }

    /// How to connect to the server of an address.
    pub(crate) fn connector(&self, url: &ServerUrl) -> Result<Connect> {
        self.connectors.get(url.scheme()).cloned().ok_or_else(|| self.unknown(url.scheme()))
    }

    /// Makes this the registry of [`connect`](crate::connect) and the other functions of this crate, for the
    /// whole process. `main` calls it once, before anything connects.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the process has installed a registry, or has connected
    /// without one.
    pub fn install(self) -> Result<()> {
        let mut is_installed = false;
        IN_USE.get_or_init(|| {
            let registry: &'static Self = Box::leak(Box::new(self));
            is_installed = INSTALLED.set(registry).is_ok();
            INSTALLED.get().copied().unwrap_or(registry)
        });
        if is_installed {
            return Ok(());
        }
        let message = "a registry is in use already: install one before anything connects";
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// The registry of the process.
    pub(crate) fn installed() -> &'static Self {
        // Once in each process.
        IN_USE.get_or_init(|| INSTALLED.get().copied().unwrap_or_else(|| Box::leak(Box::new(Self::new()))))
    }

    fn unknown(&self, scheme: &str) -> Error {
        let known: Vec<_> = self.schemes().map(|name| format!("{name}://")).collect();
        let known = known.join(", ");
        let (kind, text) = if let Some(feature) = schemes::feature(scheme) {
            let text =
                format!("{scheme}:// needs the feature {feature:?} of lockwell; compiled in are {known}");
            (ErrorKind::Unsupported, text)
        } else {
            let meant = schemes::meant(scheme);
            let meant = meant.map_or_else(String::new, |name| format!("; {name}:// may be meant"));
            let text = format!("no backend is known for {scheme}://; compiled in are {known}{meant}");
            (ErrorKind::InvalidInput, text)
        };
        Error::new(kind, text)
    }
}

/// Adds the backends that are compiled in.
fn compiled_in(mut registry: Registry) -> Registry {
    registry.add("memory", |url| std::future::ready(MemoryLock::from_url(&url)));
    #[cfg(feature = "sqlite-unbundled")]
    {
        registry.add("sqlite", |url| async move { lockwell_sql::SqliteLock::connect(&url).await });
        registry.add_schema("sqlite");
    }
    #[cfg(feature = "postgres")]
    for scheme in ["postgres", "postgresql"] {
        registry.add(scheme, |url| async move { lockwell_sql::PostgresLock::connect(&url).await });
        registry.add_schema(scheme);
    }
    #[cfg(feature = "mysql")]
    for scheme in ["mysql", "mariadb"] {
        registry.add(scheme, |url| async move { lockwell_sql::MySqlLock::connect(&url).await });
        registry.add_schema(scheme);
    }
    #[cfg(feature = "redis")]
    for (scheme, _) in schemes::ALL.iter().filter(|(_, feature)| *feature == "redis") {
        if scheme.starts_with("redlock") {
            registry.add(scheme, |url| async move { lockwell_redis::Redlock::connect(&url).await });
        } else {
            registry.add(scheme, |url| async move { lockwell_redis::RedisLock::connect(&url).await });
        }
    }
    #[cfg(feature = "zk")]
    registry.add("zk", |url| async move { lockwell_zk::ZkLock::connect(&url).await });
    #[cfg(feature = "etcd")]
    for scheme in ["etcd", "etcds"] {
        registry.add(scheme, |url| async move { lockwell_etcd::EtcdLock::connect(&url).await });
    }
    registry
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.connectors.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::{LockConfig, Operation};

    use super::*;

    async fn memory(url: ServerUrl) -> Result<MemoryLock> {
        MemoryLock::from_url(&url)
    }

    #[test]
    fn an_unknown_scheme_gets_the_list() {
        let error = Registry::new().unknown("mongodb");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("memory://"), "{error}");
        for (scheme, meant) in [("zookeeper", "zk://"), ("valkey", "redis://"), ("sqlite3", "sqlite://")] {
            let error = Registry::new().unknown(scheme).to_string();
            assert!(error.ends_with(&format!("; {meant} may be meant")), "{error}");
        }
    }

    #[test]
    fn a_scheme_that_is_off_names_its_feature() {
        let registry = Registry::new();
        for (scheme, feature) in schemes::ALL {
            let error = registry.unknown(scheme);
            if !registry.connectors.contains_key(scheme) {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains(&format!("{feature:?}")), "{error}");
            }
        }
    }

    /// Each documented scheme is compiled in with its feature, and no other scheme is.
    #[cfg(all(
        feature = "sqlite-unbundled",
        feature = "postgres",
        feature = "mysql",
        feature = "redis",
        feature = "zk",
        feature = "etcd"
    ))]
    #[test]
    fn all_schemes_are_listed() {
        let mut listed: Vec<_> = schemes::ALL.iter().map(|(scheme, _)| *scheme).collect();
        listed.sort_unstable();
        assert!(Registry::new().schemes().eq(listed));
    }

    #[test]
    fn a_scheme_has_one_backend_and_a_plain_name() {
        let error = Registry::new().with("memory", memory).unwrap_err();
        assert!(error.to_string().contains("has a backend already"), "{error}");
        for scheme in ["", "Table", "ta ble", "table:"] {
            let error = Registry::new().with(scheme, memory).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{scheme}");
        }
    }

    #[tokio::test]
    async fn a_backend_from_elsewhere_gets_its_options_and_not_the_common_ones() {
        let connect = |url: ServerUrl| async move {
            url.allow_options(&["colour"])?;
            assert_eq!(url.option("colour"), Some("red"));
            Ok(MemoryLock::named(&url.location()))
        };
        let registry = Registry::new().with("table", connect).unwrap();
        assert!(registry.schemes().any(|scheme| scheme == "table"));
        let config = LockConfig::new("table://here?colour=red&ttl=3s&require=fencing");
        let locks = registry.connect_with(config).await.unwrap();
        locks.lock("a").await.unwrap().release().await.unwrap();
        let error = registry.connect("table://here?colour=red&require=durable").await.unwrap_err();
        assert!(error.to_string().contains("durable"), "{error}");
        assert_eq!(registry.schema(&"table://here".parse().unwrap()).unwrap(), None);
        let error = registry.connect("table://here?color=red").await.unwrap_err();
        assert_eq!(error.operation(), Some(Operation::Connect));
        assert!(error.to_string().contains("colour"), "{error}");
    }

    #[test]
    fn a_schema_belongs_to_a_scheme() {
        let tables = |url: &ServerUrl| Ok(format!("create {}", url.location()));
        let registry = Registry::new().with("table", memory).unwrap().with_schema("table", tables).unwrap();
        let schema = |url: &str| registry.schema(&url.parse().unwrap());
        assert_eq!(schema("table://here").unwrap().as_deref(), Some("create here"));
        assert_eq!(schema("memory://").unwrap(), None);
        assert_eq!(schema("mongodb://here").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(Registry::new().with_schema("table", tables).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
