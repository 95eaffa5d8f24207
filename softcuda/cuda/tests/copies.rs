//! Every copy and every memory set by each of its names: in a stream, in the thread's own stream, in captures.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::boxes::{Copy2D, Copy3D, Side};
use api::calls::{Call, OWN, call};
use api::*;
use std::sync::mpsc;
use std::time::Duration;

/// Bytes of everything here.
const N: usize = 256;

/// Rows of the two-dimensional arrays, and bytes of each.
const ROWS: usize = 4;
const ROW: usize = N / ROWS;

/// Memory of every kind with something in it, and of every kind with zeros.
struct Place {
    context: H,
    from: u64,
    host: u64,
    line: H,
    to: u64,
    back: u64,
    blank_line: H,
    blank_plane: H,
}

/// What is in `from`, `host` and `line`: no two bytes in a row are alike, and none of the three is the other.
fn pattern(seed: usize) -> Vec<u8> {
    (0..N).map(|i| (i * (2 * seed + 3) + seed + i / 64) as u8).collect()
}

const FROM: usize = 1;
const HOST: usize = 2;
const LINE: usize = 3;

fn pinned() -> u64 {
    let mut address = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&mut address, N, 0));
    unsafe { address.write_bytes(0, N) };
    address.expose_provenance() as u64
}

fn host(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn array(width: usize, height: usize) -> H {
    let mut array = 0;
    ok!(cuArrayCreate_v2(&mut array, &Flat { width, height, format: 1, channels: 1 }));
    array
}

/// The bytes of an array of [`N`] bytes, row by row.
fn content(array: H) -> Vec<u8> {
    let mut description = Flat::default();
    ok!(cuArrayGetDescriptor_v2(&mut description, array));
    let out = vec![0u8; N];
    let to = Side::host(out.as_ptr().expose_provenance() as u64, description.width, 0);
    let extent = [description.width, description.height.max(1)];
    ok!(cuMemcpy2D_v2(Copy2D::new(to, Side::array(array, 0, 0), extent).raw()));
    out
}

fn place() -> Place {
    let mut context = 0;
    ok!(cuCtxGetCurrent(&mut context));
    let (from, to, source, back) = (alloc(N), alloc(N), pinned(), pinned());
    let (line, blank_line, blank_plane) = (array(N, 0), array(N, 0), array(ROW, ROWS));
    ok!(cuMemcpyHtoD_v2(from, pattern(FROM).as_ptr().cast(), N));
    ok!(cuMemsetD8_v2(to, 0, N));
    unsafe { host(source).copy_from_nonoverlapping(pattern(HOST).as_ptr(), N) };
    ok!(cuMemcpyHtoA_v2(line, 0, pattern(LINE).as_ptr().cast(), N));
    for (array, width, height) in [(blank_line, N, 1), (blank_plane, ROW, ROWS)] {
        let zeros = Side::device(to, width, 0);
        ok!(cuMemcpy2D_v2(Copy2D::new(Side::array(array, 0, 0), zeros, [width, height]).raw()));
    }
    Place { context, from, host: source, line, to, back, blank_line, blank_plane }
}

fn to(p: &Place) -> Vec<u8> {
    read(p.to, N)
}

fn back(p: &Place) -> Vec<u8> {
    unsafe { std::slice::from_raw_parts(host(p.back), N) }.to_vec()
}

/// [`N`] bytes with some at an offset, else zeros.
fn placed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; N];
    out[at..at + bytes.len()].copy_from_slice(bytes);
    out
}

/// [`N`] zeros in which rows of bytes lie a pitch apart.
fn rows(at: usize, pitch: usize, rows: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut out = vec![0; N];
    for (i, row) in rows.enumerate() {
        out[at + i * pitch..][..row.len()].copy_from_slice(&row);
    }
    out
}

/// From device memory with rows 32 bytes apart to ones 16 bytes apart.
fn narrow(p: &Place) -> Copy2D {
    Copy2D::new(Side::device(p.to, 16, 0), Side::device(p.from, 32, 0), [16, 4])
}

fn narrowed(p: &Place) -> (Vec<u8>, Vec<u8>) {
    (to(p), rows(0, 16, (0..4).map(|i| pattern(FROM)[i * 32..][..16].to_vec())))
}

