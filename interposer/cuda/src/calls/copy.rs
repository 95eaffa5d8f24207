//! Linear copies.
//!
//! To the device a copy goes in pieces, each a record in the order of its stream; the bytes are taken when the call
//! returns. From the device several pieces are under way at a time, and the call returns when all bytes are there.

use std::collections::VecDeque;
use std::ffi::c_void;

use cudarc::driver::sys::CUdeviceptr;
use gpupool_protocol::api::{kinds, numbers};
use gpupool_protocol::image::Memory;
use gpupool_protocol::wire::codec::Wire;
use gpupool_protocol::wire::layout::{CHUNK_BYTES, SLOT_PAYLOAD};
use gpupool_protocol::wire::{DownChunk, UpChunk};

use super::landing;
use super::stream::wait;
use crate::args::{Bulk, StreamArg, stream};
use crate::code::{Answer, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::{Cx, Pending};
use crate::host::OwnMemory;
use crate::{host, output, send};

/// Up to here bytes travel in the record itself.
pub const INLINE_MAX: usize = 16 * 1024;
/// From here on a copy to the device goes over connections for long bytes, if there are any: it then ends with a round trip.
const BULK_MIN: usize = 1 << 20;
/// Pieces from the device that one call has under way.
const READS: usize = 4;

type Handle = Raw<kinds::Stream>;

/// Where an address points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Device memory.
    Device,
    /// The program's memory.
    Host,
}

/// A linear copy.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// To where.
    pub destination: u64,
    /// What is there.
    pub to: Side,
    /// From where.
    pub source: u64,
    /// What is there.
    pub from: Side,
    /// How many bytes.
    pub len: usize,
}

/// Which memory a unified address means. One that is neither (as device memory that was freed) is
/// CUDA_ERROR_INVALID_VALUE, as it is to a driver that shares one address space with the program.
pub fn side(cx: Cx, address: u64) -> Answer<Side> {
    if cx.session.memory.find(address).is_some() {
        Ok(Side::Device)
    } else if is_pinned(cx, address) || OwnMemory.read(address, &mut [0]) {
        Ok(Side::Host)
    } else {
        Err(INVALID_VALUE)
    }
}

/// Checks that the bytes are there, as far as that can be known.
pub fn check(cx: Cx, address: u64, side: Side, len: usize) -> Answer {
    match side {
        Side::Device => cx.reaches(address, len as u64),
        Side::Host if address == 0 && len > 0 => Err(INVALID_VALUE),
        Side::Host => Ok(()),
    }
}

/// Carries a copy out. The addresses are checked. A copy between the device and memory that the worker sees is posted, also
/// one to the host: [`settle`] waits for it.
pub fn carry_out(cx: Cx, copy: Copy, stream: StreamArg) -> Answer {
    let Copy { destination, source, len, .. } = copy;
    let shared = |address| cx.session.pinned.is_shared(address, len as u64);
    match (copy.to, copy.from) {
        (Side::Device, Side::Host) if shared(source) => {
            send::copy_from_host(cx, destination, source, len as u64, stream)
        }
        (Side::Device, Side::Host) => to_device(cx, destination, source, len, stream),
        (Side::Host, Side::Device) if shared(destination) => {
            send::copy_to_host(cx, destination, source, len as u64, stream)
        }
        (Side::Host, Side::Device) if len <= SLOT_PAYLOAD as usize => {
            read_small(cx, source, destination, len, stream)
        }
        (Side::Host, Side::Device) => {
            let mut reads = Reads::new(cx, stream);
            reads.read(source, destination, len)?;
            reads.finish()
        }
        (Side::Device, Side::Device) => send::copy_device(cx, destination, source, len as u64, stream),
        (Side::Host, Side::Host) => {
            // In the stream's order: when everything before it is done.
            send::stream_synchronize(cx, stream.quiet())?;
            host::copy(destination, source, len);
            Ok(())
        }
    }
}

fn is_pinned(cx: Cx, address: u64) -> bool {
    cx.session.pinned.any() && cx.session.pinned.find(address).is_some()
}

fn to_device(cx: Cx, destination: u64, source: u64, len: usize, stream: StreamArg) -> Answer {
    // Bytes of pinned memory count as they are when the stream comes to the copy. What can still change them is a copy to
    // them that has been posted, or a host function before this copy; pageable memory is read during the call in any case.
    super::landing::wait(cx, source, len);
    if cx.session.callbacks.are_under_way() && is_pinned(cx, source) {
        send::stream_synchronize(cx, stream.quiet())?;
    }
    if len <= INLINE_MAX {
        return send::copy_in(cx, destination, Bulk::Inline(host::bytes(source, len)), stream);
    }
    if len >= BULK_MIN && cx.session.link.has_bulk() {
        return to_device_beside(cx, destination, source, len, stream);
    }
    let link = &cx.session.link;
    for at in (0..len).step_by(CHUNK_BYTES as usize) {
        let piece = (len - at).min(CHUNK_BYTES as usize);
        let mut chunk = link.chunk_up().map_err(|e| cx.session.lost(&e))?;
        chunk.write(host::bytes(source + at as u64, piece)).map_err(|e| cx.session.lost(&e))?;
        send::copy_in(cx, destination + at as u64, Bulk::filled(chunk), stream)?;
    }
    Ok(())
}

