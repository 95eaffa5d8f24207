//! Launch attributes: kept as they were given, and what they come down to.
#![forbid(unsafe_code)]

use crate::error::*;

/// `CUlaunchAttributeValue`: 64 bytes.
pub type Value = [u64; 8];

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
pub const COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub const CLUSTER: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`.
pub const PROGRAMMATIC_EVENT: u32 = 7;
/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`.
pub const PRIORITY: u32 = 8;
/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`.
pub const DOMAIN_MAP: u32 = 9;
/// `CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION`.
const PREFERRED_CLUSTER: u32 = 11;
/// `CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT`.
pub const COMPLETION_EVENT: u32 = 12;
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`.
const DEVICE_UPDATABLE: u32 = 13;
/// `CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const CARVEOUT: u32 = 14;

/// The attributes of a launch, each at most once, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<(u32, Value)>);

impl Attributes {
    /// Reads a list.
    ///
    /// # Errors
    /// As [`Attributes::set`].
    pub fn read(list: impl Iterator<Item = (u32, Value)>) -> Result<Self> {
        let mut all = Self::default();
        list.filter(|(id, _)| *id != 0).try_for_each(|(id, value)| all.set(id, value))?;
        Ok(all)
    }

    /// Sets one. Hints are kept and have no effect; what changes the meaning of the launch and cannot be done is refused.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for device-updatable nodes,
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute and a value out of range.
    pub fn set(&mut self, id: u32, value: Value) -> Result {
        let first = value[0] as u32;
        let good = match id {
            // Access window, cooperation, serialisation, launch events, priority, domains, NVLink, cluster and memory modes.
            1 | COOPERATIVE | 6..=DOMAIN_MAP | COMPLETION_EVENT | 16..=18 => true,
            // Synchronisation policy; cluster scheduling policy; memory domain; carve-out in percent.
            3 => (1..=4).contains(&first),
            5 => first <= 2,
            10 => first <= 1,
            CARVEOUT => (-1..=100).contains(&(first as i32)),
            // Whether the device and the kernel allow it shows at the launch; the preferred size is a hint.
            CLUSTER | PREFERRED_CLUSTER => dimensions(&value).iter().all(|n| *n > 0),
            DEVICE_UPDATABLE if first == 0 => true,
            DEVICE_UPDATABLE => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => false,
        };
        if !good {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.0.iter_mut().find(|(known, _)| *known == id) {
            Some((_, old)) => *old = value,
            None => self.0.push((id, value)),
        }
        Ok(())
    }

    /// The value of one; CUDA's default if it was not set.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a number that is no attribute.
    pub fn get(&self, id: u32) -> Result<Value> {
        if let Some((_, value)) = self.0.iter().find(|(known, _)| *known == id) {
            return Ok(*value);
        }
        match id {
            // Synchronisation: automatic.
            3 => Ok([1, 0, 0, 0, 0, 0, 0, 0]),
            // Domain 0 is domain 0, domain 1 is 1: two bytes.
            DOMAIN_MAP => Ok([0x0100, 0, 0, 0, 0, 0, 0, 0]),
            CARVEOUT => Ok([u64::from(u32::MAX), 0, 0, 0, 0, 0, 0, 0]),
            1..=14 | 16..=18 => Ok([0; 8]),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn value(&self, id: u32) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, value)| value)
    }

    /// Whether all blocks must run at once.
    pub fn cooperative(&self) -> bool {
        self.value(COOPERATIVE).is_some_and(|v| v[0] as u32 != 0)
    }

    /// The priority, if one is given.
    pub fn priority(&self) -> Option<i32> {
        self.value(PRIORITY).map(|value| value[0] as u32 as i32)
    }

    /// Blocks of a cluster; zeros if none is given.
    pub fn cluster(&self) -> [u32; 3] {
        self.value(CLUSTER).map_or([0; 3], dimensions)
    }

    /// The handles of the events that the launch records.
    pub fn events(&self) -> impl Iterator<Item = usize> {
        let recording = |(id, _): &&(u32, Value)| matches!(*id, PROGRAMMATIC_EVENT | COMPLETION_EVENT);
        self.0.iter().filter(recording).map(|(_, value)| value[0] as usize)
    }
}

/// Three dimensions in the first words of a value.
fn dimensions(value: &Value) -> [u32; 3] {
    [value[0] as u32, (value[0] >> 32) as u32, value[1] as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_known_refused_or_wrong() {
        let one = |id, word: u64| Attributes::read(std::iter::once((id, [word, 1, 0, 0, 0, 0, 0, 0])));
        assert!(one(COOPERATIVE, 1).unwrap().cooperative());
        assert!(!one(COOPERATIVE, 0).unwrap().cooperative());
        assert_eq!(one(CLUSTER, 1 << 32 | 2).unwrap().cluster(), [2, 1, 1]);
        assert_eq!(one(CLUSTER, 0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(one(COOPERATIVE, 1).unwrap().cluster(), [0; 3]);
        assert_eq!(one(DEVICE_UPDATABLE, 1), Err(CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(one(99, 0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(one(CARVEOUT, 101), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(one(0, 7).unwrap(), Attributes::default(), "ignored by name");
        assert_eq!(one(COMPLETION_EVENT, 77).unwrap().events().collect::<Vec<_>>(), [77]);
    }

    #[test]
    fn the_last_value_counts_and_defaults_are_cudas() {
        let list = [(PRIORITY, [5; 8]), (PRIORITY, [6; 8])];
        let all = Attributes::read(list.into_iter()).unwrap();
        assert_eq!(all.get(PRIORITY).unwrap()[0], 6);
        assert_eq!(all.get(CARVEOUT).unwrap()[0] as u32 as i32, -1);
        assert_eq!(all.get(15), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
