//! What is limited: constants of a module, memory that device code allocates, text that it prints.

mod common;

use common::{Arg, Device};
use softcuda_engine::{LoadError, Loaded, Memory, Module};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

#[test]
fn constants_of_a_module_have_64_kib() {
    let memory = Memory::new(1 << 30).unwrap();
    let load = |first: u32, second: u32| {
        let text = format!(
            "{HEAD}.const .align 4 .b8 a[{first}];\n.const .align 4 .b8 b[{second}];\n.visible .entry k() {{ ret; }}\n"
        );
        Loaded::new(&memory, Module::parse(&text).unwrap())
    };
    assert!(load(32 << 10, 32 << 10).is_ok());
    let error = load(32 << 10, (32 << 10) + 1).unwrap_err();
    let LoadError::Ptx(error) = error else { panic!("{error}") };
    assert_eq!(error.line, 5);
    assert!(error.message.contains("constant"), "{error}");
}

/// Device code gets no more than the limit, and what it frees it gets again.
#[test]
fn the_heap_of_device_code_has_a_limit() {
    let d = Device::new();
    let text = format!(
        "{HEAD}.extern .func (.param .b64 r) malloc(.param .b64 s);\n.extern .func free(.param .b64 p);\n\
         .visible .entry take(.param .u64 out, .param .u64 bytes) {{ .reg .b64 o, b, p; .param .b64 s, r; ld.param.u64 o, [out]; ld.param.u64 b, [bytes];\n\
         st.param.b64 [s], b; call (r), malloc, (s); ld.param.b64 p, [r]; st.global.u64 [o], p; ret; }}\n\
         .visible .entry give(.param .u64 p) {{ .reg .b64 a; .param .b64 q; ld.param.u64 a, [p]; st.param.b64 [q], a; call free, (q); ret; }}\n"
    );
    let m = d.load(&text);
    let (take, give) = (&m.kernels()[0], &m.kernels()[1]);
    let o = d.put(&[1u64]);
    let take = |bytes: u64| {
        d.run(take, [1; 3], [1; 3], &[o, bytes].map(Arg::U64)).unwrap();
        d.get::<u64>(o, 1)[0]
    };
    d.engine.realm().set_heap_limit(1 << 20);
    let first = take(600 << 10);
    assert!(first != 0 && first % 16 == 0);
    assert_eq!(take(600 << 10), 0, "more than there is left");
    let second = take(424 << 10);
    assert_ne!(second, 0, "all that is left");
    assert_eq!(take(1), 0);
    assert_eq!(take(u64::MAX), 0);
    d.run(give, [1; 3], [1; 3], &[Arg::U64(first)]).unwrap();
    assert_ne!(take(600 << 10), 0);
    // Memory of the driver is not the heap's to free.
    assert!(d.run(give, [1; 3], [1; 3], &[Arg::U64(o)]).is_err());
    assert!(d.run(give, [1; 3], [1; 3], &[Arg::U64(second + 16)]).is_err());
    d.run(give, [1; 3], [1; 3], &[Arg::U64(0)]).unwrap();
}

/// Of more than the buffer holds the oldest is lost, as the programming guide says of CUDA's.
#[test]
fn what_does_not_fit_is_lost_oldest_first() {
    let d = Device::new();
    let text = format!(
        "{HEAD}.global .b8 format[8] = {{37, 48, 53, 100, 10, 0}};\n.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .visible .entry k(.param .u32 from, .param .u32 to) {{ .reg .b32 i, n; .reg .b64 f, a; .reg .pred p; .local .align 8 .b8 l[8]; .param .b64 x, y; .param .b32 r;\n\
         ld.param.u32 i, [from]; ld.param.u32 n, [to];\n\
         L: st.local.u32 [l], i; mov.u64 a, l; cvta.local.u64 a, a; mov.u64 f, format; st.param.b64 [x], f; st.param.b64 [y], a;\n\
         call (r), vprintf, (x, y); add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra L; ret; }}\n"
    );
    let m = d.load(&text);
    let print =
        |from: u32, to: u32| d.run(&m.kernels()[0], [1; 3], [1; 3], &[from, to].map(Arg::U32)).unwrap();
    let lines = |from: u32, to: u32| (from..to).map(|i| format!("{i:05}\n")).collect::<String>().into_bytes();
    d.engine.realm().set_output_limit(600);
    print(0, 100);
    assert_eq!(d.engine.realm().take_output(), lines(0, 100), "as much as fits");
    print(0, 250);
    assert_eq!(d.engine.realm().take_output(), lines(150, 250));
    print(0, 90);
    print(90, 120);
    assert_eq!(d.engine.realm().take_output(), lines(20, 120), "of several kernels");
    print(0, 50);
    d.engine.realm().set_output_limit(62);
    assert_eq!(d.engine.realm().take_output(), lines(40, 50), "whole texts only");
    assert_eq!(d.engine.realm().take_output(), b"");
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}
