//! The built library, opened as a program opens it, with the prototypes that the tests use.
#![allow(dead_code, non_snake_case, reason = "each test file uses a part; the names are CUDA's")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one note for all: the tests call a C interface with good arguments"
)]

pub mod boxes;
pub mod calls;
pub mod images;
pub mod peer;
pub mod prototypes;

pub use cudarc::driver::sys::CUresult::*;
pub use cudarc::driver::sys::{self, CUresult};
pub use prototypes::Api;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Every handle.
pub type H = usize;
pub type HostFn = extern "C" fn(*mut c_void);
pub type Callback = extern "C" fn(H, CUresult, *mut c_void);

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// Device memory of an ordinal.
pub fn on_device(id: i32) -> Location {
    Location { kind: 1, id }
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Properties {
    pub kind: u32,
    pub handles: u32,
    pub location: Location,
    pub windows: usize,
    pub flags: u64,
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Description {
    pub location: Location,
    pub flags: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Flat {
    pub width: usize,
    pub height: usize,
    pub format: u32,
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Deep {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// `CUDA_RESOURCE_DESC`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Resource {
    pub kind: u32,
    pub words: [u64; 16],
    pub flags: u32,
}

/// `CUmemcpyAttributes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Order {
    pub order: u32,
    pub places: [Location; 2],
    pub flags: u32,
}

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Ipc(pub [u8; 64]);

impl Ipc {
    /// As text, for another process.
    pub fn to_text(self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// From [`Ipc::to_text`].
    pub fn from_text(text: &str) -> Ipc {
        Ipc(std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")))
    }
}

/// `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PoolProperties {
    pub kind: u32,
    pub handles: u32,
    pub location: Location,
    pub security: usize,
    pub most: usize,
    pub rest: [u64; 7],
}

/// Where cargo puts the library that it builds for the tests: beside the test's own program.
fn path() -> PathBuf {
    std::env::current_exe().expect("a path").with_file_name("libsoftcuda.so")
}

/// Names the directory that processes of one test share devices by.
pub const SHARED_STATE: &str = "SOFTCUDA_TEST_STATE";

/// The library, initialised.
pub fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| {
        // Devices of this process's own, since tests of several processes run at once, or those of a test that shares them.
        let own = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}", std::process::id()));
        let state = std::env::var_os(SHARED_STATE).map_or_else(own, PathBuf::from);
        unsafe { std::env::set_var("SOFTCUDA_STATE", state) };
        let api = Api::load();
        assert_eq!(unsafe { (api.cuInit)(0) }, CUDA_SUCCESS);
        api
    })
}

/// Calls a function of the library: `cu!(cuInit(0))`.
macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        unsafe { ($crate::api::api().$name)($($argument),*) }
    };
}

/// Calls a function that must succeed.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($name($($argument),*)), $crate::api::CUDA_SUCCESS, stringify!($name))
    };
}

pub(crate) use {cu, ok};

/// A context of the test's own, current in the test's thread, destroyed in the end.
pub struct Context(pub H);

pub fn context() -> Context {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    Context(context)
}

impl Drop for Context {
    fn drop(&mut self) {
        cu!(cuCtxDestroy_v2(self.0));
    }
}

/// Whether the system tells of single mappings (Linux 6.11 and later), without which the driver does not look what is where.
pub fn mappings_are_told() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release.split(['.', '-']).map(|n| n.trim().parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// Device memory of some bytes.
pub fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

/// The bytes at a device address.
pub fn read(address: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0u8; bytes];
    ok!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), address, bytes));
    out
}

/// A stream.
pub fn stream(flags: u32) -> H {
    let mut stream = 0;
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

/// An event.
pub fn event(flags: u32) -> H {
    let mut event = 0;
    ok!(cuEventCreate(&mut event, flags));
    event
}

/// A module of PTX text.
pub fn module(ptx: &str) -> H {
    let text = std::ffi::CString::new(ptx).expect("no zero");
    let mut module = 0;
    ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
    module
}

/// A function of a module.
pub fn function(module: H, name: &str) -> H {
    let name = std::ffi::CString::new(name).expect("no zero");
    let mut function = 0;
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Launches with parameters of 8 bytes each, in blocks of x.
pub fn launch(function: H, blocks: u32, threads: u32, stream: H, parameters: &[u64]) -> CUresult {
    let mut pointers: Vec<*mut c_void> =
        parameters.iter().map(|p| std::ptr::from_ref(p).cast_mut().cast()).collect();
    // CUDA takes a null array for no parameters.
    let values = if pointers.is_empty() { std::ptr::null_mut() } else { pointers.as_mut_ptr() };
    cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, values, std::ptr::null_mut()))
}

/// A module of one kernel, `move(to, from)`: `*to = *from` for 32-bit words.
pub const MOVE: &str = ".version 8.0 .target sm_80 .address_size 64
.visible .entry move(.param .u64 o, .param .u64 i) { .reg .b64 %a; .reg .b64 %b; .reg .b32 %v;
ld.param.u64 %a, [o]; ld.param.u64 %b, [i]; ld.global.u32 %v, [%b]; st.global.u32 [%a], %v; ret; }";

/// The result of `*to = *from` by a kernel on a device, in a context of its own that an error ends.
pub fn move_on(device: i32, to: u64, from: u64) -> CUresult {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, device));
    let context = Context(context);
    let function = function(module(MOVE), "move");
    assert_eq!(launch(function, 1, 1, 0, &[to, from]), CUDA_SUCCESS);
    let result = cu!(cuCtxSynchronize());
    drop(context);
    result
}

/// Runs a test of this file, `name`, again in a process of its own with these variables set; there it does `body`.
pub fn in_child(name: &str, variables: &[(&str, &str)], input: std::process::Stdio, body: impl FnOnce()) {
    const MARK: &str = "SOFTCUDA_TEST_CHILD";
    if std::env::var(MARK).is_ok_and(|child| child == name) {
        return body();
    }
    let me = std::env::current_exe().expect("a path");
    let mut command = std::process::Command::new(me);
    command.args([name, "--exact", "--nocapture"]).env(MARK, name).envs(variables.iter().copied());
    assert!(command.stdin(input).status().expect("the child runs").success());
}

/// Kernels for the tests.
pub const PTX: &str = include_str!("kernels.ptx");
