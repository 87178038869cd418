//! The floor of `memory://`: the mutex that a program without leases, tokens and other processes would take.

use lockwell::backend::async_trait;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::measure::floor::raw::{Raw, Server};

/// How many cycles are timed together: reading the clock costs as much as one.
const BATCH: u32 = 100;

#[derive(Debug)]
pub(super) struct MemoryFloor([Mutex<u64>; 64]);

impl Default for MemoryFloor {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

#[async_trait]
impl Raw for MemoryFloor {
    fn what(&self) -> &'static str {
        "lock and unlock of a tokio::sync::Mutex"
    }

    fn batch(&self) -> u32 {
        BATCH
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        let mutex = &self.0[name % self.0.len()];
        for _ in 0..BATCH {
            *mutex.lock().await += 1;
        }
        Ok(())
    }

    async fn server(&mut self) -> Result<Server> {
        Ok(Server { version: "in this process".to_owned(), settings: Vec::new() })
    }
}
