//! Green contexts: the primary context with some of the device's multiprocessors.
//!
//! Multiprocessors are counted, divided and told as CUDA does. They are not set apart: all of the device's threads work for
//! every stream, so that a green context's kernels are never slower than they must be, and never kept away from others.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::device::Device;
use crate::driver::{self, TABLES};
use crate::error::*;
use crate::stream::{NON_BLOCKING, PRIORITIES, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Multiprocessors of a device: `CUdevSmResource`, and where they are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiprocessors {
    /// How many.
    pub count: u32,
    /// Of which device, by ordinal.
    pub device: i32,
    /// The split that they come from; 0: they are all that a device or a green context has.
    pub split: u64,
}

/// Groups that are made of multiprocessors have at least so many, and a multiple of it: each works by itself.
pub const SMALLEST: u32 = 1;

/// What a green context is made of: `CUdevResourceDesc`.
pub struct Description {
    found: Multiprocessors,
}

/// One green context.
pub struct Green {
    /// Its handle.
    pub handle: usize,
    /// The handle by which the primary context is known that has this green context's resources.
    pub context: usize,
    /// `cuGreenCtxGetId`.
    pub id: u64,
    /// What it has.
    pub found: Multiprocessors,
    device: Arc<Device>,
}

static NEXT_SPLIT: AtomicU64 = AtomicU64::new(1);

/// All multiprocessors of a device.
pub fn all_of(device: &Device) -> Multiprocessors {
    Multiprocessors { count: device.multiprocessors, device: device.ordinal, split: 0 }
}

/// What is left of some multiprocessors, as part of a split.
#[derive(Debug)]
pub struct Split {
    from: Multiprocessors,
    split: u64,
    left: u32,
}

impl Split {
    /// Begins to divide.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for what is a part already: a green context must be made of it first.
    pub fn new(from: Multiprocessors) -> Result<Split> {
        if from.split != 0 {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        Ok(Split { from, split: NEXT_SPLIT.fetch_add(1, Ordering::Relaxed), left: from.count })
    }

    /// How many are left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Takes a group away.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` if there are not so many, or none is asked for.
    pub fn group(&mut self, count: u32) -> Result<Multiprocessors> {
        if count == 0 || count > self.left {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        self.left -= count;
        Ok(Multiprocessors { count, split: self.split, ..self.from })
    }

    /// What is left, if anything is.
    pub fn rest(mut self) -> Option<Multiprocessors> {
        self.group(self.left).ok()
    }
}

/// `cuDevSmResourceSplitByCount`: the size of each group, and how many groups there are at most.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for more than there are, and unknown flags.
pub fn groups(from: &Multiprocessors, least: u32, flags: u32) -> Result<(u32, u32)> {
    // Co-scheduling and the largest clusters: every choice of multiprocessors allows both.
    if least > from.count || flags > 3 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let size = least.max(SMALLEST);
    Ok((size, from.count / size))
}

/// `cuDevResourceGenerateDesc`: the handle of a description, which stays for the life of the process.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for nothing, `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for multiprocessors of several
/// devices or splits.
pub fn describe(parts: &[Multiprocessors]) -> Result<usize> {
    let first = *parts.first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let together = |part: &Multiprocessors| (part.device, part.split) == (first.device, first.split);
    if !parts.iter().all(together) || (parts.len() > 1 && first.split == 0) {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let count = parts.iter().map(|part| part.count).sum();
    if count > driver::device(first.device)?.multiprocessors {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let handle = TABLES.descriptions.reserve();
    TABLES.descriptions.add(handle, Arc::new(Description { found: Multiprocessors { count, ..first } }));
    Ok(handle)
}

/// `cuGreenCtxCreate`: retains the primary context. The flag for a default stream changes nothing, as the primary
/// context has one.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a handle that is no description, one of another device, and unknown flags.
pub fn create(description: usize, device: i32, flags: u32) -> Result<usize> {
    let device = driver::device(device)?;
    let description = TABLES.descriptions.get(description).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags > 1 || description.found.device != device.ordinal {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let primary = device.primary.retain(device);
    let Some(primary) = TABLES.contexts.get(primary) else { return Err(CUDA_ERROR_INVALID_CONTEXT) };
    let (handle, context) = (TABLES.greens.reserve(), TABLES.contexts.reserve());
    let found = Multiprocessors { split: 0, ..description.found };
    let id = crate::context::next_id();
    TABLES.greens.add(handle, Arc::new(Green { handle, context, id, found, device: device.clone() }));
    TABLES.contexts.add(context, primary);
    Ok(handle)
}

/// The green context of a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub fn find(handle: usize) -> Result<Arc<Green>> {
    TABLES.greens.get(handle).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The green context that a context's handle was got from.
pub fn of_context(context: usize) -> Option<Arc<Green>> {
    TABLES.greens.all().into_iter().find(|green| green.context == context)
}

/// `cuGreenCtxDestroy`: gives the primary context up; streams go on.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub fn destroy(handle: usize) -> Result {
    let green = TABLES.greens.remove(handle).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    // A reset of the primary context has taken all that was retained; what is there now is somebody else's.
    if TABLES.contexts.remove(green.context).is_some_and(|context| !context.is_gone()) {
        green.device.primary.release()?;
    }
    Ok(())
}

impl Green {
    /// The primary context.
    ///
    /// # Errors
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED` after a reset of it.
    pub fn primary(&self) -> Result<Arc<Context>> {
        TABLES.contexts.get(self.context).filter(|c| !c.is_gone()).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// `cuGreenCtxStreamCreate`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` without [`NON_BLOCKING`] and for other flags; the context's fatal error.
    pub fn stream(&self, flags: u32, priority: i32) -> Result<usize> {
        if flags != NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = self.primary()?;
        context.fate.check()?;
        let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
        crate::stream::add(&context, flags, priority, self.handle)
    }

    /// Whether a stream is one of this green context.
    pub fn has(&self, stream: &Stream) -> bool {
        stream.green == self.handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Multiprocessors = Multiprocessors { count: 4, device: 0, split: 0 };

    #[test]
    fn groups_are_equal_and_as_large_as_asked_for() {
        assert_eq!(groups(&FOUR, 0, 0), Ok((1, 4)));
        assert_eq!(groups(&FOUR, 3, 0), Ok((3, 1)));
        assert_eq!(groups(&FOUR, 2, 1), Ok((2, 2)));
        assert_eq!(groups(&FOUR, 5, 0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(groups(&FOUR, 1, 4), Err(CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn parts_are_disjoint_and_are_not_divided_again() {
        let mut split = Split::new(FOUR).unwrap();
        let part = split.group(3).unwrap();
        assert_eq!(part.count, 3);
        assert_eq!(split.group(2), Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
        assert_eq!(split.rest().map(|rest| (rest.count, rest.split)), Some((1, part.split)));
        assert!(Split::new(part).is_err());
        let mut whole = Split::new(FOUR).unwrap();
        assert_ne!(whole.group(4).unwrap().split, part.split);
        assert_eq!(whole.rest(), None);
    }
}
