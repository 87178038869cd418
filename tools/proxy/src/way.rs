//! The two ways through a link, as indices.

pub(super) const TO_SERVER: usize = 0;

pub(super) const TO_CLIENT: usize = 1;
