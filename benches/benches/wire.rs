//! The data path by itself, both of its ends in this process: `cargo bench -p pool-bench --bench wire`.

#![allow(missing_docs)] // criterion's macros make items without any

use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpupool_protocol::wire::codec::{Reader, Wire, Writer};
use gpupool_protocol::wire::layout::CHUNK_BYTES;
use gpupool_protocol::wire::{CallHead, ClientLink, Receiver, Replier, WorkerLink};

const POST: u16 = 1;
const CALL: u16 = 2;

/// The words of a memset's record.
const BODY: [u64; 4] = [0x7000_0000_1000, 7, 32, 0x0800_0001_0000_0001];

fn pair() -> (Arc<ClientLink>, Receiver, Arc<Replier>) {
    let (theirs, ours) = UnixStream::pair().expect("a socket pair");
    let (receiver, replier) = WorkerLink::shm(theirs).expect("shared memory is made");
    (ClientLink::shm(ours).expect("shared memory is mapped"), receiver, replier)
}

fn head(call: u16) -> CallHead<'static> {
    CallHead::new(call, 1, 0)
}

fn put(to: &mut Writer<'_>) {
    BODY.iter().for_each(|word| word.put(to));
}

fn codec(criterion: &mut Criterion) {
    let mut record = [0; 8 * BODY.len()];
    criterion.bench_function("encode 4 arguments", |bencher| {
        bencher.iter(|| {
            put(&mut Writer::over(black_box(&mut record)));
        });
    });
    criterion.bench_function("decode 4 arguments", |bencher| {
        bencher.iter(|| {
            let mut from = Reader::new(black_box(&record));
            let words = [(); BODY.len()].map(|()| u64::get(&mut from));
            (words, from.end())
        });
    });
}

/// Both ends take turns on one processor: what the instructions cost, without a cache line's way to another.
fn ring(criterion: &mut Criterion) {
    let (link, mut receiver, replier) = pair();
    criterion.bench_function("ring: push a record and take it", |bencher| {
        bencher.iter(|| {
            link.post(head(POST), 8 * BODY.len(), put).expect("the link is whole");
            receiver.next().expect("the link is whole").position
        });
    });
    let bytes = vec![1; CHUNK_BYTES as usize];
    let mut taken = vec![0; CHUNK_BYTES as usize];
    let mut group = criterion.benchmark_group("bulk");
    group.throughput(Throughput::Bytes(u64::from(CHUNK_BYTES)));
    group.bench_function("a chunk there, copied in and out", |bencher| {
        bencher.iter(|| {
            let mut chunk = link.chunk_up().expect("the chunk is back");
            chunk.write(&bytes).expect("it fits");
            link.post(head(POST).with_up(chunk), 0, |_| ()).expect("the link is whole");
            let index = receiver.next().expect("the link is whole").head.chunk_up.expect("it names a chunk");
            replier.chunk_up_read(index, &mut taken).expect("the chunk is there");
            replier.release_chunk_up(index).expect("the link is whole");
        });
    });
    group.finish();
}

/// A worker on another thread that answers at once.
fn call(criterion: &mut Criterion) {
    let (link, mut receiver, replier) = pair();
    let worker = std::thread::spawn(move || {
        // The end of the link ends the thread.
        while let Ok(record) = receiver.next() {
            let answered = match record.head.slot {
                Some(slot) => replier.reply(slot, record.position, 0, &[1, 2, 3, 4]),
                None => Ok(()),
            };
            if answered.is_err() {
                return;
            }
        }
    });
    criterion.bench_function("a call and its answer", |bencher| {
        bencher.iter(|| {
            let answer = link.call(head(CALL), 24, |_| (), |result, bytes| (result, bytes.left()));
            answer.expect("the link is whole")
        });
    });
    drop(link);
    worker.join().expect("the worker's thread ends by itself");
}

fn short() -> Criterion {
    let times = Criterion::default().warm_up_time(Duration::from_millis(200));
    times.measurement_time(Duration::from_millis(600)).sample_size(20)
}

criterion_group! { name = wire; config = short(); targets = codec, ring, call }
criterion_main!(wire);
