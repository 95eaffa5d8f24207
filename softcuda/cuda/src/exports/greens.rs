//! Green contexts and what they are made of.

use super::{handle, on, out};
use crate::error::*;
use crate::green::{self, Multiprocessors, SMALLEST, Split};
use crate::{context, current, driver, event, stream};
use cudarc::driver::sys::{CUcontext, CUevent, CUgreenCtx, CUstream};
use std::sync::Arc;

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// `CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG`.
const WORK_QUEUES: u32 = 1000;
/// Streams of a device that make headway at the same time, as far as programs are told.
const CONCURRENT: u32 = 128;

/// `CUdevResource`: the driver's own words (device, split, and that they are ours), the body of the type, the next one.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Resource {
    kind: u32,
    device: i32,
    split: [u32; 2],
    mark: u32,
    internal: [u32; 19],
    body: [u32; 10],
    next: usize,
}

/// In every resource that this driver gives.
const MARK: u32 = 0x5cda_5cda;

impl Resource {
    /// What CUDA calls an invalid resource: none.
    const NONE: Resource =
        Resource { kind: 0, device: 0, split: [0; 2], mark: 0, internal: [0; 19], body: [0; 10], next: 0 };

    fn of(found: Multiprocessors) -> Resource {
        let Multiprocessors { count, device, split } = found;
        let mut body = [0; 10];
        // Count, smallest partition, co-scheduled together; no flags, no locality domain.
        body[..3].copy_from_slice(&[count, SMALLEST, SMALLEST]);
        let split = [split as u32, (split >> 32) as u32];
        Resource { kind: MULTIPROCESSORS, device, split, mark: MARK, body, ..Resource::NONE }
    }

    fn work_queues(device: i32) -> Resource {
        let mut body = [0; 10];
        body[..3].copy_from_slice(&[device as u32, CONCURRENT, 0]);
        Resource { kind: WORK_QUEUES, device, mark: MARK, body, ..Resource::NONE }
    }

    /// Of a type, for a device or a part of one.
    fn of_type(kind: u32, found: Multiprocessors) -> Result<Resource> {
        match kind {
            MULTIPROCESSORS => Ok(Resource::of(found)),
            WORK_QUEUES => Ok(Resource::work_queues(found.device)),
            _ => Err(CUDA_ERROR_INVALID_RESOURCE_TYPE),
        }
    }

