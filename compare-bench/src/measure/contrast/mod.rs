//! Common but faulty recipes for locks, which are measured as well: as processes of this program that take
//! the orders of the peers.
//!
//! They are written as they are usually found, without improvements.

mod legacy_setnx;
mod naive_node;
mod plain_row;

use std::process::ExitCode;

use peer_common::run;

use self::legacy_setnx::LegacySetnx;
use self::naive_node::NaiveNode;
use self::plain_row::PlainRow;

/// The process of the recipe with this name.
pub(crate) async fn main(name: &str) -> ExitCode {
    match name {
        "naive-node" => run::<NaiveNode>().await,
        "legacy-setnx" => run::<LegacySetnx>().await,
        "plain-row" => run::<PlainRow>().await,
        _ => ExitCode::FAILURE,
    }
}
