//! Values that must not be shown: tokens and one-time secrets; and the name that a host goes by.

use std::fmt;

use bincode::{Decode, Encode};

/// A client's credential. Its `Debug` output never shows it.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Token(String);

impl Token {
    /// Wraps the text of a token.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The token itself, for hashing or sending; never for output.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// The one-time secret with which a data connection proves that it belongs to a session. `Debug` never shows it.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Wraps 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for hashing; never for output.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// A value that two processes on one running host share and that says nothing else about it: a hash of the kernel's
/// boot id. `None` where `/proc` is not mounted.
pub fn host_key() -> Option<[u8; 16]> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let hash = blake3::derive_key("gpupool 2026 host key", boot_id.trim().as_bytes());
    hash[..16].try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_what_it_must() {
        let token = Token::new("correct horse battery staple");
        assert!(!format!("{token:?}").contains("horse"));
        let secret = Secret::new([0xAB; 32]);
        let shown = format!("{secret:?} {secret:#?}");
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("ab, "));
    }

    #[test]
    fn the_host_key_is_stable_and_not_the_boot_id() {
        let Some(key) = host_key() else { return };
        assert_eq!(Some(key), host_key());
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().replace('-', "");
        let shown: String = key.iter().map(|b| format!("{b:02x}")).collect();
        assert_ne!(boot_id.trim(), shown);
    }
}
