//! Connecting to the server of an address.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Lazy;
use lockwell_core::{DistributedLock, Error, LockConfig, Locks, Operation, Result, ServerUrl};

use crate::registry::Registry;
use crate::{reach, schemes};

impl Registry {
    /// As [`connect`](crate::connect), with the backends of this registry.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(&self, url: impl Into<String>) -> Result<Locks> {
        self.connect_with(LockConfig::new(url)).await
    }

    /// As [`connect_with`](crate::connect_with), with the backends of this registry.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect_with(&self, config: LockConfig) -> Result<Locks> {
        let (url, config) = config.resolve().map_err(of_connecting)?;
        if config.lazy {
            return self.lazy(&url, &config);
        }
        let backend = self.connect_backend(&url).await?;
        Locks::with_config(backend, &config)
    }

    /// As [`connect_lazy`](crate::connect_lazy), with the backends of this registry.
    ///
    /// # Errors
    /// Those of the function.
    pub fn connect_lazy(&self, url: impl Into<String>) -> Result<Locks> {
        self.connect_lazy_with(LockConfig::new(url))
    }

    /// As [`connect_lazy_with`](crate::connect_lazy_with), with the backends of this registry.
    ///
    /// # Errors
    /// Those of the function.
    pub fn connect_lazy_with(&self, config: LockConfig) -> Result<Locks> {
        let (url, config) = config.resolve().map_err(of_connecting)?;
        self.lazy(&url, &config)
    }

    fn lazy(&self, url: &ServerUrl, config: &LockConfig) -> Result<Locks> {
        let connect = self.connector(url).map_err(of_connecting)?;
        let name = schemes::backend(url.scheme()).unwrap_or("lazy");
        let servers = reach::servers(url);
        let url = url.clone();
        let lazy = Lazy::new(name, &config.require, move || {
            let (url, connecting) = (url.clone(), connect(url.clone()));
            async move { explained(connecting.await, &url).await }
        });
        let lazy = match servers {
            Some(servers) => lazy.at(servers),
            None => lazy,
        };
        Locks::with_config(Arc::new(lazy), config)
    }

    /// As [`connect_backend`](crate::connect_backend), with the backends of this registry.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect_backend(&self, url: &ServerUrl) -> Result<Arc<dyn DistributedLock>> {
        explained(self.connect_once(url).await, url).await
    }

    /// As [`connect_backend`](Self::connect_backend), for programs that have something better to do than to
    /// wait for a server that is restarting: it fails as soon as all hosts of the address refuse connections
    /// or are unknown, and after `limit` at the latest.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable), with what each host does. The error
    /// [is not retryable](Error::is_retryable) if no host name exists.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// use std::time::Duration;
    /// let (registry, url) = (lockwell::Registry::new(), "memory://".parse()?);
    /// let backend = registry.try_connect_backend(&url, Duration::from_secs(2)).await?;
    /// let locks = lockwell::Locks::new(backend)?;
    /// locks.lock("orders/42").await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn try_connect_backend(
        &self,
        url: &ServerUrl,
        limit: Duration,
    ) -> Result<Arc<dyn DistributedLock>> {
        let error = tokio::select! {
            biased;
            connected = tokio::time::timeout(limit, self.connect_once(url)) => match connected {
                Ok(connected) => return explained(connected, url).await,
                Err(_) => reach::silent(url, limit).await,
            },
            error = reach::no_server(url) => error,
        };
        Err(of_connecting(error))
    }

    async fn connect_once(&self, url: &ServerUrl) -> Result<Arc<dyn DistributedLock>> {
        let connect = self.connector(url).map_err(of_connecting)?;
        connect(url.clone()).await.map_err(of_connecting)
    }
}

fn of_connecting(error: Error) -> Error {
    error.during(Operation::Connect)
}

