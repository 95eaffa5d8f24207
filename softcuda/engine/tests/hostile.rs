//! PTX that is wrong: refused with the right line, and never a panic.

mod common;

use proptest::prelude::*;
use softcuda_engine::{Engine, LoadError, Loaded, Memory, Module};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

#[test]
fn errors_have_their_line() {
    let body = |s: &str| {
        format!("{HEAD}.visible .entry k(.param .u64 p)\n{{\n.reg .b32 r<4>; .reg .pred q;\n{s}\nret;\n}}\n")
    };
    let table: &[(String, u32, &str)] = &[
        ("".into(), 1, "`.version`"),
        (".version 8\n".into(), 1, "not a PTX version"),
        (".version 8.0\n.target sm_foo\n".into(), 2, "not a target"),
        (".version 8.0\n.target sm_80\n.address_size 32\n".into(), 3, "64-bit"),
        (body("frobnicate.u32 r0, r1;"), 7, "`frobnicate.u32` is not supported"),
        (body("add.u32.foo r0, r1, r2;"), 7, "modifier `.foo`"),
        (body("wgmma.mma_async.sync.aligned r0;"), 7, "not supported"),
        (body("add.u32 r0, r1, r9;"), 7, "`r9` is not known"),
        (body("add.u32 r0, r1, q;"), 7, "wrong type"),
        (body("add.u32 r0, r1"), 8, "expected `,`"),
        (body("bra NOWHERE;"), 7, "label `NOWHERE` is not defined"),
        (body("L: L2:\nL: ret;"), 8, "defined twice"),
        (body("ld.param.u64 r0, [p+4];"), 7, "outside of `p`"),
        (body("ld.global.v4.u32 {r0, r1}, [r2];"), 7, "wants 4 destinations"),
        (body("call nobody, ();"), 7, "`nobody` is not a function"),
        (body("@r0 bra X;"), 7, "not a predicate"),
        (body("mov.u32 r0, 99999999999999999999999;"), 7, "not a number"),
        (body("bar.sync 77;"), 7, "barriers 0 to 15"),
        (body("{"), 10, "expected a statement"),
        (format!("{HEAD}.global .b8 x[1000000000000000];\n"), 4, "out of range"),
        (format!("{HEAD}.global .u32 x = {{1, 2;\n"), 4, "`}`"),
        (format!("{HEAD}.global .u64 x = y;\n"), 4, "`y` is not known"),
        (format!("{HEAD}.shared .u32 x;\n.extern .global .u32 x;\n"), 5, "defined twice"),
        (format!("{HEAD}.func f()\n{{\n/* never ends\n"), 6, "comment without end"),
        (format!("{HEAD}.entry k() {{ .reg .b32 r<99999999>; }}"), 4, "out of range"),
    ];
    for (text, line, message) in table {
        let e = Module::parse(text).expect_err(text);
        assert_eq!(e.line, *line, "{e}\n{text}");
        assert!(e.message.contains(message), "{e}\n{text}");
    }
}

#[test]
fn unresolved_names_are_told() {
    let text = format!(
        "{HEAD}.extern .func g(.param .b32 x);\n.visible .entry k() {{ {{ .param .b32 a; call g, (a); }} ret; }}\n"
    );
    let memory = Memory::new(1 << 20).unwrap();
    let e = Loaded::new(&memory, Module::parse(&text).unwrap()).map(drop).unwrap_err();
    assert_eq!(e, LoadError::Unresolved { name: "g".into(), text: 0, line: 5 });
    let text = format!("{HEAD}.extern .global .u32 y;\n.global .u64 x = y;\n");
    let e = Loaded::new(&memory, Module::parse(&text).unwrap()).map(drop).unwrap_err();
    assert_eq!(e, LoadError::Unresolved { name: "y".into(), text: 0, line: 5 });
    let text = format!("{HEAD}.global .b8 big[4000000];\n");
    let e = Loaded::new(&memory, Module::parse(&text).unwrap()).map(drop).unwrap_err();
    assert!(matches!(e, LoadError::OutOfMemory(_)));
    assert_eq!(memory.used(), 0);
}

/// If it is accepted, it must compile too.
fn swallow(text: &str) {
    let Ok(m) = Module::parse(text) else { return };
    let memory = Memory::new(16 << 20).unwrap();
    let engine = Engine::new(memory.clone(), 1);
    if let Ok(l) = Loaded::new(&memory, m) {
        for k in l.kernels() {
            engine.prepare(k).unwrap_or_else(|e| panic!("{e}\n{text}"));
        }
    }
}

