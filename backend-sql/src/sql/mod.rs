//! The texts of the statements, the names of the tables in them, and the options of an address.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) mod library;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod login;
pub(crate) mod options;
pub(crate) mod table;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod unread;
