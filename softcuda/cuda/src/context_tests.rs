//! Contexts: who waits for whose end.

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a step of a test did, in the order in which it was done.
type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, what: &'static str) {
    log.lock().unwrap().push(what);
}

/// Something that a thread does in a stream, at the time that the test chooses.
struct Held {
    begun: Receiver<()>,
    go: Sender<()>,
}

impl Held {
    /// Starts it, in a thread of its own; returns when it is under way.
    fn start<'a>(
        scope: &'a std::thread::Scope<'a, '_>,
        (context, stream): (&'a Context, &'a Arc<Stream>),
        log: &'a Log,
    ) -> Held {
        let ((begin, begun), (go, gone)) = (channel(), channel());
        scope.spawn(move || {
            let work = || {
                begin.send(()).unwrap();
                gone.recv().unwrap();
                note(log, "held");
                Ok(())
            };
            context.run_now(stream, work).unwrap();
        });
        begun.recv().unwrap();
        Held { begun, go }
    }

    fn end(self) {
        self.go.send(()).unwrap();
        drop(self.begun);
    }
}

fn noting(log: &Log, what: &'static str) -> Box<dyn FnOnce() -> Result + Send> {
    let log = log.clone();
    Box::new(move || {
        note(&log, what);
        Ok(())
    })
}

/// A context with a blocking stream, and one that is not.
fn with_streams() -> (Arc<Context>, Arc<Stream>, Arc<Stream>) {
    let device = crate::device::for_tests(1).remove(0);
    let context = Context::new(TABLES.contexts.reserve(), &device, false, 0);
    let make = |flags| {
        let stream = Stream::new(&context, TABLES.streams.reserve(), flags, 0);
        context.adopt(&stream);
        stream
    };
    let (blocking, other) = (make(0), make(crate::stream::NON_BLOCKING));
    (context, blocking, other)
}

/// A synchronous copy that one thread does is ordered before all that other threads give to its stream while it is under way,
/// and to the streams that the default stream orders itself with, short or long.
#[test]
fn what_is_done_on_the_calling_thread_has_its_place_among_streams() {
    let (context, blocking, other) = with_streams();
    let legacy = context.legacy().clone();
    for (here, there) in
        [(&blocking, &blocking), (&legacy, &legacy), (&legacy, &blocking), (&blocking, &legacy)]
    {
        let log = Log::default();
        let mark = Arc::new(Record::default());
        std::thread::scope(|scope| {
            let held = Held::start(scope, (&context, here), &log);
            // In an unordered stream everything goes on.
            context.submit(&other, Work::Short(noting(&log, "free"))).unwrap();
            context.synchronize_stream(&other).unwrap();
            context.submit(there, Work::Short(noting(&log, "short"))).unwrap();
            context.submit(there, Work::Mark(mark.clone())).unwrap();
            context.submit(there, Work::Run(noting(&log, "long"))).unwrap();
            assert!(!mark.is_done(), "an event behind work that is under way");
            assert_eq!(context.query_stream(here), Err(CUDA_ERROR_NOT_READY));
            assert_eq!(context.query_stream(there), Err(CUDA_ERROR_NOT_READY));
            held.end();
            // As a further one of its kind.
            context
                .run_now(there, || {
                    note(&log, "last");
                    Ok(())
                })
                .unwrap();
        });
        assert!(mark.is_done());
        assert_eq!(*log.lock().unwrap(), ["free", "held", "short", "long", "last"]);
        context.synchronize().unwrap();
    }
    context.destroy();
}

/// Errors, and a context that dies meanwhile, do not keep the stream.
#[test]
fn what_fails_on_the_calling_thread_gives_its_place_back() {
    let (context, blocking, _) = with_streams();
    assert_eq!(context.run_now(&blocking, || Err(CUDA_ERROR_INVALID_VALUE)), Err(CUDA_ERROR_INVALID_VALUE));
    context.synchronize().unwrap();
    let log = Log::default();
    std::thread::scope(|scope| {
        let held = Held::start(scope, (&context, &blocking), &log);
        let behind = scope.spawn(|| {
            context.run_now(&blocking, || {
                note(&log, "never");
                Ok(())
            })
        });
        // The first holds its place, the other one waits or is about to find the context dead.
        context.fate.fail(CUDA_ERROR_LAUNCH_FAILED);
        held.end();
        assert_eq!(behind.join().unwrap(), Err(CUDA_ERROR_LAUNCH_FAILED));
    });
    assert_eq!(*log.lock().unwrap(), ["held"]);
    assert_eq!(context.synchronize(), Err(CUDA_ERROR_LAUNCH_FAILED));
    context.destroy();
}