    fn multiprocessors(&self) -> Result<Multiprocessors> {
        if self.kind != MULTIPROCESSORS {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        if self.mark != MARK {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let split = u64::from(self.split[0]) | u64::from(self.split[1]) << 32;
        Ok(Multiprocessors { count: self.body[0], device: self.device, split })
    }
}

/// `CU_DEV_SM_RESOURCE_GROUP_PARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Group {
    count: u32,
    together: u32,
    preferred: u32,
    flags: u32,
    reserved: [u32; 12],
}

exports! { ($) greens_names, initialised;
    cuDeviceGetDevResource(device: i32, resource: *mut Resource, kind: u32) {
        let (resource, device) = (out(resource)?, driver::device(device)?);
        resource.set(Resource::of_type(kind, green::all_of(device))?)
    }
    cuCtxGetDevResource(context: CUcontext, resource: *mut Resource, kind: u32) {
        let resource = out(resource)?;
        let handle = if context.is_null() { current::handle() } else { context.addr() };
        let found = match green::of_context(handle) {
            Some(green) => green.found,
            None => green::all_of(&super::contexts::find(context)?.device),
        };
        resource.set(Resource::of_type(kind, found)?)
    }
    cuGreenCtxGetDevResource(green: CUgreenCtx, resource: *mut Resource, kind: u32) {
        let resource = out(resource)?;
        resource.set(Resource::of_type(kind, green::find(green.addr())?.found)?)
    }
    cuStreamGetDevResource(
        stream: CUstream, resource: *mut Resource, kind: u32
    ) [cuStreamGetDevResource_ptsz, default] {
        let resource = out(resource)?;
        let (context, stream) = context::stream(on(stream, default))?;
        let found = green::find(stream.green()).map_or_else(|_| green::all_of(&context.device), |green| green.found);
        resource.set(Resource::of_type(kind, found)?)
    }
    cuDevSmResourceSplitByCount(
        result: *mut Resource, count: *mut u32, input: *const Resource, remainder: *mut Resource, flags: u32, least: u32
    ) {
        let input = super::graph_nodes::read(input)?.multiprocessors()?;
        let (size, most) = green::groups(&input, least, flags)?;
        let wanted = if count.is_null() { return Err(CUDA_ERROR_INVALID_VALUE) } else { *count };
        if result.is_null() {
            return out(count)?.set(most);
        }
        let (mut split, made) = (Split::new(input)?, wanted.min(most));
        for i in 0..made as usize {
            result.add(i).write_unaligned(Resource::of(split.group(size)?));
        }
        super::set_if_wanted(remainder, split.rest().map_or(Resource::NONE, Resource::of));
        out(count)?.set(made)
    }
    cuDevSmResourceSplit(
        result: *mut Resource, count: u32, input: *const Resource, remainder: *mut Resource, flags: u32,
        groups: *mut Group
    ) {
        let input = super::graph_nodes::read(input)?.multiprocessors()?;
        if flags != 0 || count == 0 || count > input.count || groups.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut split = Split::new(input)?;
        for i in 0..count as usize {
            let group = &mut *groups.add(i);
            let size = group_size(group, split.left())?;
            group.count = size;
            match split.group(size) {
                Ok(part) if !result.is_null() => result.add(i).write_unaligned(Resource::of(part)),
                // Without a result to write, the sizes are all that is asked for.
                Err(error) if !result.is_null() || size > 0 => return Err(error),
                _ => {}
            }
        }
        super::set_if_wanted(remainder, split.rest().map_or(Resource::NONE, Resource::of));
        Ok(())
    }
    cuDevResourceGenerateDesc(description: *mut usize, resources: *const Resource, count: u32) {
        let description = out(description)?;
        if resources.is_null() || count == 0 || count > 1 << 16 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let all = std::slice::from_raw_parts(resources, count as usize);
        // How work queues are shared is a hint.
        let parts = all.iter().filter(|r| r.kind != WORK_QUEUES).map(Resource::multiprocessors);
        description.set(green::describe(&parts.collect::<Result<Vec<_>>>()?)?)
    }
    cuGreenCtxCreate(green: *mut CUgreenCtx, description: usize, device: i32, flags: u32) {
        out(green)?.set(handle(green::create(description, device, flags)?))
    }
    cuGreenCtxDestroy(green: CUgreenCtx) { green::destroy(green.addr()) }
    cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) {
        out(context)?.set(handle(green::find(green.addr())?.context))
    }
    cuGreenCtxGetId(green: CUgreenCtx, id: *mut u64) { out(id)?.set(green::find(green.addr())?.id) }
    cuGreenCtxStreamCreate(stream: *mut CUstream, green: CUgreenCtx, flags: u32, priority: i32) {
        out(stream)?.set(handle(green::find(green.addr())?.stream(flags, priority)?))
    }
    cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) {
        let green = out(green)?;
        let found = context::stream(on(stream, stream::LEGACY))?.1.green();
        green.set(handle(found))
    }
    cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) {
        let (green, event) = (green::find(green.addr())?, event::find(event.addr())?);
        event::record_all(&event, &green.primary()?, |stream| green.has(stream))
    }
    cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) {
        let (green, event) = (green::find(green.addr())?, event::find(event.addr())?);
        green.primary()?.wait_event(&event, green.handle)
    }
    cuCtxRecordEvent(context: CUcontext, event: CUevent) {
        let (context, event) = (super::contexts::find(context)?, event::find(event.addr())?);
        event::record_all(&event, &context, |_| true)
    }
    cuCtxWaitEvent(context: CUcontext, event: CUevent) {
        let (context, event): (Arc<_>, _) = (super::contexts::find(context)?, event::find(event.addr())?);
        context.wait_event(&event, 0)
    }
}

/// The size of a group of a split: what it asks for, or all that is left.
fn group_size(group: &Group, left: u32) -> Result<u32> {
    let together = group.together.max(SMALLEST);
    let size = if group.count == 0 { left / together * together } else { group.count };
    // Only back-filling lets a group be no multiple of what is scheduled together.
    let back_fill = group.flags & 1 != 0;
    if group.flags > 1 || group.reserved != [0; 12] || (!back_fill && !size.is_multiple_of(together)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn our_structs_are_cudas() {
        assert_eq!(size_of::<Resource>(), size_of::<sys::CUdevResource>());
        assert_eq!(offset_of!(Resource, body), offset_of!(sys::CUdevResource, __bindgen_anon_1));
        assert_eq!(offset_of!(Resource, next), offset_of!(sys::CUdevResource, nextResource));
        assert_eq!(size_of::<Group>(), size_of::<sys::CU_DEV_SM_RESOURCE_GROUP_PARAMS>());
        assert_eq!(offset_of!(sys::CUdevSmResource, smCoscheduledAlignment), 8);
    }
}