#[test]
fn a_kernel_has_as_many_parameters_as_cuda_allows() {
    let kernel = |bytes: u32| format!("{HEAD}.visible .entry k(.param .align 4 .b8 p[{bytes}]) {{ ret; }}");
    assert!(Module::parse(&kernel(32_764)).is_ok());
    assert!(Module::parse(&kernel(32_768)).is_err());
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("{", "}"), ("(", ")"), ("-", ""), ("~", "")] {
        let n = 100_000;
        let nest = format!("{}{}", open.repeat(n), close.repeat(n));
        swallow(&format!("{HEAD}.entry k() {{ .reg .b32 r; {nest} ret; }}"));
        swallow(&format!("{HEAD}.entry k() {{ .reg .b32 r; mov.u32 r, {nest}; ret; }}"));
        swallow(&format!("{HEAD}.global .u32 x[] = {nest};"));
        swallow(&format!("{HEAD}.global .u32 x[{nest}];"));
    }
    // A long chain of calls is not nesting of the text, but of the walk over it.
    let mut s = HEAD.to_string();
    for i in 0..20_000 {
        let next = if i == 0 { String::new() } else { format!("call f{};", i - 1) };
        s += &format!(".func f{i}() {{ {next} ret; }}\n");
    }
    s += ".visible .entry k() { call f19999; ret; }\n";
    let m = Module::parse(&s).unwrap();
    let memory = Memory::new(16 << 20).unwrap();
    assert_eq!(Loaded::new(&memory, m).unwrap().kernels().len(), 1);
}

const SAMPLES: [&str; 4] = [
    include_str!("ptx/matmul_shared.ptx"),
    include_str!("ptx/reduce_shuffle.ptx"),
    include_str!("ptx/globals_constants_O0.ptx"),
    include_str!("ptx/vector_add.ptx"),
];

