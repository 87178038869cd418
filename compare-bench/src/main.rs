//! compare-bench
fn main() {}
