//! The devices' primary contexts, one shared state each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::objects::ContextState;

/// The primary contexts that the session has named.
#[derive(Debug, Default)]
pub struct Primaries {
    by_device: Mutex<HashMap<i32, Arc<ContextState>>>,
}

impl Primaries {
    /// That of a device, by the driver's number.
    pub fn of(&self, device: i32) -> Arc<ContextState> {
        let mut by_device = self.by_device.lock().unwrap_or_else(PoisonError::into_inner);
        by_device.entry(device).or_insert_with(|| ContextState::new(0, device, true)).clone()
    }
}
