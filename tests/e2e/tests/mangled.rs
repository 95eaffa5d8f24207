//! Bytes that neither side has meant: a client, or a server, that lies in the middle of a session. Whatever arrives, the daemon goes
//! on, another session notices nothing, nothing is left behind, and a client dies of no signal. A failure names its seed.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpupool_e2e::{Census, Random, Road, Running, Server, client, is_running, resident};
use rustix::process::{Pid, Signal};

const LIMIT: Duration = Duration::from_secs(60);
/// How long a client may stand that waits for an answer which was lost: then it is ended.
const STANDS: Duration = Duration::from_secs(8);
/// What a daemon may keep for itself after many sessions.
const GROWTH: u64 = 16 << 20;

/// Whose bytes are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liar {
    Client,
    Server,
}

/// A program that works at once with many calls, through what a round puts between it and its server.
fn work(mut command: std::process::Command, seed: u64) -> Running {
    command.args(["2", &seed.to_string(), "3"]);
    Running::start(command)
}

/// Ends a round: the program has ended by itself, or stands and is ended.
fn ends(client: Running, what: &str) {
    let since = Instant::now();
    while is_running(client.pid()) && since.elapsed() < STANDS {
        std::thread::sleep(Duration::from_millis(5));
    }
    if is_running(client.pid()) {
        client.signal(Signal::KILL);
        return;
    }
    let outcome = client.wait(LIMIT);
    assert!(outcome.status.code().is_some(), "{what}: {outcome:?}");
}

/// Rounds until `length` is over, and then a look at what they have left.
fn rounds(length: Duration, road: Road, mut round: impl FnMut(&Server, u64)) {
    let server = Server::start();
    let mut command = server.command(road, client("hold"));
    command.arg("3600").env("GPUPOOL_LOG", "warn");
    let mut bystander = Running::start(command);
    bystander.wait_for_line("READY ", LIMIT);
    // What a first session leaves for good is no leak.
    round(&server, 0);
    let settled = |server: &Server| {
        let (mut last, mut since) = (Census::of(server), Instant::now());
        while since.elapsed() < Duration::from_secs(1) || last.workers != 2 {
            std::thread::sleep(Duration::from_millis(20));
            let now = Census::of(server);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    };
    let before = (settled(&server), resident(server.pid()));
    let end = Instant::now() + length;
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        round(&server, number);
        assert!(
            is_running(bystander.pid()),
            "another session ended in round {number}: {:?}",
            bystander.wait(LIMIT)
        );
        assert!(is_running(server.pid()), "the daemon ended in round {number}:\n{}", server.log());
    }
    assert!(number > 2, "only {number} rounds");
    before.0.returns(&server, Duration::from_secs(20), "at the end");
    let grown = resident(server.pid()).saturating_sub(before.1);
    assert!(grown < GROWTH, "the daemon has grown by {grown} bytes");
    assert!(!server.log().contains("panicked"), "something has panicked:\n{}", server.log());
    gpupool_e2e::run(server.command(road, client("init")), LIMIT);
}

/// Does something wrong to bytes on their way; false: the connection ends here.
fn mangle(random: &mut Random, bytes: &mut Vec<u8>) -> bool {
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(8) {
        0..=2 => bytes[at] ^= 1 << random.below(8),
        3 | 4 => {
            let word = [random.word(), random.below(100), u64::MAX, random.below(1 << 20) << 32]
                [random.below(4) as usize];
            let n = (bytes.len() - at).min(8);
            bytes[at..at + n].copy_from_slice(&word.to_le_bytes()[..n]);
        }
        5 => drop(bytes.drain(at..(at + 1 + random.below(64) as usize).min(bytes.len()))),
        6 => {
            let again = bytes[at..].to_vec();
            bytes.extend(again);
        }
        _ => return false,
    }
    true
}

