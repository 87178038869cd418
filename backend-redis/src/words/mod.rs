//! What all layers speak of: addresses, options, keys, scripts, answers and errors.

pub(crate) mod address;
pub(crate) mod answers;
pub(crate) mod durability;
pub(crate) mod error;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod mark;
pub(crate) mod options;
pub(crate) mod script;
#[cfg(feature = "tls")]
pub(crate) mod tls;
