//! Names on the command line.

use lockwell::LockName;
use lockwell::backend::ServerUrl;

/// Parses a lock name. Refuses an address with a password, which would be stored and shown as the name of a
/// lock.
pub(super) fn parse(text: &str) -> Result<LockName, String> {
    let may_have_password = match text.parse::<ServerUrl>() {
        Ok(url) => url.password().is_some(),
        Err(_) => text.contains("://") && text.contains('@'),
    };
    if may_have_password {
        return Err("this is an address with a password, not a lock; give it by --url-file or LOCKWELL_URL"
            .to_owned());
    }
    text.parse::<LockName>().map_err(|error| error.to_string())
}
