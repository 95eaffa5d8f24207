//! Device memory that the client divides up itself.

use crate::worker::code::Fail;
use crate::worker::context::Cx;
use crate::worker::heap::Growth;

pub fn mem_info(cx: &mut Cx, free: &mut u64, total: &mut u64) -> Result<(), Fail> {
    let (mut of_driver, mut all) = (0, 0);
    cx.session.driver.hand.cuMemGetInfo_v2(&mut of_driver, &mut all).ok()?;
    (*free, *total) = (of_driver as u64, all as u64);
    Ok(())
}

pub fn heap_place(
    cx: &mut Cx,
    device: i32,
    base: u64,
    bytes: u64,
    granularity: &mut u64,
) -> Result<(), Fail> {
    let device = cx.device(device)?;
    *granularity = cx.session.heaps.place(&cx.session.driver.hand, device, base, bytes)?;
    Ok(())
}

#[allow(clippy::too_many_arguments)]
pub fn heap_grow(
    cx: &mut Cx,
    device: i32,
    address: u64,
    least: u64,
    most: u64,
    piece: u64,
    got: &mut u64,
    left: &mut u64,
) -> Result<(), Fail> {
    let heap = cx.session.heaps.find(cx.device(device)?)?;
    (*got, *left) = heap.grow(&cx.session.driver.hand, Growth { address, least, most, piece })?;
    Ok(())
}

pub fn heap_reclaim(cx: &mut Cx, device: i32) -> Result<(), Fail> {
    cx.device(device)?;
    if let Some(others) = cx.session.others.get() {
        others.make_room(device.cast_unsigned());
    }
    Ok(())
}

pub fn heap_shrink(cx: &mut Cx, device: i32, address: u64, bytes: u64) -> Result<(), Fail> {
    let heap = cx.session.heaps.find(cx.device(device)?)?;
    heap.shrink(&cx.session.driver.hand, address, bytes)
}
