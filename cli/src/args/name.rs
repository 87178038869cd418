//! Names on the command line.

use lockwell::LockName;
use lockwell::backend::ServerUrl;

/// Parses a lock name. Refuses an address with a password, which would be stored and shown as the name of a lock.
pub(super) fn parse(text: &str) -> Result<LockName, String> {
    if text.parse::<ServerUrl>().is_ok_and(|url| url.password().is_some()) {
        return Err("this is an address with a password, not a lock; give it by --url-file or LOCKWELL_URL"
            .to_owned());
    }
    text.parse::<LockName>().map_err(|error| error.to_string())
}
