//! Names of tables.

use super::{connect, servers};

/// A word of the language is a name like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserved_word_is_a_table() {
    for server in servers().await {
        for table in ["order", "lockwell.select", "Mixed_Case"] {
            let locks = connect(server, table).await;
            locks.lock("a").await.expect("a free lock").release().await.expect("held");
            let reader = locks.read("a").await.expect("a free lock");
            assert!(locks.write("a").try_now().await.expect("an answer").is_none());
            reader.release().await.expect("held");
        }
        let tables = server.admin_sql("SHOW TABLES").await.expect("an answer");
        for table in ["order", "order_waiters", "select_members", "Mixed_Case"] {
            assert!(tables.lines().any(|line| line == table), "{table} is not among {tables}");
        }
    }
}
