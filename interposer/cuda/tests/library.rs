//! The built library, opened as a program does. No server runs: what is tested needs none.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr;

use cuda_abi::symbols::{FLAG_LEGACY, FLAG_PER_THREAD, ROWS};
use gpupool_protocol::api::SYMBOLS;
use libloading::os::unix::Library;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> u32;
type GetProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32;

/// The cdylib lies beside the tests' own directory.
fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let candidates = [deps.join("libgpupool_cuda.so"), deps.parent().unwrap().join("libgpupool_cuda.so")];
    candidates.into_iter().find(|path| path.exists()).expect("cargo builds the library before its tests")
}

fn open() -> Library {
    // No other thread of this test process reads the environment of these names.
    // SAFETY: tests run in a process each, or set the same values.
    unsafe {
        std::env::set_var("GPUPOOL_DRIVER_VERSION", "13050");
        std::env::set_var("GPUPOOL_CONFIG", "/dev/null");
        Library::new(path()).unwrap()
    }
}

fn function<T: Copy>(library: &Library, name: &str) -> T {
    // SAFETY: the tests name the types of cuda.h.
    unsafe { *library.get::<T>(name.as_bytes()).unwrap() }
}

fn address(library: &Library, name: &str) -> *mut c_void {
    function::<unsafe extern "C" fn() -> u32>(library, name) as *mut c_void
}

#[test]
fn every_symbol_of_cuda_h_is_exported() {
    let library = open();
    for row in &ROWS {
        assert!(!address(&library, row.symbol).is_null(), "{}", row.symbol);
    }
}

#[test]
fn proc_addresses_are_the_exported_symbols_and_refused_ones_are_not_found() {
    let library = open();
    let old: GetProcAddress = function(&library, "cuGetProcAddress");
    let new: GetProcAddressV2 = function(&library, "cuGetProcAddress_v2");
    for row in &ROWS {
        let base = CString::new(row.base).unwrap();
        let flags = if row.per_thread { FLAG_PER_THREAD } else { FLAG_LEGACY };
        let (mut at, mut at_new, mut status) = (ptr::null_mut(), ptr::null_mut(), 9);
        // SAFETY: the signatures of cuda.h, with places for every output.
        let codes = unsafe {
            let code = old(base.as_ptr(), &mut at, row.version, flags);
            (code, new(base.as_ptr(), &mut at_new, row.version, flags, &mut status))
        };
        if SYMBOLS.iter().any(|symbol| symbol.symbol == row.symbol) {
            assert_eq!((codes, status), ((0, 0), 0), "{}", row.symbol);
            assert_eq!((at, at_new), (address(&library, row.symbol), at), "{}", row.symbol);
        } else {
            assert_eq!((codes, status), ((500, 0), 1), "{}", row.symbol);
            assert!(at.is_null() && at_new.is_null());
        }
    }
}

#[test]
fn wrong_questions_get_cuda_s_codes() {
    let library = open();
    let new: GetProcAddressV2 = function(&library, "cuGetProcAddress_v2");
    let mut at = ptr::null_mut();
    // SAFETY: as above; null is what is being tested.
    unsafe {
        assert_eq!(new(c"cuInit".as_ptr(), &mut at, 13060, 0, ptr::null_mut()), 1, "newer than the driver");
        assert_eq!(new(c"cuInit".as_ptr(), &mut at, 2000, 3, ptr::null_mut()), 1, "both flags");
        assert_eq!(new(ptr::null(), &mut at, 2000, 0, ptr::null_mut()), 1);
        assert_eq!(new(c"cuInit".as_ptr(), ptr::null_mut(), 2000, 0, ptr::null_mut()), 1);
        assert_eq!(
            new(c"cuGLInit".as_ptr(), &mut at, 2000, 0, ptr::null_mut()),
            0,
            "no such function is no error"
        );
        let mut status = 9;
        assert_eq!(new(c"cuMemAllocAsync".as_ptr(), &mut at, 11010, 0, &mut status), 0);
        assert_eq!(status, 2, "it came with 11.2");
    }
}

#[test]
fn before_init_calls_say_so_and_without_a_server_init_says_no_device() {
    let library = open();
    // Every declaration whose arguments may all be zero: none gets as far as to look at them.
    let mut tried = 0;
    for symbol in SYMBOLS.iter().filter(|s| !EARLY.contains(&s.call)) {
        type Any = unsafe extern "C" fn(
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
        ) -> u32;
        let call: Any = function(&library, symbol.symbol);
        // SAFETY: more zero arguments than any function takes do no harm in the C calling convention.
        assert_eq!(unsafe { call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, 3, "{}", symbol.symbol);
        tried += 1;
    }
    assert!(tried > 200);
    for row in ROWS.iter().filter(|row| SYMBOLS.iter().all(|s| s.symbol != row.symbol)) {
        let call: unsafe extern "C" fn() -> u32 = function(&library, row.symbol);
        // SAFETY: it ignores its arguments.
        assert_eq!(unsafe { call() }, 801, "{}", row.symbol);
    }
    let init: unsafe extern "C" fn(u32) -> u32 = function(&library, "cuInit");
    // SAFETY: the signature of cuda.h.
    unsafe {
        assert_eq!(init(1), 1);
        assert_eq!((init(0), init(0)), (100, 100));
    }
}

/// What may be called before cuInit.
const EARLY: [&str; 7] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
    "cuGetErrorName",
    "cuGetErrorString",
];

#[test]
fn a_program_that_never_calls_cuda_runs_unchanged_under_it() {
    let run = |preload: bool| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo out; echo err >&2; ls /proc/self/task | wc -l; exit 7"]);
        if preload {
            command.env("LD_PRELOAD", path());
        }
        command.output().unwrap()
    };
    let (with, without) = (run(true), run(false));
    assert_eq!((with.status, &with.stdout, &with.stderr), (without.status, &without.stdout, &without.stderr));
}

#[test]
fn preloaded_it_is_found_by_its_soname() {
    let script = "import ctypes; l = ctypes.CDLL('libcuda.so.1'); print(l.cuInit(0))";
    let output = Command::new("python3")
        .args(["-c", script])
        .env("LD_PRELOAD", path())
        .env("GPUPOOL_CONFIG", "/dev/null")
        .env_remove("GPUPOOL_SERVER")
        .output()
        .expect("python3 is needed by the project's tests");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "100\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("GPUPOOL_SERVER"), "{said}");
}

#[test]
fn the_directory_for_library_searches_leads_to_it() {
    let deps = path();
    let profile =
        deps.ancestors().find(|dir| dir.join("gpupool").is_dir()).expect("build.rs makes the directory");
    for name in ["libcuda.so.1", "libcuda.so"] {
        let target = std::fs::read_link(profile.join("gpupool").join(name)).unwrap();
        assert_eq!(target, PathBuf::from("../libgpupool_cuda.so"));
    }
}
