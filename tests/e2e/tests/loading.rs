//! What preloading the interposer does to programs, those that never call CUDA above all.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use gpupool_e2e::{Build, Road, Server, clean, preload_interposer, run};

const LIMIT: Duration = Duration::from_secs(30);

/// A listener that nobody may connect to, and its address.
fn untouched() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// The interposer's name in a process's maps, where links are resolved.
fn mapped_interposer() -> std::path::PathBuf {
    Build::find().interposer().canonicalize().unwrap()
}

/// The interposer is really in the process (its maps say so), and all that it brought is the mapping.
#[test]
fn a_program_without_cuda_gets_no_socket_and_no_thread() {
    let (listener, address) = untouched();
    let script =
        "echo fds; ls -l /proc/$$/fd; echo tasks; ls /proc/$$/task; echo maps; grep -cF \"$0\" /proc/$$/maps";
    let mut command = clean("sh");
    command.args(["-c", script]).arg(mapped_interposer());
    preload_interposer(&mut command, &address);
    let outcome = run(command, LIMIT);
    assert!(outcome.status.success(), "{outcome:?}");
    let (fds, rest) = outcome.stdout.split_once("tasks\n").unwrap();
    let (tasks, maps) = rest.split_once("maps\n").unwrap();
    assert!(maps.trim().parse::<u32>().unwrap() > 0, "the interposer is not in the process: {outcome:?}");
    assert!(!fds.contains("socket:") && !fds.contains("anon_inode") && !fds.contains("memfd"), "{outcome:?}");
    assert_eq!(tasks.lines().count(), 1, "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    assert!(listener.accept().is_err(), "it connected");
}

#[test]
fn true_runs_unchanged() {
    let (listener, address) = untouched();
    let mut command = clean("/bin/true");
    preload_interposer(&mut command, &address);
    let outcome = run(command, LIMIT);
    assert!(
        outcome.status.success() && outcome.stdout.is_empty() && outcome.stderr.is_empty(),
        "{outcome:?}"
    );
    assert!(listener.accept().is_err(), "it connected");
}

/// At most 5 ms: the median over interleaved starts, with and without.
#[test]
fn a_program_starts_no_slower() {
    let (_listener, address) = untouched();
    let time = |command: &mut Command| {
        let start = Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed()
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..41 {
        without.push(time(&mut clean("/bin/true")));
        let mut command = clean("/bin/true");
        preload_interposer(&mut command, &address);
        with.push(time(&mut command));
    }
    with.sort();
    without.sort();
    let slower = with[20].saturating_sub(without[20]);
    assert!(
        slower <= Duration::from_millis(5),
        "{slower:?} slower: {:?} instead of {:?}",
        with[20],
        without[20]
    );
}

/// `ctypes.CDLL` finds the interposer by its soname, with no file of that name anywhere on the search path.
#[test]
fn ctypes_finds_the_interposer() {
    let script = "
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
version, count = ctypes.c_int(), ctypes.c_int()
print('version', cuda.cuDriverGetVersion(ctypes.byref(version)), version.value >= 12000)
print('init', cuda.cuInit(0))
print('count', cuda.cuDeviceGetCount(ctypes.byref(count)), count.value >= 1)
maps = open('/proc/self/maps').read()
print('maps', sys.argv[1] in maps, 'softcuda' in maps)
";
    let server = Server::start();
    let mut command = clean("python3");
    command.args(["-c", script]).arg(mapped_interposer());
    preload_interposer(&mut command, &server.address(Road::Shm));
    command.env("GPUPOOL_TOKEN_FILE", server.token_file());
    let outcome = run(command, LIMIT);
    assert_eq!(outcome.stdout, "version 0 True\ninit 0\ncount 0 True\nmaps True False\n", "{outcome:?}");
}

/// The directory that pool-run puts on LD_LIBRARY_PATH serves those that look for a file.
#[test]
fn the_interposers_directory_has_both_names() {
    let directory = Build::find().file("gpupool");
    let server = Server::start();
    for name in ["libcuda.so", "libcuda.so.1"] {
        let mut command = clean("python3");
        command.args(["-c", &format!("import ctypes; print(ctypes.CDLL('{name}').cuInit(0))")]);
        command.env("LD_LIBRARY_PATH", &directory).env("GPUPOOL_SERVER", server.address(Road::Tcp));
        command.env("GPUPOOL_TOKEN_FILE", server.token_file());
        let outcome = run(command, LIMIT);
        assert_eq!(outcome.stdout, "0\n", "{name}: {outcome:?}");
    }
}

/// A child made by fork and exec has the same CUDA as its parent.
#[test]
fn children_inherit_it() {
    let server = Server::start();
    let mut command = server.command(Road::Shm, "sh");
    command.args(["-c", "\"$0\"; \"$0\""]).arg(gpupool_e2e::client("init"));
    let outcome = run(command, LIMIT);
    let good = outcome.stdout.lines().filter(|line| line.starts_with("cuInit 0 ")).count();
    assert_eq!(good, 2, "{outcome:?}");
}