/// Carries bytes from one side to the other; every some hundred thousand of them, where `random` is given, something goes wrong.
fn carry(mut from: TcpStream, mut to: TcpStream, random: Option<Arc<Mutex<Random>>>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut part = bytes[..count].to_vec();
        let good = random.as_ref().is_none_or(|random| {
            let random = &mut random.lock().unwrap();
            random.below(40) != 0 || mangle(random, &mut part)
        });
        if !good || to.write_all(&part).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A way to a server on which one side's bytes are changed. It ends with the test's process.
fn lying_way(server: &str, liar: Liar, seed: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, random) = (server.to_owned(), Arc::new(Mutex::new(Random(seed))));
    std::thread::spawn(move || {
        // As many connections as a session has.
        for near in listener.incoming().take(4).flatten() {
            let Ok(far) = TcpStream::connect(&server) else { return };
            let other = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let of = |who| (liar == who).then(|| random.clone());
            let (up, down) = (of(Liar::Client), of(Liar::Server));
            std::thread::spawn(move || carry(near, far, up));
            std::thread::spawn(move || carry(other.1, other.0, down));
        }
    });
    address
}

fn over_tcp(liar: Liar, length: Duration) {
    rounds(length, Road::Tcp, |server, number| {
        let mut command = gpupool_e2e::clean(gpupool_e2e::Build::find().file("pool-run"));
        let way = lying_way(&server.tcp, liar, number);
        command.args(["--server", &way, "--transport", "tcp", "--token-file"]).arg(server.token_file());
        command.arg("--").arg(client("stress"));
        ends(work(command, number), &format!("seed {number}, {liar:?}"));
    });
}

/// Where a process can write to shared memory of this name.
fn region(pid: Pid, name: &str) -> Option<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero())).ok()?;
    let line = maps.lines().find(|line| line.contains(name) && line.contains(" rw-s "))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Writes words into the region of the side that lies, as that side itself could.
fn over_shm(liar: Liar, length: Duration) {
    let mut written = 0;
    rounds(length, Road::Shm, |server, number| {
        let mut random = Random(number);
        // The bystander's worker, and those that have not ended since the round before.
        let has_region = |pid: &Pid| region(*pid, "gpupool-down").is_some();
        let others: Vec<Pid> = server.workers().into_iter().filter(has_region).collect();
        let client = work(server.command(Road::Shm, client("stress")), number);
        let deadline = Instant::now() + Duration::from_secs(2);
        let found = loop {
            let found = match liar {
                Liar::Client => region(client.pid(), "gpupool-up").map(|at| (client.pid(), at)),
                Liar::Server => {
                    let mut ours = server.workers().into_iter().filter(|pid| !others.contains(pid));
                    ours.find_map(|pid| region(pid, "gpupool-down").map(|at| (pid, at)))
                }
            };
            if found.is_some() || Instant::now() > deadline || !is_running(client.pid()) {
                break found;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if let Some((pid, (start, end))) = found
            && let Ok(memory) =
                File::options().write(true).open(format!("/proc/{}/mem", pid.as_raw_nonzero()))
        {
            std::thread::sleep(Duration::from_millis(random.below(300)));
            for _ in 0..1 + random.below(200) {
                // Mostly where the small things are: counters, the ring's beginning, slots.
                let reach = [4096, 64 << 10, 1 << 20, end - start][random.below(4) as usize].min(end - start);
                let at = start + random.below(reach / 8) * 8;
                let word = [random.word(), random.below(2000), u64::MAX, random.below(1 << 20) << 32]
                    [random.below(4) as usize];
                written += usize::from(memory.write_all_at(&word.to_le_bytes(), at).is_ok());
            }
        }
        ends(client, &format!("seed {number}, {liar:?}"));
    });
    assert!(
        written > 0,
        "nothing could be written: this needs the right to write to other processes' memory"
    );
}

/// What a plain run does.
const SHORT: Duration = Duration::from_secs(15);
/// What the long form does of each.
const LONG: Duration = Duration::from_secs(600);

macro_rules! liars {
    ($($name:ident $long:ident: $way:ident $liar:ident;)*) => {$(
        #[test]
        fn $name() {
            $way(Liar::$liar, SHORT);
        }
        #[test]
        #[ignore = "ten minutes: cargo test --release -p gpupool-e2e --test mangled -- --ignored"]
        fn $long() {
            $way(Liar::$liar, LONG);
        }
    )*};
}

liars! {
    a_client_over_tcp ten_minutes_of_a_client_over_tcp: over_tcp Client;
    a_server_over_tcp ten_minutes_of_a_server_over_tcp: over_tcp Server;
    a_client_over_shm ten_minutes_of_a_client_over_shm: over_shm Client;
    a_server_over_shm ten_minutes_of_a_server_over_shm: over_shm Server;
}