#[test]
fn truncated_anywhere() {
    for text in SAMPLES {
        for end in (0..text.len()).step_by(37) {
            swallow(&text[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC{0,300}") {
        swallow(&text);
        swallow(&format!("{HEAD}{text}"));
        swallow(&format!("{HEAD}.entry k() {{ .reg .b32 r<9>; {text} }}"));
    }

    /// Words of real PTX in any order, or one word of it replaced.
    #[test]
    fn shuffled_words(which in 0..4usize, at in 0.0..1.0f64, from in 0.0..1.0f64, many in 0..4usize) {
        let words: Vec<&str> = SAMPLES[which].split_inclusive([' ', '\n', '\t', ',', ';']).collect();
        let pick = |f: f64| ((words.len() - 1) as f64 * f) as usize;
        let mut new = words.clone();
        for i in 0..=many {
            let (to, from) = (pick((at + 0.13 * i as f64).fract()), pick((from + 0.07 * i as f64).fract()));
            new[to] = words[from];
        }
        swallow(&new.concat());
    }
}

/// Runs the first kernel of a module with one block; it may fault, and must not end the process.
fn run(text: &str, threads: u32) -> Result<(), softcuda_engine::Fault> {
    let memory = Memory::new(1 << 30).unwrap();
    let engine = Engine::new(memory.clone(), 1);
    let loaded = Loaded::new(&memory, Module::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))).unwrap();
    let kernel = &loaded.kernels()[0];
    let launch = softcuda_engine::Launch {
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared: 0,
        params: vec![0; kernel.param_bytes() as usize],
        ..softcuda_engine::Launch::default()
    };
    engine.run(kernel, &launch)
}

#[test]
fn a_divisor_that_is_cut_to_zero_divides_by_zero() {
    for ty in ["u16", "s16"] {
        for op in ["div", "rem"] {
            run(
                &format!(
                    "{HEAD}.visible .entry k() {{ .reg .b16 a; .reg .b32 r; .shared .b16 x; ld.shared.b16 a, [x]; \
                     mov.u32 r, 65536; {op}.{ty} a, a, r; st.shared.b16 [x], a; ret; }}"
                ),
                1,
            )
            .unwrap();
        }
    }
}

#[test]
fn vectors_are_no_longer_than_ptx_has_them() {
    for v in ["v8.b64", "v8.f64", "v4.b128"] {
        let n = if v.starts_with("v8") { 8 } else { 4 };
        let list = vec!["d"; n].join(",");
        let text = |s: &str| {
            format!(
                "{HEAD}.visible .entry k() {{ .reg .b64 d, p; .shared .align 64 .b8 x[64]; mov.u64 p, 1048576; {s} ret; }}"
            )
        };
        assert!(Module::parse(&text(&format!("ld.shared.{v} {{{list}}}, [p];"))).is_err(), "{v}");
        assert!(Module::parse(&text(&format!("st.shared.{v} [p], {{{list}}};"))).is_err(), "{v}");
    }
}

#[test]
fn only_the_declared_sums_saturate() {
    for ty in ["u32", "s64", "u64", "s16"] {
        let text = format!("{HEAD}.visible .entry k() {{ .reg .b64 d; add.sat.{ty} d, d, d; ret; }}");
        assert!(Module::parse(&text).is_err(), "{ty}");
    }
}

#[test]
fn asynchronous_copies_reach_no_locals_or_parameters() {
    for (to, from) in [("l+8", "g"), ("s", "l+8"), ("s", "p+4")] {
        let text = format!(
            "{HEAD}.visible .entry k(.param .b32 p) {{ .reg .b64 g; .local .align 8 .b8 l[8]; .shared .align 16 .b8 s[16];\n\
             cp.async.ca.shared.global [{to}], [{from}], 16; ret; }}"
        );
        let e = Module::parse(&text).expect_err(&text);
        assert_eq!(e.line, 5, "{e}");
    }
}

#[test]
fn what_the_device_library_offers_has_its_prototype() {
    for (declared, call) in [
        (".extern .func malloc;", "call malloc;"),
        (
            ".extern .func (.param .b32 r) malloc(.param .b64 s);",
            "{ .param .b32 r; .param .b64 s; call (r), malloc, (s); }",
        ),
        (".extern .func free(.param .b32 p);", "{ .param .b32 p; call free, (p); }"),
        (
            ".extern .func (.param .b32 r) vprintf(.param .b32 f);",
            "{ .param .b32 r; .param .b32 f; call (r), vprintf, (f); }",
        ),
        (".extern .func __assertfail(.param .b64 m);", "{ .param .b64 m; call __assertfail, (m); }"),
    ] {
        let text = format!("{HEAD}{declared}\n.visible .entry k() {{\n{call}\nret; }}\n");
        let e = Module::parse(&text).expect_err(&text);
        assert!(e.message.contains("prototype"), "{e}");
    }
}

/// Wide text is made on the small stack of the thread that prints it, however deep that is.
#[test]
fn printing_at_the_end_of_the_stack_is_an_overflow_and_no_crash() {
    // Registers that live over the calls make the frames large, so that the native stack ends first.
    let many: Vec<String> = (0..64).map(|i| format!("r{i}")).collect();
    let (mut before, mut after) = (String::new(), String::new());
    for r in &many {
        before += &format!("ld.volatile.global.u64 {r}, [x];\n");
        after += &format!("st.volatile.global.u64 [x], {r};\n");
    }
    let text = format!(
        "{HEAD}.global .u64 x;\n.global .b8 format[8] = {{37, 46, 52, 48, 48, 48, 102, 0}};\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .func deep() {{\n.reg .b64 {}, f; .reg .b32 n;\n{before}\
         {{ .param .b32 r; .param .b64 p; .param .b64 a; mov.u64 f, format; st.param.b64 [p], f; mov.u64 f, x;\n\
         st.param.b64 [a], f; call (r), vprintf, (p, a); }}\n\
         call deep;\n{after}ret; }}\n\
         .visible .entry k() {{ call deep; ret; }}\n",
        many.join(", ")
    );
    let fault = run(&text, 2).unwrap_err();
    assert_eq!(fault.kind, softcuda_engine::FaultKind::IllegalAddress, "{fault}");
    assert!(fault.message.contains("stack overflow"), "{fault}");
}

/// What a call passes is as large as the function was declared, and what the function reads as large as it was defined.
#[test]
fn a_function_is_defined_as_it_was_declared() {
    for (declared, defined) in [
        (
            ".func f(.param .b32 x);",
            ".func f(.param .align 4 .b8 x[16000000]) { .reg .b32 r; ld.param.u32 r, [x+15999996]; st.param.u32 [x+15999992], r; ret; }",
        ),
        (".func (.param .b32 x) f();", ".func (.param .b64 x) f() { ret; }"),
        (".func f(.param .b32 x);", ".visible .entry f(.param .b32 x) { ret; }"),
    ] {
        let call = if declared.contains("(.param .b32 x) f") {
            "{ .param .b32 a; call (a), f; }"
        } else {
            "{ .param .b32 a; call f, (a); }"
        };
        let text = format!("{HEAD}{declared}\n.visible .entry k() {{ {call} ret; }}\n{defined}\n");
        let e = Module::parse(&text).expect_err(&text);
        assert!(e.message.contains("declared"), "{e}");
    }
}

#[test]
fn kernels_are_not_called() {
    let e = Module::parse(&format!("{HEAD}.visible .entry k() {{\ncall k;\nret; }}")).unwrap_err();
    assert_eq!(e.line, 5, "{e}");
    let pointer =
        "{HEAD}.visible .entry k() { .reg .b64 f; mov.u64 f, k; p: .callprototype _ (); call f, p; ret; }";
    let fault = run(&pointer.replace("{HEAD}", HEAD), 1).unwrap_err();
    assert_eq!(fault.kind, softcuda_engine::FaultKind::IllegalInstruction, "{fault}");
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

#[test]
fn again_with_vectors() {
    common::again_with_vectors();
}
