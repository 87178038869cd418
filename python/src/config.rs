//! The configuration of a client.

use lockwell::{LockConfig, Result};
use pyo3::prelude::*;

use crate::options::seconds;

/// What a caller of `connect` has set. Without an address and a text, the address is that of the environment.
#[derive(FromPyObject)]
pub(crate) struct Settings {
    #[pyo3(item, default)]
    url: Option<String>,
    #[pyo3(item, default)]
    toml: Option<String>,
    #[pyo3(item, default)]
    ttl: Option<f64>,
    #[pyo3(item, default)]
    wait: Option<f64>,
    #[pyo3(item, default)]
    label: Option<String>,
    #[pyo3(item)]
    server_order: bool,
    #[pyo3(item, default)]
    hand_off: Option<String>,
    #[pyo3(item, default)]
    password_file: Option<String>,
    #[pyo3(item, default)]
    require: Vec<String>,
}

impl Settings {
    pub(crate) fn config(self) -> Result<LockConfig> {
        let mut config = match (self.url, self.toml) {
            (Some(url), _) => LockConfig::new(url),
            (None, Some(text)) => LockConfig::from_toml(&text)?,
            (None, None) => LockConfig::from_env()?,
        };
        if let Some(ttl) = self.ttl {
            config = config.ttl(seconds("ttl", ttl)?);
        }
        if let Some(wait) = self.wait {
            config = config.wait(seconds("wait", wait)?);
        }
        if let Some(label) = self.label {
            config = config.label(label);
        }
        if self.server_order {
            config = config.server_order();
        }
        if let Some(text) = self.hand_off {
            config.hand_off = Some(text.parse()?);
        }
        if let Some(path) = self.password_file {
            config = config.password_file(path);
        }
        for requirement in self.require {
            config = config.require(requirement.parse()?);
        }
        Ok(config)
    }
}
