//! Sessions over a real link in one process, with a driver that has no device.
#![allow(unsafe_code)]

mod behaviour;
mod cost;
mod heap;
mod hostile;
mod null;
mod pinned;
mod waiting;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gpupool_protocol::handle::Handle;
use gpupool_protocol::wire::codec::{Reader, Wire, Writer};
use gpupool_protocol::wire::{CallHead, ClientLink, LinkError, Receiver, WorkerLink};

use super::driver::Driver;
use super::session::{self, Session};

/// A linked pair: the client, and a session with its receiver.
fn linked(driver: Driver) -> (Arc<ClientLink>, Arc<Session>, Receiver) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let client = std::thread::spawn(|| ClientLink::shm(ours).unwrap());
    let (receiver, link) = WorkerLink::shm(theirs).unwrap();
    let session = Session::new(driver, link, vec![0, 1]).unwrap();
    (client.join().unwrap(), session, receiver)
}

/// A session that runs, and its client.
struct Pool {
    link: Arc<ClientLink>,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
    lane: u32,
    context: u64,
}

/// The first handle with this index.
fn handle(index: u32) -> u64 {
    again(index, 1)
}

fn again(index: u32, generation: u32) -> u64 {
    Handle { index, generation }.to_bits()
}

/// A record's body.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn put<T: Wire>(mut self, value: T) -> Self {
        let at = self.0.len();
        self.0.resize(at + value.wire_len(), 0);
        value.put(&mut Writer::over(&mut self.0[at..]));
        self
    }

    fn words(words: &[u64]) -> Self {
        words.iter().fold(Self::default(), |body, word| body.put(*word))
    }
}

impl Pool {
    /// With the primary context of device 0 retained and current.
    fn start(driver: Driver) -> Self {
        use gpupool_protocol::api::numbers::{primary_name, primary_retain};
        let (link, session, mut receiver) = linked(driver);
        let worker = session.clone();
        let thread = std::thread::spawn(move || session::serve(&worker, &mut receiver));
        let mut pool = Self { link, thread, lane: 1, context: 0 };
        pool.post(primary_name, Body::words(&[handle(0), 0]));
        assert_eq!(pool.call(primary_retain, Body::words(&[handle(0), 0])).0, 0);
        pool.context = handle(0);
        pool
    }

    /// Another thread of the client.
    fn lane(&self, lane: u32) -> impl Fn(u16, Body) -> (i32, Vec<u64>) + use<> {
        let (link, context) = (self.link.clone(), self.context);
        move |number, body| call(&link, CallHead::new(number, lane, context), &body)
    }

    fn head(&self, number: u16) -> CallHead<'_> {
        CallHead::new(number, self.lane, self.context)
    }

    fn post(&self, number: u16, body: Body) {
        self.link.post(self.head(number), body.0.len(), |to| to.bytes(&body.0)).unwrap();
    }

    fn call(&self, number: u16, body: Body) -> (i32, Vec<u64>) {
        call(&self.link, self.head(number), &body)
    }

    /// A call whose answer may be long.
    fn call_long(&self, number: u16, body: Body) -> (i32, Vec<u8>) {
        let head = self.head(number).with_down(self.link.chunk_down().unwrap());
        let read = |code, from: &mut Reader<'_>| (code, from.bytes(from.left()).unwrap().to_vec());
        self.link.call(head, body.0.len(), |to| to.bytes(&body.0), read).unwrap()
    }

    /// Loads an image as one parcel.
    fn parcel(&self, number: u64, bytes: &[u8]) {
        let body = Body::words(&[number, 0, bytes.len() as u64, bytes.len() as u64, 0]);
        let mut body = body.0;
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(8), 0);
        self.post(gpupool_protocol::api::numbers::parcel_put, Body(body));
    }

    /// The client leaves; what the session says at its end.
    fn end(self) -> anyhow::Result<()> {
        self.link.break_with(LinkError::GivenUp("the test is over".into()));
        self.thread.join().unwrap()
    }
}

fn call(link: &ClientLink, head: CallHead<'_>, body: &Body) -> (i32, Vec<u64>) {
    let read = |code, from: &mut Reader<'_>| {
        let words = std::iter::from_fn(|| (from.left() > 0).then(|| from.word().unwrap())).collect();
        (code, words)
    };
    link.call(head, body.0.len(), |to| to.bytes(&body.0), read).unwrap()
}
