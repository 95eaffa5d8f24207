//! The linker: inputs are gathered here and sent when the program asks for the product.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use gpupool_protocol::image::{LinkInput, LinkInputs, LinkProduct, MAX_IMAGE};

use super::images::{fetch, in_file, send_parcel};
use super::jit::Jit;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::cptr::{Ptr, Raw};
use crate::cx::Cx;
use crate::state::objects::lock;
use crate::{host, send};

/// A link under way.
#[derive(Default)]
pub struct Link {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jit: Option<Jit>,
    inputs: Vec<LinkInput>,
    /// The image, which the program reads until it destroys the link.
    product: Vec<u8>,
}

type Handle = Raw<Link>;

/// CUjitInputType: up to CU_JIT_INPUT_NVVM.
const KINDS: u32 = 5;

fn find(cx: Cx, handle: Handle) -> Answer<&'static Link> {
    cx.session.links.get(handle.0).ok_or(INVALID_HANDLE)
}

pub fn cuLinkCreate_v2(
    cx: Cx,
    count: u32,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
    out: Ptr<Handle>,
) -> Answer {
    out.not_null()?;
    cx.current()?;
    let jit = Jit::parse(count, options, values)?;
    let (handle, ()) = cx.session.links.create(|_, link| {
        *lock(&link.state) = State { jit: Some(jit), ..State::default() };
        Ok(())
    })?;
    out.set(Raw::new(handle))
}

fn add(cx: Cx, handle: Handle, kind: u32, data: Vec<u8>, name: String, jit: &Jit) -> Answer {
    if kind > KINDS {
        return Err(INVALID_VALUE);
    }
    let options = jit.numbers().to_vec();
    lock(&find(cx, handle)?.state).inputs.push(LinkInput { kind, name, data, options });
    Ok(())
}

pub fn cuLinkAddData_v2(
    cx: Cx,
    handle: Handle,
    kind: u32,
    data: Ptr<c_void>,
    size: usize,
    name: Ptr<c_char>,
    count: u32,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
) -> Answer {
    find(cx, handle)?;
    if data.is_null() || size == 0 || size as u64 > MAX_IMAGE {
        return Err(INVALID_VALUE);
    }
    let jit = Jit::parse(count, options, values)?;
    let name = if name.is_null() { String::new() } else { name.bytes()?.to_string_lossy().into_owned() };
    add(cx, handle, kind, host::bytes(data.addr(), size).to_vec(), name, &jit)
}

pub fn cuLinkAddFile_v2(
    cx: Cx,
    handle: Handle,
    kind: u32,
    path: Ptr<c_char>,
    count: u32,
    options: Ptr<u32>,
    values: Ptr<*mut c_void>,
) -> Answer {
    find(cx, handle)?;
    let jit = Jit::parse(count, options, values)?;
    let data = in_file(path)?;
    add(cx, handle, kind, data, path.bytes()?.to_string_lossy().into_owned(), &jit)
}

pub fn cuLinkComplete(cx: Cx, handle: Handle, image: Ptr<*mut c_void>, size: Ptr<usize>) -> Answer {
    image.not_null()?;
    cx.current()?;
    let mut state = lock(&find(cx, handle)?.state);
    let jit = state.jit.clone().ok_or(INVALID_HANDLE)?;
    let inputs = LinkInputs { options: jit.numbers().to_vec(), inputs: std::mem::take(&mut state.inputs) };
    let parcel = send_parcel(cx, &inputs.to_bytes())?;
    let (mut result, mut product, mut length) = (0, 0, 0);
    send::link(cx, parcel, &mut result, &mut product, &mut length)?;
    let product = match length {
        0 => LinkProduct::default(),
        length => {
            LinkProduct::from_bytes(&fetch(cx, product, length)?).map_err(|bad| cx.session.bad_answer(bad))?
        }
    };
    jit.store(&product.info_log, &product.error_log);
    cx.result(result as u32)?;
    state.product = product.image;
    size.set_if_wanted(state.product.len());
    image.set(state.product.as_mut_ptr().cast())
}

pub fn cuLinkDestroy(cx: Cx, handle: Handle) -> Answer {
    let ended = cx.session.links.remove(handle.0, |link| *lock(&link.state) = State::default());
    ended.ok_or(INVALID_HANDLE)
}
