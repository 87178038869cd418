//! Passwords that change while clients are connected, and logins that the application has.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, LockConfig, LockGuard, Locks, ServerUrl};
use lockwell_sql::{MySqlLock, PostgresLock};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testbed::{MariaDb, Postgres};

use crate::servers::{Kind, client, mariadb, postgres, wait_for};

const CANARY: &str = "canary-secret";

/// A server with a user whose password it checks.
#[derive(Clone, Copy)]
enum Site<'a> {
    Postgres(&'a Postgres),
    MySql(&'a MariaDb),
}

impl Site<'_> {
    async fn admin(self, sql: &str) -> String {
        match self {
            Self::Postgres(server) => server.admin_sql(sql).await,
            Self::MySql(server) => server.admin_sql(sql).await,
        }
        .expect("an administrator")
    }

    /// The address of a user, without a password.
    fn url(self, user: &str) -> String {
        match self {
            Self::Postgres(server) => server.url().replace("postgres@", &format!("{user}@")),
            Self::MySql(server) => server.url().replace("root@", &format!("{user}@")),
        }
    }

    async fn make(self, user: &str) {
        // Two that grant rights on the schema at once collide in PostgreSQL's catalog.
        static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _one = ONE.lock().await;
        match self {
            Self::Postgres(server) => {
                let rules = server.folder().join("data/pg_hba.conf");
                let old = std::fs::read_to_string(&rules).expect("the rules");
                let new = format!("host all {user} 127.0.0.1/32 scram-sha-256\n{old}");
                // Without an await in between, so that nobody else writes it meanwhile.
                std::fs::write(&rules, new).expect("our server");
                let sql = format!(
                    "CREATE ROLE {user} LOGIN PASSWORD '{CANARY}'; GRANT ALL ON SCHEMA public TO {user};
                     SELECT pg_reload_conf()"
                );
                self.admin(&sql).await;
            }
            Self::MySql(_) => {
                let sql = format!(
                    "CREATE USER {user}@'%' IDENTIFIED BY '{CANARY}'; GRANT ALL ON lockwell.* TO {user}@'%'"
                );
                self.admin(&sql).await;
            }
        }
    }

    async fn set_password(self, user: &str, password: &str) {
        let sql = match self {
            Self::Postgres(_) => format!("ALTER ROLE {user} PASSWORD '{password}'"),
            Self::MySql(_) => format!("ALTER USER {user}@'%' IDENTIFIED BY '{password}'"),
        };
        self.admin(&sql).await;
    }

    /// Ends all connections of the user.
    async fn kill(self, user: &str) {
        match self {
            Self::Postgres(_) => {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename =";
                assert_ne!(self.admin(&format!("{sql} '{user}'")).await.trim(), "0", "none to kill");
            }
            Self::MySql(server) => {
                let sql = "SELECT group_concat(id) FROM information_schema.processlist WHERE user =";
                let ids = self.admin(&format!("{sql} '{user}'")).await;
                let ids: Vec<u64> = ids.trim().split(',').map(|id| id.parse().expect("a number")).collect();
                for id in ids {
                    // It may have ended.
                    drop(server.admin_sql(&format!("KILL {id}")).await);
                }
            }
        }
    }

    async fn connect(self, config: LockConfig) -> lockwell_core::Result<Locks> {
        let (url, config) = config.resolve()?;
        match self {
            Self::Postgres(_) => Locks::with_config(Arc::new(PostgresLock::connect(&url).await?), &config),
            Self::MySql(_) => Locks::with_config(Arc::new(MySqlLock::connect(&url).await?), &config),
        }
    }
}

/// Where a client finds the present password, in both ways.
#[derive(Clone)]
struct Source {
    file: PathBuf,
    text: Arc<Mutex<String>>,
    /// The function panics.
    is_broken: Arc<AtomicBool>,
}