/// As [`to_device`], for a long copy where long bytes have connections of their own: several chunks fill at a time, and each one's
/// record follows when its bytes are there.
fn to_device_beside(cx: Cx, destination: u64, source: u64, len: usize, stream: StreamArg) -> Answer {
    let link = &cx.session.link;
    let lost = |e| cx.session.lost(&e);
    let mut under_way: VecDeque<(u64, UpChunk<'static>)> = VecDeque::new();
    let post_first = |under_way: &mut VecDeque<(u64, UpChunk<'static>)>| match under_way.pop_front() {
        Some((at, chunk)) => send::copy_in(cx, destination + at, Bulk::filled(chunk), stream),
        None => Ok(()),
    };
    for at in (0..len).step_by(CHUNK_BYTES as usize) {
        let piece = (len - at).min(CHUNK_BYTES as usize);
        while under_way.front().is_some_and(|(_, chunk)| chunk.has_arrived()) {
            post_first(&mut under_way)?;
        }
        // A thread that holds chunks must not wait for another one.
        let mut chunk = loop {
            match link.try_chunk_up().map_err(lost)? {
                Some(chunk) => break chunk,
                None if under_way.is_empty() => break link.chunk_up().map_err(lost)?,
                None => post_first(&mut under_way)?,
            }
        };
        chunk.send(host::bytes(source + at as u64, piece)).map_err(lost)?;
        under_way.push_back((at as u64, chunk));
    }
    while !under_way.is_empty() {
        post_first(&mut under_way)?;
    }
    Ok(())
}

/// A copy from the device that fits a reply slot: what programs do to look at a result.
#[inline(always)]
fn read_small(cx: Cx, source: u64, destination: u64, len: usize, stream: StreamArg) -> Answer {
    let seen = stream.posted();
    let words = [source, len as u64, stream.wire];
    cx.call_small(numbers::copy_out, words, host::bytes_mut(destination, len))?;
    stream.synchronised(seen);
    output::take(cx);
    Ok(())
}

/// Copies from the device, several pieces under way.
pub struct Reads {
    cx: Cx,
    stream: StreamArg,
    /// What of the stream's work is done when these are.
    seen: u64,
    pending: VecDeque<(Pending, u64, usize)>,
}

impl Reads {
    /// None yet.
    pub fn new(cx: Cx, stream: StreamArg) -> Self {
        Self { cx, stream, seen: stream.posted(), pending: VecDeque::new() }
    }

    /// Begins to copy `len` bytes to the program's memory at `destination`.
    pub fn read(&mut self, source: u64, destination: u64, len: usize) -> Answer {
        for at in (0..len).step_by(CHUNK_BYTES as usize) {
            let piece = (len - at).min(CHUNK_BYTES as usize);
            if self.pending.len() >= READS {
                self.take_first()?;
            }
            self.begin(source + at as u64, destination + at as u64, piece)?;
        }
        Ok(())
    }

    fn begin(&mut self, source: u64, destination: u64, len: usize) -> Answer {
        let mut chunk = None;
        if len > SLOT_PAYLOAD as usize {
            // A thread that holds chunks must not wait for another one.
            while !self.pending.is_empty() && chunk.is_none() {
                chunk = self.cx.session.link.try_bulk_down();
                if chunk.is_none() {
                    self.take_first()?;
                }
            }
            let mut own = match chunk.or_else(|| self.cx.session.link.try_bulk_down()) {
                Some(chunk) => chunk,
                None => self.quick_chunk()?,
            };
            if self.cx.session.uses.direct_receive {
                host::receive_into(&mut own, destination, len);
            }
            chunk = Some(own);
        }
        let stream = self.stream.wire;
        let pending = self.cx.begin_with(numbers::copy_out, chunk, 24, |to| {
            source.put(to);
            (len as u64).put(to);
            stream.put(to);
        })?;
        self.pending.push_back((pending, destination, len));
        Ok(())
    }

    /// A chunk when the copies of other threads have all that are for bulk. They may wait for their streams for ever; so
    /// this one waits for its own stream first, and then takes a chunk of those that are needed for a moment only.
    fn quick_chunk(&self) -> Answer<DownChunk<'static>> {
        send::stream_synchronize(self.cx, self.stream.quiet())?;
        self.cx.session.link.chunk_down().map_err(|e| self.cx.session.lost(&e))
    }

    fn take_first(&mut self) -> Answer {
        match self.pending.pop_front() {
            Some((pending, destination, len)) => pending.finish_bytes(host::bytes_mut(destination, len)),
            None => Ok(()),
        }
    }

    /// Waits for all of them.
    pub fn finish(mut self) -> Answer {
        while !self.pending.is_empty() {
            self.take_first()?;
        }
        self.stream.synchronised(self.seen);
        output::take(self.cx);
        Ok(())
    }
}

