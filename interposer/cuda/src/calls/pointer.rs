//! What CUDA says of an address.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use cudarc::driver::sys::CUdeviceptr;

use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::cptr::Ptr;
use crate::cx::Cx;
use crate::state::memory::{Origin, Range};
use crate::state::pinned::HostRange;

/// CU_MEMORYTYPE_HOST and CU_MEMORYTYPE_DEVICE.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
/// What stands for no device (`CU_DEVICE_INVALID`).
const NO_DEVICE: u32 = -2i32 as u32;

/// An attribute's value, in the width that the manual gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Byte(u8),
    Word(u32),
    Long(u64),
}

impl Value {
    fn store(self, data: Ptr<c_void>) -> Answer {
        match self {
            Value::Byte(value) => data.cast().set(value),
            Value::Word(value) => data.cast().set(value),
            Value::Long(value) => data.cast().set(value),
        }
    }
}

/// What an address belongs to.
enum Owner {
    Device(Range),
    Host(HostRange),
    Nobody,
}

fn owner(cx: Cx, address: u64) -> Owner {
    let pinned = || cx.session.pinned.find(address).map_or(Owner::Nobody, Owner::Host);
    cx.session.memory.find(address).map_or_else(pinned, Owner::Device)
}

fn device_of(cx: Cx, context: u64) -> u32 {
    cx.session.contexts.get(context).map_or(NO_DEVICE, |context| context.device.load(Relaxed) as u32)
}

/// The numbers are CUpointer_attribute's.
fn attribute(cx: Cx, attribute: u32, address: u64, owner: &Owner) -> Answer<Value> {
    use Value::{Byte, Long, Word};
    Ok(match (attribute, owner) {
        (1, Owner::Device(range)) => Long(range.context),
        (1, Owner::Host(range)) => Long(range.context),
        (2, Owner::Device(_)) => Word(DEVICE),
        (2, Owner::Host(_)) => Word(HOST),
        (3, Owner::Device(_)) => Long(address),
        (3, Owner::Host(range)) if range.device.is_some() => {
            Long(range.device.unwrap_or_default() + (address - range.base))
        }
        (4, Owner::Host(_)) => Long(address),
        (6, Owner::Device(_) | Owner::Host(_)) => Byte(0),
        (7, Owner::Device(range)) => Long(range.id),
        (8 | 10 | 15 | 21, Owner::Device(_) | Owner::Host(_)) => Byte(0),
        (9, Owner::Device(range)) => Word(device_of(cx, range.context)),
        (9, Owner::Host(range)) => Word(device_of(cx, range.context)),
        (11 | 19, Owner::Device(range)) => Long(range.base),
        (12 | 18, Owner::Device(range)) => Long(range.size),
        (11 | 19, Owner::Host(range)) => Long(range.base),
        (12 | 18, Owner::Host(range)) => Long(range.size as u64),
        (13, Owner::Device(_)) => Byte(1),
        (13, Owner::Host(range)) => Byte(u8::from(range.device.is_some())),
        (14, Owner::Device(_) | Owner::Host(_)) => Long(0),
        // CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE and _NONE.
        (16, Owner::Device(_)) => Word(3),
        (16, Owner::Host(range)) => Word(if range.device.is_some() { 3 } else { 0 }),
        (17, Owner::Device(range)) if range.origin != Origin::Pooled => Long(0),
        (17, Owner::Host(_)) => Long(0),
        (20, Owner::Device(range)) => Long(range.id),
        (22, Owner::Device(_) | Owner::Host(_)) => Word(u32::MAX),
        (5 | 17, _) => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    })
}

/// What cuPointerGetAttributes stores where cuPointerGetAttribute refuses.
fn absent(attribute: u32) -> Answer<Value> {
    use Value::{Byte, Long, Word};
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => Long(0),
        2 | 16 => Word(0),
        6 | 8 | 10 | 13 | 15 | 21 => Byte(0),
        9 => Word(NO_DEVICE),
        22 => Word(u32::MAX),
        _ => return Err(INVALID_VALUE),
    })
}

pub fn cuPointerGetAttribute(cx: Cx, data: Ptr<c_void>, what: u32, pointer: CUdeviceptr) -> Answer {
    data.not_null()?;
    cx.current()?;
    attribute(cx, what, pointer, &owner(cx, pointer))?.store(data)
}

pub fn cuPointerGetAttributes(
    cx: Cx,
    count: u32,
    attributes: Ptr<u32>,
    data: Ptr<*mut c_void>,
    pointer: CUdeviceptr,
) -> Answer {
    let (attributes, data) = (attributes.not_null()?, data.not_null()?);
    cx.current()?;
    let owner = owner(cx, pointer);
    for i in 0..count as usize {
        let what = attributes.at(i);
        let value = attribute(cx, what, pointer, &owner).or_else(|_| absent(what))?;
        value.store(data_at(data, i))?;
    }
    Ok(())
}

fn data_at(data: Ptr<*mut c_void>, index: usize) -> Ptr<c_void> {
    Ptr::of_argument(data.at(index))
}