impl Source {
    fn publish(&self, password: &str) {
        std::fs::write(&self.file, format!("{password}\n")).expect("our file");
        password.clone_into(&mut self.text.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn configure(&self, config: LockConfig, by_file: bool) -> LockConfig {
        if by_file {
            return config.password_file(self.file.to_str().expect("a text"));
        }
        let source = self.clone();
        config.password_from(move || {
            let source = source.clone();
            async move {
                assert!(!source.is_broken.load(Ordering::SeqCst), "as the test wants it");
                let text = source.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Ok::<_, Infallible>(text)
            }
        })
    }
}

async fn until_renewed(locks: &Locks, guard: &LockGuard, since: u64) {
    let end = Instant::now() + Duration::from_secs(30);
    while locks.stats().renewals <= since {
        assert!(guard.is_held() && Instant::now() < end, "no renewal: {guard:?}, {:?}", locks.stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The password is changed at the server and at its source, in either order, and all connections end: for
/// requests, for renewals and for notifications.
async fn locks_go_on(site: Site<'_>, by_file: bool) {
    let user = if by_file { "by_file" } else { "by_function" };
    site.make(user).await;
    let folder = tempfile::tempdir().expect("a folder");
    let source =
        Source { file: folder.path().join("password"), text: Arc::default(), is_broken: Arc::default() };
    source.publish(CANARY);
    let url = format!("{}?table={user}", site.url(user));
    let config = || source.configure(LockConfig::new(&url), by_file);
    let one = site.connect(config()).await.expect("a connection");
    let two = site.connect(config()).await.expect("a connection");
    // For each new password, the administrator and the clients take a part of it on a busy machine.
    let guard = one.lock("held").ttl(Duration::from_secs(12)).await.expect("a free lock");
    let token = guard.token();
    for round in 1..=2 {
        let renewals = one.stats().renewals;
        let next = format!("{CANARY}-{round}");
        if round == 2 {
            source.is_broken.store(true, Ordering::SeqCst);
            site.kill(user).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            source.publish(&next);
            site.set_password(user, &next).await;
            source.is_broken.store(false, Ordering::SeqCst);
        } else {
            site.set_password(user, &next).await;
            site.kill(user).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            source.publish(&next);
        }
        let wait = Duration::from_secs(20);
        let other = one.lock("other").wait(wait).await.expect("a free lock");
        let waits = tokio::spawn(two.lock("other").wait(wait).into_future());
        wait_for(&one, "other", 1).await;
        other.release().await.expect("held");
        waits.await.expect("no panic").expect("its turn").release().await.expect("held");
        until_renewed(&one, &guard, renewals).await;
        assert!(guard.is_held(), "round {round}: {guard:?}");
    }
    let status = two.inspect("held").await.expect("an answer");
    assert_eq!(status.holders.first().map(|holder| holder.token), Some(token));
    guard.release().await.expect("held");
    // Nobody told the source.
    site.set_password(user, "another").await;
    site.kill(user).await;
    let error = one.lock("b").await.expect_err("not with this password");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let error = site.connect(config()).await.map(drop).expect_err("not with this password");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let shown = format!("{error:#} {error:?} {one:?} {:?} {:?}", one.backend(), config());
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password_on_postgres() {
    let Some(server) = postgres().await else { return };
    let site = Site::Postgres(server);
    tokio::join!(locks_go_on(site, true), locks_go_on(site, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password_on_mysql_and_mariadb() {
    let sites = crate::mysql::servers().await.into_iter().map(Site::MySql);
    join_all(
        sites.map(|site| async move { tokio::join!(locks_go_on(site, true), locks_go_on(site, false)) }),
    )
    .await;
}

/// MySQL asks for the password itself until somebody has logged in with it over TLS, and again after each start.
#[cfg(feature = "tls")]
#[tokio::test]
async fn mysql_lets_an_account_with_a_password_in_by_tls() {
    for server in crate::mysql::servers().await {
        let version = server.admin_sql("SELECT VERSION()").await.expect("an administrator");
        if version.contains("MariaDB") {
            continue;
        }
        let site = Site::MySql(server);
        site.make("cached").await;
        let url = site.url("cached").replace('@', &format!(":{CANARY}@")) + "?table=cached&timeout=2s";
        let plain = || LockConfig::new(format!("{url}&sslmode=disabled"));
        let is_told = |error: lockwell_core::Error| {
            let text = format!("{error:#}");
            assert!(text.contains("feature \"tls\"") && !text.contains(CANARY), "{text}");
            error.kind()
        };
        let error = site.connect(plain()).await.map(drop).expect_err("the server does not know the password");
        assert!(!error.is_retryable());
        assert_eq!(is_told(error), ErrorKind::Refused);
        let warnings = crate::notify::Warnings::default();
        let _of_this_thread = tracing::subscriber::set_default(warnings.clone());
        drop(site.connect(LockConfig::new(&url)).await.expect("TLS"));
        assert_eq!(warnings.0.load(Ordering::SeqCst), 0);
        let locks = site.connect(plain()).await.expect("the server knows the password");
        assert_eq!(warnings.0.load(Ordering::SeqCst), 1, "it will not be let in again");
        let guard = locks.lock("a").ttl(Duration::from_secs(6)).await.expect("a free lock");
        site.admin("FLUSH PRIVILEGES").await;
        site.kill("cached").await;
        guard.lost().await;
        assert_eq!(is_told(guard.release().await.expect_err("lost")), ErrorKind::Lost);
        assert_eq!(is_told(locks.lock("b").await.expect_err("not let in")), ErrorKind::Refused);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_does_not_return_is_an_error_in_time() {
    let mut sites = Vec::new();
    sites.extend(postgres().await.map(Site::Postgres));
    sites.extend(mariadb().await.map(Site::MySql));
    for site in sites {
        let url = format!("{}?table=hangs&timeout=2s", site.url("nobody"));
        let config = LockConfig::new(url).password_from(|| async {
            std::thread::park();
            std::future::pending::<Result<String, Infallible>>().await
        });
        let began = Instant::now();
        let error = site.connect(config).await.map(drop).expect_err("no password");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
        assert!(error.to_string().contains("the function that gives the password"), "{error}");
    }
}

fn parsed(url: &str) -> ServerUrl {
    url.parse().expect("an address")
}

/// The options of a pool of the application, whose connections stay its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_options_of_a_pool_of_postgres() {
    let Some(server) = postgres().await else { return };
    let options: PgConnectOptions = server.url().parse().expect("options");
    let pool = PgPoolOptions::new().connect_lazy_with(options.application_name("shop"));
    let options = || (*pool.connect_options()).clone();
    let backend = PostgresLock::connect_with(&parsed("postgres://?table=of_pool"), options()).await;
    let locks = Locks::new(Arc::new(backend.expect("a connection"))).expect("a keeper");
    let guard = locks.lock("a").await.expect("a free lock");
    let same = client(Kind::Postgres, &format!("{}?table=of_pool", server.url())).await;
    assert!(same.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    let sessions = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'shop'";
    assert_eq!(server.admin_sql(sessions).await.expect("an administrator").trim(), "t");
    guard.release().await.expect("held");
    assert_eq!(pool.size(), 0, "none of its connections is used");
    for wrong in ["postgres://h?table=x", "postgres://u@", "postgres:///app", "postgres://?sslmode=require"] {
        let error = PostgresLock::connect_with(&parsed(wrong), options()).await.map(drop).expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}: {error}");
    }
    let nowhere = options().port(1);
    let url = parsed("postgres://?timeout=300ms");
    let error = PostgresLock::connect_with(&url, nowhere).await.map(drop).expect_err("nobody is there");
    assert_eq!((error.kind(), error.servers()), (ErrorKind::Unreachable, Some("127.0.0.1:1")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_options_of_a_pool_of_mysql() {
    for server in crate::mysql::servers().await {
        let site = Site::MySql(server);
        site.make("of_pool").await;
        let options: MySqlConnectOptions = site.url("of_pool").parse().expect("options");
        let pool = MySqlPoolOptions::new().connect_lazy_with(options);
        // The password comes from elsewhere.
        let config = LockConfig::new("mysql://?table=of_pool")
            .password_from(async || Ok::<_, Infallible>(CANARY.into()));
        let (url, config) = config.resolve().expect("an address");
        let backend = MySqlLock::connect_with(&url, (*pool.connect_options()).clone()).await;
        let locks = Locks::with_config(Arc::new(backend.expect("a connection")), &config).expect("a keeper");
        let guard = locks.lock("a").await.expect("a free lock");
        let same = client(Kind::MariaDb, &format!("{}?table=of_pool", server.url())).await;
        assert!(same.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
        guard.release().await.expect("held");
        assert_eq!(pool.size(), 0, "none of its connections is used");
        let no_database = MySqlConnectOptions::new();
        for (url, options) in
            [("mysql://h/db", site.url("of_pool").parse().expect("options")), ("mysql://", no_database)]
        {
            let error = MySqlLock::connect_with(&parsed(url), options).await.map(drop).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
        }
    }
}
