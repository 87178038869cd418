//! The Redis backends of lockwell.
