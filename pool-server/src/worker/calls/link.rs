//! The linker: all inputs at once, since the client collects them.
#![allow(unsafe_code)]

use std::ffi::CString;

use gpupool_protocol::image::{LinkInput, LinkInputs, LinkProduct};

use super::image::Jit;
use crate::worker::code::{Code, Fail};
use crate::worker::context::Cx;
use crate::worker::functions::Functions;

/// `CUjitInputType`: cubin, PTX, fatbin, object, library, NVVM.
const KINDS: std::ops::RangeInclusive<u32> = 0..=5;

pub fn link(
    cx: &mut Cx,
    inputs: u64,
    result: &mut i32,
    product: &mut u64,
    length: &mut u64,
) -> Result<(), Fail> {
    let inputs = LinkInputs::from_bytes(&cx.session.parcels.take(inputs)?)?;
    let linked =
        Jit::new(&inputs.options).and_then(|mut jit| run(&cx.session.driver.hand, &mut jit, inputs.inputs));
    let made = match linked {
        Ok((code, made)) => {
            *result = code.0;
            made
        }
        Err(code) => {
            *result = code.0;
            LinkProduct::default()
        }
    };
    (*product, *length) = cx.session.parcels.keep(made.to_bytes())?;
    Ok(())
}

/// One link from beginning to end; logs come on failure too.
fn run(f: &Functions, jit: &mut Jit, inputs: Vec<LinkInput>) -> Result<(Code, LinkProduct), Code> {
    let mut state = 0;
    // SAFETY: options and values are as many as are said; log buffers live until the state is destroyed below.
    let code = unsafe { f.cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &mut state) };
    if code != Code::SUCCESS {
        return Err(code);
    }
    let mut image = Vec::new();
    let code = match inputs.into_iter().try_for_each(|input| add(f, state, input)) {
        Ok(()) => complete(f, state, &mut image),
        Err(code) => code,
    };
    // The image is copied out; a failure to destroy leaves nothing to be done.
    let _ = f.cuLinkDestroy(state);
    let (info_log, error_log) = jit.logs();
    Ok((code, LinkProduct { image, info_log, error_log }))
}

fn add(f: &Functions, state: u64, mut input: LinkInput) -> Result<(), Code> {
    if !KINDS.contains(&input.kind) {
        return Err(Code::INVALID_VALUE);
    }
    let mut jit = Jit::new(&input.options)?;
    let name = CString::new(input.name).or(Err(Code::INVALID_VALUE))?;
    let size = input.data.len();
    // Text must end with a NUL that does not count.
    input.data.extend_from_slice(&[0; 16]);
    let (count, options, values) = (jit.count(), jit.options(), jit.values());
    let data = input.data.as_mut_ptr().cast();
    // SAFETY: `size` bytes and a C string that live during the call; options as in `run`.
    let code =
        unsafe { f.cuLinkAddData_v2(state, input.kind, data, size, name.as_ptr(), count, options, values) };
    if code == Code::SUCCESS { Ok(()) } else { Err(code) }
}

fn complete(f: &Functions, state: u64, image: &mut Vec<u8>) -> Code {
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    let code = f.cuLinkComplete(state, &mut address, &mut size);
    if code == Code::SUCCESS && !address.is_null() {
        // SAFETY: the driver's own buffer of this size, which it keeps until the state is destroyed.
        image.extend_from_slice(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), size) });
    }
    code
}