/// A box of 4 x 2 x 3 bytes of rows of 8 bytes, 4 of them a plane, to dense host memory.
fn dense(p: &Place) -> Copy3D {
    Copy3D::new(Side::host(p.back, 4, 2), Side::device(p.from, 8, 4), [4, 2, 3])
}

fn is_dense(p: &Place) -> (Vec<u8>, Vec<u8>) {
    let row = |i: usize| pattern(FROM)[i / 2 * 32 + i % 2 * 8..][..4].to_vec();
    (back(p), rows(0, 4, (0..6).map(row)))
}

/// Two rows of host memory into the middle of an array.
fn into_plane(p: &Place) -> Copy3D {
    let from = Side { context: p.context, ..Side::host(p.host, 20, 0) };
    let to = Side { context: p.context, ..Side::array(p.blank_plane, 8, 1) };
    Copy3D::new(to, from, [16, 2, 1])
}

fn is_in_plane(p: &Place) -> (Vec<u8>, Vec<u8>) {
    let row = |i: usize| pattern(HOST)[i * 20..][..16].to_vec();
    (content(p.blank_plane), rows(ROW + 8, ROW, (0..2).map(row)))
}

/// One copy of a batch whose source is read in the stream's order.
fn order() -> Order {
    Order { order: 1, places: [Location { kind: 0, id: 0 }; 2], flags: 0 }
}

/// `CUDA_MEMCPY3D_BATCH_OP`: kind, address, bytes a row, rows a plane and no place, for both ends; extent; order.
fn operation(p: &Place) -> [usize; 14] {
    [1, p.from as usize, 32, 0, 0, 1, p.to as usize, 16, 0, 0, 16, 4, 1, 1]
}

const COPY: Option<u32> = Some(1);
const SET: Option<u32> = Some(2);
/// What a capture makes of a batch is not looked at.
const ANY: Option<u32> = None;

fn asynchronous_copies() -> Vec<Call<Place>> {
    vec![
        call!(COPY, cuMemcpyAsync cuMemcpyAsync_ptsz, |p, s| (p.to, p.from, N, s), |p| (to(p), pattern(FROM))),
        call!(COPY, cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz, |p, s| (p.to + 9, p.from + 3, 100, s), |p| {
            (to(p), placed(9, &pattern(FROM)[3..103]))
        }),
        call!(COPY, cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz, |p, s| (p.to, host(p.host).cast(), N, s), |p| {
            (to(p), pattern(HOST))
        }),
        call!(COPY, cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz, |p, s| (host(p.back).cast(), p.from, N, s), |p| {
            (back(p), pattern(FROM))
        }),
        call!(COPY, cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz, |p, s| (p.to, p.context, p.from, p.context, 77, s), |p| {
            (to(p), placed(0, &pattern(FROM)[..77]))
        }),
        call!(COPY, cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz, |p, s| (narrow(p).raw(), s), narrowed),
        call!(COPY, cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz, |p, s| (dense(p).raw(), s), is_dense),
        call!(COPY, cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz, |p, s| (into_plane(p).peer(), s), is_in_plane),
        call!(COPY, cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz, |p, s| (p.blank_line, 8, host(p.host).cast(), 50, s), |p| {
            (content(p.blank_line), placed(8, &pattern(HOST)[..50]))
        }),
        call!(COPY, cuMemcpyAtoHAsync_v2 cuMemcpyAtoHAsync_v2_ptsz, |p, s| (host(p.back).cast(), p.line, 6, 50, s), |p| {
            (back(p), placed(0, &pattern(LINE)[6..56]))
        }),
        call!(ANY, cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz, |p, s| (
            [p.to, p.to + 64].as_mut_ptr(), [p.from, p.host].as_mut_ptr(), [64, 32].as_mut_ptr(), 2,
            &mut order(), &mut 0, 1, &mut 0, s
        ), is_batch),
        call!(ANY, cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz, |p, s| (
            [p.to, p.to + 64].as_mut_ptr(), [p.from, p.host].as_mut_ptr(), [64, 32].as_mut_ptr(), 2,
            &mut order(), &mut 0, 1, s
        ), is_batch),
        call!(ANY, cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz, |p, s| (
            1, operation(p).as_mut_ptr().cast(), &mut 0, 0, s
        ), narrowed),
        call!(ANY, cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz, |p, s| (
            1, operation(p).as_mut_ptr().cast(), 0, s
        ), narrowed),
        call!(ANY, cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz, |p, s| (
            p.to, p.from, N, &mut order(), s
        ), |p| (to(p), pattern(FROM))),
        call!(ANY, cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync_ptsz, |p, s| (
            operation(p).as_mut_ptr().cast(), 0, s
        ), narrowed),
    ]
}