/// What a call that is synchronous in CUDA does when its copy was posted. From and to pinned memory it waits, as the manual
/// demands. From pageable memory it may return when the bytes are taken; then later work must find them.
pub fn settle(cx: Cx, copy: Copy, stream: StreamArg) -> Answer {
    let pinned = match (copy.to, copy.from) {
        (Side::Device, Side::Host) => is_pinned(cx, copy.source),
        (Side::Host, Side::Device) if cx.session.pinned.is_shared(copy.destination, 1) => true,
        _ => return Ok(()),
    };
    // Other threads' streams do not order themselves by this thread's own.
    if pinned || stream.wire != 0 || !cx.session.uses.posted_copies {
        return wait(cx, stream);
    }
    cx.session.unordered.posted(cx.context);
    Ok(())
}

/// Checks a linear copy and carries it out. `sync`: the call is a synchronous one.
fn linear(cx: Cx, copy: Copy, stream: StreamArg, sync: bool) -> Answer {
    cx.current()?;
    if copy.len == 0 {
        return Ok(());
    }
    check(cx, copy.destination, copy.to, copy.len)?;
    check(cx, copy.source, copy.from, copy.len)?;
    if !sync && landing::post(cx, copy, stream)? {
        return Ok(());
    }
    carry_out(cx, copy, stream)?;
    if sync { settle(cx, copy, stream) } else { Ok(()) }
}

pub fn cuMemcpyHtoD_v2(cx: Cx, destination: CUdeviceptr, source: Ptr<c_void>, n: usize) -> Answer {
    let copy = Copy { destination, to: Side::Device, source: source.addr(), from: Side::Host, len: n };
    linear(cx, copy, StreamArg::of_none(cx), true)
}

pub fn cuMemcpyHtoDAsync_v2(
    cx: Cx,
    destination: CUdeviceptr,
    source: Ptr<c_void>,
    n: usize,
    hstream: Handle,
) -> Answer {
    let copy = Copy { destination, to: Side::Device, source: source.addr(), from: Side::Host, len: n };
    linear(cx, copy, stream(cx, hstream)?, false)
}

#[inline(always)]
pub fn cuMemcpyDtoH_v2(cx: Cx, destination: Ptr<c_void>, source: CUdeviceptr, n: usize) -> Answer {
    let (destination, stream) = (destination.addr(), StreamArg::of_none(cx));
    // The whole of `linear`, as far as it concerns such a copy: nothing else of the program's time is waited for so often.
    if n.wrapping_sub(1) < SLOT_PAYLOAD as usize && destination != 0 && !cx.session.pinned.any() {
        cx.current()?;
        cx.reaches(source, n as u64)?;
        return read_small(cx, source, destination, n, stream);
    }
    let copy = Copy { destination, to: Side::Host, source, from: Side::Device, len: n };
    linear(cx, copy, stream, true)
}

pub fn cuMemcpyDtoHAsync_v2(
    cx: Cx,
    destination: Ptr<c_void>,
    source: CUdeviceptr,
    n: usize,
    hstream: Handle,
) -> Answer {
    let copy = Copy { destination: destination.addr(), to: Side::Host, source, from: Side::Device, len: n };
    linear(cx, copy, stream(cx, hstream)?, false)
}

pub fn cuMemcpyDtoD_v2(cx: Cx, destination: CUdeviceptr, source: CUdeviceptr, n: usize) -> Answer {
    let copy = Copy { destination, to: Side::Device, source, from: Side::Device, len: n };
    linear(cx, copy, StreamArg::of_none(cx), true)
}

fn unified(cx: Cx, destination: CUdeviceptr, source: CUdeviceptr, n: usize) -> Answer<Copy> {
    // Where nothing is copied it does not matter.
    let side = |address| if n == 0 { Ok(Side::Host) } else { side(cx, address) };
    Ok(Copy { destination, to: side(destination)?, source, from: side(source)?, len: n })
}

pub fn cuMemcpy(cx: Cx, destination: CUdeviceptr, source: CUdeviceptr, n: usize) -> Answer {
    linear(cx, unified(cx, destination, source, n)?, StreamArg::of_none(cx), true)
}

pub fn cuMemcpyAsync(
    cx: Cx,
    destination: CUdeviceptr,
    source: CUdeviceptr,
    n: usize,
    hstream: Handle,
) -> Answer {
    linear(cx, unified(cx, destination, source, n)?, stream(cx, hstream)?, false)
}
