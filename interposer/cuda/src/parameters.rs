//! Kernel parameters: where the program has them, and how they get into the record without a copy in between.

use std::ffi::c_void;
use std::hint::cold_path;

use gpupool_protocol::wire::codec::{Block, Writer, padded};

use crate::args::Bytes;
use crate::code::{Answer, INVALID_VALUE, ensure};
use crate::cptr::Ptr;
use crate::host;
use crate::state::image::Kernel;

/// Markers in `extra` (CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE).
const END: usize = 0;
const BUFFER: usize = 1;
const SIZE: usize = 2;

/// The parameters of one launch, each where a pointer of the program's says. A pointer that is null is seen when the record
/// is written, which then is none: CUDA_ERROR_INVALID_VALUE.
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    kernel: &'a Kernel,
    pointers: Ptr<*mut c_void>,
}

impl Parameters<'_> {
    /// Bytes of the parameter block.
    fn block(&self) -> usize {
        self.kernel.block as usize
    }

    /// Bytes that [`Parameters::put`] writes.
    #[inline(always)]
    pub fn wire_len(&self) -> usize {
        match &self.kernel.pieces {
            Some(pieces) => pieces.wire_len(),
            None => {
                cold_path();
                8 + padded(self.block())
            }
        }
    }

    /// Writes the block's length and the block.
    #[inline(always)]
    pub fn put(&self, to: &mut Writer<'_>) {
        let Self { kernel, pointers } = *self;
        let Some(pieces) = &kernel.pieces else {
            cold_path();
            to.word(self.block() as u64);
            return to.block(self.block(), kernel.has_gaps, |block| self.put_any(block));
        };
        to.pieces(pieces, move |at| taken(pointers, at), move |at| taken(pointers, at));
    }

    /// Puts parameters of any size.
    #[cold]
    #[inline(never)]
    fn put_any<'w>(self, mut block: Block<'w>) -> Block<'w> {
        for (at, (offset, size)) in self.kernel.params.iter().enumerate() {
            let address = self.pointers.at(at).expose_provenance() as u64;
            if address == 0 {
                block.lacks();
                continue;
            }
            block.put(*offset as usize, host::bytes(address, *size as usize));
        }
        block
    }
}

/// The bytes of the parameter with this index; `None` if there is no pointer to it.
#[inline(always)]
fn taken<const N: usize>(pointers: Ptr<*mut c_void>, at: usize) -> Option<[u8; N]> {
    let parameter = pointers.at(at);
    if parameter.is_null() {
        return None;
    }
    Some(Ptr::of_argument(parameter.cast::<[u8; N]>()).at(0))
}

/// The parameter block, from an array of pointers to the parameters. Else CUDA_ERROR_INVALID_VALUE.
#[inline(always)]
pub fn gathered(kernel: &Kernel, pointers: Ptr<*mut c_void>) -> Answer<Bytes<'_>> {
    // An array that is needed must be there; what stands in it is looked at when it is needed.
    ensure(!pointers.is_null() || kernel.params.is_empty(), INVALID_VALUE)?;
    Ok(Bytes::Parameters(Parameters { kernel, pointers }))
}

