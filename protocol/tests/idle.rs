//! An idle session costs no CPU, and a client has no more threads than it needs. A process of its own, since both are
//! counted for the whole process.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use gpupool_protocol::wire::{CallHead, ClientLink, Receiver, Replier, WorkerLink};

fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the list of threads");
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(|task| name(task).trim().to_string()).collect()
}

fn count(name: &str) -> usize {
    threads().iter().filter(|thread| *thread == name).count()
}

fn serve((mut receiver, replier): (Receiver, std::sync::Arc<Replier>)) {
    std::thread::spawn(move || {
        while let Ok(record) = receiver.next() {
            if let Some(slot) = record.head.slot {
                replier.reply(slot, record.position, 0, &[]).expect("the client is there");
            }
        }
    });
}

fn use_it(link: &ClientLink) {
    for number in 0..1000 {
        link.post(CallHead::new(1, 0, 0), 8, |to| to.word(number)).expect("post");
        if number % 100 == 0 {
            link.call(CallHead::new(2, 0, 0), 0, |_| (), |_, _| ()).expect("call");
        }
    }
}

#[test]
fn idle_sessions_cost_nothing() {
    let (theirs, ours) = UnixStream::pair().expect("a socket pair");
    serve(WorkerLink::shm(theirs).expect("the worker's end"));
    let shm = ClientLink::shm(ours).expect("the client's end");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let ours =
        std::net::TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    serve(WorkerLink::tcp(listener.accept().expect("its other end").0).expect("the worker's end"));
    let tcp = ClientLink::tcp(ours).expect("the client's end");

    let before = threads().len();
    use_it(&shm);
    assert_eq!(threads().len(), before, "shm starts no thread in the client");
    assert_eq!(count("gpupool-flush"), 0);
    use_it(&tcp);
    // The thread gives itself its name, when it first runs.
    let named = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        count("gpupool-flush") == 1
    });
    assert!(named, "tcp starts one with the first post: {:?}", threads());

    std::thread::sleep(Duration::from_millis(200));
    let start = cpu_time();
    std::thread::sleep(Duration::from_millis(1500));
    let used = cpu_time() - start;
    assert!(used < Duration::from_millis(2), "two idle sessions used {used:?} of CPU in 1.5 s");

    use_it(&shm);
    use_it(&tcp);
    drop((shm, tcp));
    std::thread::sleep(Duration::from_millis(300));
    for name in ["gpupool-flush", "gpupool-peer"] {
        assert_eq!(count(name), 0, "{name} outlives its link");
    }
}
