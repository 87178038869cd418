//! What is particular to locks in SQL tables. What every backend must do is in the conformance suite.

mod deadlocks;
mod many;
mod rights;
mod servers;
mod variants;
mod verify;