/// The parameter block, from a block of the program's that `extra` describes. Else CUDA_ERROR_INVALID_VALUE, also where
/// there are `pointers` as well.
#[cold]
pub fn from_buffer(
    kernel: &Kernel,
    pointers: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Answer<&'static [u8]> {
    ensure(pointers.is_null(), INVALID_VALUE)?;
    let block = kernel.block as usize;
    let (mut buffer, mut size) = (0u64, None);
    // Pairs up to the end marker; more than a few make no sense.
    for pair in 0..4 {
        let value = || extra.at(2 * pair + 1);
        match extra.at(2 * pair).addr() {
            END => break,
            BUFFER => buffer = value().expose_provenance() as u64,
            SIZE => size = Some(Ptr::of_argument(value().cast::<usize>()).get()?),
            _ => return Err(INVALID_VALUE),
        }
    }
    match size {
        Some(size) if size >= block && (buffer != 0 || block == 0) => Ok(host::bytes(buffer, block)),
        _ => Err(INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Lend;
    use std::ptr::{from_mut, null_mut};

    fn kernel(params: &[(u32, u32)]) -> Kernel {
        Kernel::new(c"k", params.to_vec(), vec![1024]).unwrap()
    }

    fn null<T>() -> Ptr<T> {
        Ptr::of_argument(null_mut())
    }

    /// The block as it stands in a record behind its length.
    fn packed(kernel: &Kernel, pointers: Ptr<*mut c_void>, extra: Ptr<*mut c_void>) -> Answer<Vec<u8>> {
        let bytes = if extra.is_null() {
            gathered(kernel, pointers)?
        } else {
            Bytes::Whole(from_buffer(kernel, pointers, extra)?)
        };
        let mut record = vec![0xEE; <Vec<u8> as Lend>::len(&bytes)];
        let mut writer = Writer::over(&mut record);
        <Vec<u8> as Lend>::put(&bytes, &mut writer);
        assert_eq!(writer.left(), 0);
        // The record of such a launch is none: the link answers as for one that does not fit.
        ensure(writer.finish(), INVALID_VALUE)?;
        let (length, rest) = record.split_first_chunk::<8>().unwrap();
        let length = u64::from_le_bytes(*length) as usize;
        assert!(rest[length..].iter().all(|byte| *byte == 0), "padding is zeroed");
        Ok(rest[..length].to_vec())
    }

    #[test]
    fn parameters_go_to_their_offsets_and_gaps_are_zero() {
        let k = kernel(&[(0, 1), (8, 8), (16, 4), (20, 2), (24, 3)]);
        let (mut a, mut b, mut c) = (7u8, 0x1122_3344_5566_7788u64, 0xddcc_bbaau32);
        let (mut d, mut e) = (0xaabbu16, [1u8, 2, 3]);
        let mut pointers = [
            from_mut(&mut a).cast::<c_void>(),
            from_mut(&mut b).cast(),
            from_mut(&mut c).cast(),
            from_mut(&mut d).cast(),
            e.as_mut_ptr().cast(),
        ];
        let block = packed(&k, Ptr::of_argument(pointers.as_mut_ptr()), null()).unwrap();
        let expected = [
            [7, 0, 0, 0, 0, 0, 0, 0],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            [0xaa, 0xbb, 0xcc, 0xdd, 0xbb, 0xaa, 0, 0],
        ];
        assert_eq!(block, [expected.as_flattened(), &[1, 2, 3]].concat());
        pointers[3] = null_mut();
        assert_eq!(packed(&k, Ptr::of_argument(pointers.as_mut_ptr()), null()), Err(INVALID_VALUE));
    }

    #[test]
    fn parameters_of_the_usual_sizes_lie_as_the_others_do() {
        let k = kernel(&[(0, 4), (8, 8), (16, 4)]);
        assert!(k.pieces.is_some() && k.has_gaps && kernel(&[(0, 2)]).pieces.is_none());
        let (mut a, mut b, mut c) = (0x0403_0201u32, 0x1122_3344_5566_7788u64, 0xddcc_bbaau32);
        let mut pointers =
            [from_mut(&mut a).cast::<c_void>(), from_mut(&mut b).cast(), from_mut(&mut c).cast()];
        let block = packed(&k, Ptr::of_argument(pointers.as_mut_ptr()), null()).unwrap();
        let expected: [&[u8]; 3] = [
            &[1, 2, 3, 4, 0, 0, 0, 0],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[0xaa, 0xbb, 0xcc, 0xdd],
        ];
        assert_eq!(block, expected.concat());
    }

    #[test]
    fn a_block_of_the_program_s_is_taken_as_it_is() {
        let k = kernel(&[(0, 4), (4, 4)]);
        let mut bytes = [1u8, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut size = 8usize;
        let marker = std::ptr::without_provenance_mut::<c_void>;
        let mut extra = [
            marker(BUFFER),
            bytes.as_mut_ptr().cast(),
            marker(SIZE),
            from_mut(&mut size).cast(),
            marker(END),
        ];
        let taken = packed(&k, null(), Ptr::of_argument(extra.as_mut_ptr()));
        assert_eq!(taken, Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
        let mut short = 7usize;
        extra[3] = from_mut(&mut short).cast();
        let at = Ptr::of_argument(extra.as_mut_ptr());
        assert_eq!(packed(&k, null(), at), Err(INVALID_VALUE));
        assert_eq!(packed(&k, at, at), Err(INVALID_VALUE), "both at once");
        assert_eq!(packed(&k, null(), null()), Err(INVALID_VALUE), "neither");
        assert_eq!(packed(&kernel(&[]), null(), null()), Ok(vec![]));
    }
}
