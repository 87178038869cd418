//! Every kind of server through its whole life.

mod cluster;
mod databases;
mod ensemble;
mod life;
mod redis;
mod releases;
mod sentinel;
mod small;
mod tls;

use testbed::{Durability, Options, Redis};

fn options() -> Options {
    Options::new().durability(Durability::OsCache)
}

fn say(redis: &Redis, words: &[&str]) -> String {
    redis.command(words).expect("an answer")
}
