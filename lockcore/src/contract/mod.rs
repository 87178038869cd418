//! The types that applications, lockcore and the backends have in common, and the trait for backends.

mod capabilities;
mod claim;
mod class;
#[cfg(feature = "sqlx")]
mod columns;
mod error;
mod error_kind;
mod finding;
mod grant;
mod hold_id;
mod kept;
mod label;
mod lease_state;
mod lock;
mod mode;
mod name;
mod owner;
mod record;
mod released;
mod stats;
mod token;

pub use capabilities::{Capabilities, REQUIREMENTS, Requirement};
pub use claim::{Claim, Wait};
pub(crate) use claim::{FIRST_ANSWER, PassOn};
pub(crate) use class::{Class, check_class, not_a_class};
pub use error::{Error, Result};
pub use error_kind::{ErrorKind, Operation};
pub use finding::{Finding, Severity};
pub use grant::{Grant, Holder, LockStatus, Renewal};
pub use hold_id::HoldId;
pub use kept::ErrorWith;
pub use label::check_label;
pub use lease_state::{LeaseState, Loss};
pub use lock::DistributedLock;
pub use mode::Mode;
pub use name::LockName;
pub use owner::OwnerId;
pub use record::{Record, RecordKind, RecordWrite, StoredRecord};
pub use released::Released;
pub(crate) use stats::Counters;
pub use stats::Stats;
pub use token::FencingToken;