fn is_batch(p: &Place) -> (Vec<u8>, Vec<u8>) {
    (to(p), [&pattern(FROM)[..64], &pattern(HOST)[..32], &[0; N - 96]].concat())
}

fn blocking_copies() -> Vec<Call<Place>> {
    vec![
        call!(ANY, cuMemcpy cuMemcpy_ptds, |p, _s| (p.to, p.from, N), |p| (to(p), pattern(FROM))),
        call!(ANY, cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds, |p, _s| (p.to + 1, host(p.host).cast(), 9), |p| {
            (to(p), placed(1, &pattern(HOST)[..9]))
        }),
        call!(ANY, cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds, |p, _s| (host(p.back).cast(), p.from + 5, 99), |p| {
            (back(p), placed(0, &pattern(FROM)[5..104]))
        }),
        call!(ANY, cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds, |p, _s| (p.to, p.from, N), |p| (to(p), pattern(FROM))),
        call!(ANY, cuMemcpyPeer cuMemcpyPeer_ptds, |p, _s| (p.to, p.context, p.from, p.context, N), |p| {
            (to(p), pattern(FROM))
        }),
        call!(ANY, cuMemcpy2D_v2 cuMemcpy2D_v2_ptds, |p, _s| (narrow(p).raw()), narrowed),
        call!(ANY, cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds, |p, _s| (narrow(p).raw()), narrowed),
        call!(ANY, cuMemcpy3D_v2 cuMemcpy3D_v2_ptds, |p, _s| (dense(p).raw()), is_dense),
        call!(ANY, cuMemcpy3DPeer cuMemcpy3DPeer_ptds, |p, _s| (into_plane(p).peer()), is_in_plane),
        call!(ANY, cuMemcpyHtoA_v2 cuMemcpyHtoA_v2_ptds, |p, _s| (p.blank_line, 3, host(p.host).cast(), 40), |p| {
            (content(p.blank_line), placed(3, &pattern(HOST)[..40]))
        }),
        call!(ANY, cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds, |p, _s| (host(p.back).cast(), p.line, 2, 40), |p| {
            (back(p), placed(0, &pattern(LINE)[2..42]))
        }),
        call!(ANY, cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds, |p, _s| (p.blank_line, 4, p.from, 40), |p| {
            (content(p.blank_line), placed(4, &pattern(FROM)[..40]))
        }),
        call!(ANY, cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds, |p, _s| (p.to, p.line, 4, 40), |p| {
            (to(p), placed(0, &pattern(LINE)[4..44]))
        }),
        call!(ANY, cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds, |p, _s| (p.blank_line, 7, p.line, 1, 40), |p| {
            (content(p.blank_line), placed(7, &pattern(LINE)[1..41]))
        }),
    ]
}

/// Three rows of five elements, rows 32 bytes apart.
fn three_rows(element: &[u8]) -> Vec<u8> {
    rows(0, 32, std::iter::repeat_n(element.repeat(5), 3))
}

const D16: u16 = 0x1234;
const D32: u32 = 0x89ab_cdef;

fn asynchronous_sets() -> Vec<Call<Place>> {
    vec![
        call!(SET, cuMemsetD8Async cuMemsetD8Async_ptsz, |p, s| (p.to + 1, 7, 9, s), |p| (to(p), placed(1, &[7; 9]))),
        call!(SET, cuMemsetD16Async cuMemsetD16Async_ptsz, |p, s| (p.to + 2, D16, 9, s), |p| {
            (to(p), placed(2, &D16.to_le_bytes().repeat(9)))
        }),
        call!(SET, cuMemsetD32Async cuMemsetD32Async_ptsz, |p, s| (p.to + 4, D32, 9, s), |p| {
            (to(p), placed(4, &D32.to_le_bytes().repeat(9)))
        }),
        call!(SET, cuMemsetD2D8Async cuMemsetD2D8Async_ptsz, |p, s| (p.to, 32, 9, 5, 3, s), |p| (to(p), three_rows(&[9]))),
        call!(SET, cuMemsetD2D16Async cuMemsetD2D16Async_ptsz, |p, s| (p.to, 32, D16, 5, 3, s), |p| {
            (to(p), three_rows(&D16.to_le_bytes()))
        }),
        call!(SET, cuMemsetD2D32Async cuMemsetD2D32Async_ptsz, |p, s| (p.to, 32, D32, 5, 3, s), |p| {
            (to(p), three_rows(&D32.to_le_bytes()))
        }),
    ]
}

