//! A result file of either kind.

use std::path::Path;

use faults::Results;

use crate::error::{Error, Result};
use crate::record::Report;
use crate::record::file::{Head, parse, text};

/// What a file has.
pub(crate) enum Input {
    Run(Box<Report>),
    Faults(Results),
}

impl Input {
    /// Reads a file, which says itself of what kind it is.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fail = |reason: String| Error::failed(format!("{}: {reason}", path.display()));
        let text = text(path).map_err(|error| fail(error.to_string()))?;
        if serde_json::from_str::<Head>(&text).is_ok_and(|head| head.schema == faults::SCHEMA) {
            return serde_json::from_str(&text).map(Self::Faults).map_err(|error| fail(error.to_string()));
        }
        parse(&text).map(|report| Self::Run(Box::new(report))).map_err(fail)
    }
}
