//! What the environment switches: what a program, or who looks at it, sees of each.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const ROLE: &str = "SOFTCUDA_TEST_ROLE";

/// A directory of this test's own.
fn place(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    // The cache takes no directory that others can write.
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&place).unwrap();
    place
}

/// Runs a test of this file as another process, with variables set; what it wrote to stderr.
fn with(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ROLE, test).envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    errors
}

/// Whether this is such a process.
fn is_inside() -> bool {
    std::env::var_os(ROLE).is_some()
}

#[test]
fn the_drivers_version_is_the_one_asked_for() {
    if is_inside() {
        let mut version = 0;
        ok!(cuDriverGetVersion(&mut version));
        assert_eq!(version.to_string(), std::env::var("EXPECTED").unwrap());
        return;
    }
    let test = "the_drivers_version_is_the_one_asked_for";
    with(test, &[("SOFTCUDA_DRIVER_VERSION", "12040"), ("EXPECTED", "12040")]);
    with(test, &[("SOFTCUDA_DRIVER_VERSION", ""), ("EXPECTED", "13040")]);
}

#[test]
fn the_call_that_is_named_fails_and_no_other() {
    if !is_inside() {
        let failing = "cuMemAlloc:2:2,cuCtxSynchronize:1:719";
        with("the_call_that_is_named_fails_and_no_other", &[("SOFTCUDA_FAIL", failing)]);
        return;
    }
    let context = context();
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, 64));
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, 64)), CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cuMemAlloc_v2(&mut address, 64));
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_LAUNCH_FAILED);
    ok!(cuCtxSynchronize());
    drop(context);
}

#[test]
fn faults_and_refusals_are_told_on_stderr_if_asked_for() {
    if is_inside() {
        let context = context();
        let mut address = 0;
        assert_eq!(cu!(cuMemAlloc()), CUDA_ERROR_NOT_SUPPORTED);
        ok!(cuMemAlloc_v2(&mut address, 64));
        assert_eq!(move_on(0, address, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
        drop(context);
        return;
    }
    let test = "faults_and_refusals_are_told_on_stderr_if_asked_for";
    let told = with(test, &[("SOFTCUDA_LOG", "stderr")]);
    assert!(told.lines().any(|line| line == "softcuda: cuMemAlloc is not supported"), "{told}");
    assert!(told.lines().any(|line| line.starts_with("softcuda: kernel move: ")), "{told}");
    assert!(!with(test, &[("SOFTCUDA_LOG", "")]).contains("softcuda: "), "silent else");
}

#[test]
fn compiled_kernels_are_kept_where_the_switch_says() {
    if is_inside() {
        let context = context();
        let memory = alloc(64);
        assert_eq!(move_on(0, memory, memory + 4), CUDA_SUCCESS);
        drop(context);
        return;
    }
    let test = "compiled_kernels_are_kept_where_the_switch_says";
    let (cache, home) = (place("cache"), place("home"));
    let files = |place: &PathBuf| -> Vec<PathBuf> {
        let mut files: Vec<_> =
            std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let variables = [("SOFTCUDA_CACHE", cache.to_str().unwrap()), ("HOME", home.to_str().unwrap())];
    with(test, &variables);
    let first = files(&cache);
    assert!(!first.is_empty());
    with(test, &variables);
    assert_eq!(files(&cache), first, "the second process found it");
    with(test, &[("SOFTCUDA_CACHE", "off"), variables[1], ("XDG_CACHE_HOME", "")]);
    assert!(files(&home).is_empty());
    for place in [cache, home] {
        std::fs::remove_dir_all(place).unwrap();
    }
}

/// Nanoseconds of the stream's time that work takes.
fn time(stream: H, work: impl FnOnce()) -> f64 {
    let (mut before, mut after, mut elapsed) = (0, 0, 0.0);
    ok!(cuEventCreate(&mut before, 0));
    ok!(cuEventCreate(&mut after, 0));
    ok!(cuEventRecord(before, stream));
    work();
    ok!(cuEventRecord(after, stream));
    ok!(cuEventSynchronize(after));
    ok!(cuEventElapsedTime_v2(&mut elapsed, before, after));
    f64::from(elapsed) * 1e6
}

/// The copies and memory sets that work in a stream consists of, in all the ways in which a stream comes by them.
fn moves(stream: H) {
    const BYTES: usize = 64 << 10;
    let (memory, mut pageable, mut pinned) = (alloc(2 * BYTES), vec![0u8; BYTES], std::ptr::null_mut());
    ok!(cuMemHostAlloc(&mut pinned, BYTES, 0));
    let pageable = pageable.as_mut_ptr().cast::<std::ffi::c_void>();
    let in_a_graph = |work: &dyn Fn()| {
        let (mut graph, mut exec) = (0, 0);
        ok!(cuStreamBeginCapture_v2(stream, 2));
        work();
        ok!(cuStreamEndCapture(stream, &mut graph));
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        move || ok!(cuGraphLaunch(exec, stream))
    };
    let copied = in_a_graph(&|| ok!(cuMemcpyDtoHAsync_v2(pinned, memory, BYTES, stream)));
    let set = in_a_graph(&|| ok!(cuMemsetD8Async(memory, 1, BYTES, stream)));
    let ways: [(&str, &dyn Fn()); 8] = [
        ("synchronous", &|| ok!(cuMemcpyDtoH_v2(pageable, memory, BYTES))),
        ("to pageable memory", &|| ok!(cuMemcpyDtoHAsync_v2(pageable, memory, BYTES, stream))),
        ("from pageable memory", &|| ok!(cuMemcpyHtoDAsync_v2(memory, pageable, BYTES, stream))),
        ("asynchronous", &|| ok!(cuMemcpyDtoHAsync_v2(pinned, memory, BYTES, stream))),
        ("set", &|| ok!(cuMemsetD8Async(memory, 1, BYTES, stream))),
        ("set of host memory", &|| ok!(cuMemsetD8_v2(pinned.expose_provenance() as u64, 1, BYTES))),
        ("copy in a graph", &copied),
        ("set in a graph", &set),
    ];
    for (way, work) in ways {
        // No processor moves 64 KiB in 150 ns.
        let took = time(stream, work);
        assert!(took > 150.0 * 2000.0, "{way}: {took} ns");
    }
}

#[test]
fn every_copy_and_memory_set_is_as_slow_as_the_switch_says() {
    if !is_inside() {
        with("every_copy_and_memory_set_is_as_slow_as_the_switch_says", &[("SOFTCUDA_SLOW", "2000")]);
        return;
    }
    let context = context();
    let mut stream = 0;
    ok!(cuStreamCreate(&mut stream, 0));
    moves(stream);
    drop(context);
}