/// A connection, or the error with what the hosts of the address do.
async fn explained<T>(connected: Result<T>, url: &ServerUrl) -> Result<T> {
    match connected {
        Ok(connected) => Ok(connected),
        Err(error) => Err(reach::explained(error, url).await),
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::{ErrorKind, MemoryLock};

    use super::*;

    /// A registry whose server is away: the backend asks it for ever, or gives up at once.
    fn away(gives_up: bool) -> Registry {
        let connect = move |_| async move {
            if gives_up {
                return Err(Error::new(ErrorKind::Unreachable, "no answer").on_backend("example").at("db:1"));
            }
            std::future::pending::<Result<MemoryLock>>().await
        };
        Registry::new().with("example", connect).unwrap()
    }

    #[tokio::test]
    async fn the_error_of_connecting_names_the_servers_and_the_operation() {
        let error = away(true).connect("example://ann:hunter2@db").await.unwrap_err();
        assert_eq!(format!("{error:?}"), "example at db:1: connect: unreachable: no answer");
        let lazy = away(true).connect_lazy("example://ann:hunter2@db").unwrap();
        let error = lazy.lock("a").try_now().await.unwrap_err();
        assert!(error.to_string().starts_with("example at db:1: acquire \"a\": unreachable"), "{error}");
    }

    #[tokio::test]
    async fn a_configuration_may_be_lazy() {
        let by_toml = LockConfig::from_toml("url = 'example://db'\nlazy = true").unwrap();
        for config in
            [by_toml, LockConfig::new("example://db").lazy(), LockConfig::new("example://db?lazy=true")]
        {
            let locks = away(true).connect_with(config).await.unwrap();
            assert_eq!(locks.lock("a").try_now().await.unwrap_err().kind(), ErrorKind::Unreachable);
        }
        assert!(away(true).connect("example://db?lazy=false").await.is_err());
    }

    /// Metrics, spans and errors have it, and the connection does not change it.
    #[tokio::test]
    async fn a_lazy_client_has_the_name_of_its_backend() {
        let folder = tempfile::tempdir().unwrap();
        let file = format!("sqlite://{}", folder.path().join("locks.db").display());
        let urls = ["memory://".to_owned()].into_iter().chain(cfg!(feature = "sqlite").then_some(file));
        for url in urls {
            let registry = Registry::new();
            let lazy = registry.connect_lazy(&url).unwrap();
            let connected = registry.connect(&url).await.unwrap();
            let name = connected.capabilities().backend();
            assert_eq!(lazy.capabilities().backend(), name);
            lazy.lock("a").await.unwrap().release().await.unwrap();
            assert_eq!(lazy.backend().capabilities().backend(), name);
        }
    }

    /// A backend that knows nothing of files and functions.
    #[tokio::test]
    async fn a_backend_gets_the_present_password_with_its_address() {
        let calls = std::sync::atomic::AtomicU32::new(0);
        let config = LockConfig::new("example://ann@db").lazy().password_from(move || {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move { if call == 0 { Err("the vault is sealed") } else { Ok(format!("hunter2-{call}")) } }
        });
        let connect = |url: ServerUrl| async move {
            assert_eq!(url.password().map(lockwell_core::Secret::expose), Some("hunter2-1"));
            url.allow_options(&[]).map(|()| MemoryLock::new())
        };
        let registry = Registry::new().with("example", connect).unwrap();
        let locks = registry.connect_with(config).await.unwrap();
        let error = locks.lock("a").try_now().await.unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("the function that gives the password: it has failed: the vault is sealed"),
            "{text}"
        );
        locks.lock("a").await.unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn a_limit_ends_a_try() {
        let url = "example://db".parse().unwrap();
        let limit = Duration::from_millis(50);
        let error = away(false).try_connect_backend(&url, limit).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unreachable, Some(Operation::Connect)));
        assert!(error.message().contains("no answer within 50ms"), "{error}");
    }

    /// The backends go on for their timeout, in case the server is restarting.
    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn a_try_does_not_wait_for_a_server_that_is_clearly_not_there() {
        let url = "redis://ann:hunter2@127.0.0.1:1?timeout=1m".parse().unwrap();
        let begun = std::time::Instant::now();
        let error = Registry::new().try_connect_backend(&url, Duration::from_secs(60)).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let text = format!("{error:?}");
        assert!(text.starts_with("connect: unreachable: 127.0.0.1:1: connection refused; is the"), "{text}");
    }

    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn a_backend_that_gives_up_says_what_the_hosts_do() {
        let error =
            Registry::new().connect("redis://ann:hunter2@127.0.0.1:1?timeout=200ms").await.unwrap_err();
        let text = format!("{error:?}");
        assert!(text.starts_with("redis at 127.0.0.1:1: connect: unreachable: "), "{text}");
        assert!(text.contains("; 127.0.0.1:1: connection refused; is the server running"), "{text}");
        assert!(text.contains("Caused by:") && !text.contains("hunter2"), "{text}");
    }
}
