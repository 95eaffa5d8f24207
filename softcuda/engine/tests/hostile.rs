//! PTX that is wrong: refused with the right line, and never a panic.

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
    assert_eq!(e, LoadError::Unresolved("g".into()));
    let text = format!("{HEAD}.global .u64 x = y;\n");
    let e = Loaded::new(&memory, Module::parse(&text).unwrap()).map(drop).unwrap_err();
    assert_eq!(e, LoadError::Unresolved("y".into()));
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
