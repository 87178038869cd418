//! A common but faulty recipe.

use lockwell::backend::async_trait;

use crate::error::Result;

/// A recipe on a connection that all tasks of the process share.
#[async_trait]
pub(super) trait Recipe: Sync + Send {
    /// How it works.
    fn setup(&self) -> &'static str;

    async fn acquire(&self, name: &str) -> Result<()>;

    async fn release(&self, name: &str) -> Result<()>;
}
