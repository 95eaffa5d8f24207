//! How images come to the worker, and large answers back.

use std::borrow::Cow;

use gpupool_protocol::image::{
    Contents, ImageError, extent, fatbin_of_wrapper, is_fatbin_wrapper, linked, parts_of_wrapper,
};
use gpupool_protocol::wire::codec::{Reader, Wire};
use gpupool_protocol::wire::layout::CHUNK_BYTES;

use super::copy::INLINE_MAX;
use super::jit::Jit;
use crate::args::Bulk;
use crate::code::{Answer, FILE_NOT_FOUND, INVALID_IMAGE, INVALID_VALUE};
use crate::cptr::Ptr;
use crate::cx::{Cx, Pending};
use crate::host::{self, OwnMemory};
use crate::log::say;
use crate::send;
use crate::state::image::{Image, intern};

/// An image to be loaded.
pub struct Source<'a> {
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
    /// Whether it came in a compiler's fatbin wrapper, which only NVIDIA's runtime hands over.
    pub wrapped: bool,
}

/// The image at this address: a fatbin's wrapper, a fatbin, a cubin or PTX.
pub fn at(address: u64) -> Answer<Source<'static>> {
    if address == 0 {
        return Err(INVALID_VALUE);
    }
    let refuse = |error| {
        say!(Info, "no image at {address:#x}: {error}");
        INVALID_IMAGE
    };
    let wrapped = is_fatbin_wrapper(&OwnMemory, address);
    if !wrapped {
        return Ok(Source { bytes: Cow::Borrowed(one_at(address).map_err(refuse)?), wrapped });
    }
    let linked = one_at(fatbin_of_wrapper(&OwnMemory, address).map_err(refuse)?).map_err(refuse)?;
    let parts = parts_of_wrapper(&OwnMemory, address).map_err(refuse)?;
    let bytes = if parts.is_empty() {
        Cow::Borrowed(linked)
    } else {
        let parts = parts.into_iter().map(one_at).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
        Cow::Owned(linked::join(&[&[linked], &parts[..]].concat()))
    };
    Ok(Source { bytes, wrapped })
}

/// The bytes of the fatbin, cubin or PTX at this address.
fn one_at(address: u64) -> Result<&'static [u8], ImageError> {
    let length = usize::try_from(extent(&OwnMemory, address)?).map_err(|_| ImageError::TooLarge)?;
    Ok(host::bytes(address, length))
}

/// The bytes of an image in a file of the client. PTX gets its NUL.
pub fn in_file(path: Ptr<std::ffi::c_char>) -> Answer<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path.bytes()?.to_bytes());
    let mut bytes = std::fs::read(path).map_err(|_| FILE_NOT_FOUND)?;
    if bytes.is_empty() {
        return Err(INVALID_IMAGE);
    }
    bytes.push(0);
    Ok(bytes)
}

/// Sends bytes as a parcel and gives its number.
pub fn send_parcel(cx: Cx, bytes: &[u8]) -> Answer<u64> {
    let parcel = cx.session.new_id();
    let total = bytes.len() as u64;
    let piece = if bytes.len() <= INLINE_MAX { INLINE_MAX } else { CHUNK_BYTES as usize };
    for (number, part) in bytes.chunks(piece).enumerate() {
        let offset = (number * piece) as u64;
        let bulk = if part.len() <= INLINE_MAX {
            Bulk::Inline(part)
        } else {
            let mut chunk = cx.session.link.chunk_up().map_err(|e| cx.session.lost(&e))?;
            chunk.write(part).map_err(|e| cx.session.lost(&e))?;
            Bulk::filled(chunk)
        };
        send::parcel_put(cx, parcel, offset, total, bulk)?;
    }
    Ok(parcel)
}

/// Fetches a parcel of this length.
pub fn fetch(cx: Cx, parcel: u64, length: u64) -> Answer<Vec<u8>> {
    use gpupool_protocol::wire::codec::BadRecord;
    if length > gpupool_protocol::image::MAX_IMAGE {
        return Err(cx.session.bad_answer(BadRecord::OutOfRange));
    }
    let mut bytes: Vec<u8> = Vec::new();
    while (bytes.len() as u64) < length {
        let mut piece = Vec::new();
        send::parcel_get(cx, parcel, bytes.len() as u64, &mut piece)?;
        if piece.is_empty() || (bytes.len() + piece.len()) as u64 > length {
            return Err(cx.session.bad_answer(BadRecord::OutOfRange));
        }
        bytes.append(&mut piece);
    }
    Ok(bytes)
}

/// Waits for the answer to a load: the image's kernels, or the load's own code. Logs are stored on failure too.
pub fn loaded(cx: Cx, pending: Pending, jit: &Jit) -> Answer<&'static Image> {
    let (mut result, mut parcel, mut length) = (0, 0, 0);
    pending.finish(|from: &mut Reader<'_>| {
        result = from.word()? as u32;
        parcel = from.word()?;
        length = from.word()?;
        from.end()
    })?;
    let bad = |bad| cx.session.bad_answer(bad);
    let contents = match length {
        0 => Contents::default(),
        length => Contents::from_bytes(&fetch(cx, parcel, length)?).map_err(bad)?,
    };
    jit.store(&contents.info_log, &contents.error_log);
    cx.result(result)?;
    let nonsense = gpupool_protocol::wire::codec::BadRecord::OutOfRange;
    intern(&contents).ok_or_else(|| cx.session.bad_answer(nonsense))
}

/// A list in the encoding of its `Wire`, as bytes of its own.
pub fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut bytes = vec![0; value.wire_len()];
    value.put(&mut gpupool_protocol::wire::codec::Writer::over(&mut bytes));
    bytes
}