fn blocking_sets() -> Vec<Call<Place>> {
    vec![
        call!(ANY, cuMemsetD8_v2 cuMemsetD8_v2_ptds, |p, _s| (p.to + 1, 7, 9), |p| (to(p), placed(1, &[7; 9]))),
        call!(ANY, cuMemsetD16_v2 cuMemsetD16_v2_ptds, |p, _s| (p.to + 2, D16, 9), |p| {
            (to(p), placed(2, &D16.to_le_bytes().repeat(9)))
        }),
        call!(ANY, cuMemsetD32_v2 cuMemsetD32_v2_ptds, |p, _s| (p.to + 4, D32, 9), |p| {
            (to(p), placed(4, &D32.to_le_bytes().repeat(9)))
        }),
        call!(ANY, cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds, |p, _s| (p.to, 32, 9, 5, 3), |p| (to(p), three_rows(&[9]))),
        call!(ANY, cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds, |p, _s| (p.to, 32, D16, 5, 3), |p| {
            (to(p), three_rows(&D16.to_le_bytes()))
        }),
        call!(ANY, cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds, |p, _s| (p.to, 32, D32, 5, 3), |p| {
            (to(p), three_rows(&D32.to_le_bytes()))
        }),
    ]
}

#[test]
fn copies_and_sets_do_the_same_by_each_of_their_names() {
    let _context = context();
    for call in asynchronous_copies().iter().chain(&asynchronous_sets()) {
        call.check_in_streams(place);
    }
    for call in blocking_copies().iter().chain(&blocking_sets()) {
        for (name, how) in [(call.plain, "plain"), (call.own, "own")] {
            let place = place();
            call.assert_not_done(&place, "before it is called");
            assert_eq!(name(&place, 0), CUDA_SUCCESS, "{} {how}", call.name);
            ok!(cuCtxSynchronize());
            call.assert_done(&place, how);
        }
    }
}

#[test]
fn copies_and_sets_are_nodes_of_a_capture() {
    let _context = context();
    for call in asynchronous_copies().iter().chain(&asynchronous_sets()) {
        call.check_in_captures(place);
    }
}

/// The legacy stream waits for what the own streams of all threads do; a thread's own stream does not wait for another's.
#[test]
fn blocking_calls_of_the_threads_stream_do_not_wait_for_another_threads() {
    let context = context();
    let calls: Vec<_> =
        blocking_copies().into_iter().chain(blocking_sets()).map(|call| (call, place())).collect();
    let (word, handle, more) = (pinned(), context.0, alloc(4));
    let (held, holds) = mpsc::channel();
    let (let_go, was_let_go) = mpsc::channel::<()>();
    let in_time = std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            ok!(cuCtxSetCurrent(handle));
            ok!(cuStreamWaitValue32_v2_ptsz(0, word, 1, 0));
            held.send(()).expect("it waits");
            // A call that waits after all is let go in the end, and found.
            let told = was_let_go.recv_timeout(Duration::from_secs(30)).is_ok();
            unsafe { host(word).cast::<u32>().write_volatile(1) };
            told
        });
        holds.recv().expect("it holds its stream");
        for (call, place) in &calls {
            assert_eq!((call.own)(place, 0), CUDA_SUCCESS, "{}", call.name);
        }
        ok!(cuStreamSynchronize(OWN));
        // What the legacy stream is given does wait.
        ok!(cuMemsetD8Async(more, 0, 4, 0));
        assert_eq!(cu!(cuStreamQuery(1)), CUDA_ERROR_NOT_READY);
        let_go.send(()).expect("it waits");
        other.join().expect("it ends well")
    });
    assert!(in_time, "a call waited for the other thread's stream");
    for (call, place) in &calls {
        call.assert_done(place, "beside another thread");
    }
}
