//! Several texts as one module.

mod common;

use common::{Arg, Device, pack};
use softcuda_engine::{Launch, Loaded, Module};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A text with a function and a variable of its own, a function that others see, and a kernel that stores what both give.
fn text(own: u32, seen: &str, other: &str) -> String {
    format!(
        "{HEAD}.extern .func (.param .b32 r) {other}();\n\
         .global .u32 number = {own};\n.global .u64 place = number;\n\
         .func (.param .b32 r) helper() {{ .reg .b32 a; .reg .b64 p; ld.global.u64 p, [place]; ld.global.u32 a, [p]; st.param.b32 [r], a; ret; }}\n\
         .visible .func (.param .b32 r) {seen}() {{ .reg .b32 a; .param .b32 q; call (q), helper; ld.param.b32 a, [q]; add.u32 a, a, 1; \
         st.param.b32 [r], a; ret; }}\n\
         .visible .entry k{own}(.param .u64 out) {{ .reg .b32 a, b; .reg .b64 o; .param .b32 q; ld.param.u64 o, [out]; \
         call (q), helper; ld.param.b32 a, [q]; call (q), {other}; ld.param.b32 b, [q]; \
         st.global.v2.u32 [o], {{a, b}}; ret; }}\n"
    )
}

#[test]
fn what_is_not_visible_is_a_texts_own() {
    let d = Device::new();
    let (first, second) = (text(10, "f", "g"), text(20, "g", "f"));
    let module = Module::link(&[&first, &second]).unwrap();
    assert_eq!(module.undefined(), None);
    let loaded = Loaded::new(&d.memory, module).unwrap();
    for (kernel, want) in loaded.kernels().iter().zip([[10, 21], [20, 11]]) {
        let o = d.put(&[0u32; 2]);
        d.run(kernel, [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
        assert_eq!(d.get::<u32>(o, 2), want, "{}", kernel.name);
    }
}

#[test]
fn what_is_visible_is_defined_once() {
    let one = text(10, "f", "g");
    let e = Module::link(&[&one, &text(20, "f", "h")]).unwrap_err();
    assert!(e.message.contains("`f` is defined twice"), "{e}");
    assert_eq!(e.line, 8, "of the second text");
    let alone = Module::parse(&one).unwrap();
    assert_eq!(alone.undefined().as_deref(), Some("g"));
    // A weak definition gives way to a strong one, whichever comes first.
    let weak = format!(
        "{HEAD}.weak .global .u32 v = 1;\n.weak .func (.param .b32 r) f() {{ st.param.b32 [r], 1; ret; }}\n"
    );
    let strong = format!(
        "{HEAD}.visible .global .u32 v = 5;\n.visible .func (.param .b32 r) f() {{ st.param.b32 [r], 5; ret; }}\n\
         .visible .entry k(.param .u64 p) {{ .reg .b64 q; .reg .b32 a, b; .param .b32 s; ld.param.u64 q, [p]; call (s), f; ld.param.b32 a, [s];\n\
         ld.global.u32 b, [v]; st.global.u32 [q], a; st.global.u32 [q+4], b; ret; }}\n"
    );
    for texts in [[&weak, &strong], [&strong, &weak]] {
        let d = Device::new();
        let loaded = Loaded::new(&d.memory, Module::link(&texts.map(|t| t.as_str())).unwrap()).unwrap();
        let out = d.put(&[0u32; 2]);
        d.run(&loaded.kernels()[0], [1, 1, 1], [1, 1, 1], &[Arg::U64(out)]).unwrap();
        assert_eq!(d.get::<u32>(out, 2), [5, 5]);
    }
    // An extern variable is the other text's; a weak one gives way.
    let uses = format!("{HEAD}.extern .global .u32 x;\n.global .u64 y = x;\n.weak .global .u32 w = 1;\n");
    let has = format!("{HEAD}.visible .global .u32 x = 5;\n.weak .global .u32 w = 2;\n.global .u64 y = w;\n");
    for texts in [[&uses, &has], [&has, &uses]] {
        let d = Device::new();
        let module = Module::link(&texts.map(|t| t.as_str())).unwrap();
        let loaded = Loaded::new(&d.memory, module).unwrap();
        let at = |name: &str| loaded.globals().filter(|g| g.name == name).map(|g| g.addr).collect::<Vec<_>>();
        let (x, w) = (at("x")[0], at("w")[0]);
        let ys: Vec<u64> = at("y").into_iter().map(|y| d.get::<u64>(y, 1)[0]).collect();
        let expected = if std::ptr::eq(texts[0], &uses) { [x, w] } else { [w, x] };
        assert_eq!(ys, expected);
        assert_eq!(d.get::<u32>(x, 1), [5]);
    }
}

/// The linker joins texts whose declarations differ only in what the function that runs does not use: numba declares a result of
/// every function. What would be read beyond what is passed is refused.
#[test]
fn a_function_may_use_less_than_is_declared() {
    let uses = |declared: &str, call: &str| {
        format!(
            "{HEAD}.extern .func {declared};\n.visible .entry k(.param .u64 out) {{ .reg .b32 a; .reg .b64 o; .param .b64 p; .param .b32 q, r;\n\
             ld.param.u64 o, [out]; mov.u32 a, 7; st.param.b64 [p], o; st.param.b32 [q], a; call {call}; ret; }}\n"
        )
    };
    let stores = format!(
        "{HEAD}.visible .func f(.param .b64 p) {{ .reg .b64 o; .reg .b32 a; ld.param.b64 o, [p]; mov.u32 a, 42; st.global.u32 [o], a; ret; }}\n"
    );
    let adds = format!(
        "{HEAD}.visible .func f(.param .b64 p, .param .b32 q) {{ .reg .b64 o; .reg .b32 a; ld.param.b64 o, [p]; ld.param.b32 a, [q]; \
         add.u32 a, a, 35; st.global.u32 [o], a; ret; }}\n"
    );
    let exact = uses("f(.param .b64 p)", "f, (p)");
    let result = uses("(.param .b32 r) f(.param .b64 p)", "(r), f, (p)");
    let more = uses("(.param .b32 r) f(.param .b64 p, .param .b32 q)", "(r), f, (p, q)");
    let other = uses("f(.param .b32 q)", "f, (q)");
    for (caller, callee, fits) in [
        (&exact, &stores, true),
        (&result, &stores, true),
        (&more, &stores, true),
        (&more, &adds, true),
        (&exact, &adds, false),
        (&result, &adds, false),
        (&other, &stores, false),
    ] {
        for texts in [[caller, callee], [callee, caller]] {
            let d = Device::new();
            let linked = Module::link(&texts.map(|t| t.as_str()));
            assert_eq!(linked.is_ok(), fits, "{caller}{callee}: {:?}", linked.err());
            let Ok(module) = linked else { continue };
            let loaded = Loaded::new(&d.memory, module).unwrap();
            let o = d.put(&[0u32]);
            d.run(&loaded.kernels()[0], [1; 3], [1; 3], &[Arg::U64(o)]).unwrap();
            assert_eq!(d.get::<u32>(o, 1), [42], "{caller}{callee}");
        }
    }
    // In one text they are the same.
    let e = Module::parse(&format!("{HEAD}.extern .func f(.param .b64 p);\n.visible .func f() {{ ret; }}\n"))
        .unwrap_err();
    assert!(e.message.contains("`f` was declared with other parameters"), "{e}");
}

/// PTX manual, Linking Directives: several modules may have one `.common` variable; the largest is it, and a definition is.
#[test]
fn common_variables_are_one() {
    let small = format!("{HEAD}.common .global .align 4 .u32 x;\n.global .u64 y = x;\n");
    let large = format!("{HEAD}.common .global .align 4 .b8 x[64];\n.global .u64 z = x;\n");
    let defined = format!("{HEAD}.visible .global .align 4 .u32 x = 9;\n");
    let used = format!("{HEAD}.extern .global .align 4 .u32 x;\n.global .u64 w = x;\n");
    for (texts, bytes, value) in [
        (vec![&small, &large], 64, 0),
        (vec![&large, &small], 64, 0),
        (vec![&small, &defined, &used], 4, 9),
        (vec![&used, &defined, &small], 4, 9),
        (vec![&used, &small, &large], 64, 0),
    ] {
        let d = Device::new();
        let texts: Vec<&str> = texts.into_iter().map(String::as_str).collect();
        let loaded = Loaded::new(&d.memory, Module::link(&texts).unwrap()).unwrap();
        let named = |name: &str| loaded.globals().find(|g| g.name == name).map(|g| (g.addr, g.size));
        let (x, size) = named("x").unwrap();
        assert_eq!((size, d.get::<u32>(x, 1)), (bytes, vec![value]), "{texts:?}");
        for place in ["y", "z", "w"].into_iter().filter_map(named) {
            assert_eq!(d.get::<u64>(place.0, 1), [x], "{texts:?}");
        }
    }
    let twice = Module::link(&[&defined, &defined]).unwrap_err();
    assert!(twice.message.contains("`x` is defined twice"), "{twice}");
}

/// As numba calls it: the handle of the grid, and its barrier, by the names of NVIDIA's device runtime.
#[test]
fn the_device_runtimes_grid_barrier() {
    let d = Device::new();
    let text = format!(
        "{HEAD}.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);\n\
         .extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);\n\
         .visible .entry k(.param .u64 out, .param .u64 sum) {{ .reg .b64 h, o, s, w; .reg .b32 i, n, t, r, v, round; .reg .pred p;\n\
         ld.param.u64 o, [out]; ld.param.u64 s, [sum]; mov.u32 i, %ctaid.x; mov.u32 n, %nctaid.x; mov.u32 t, %ntid.x; mul.lo.u32 n, n, t;\n\
         mad.lo.u32 i, i, t, 0; mov.u32 t, %tid.x; add.u32 i, i, t; mul.wide.u32 w, i, 4; add.u64 o, o, w; mov.u32 round, 0;\n\
         {{ .param .b32 a; .param .b64 q; mov.u32 v, 1; st.param.b32 [a], v; call (q), cudaCGGetIntrinsicHandle, (a); ld.param.b64 h, [q]; }}\n\
         AGAIN: red.global.add.u32 [s], 1;\n\
         {{ .param .b64 a; .param .b32 b, q; mov.u32 v, 0; st.param.b64 [a], h; st.param.b32 [b], v; \
         call (q), cudaCGSynchronize, (a, b); ld.param.b32 r, [q]; }}\n\
         add.u32 round, round, 1; ld.relaxed.gpu.global.u32 v, [s]; mul.lo.u32 t, n, round; setp.lt.u32 p, v, t; @p trap;\n\
         {{ .param .b64 a; .param .b32 b, q; mov.u32 v, 0; st.param.b64 [a], h; st.param.b32 [b], v; \
         call (q), cudaCGSynchronize, (a, b); ld.param.b32 r, [q]; }}\n\
         setp.lt.u32 p, round, 5; setp.eq.and.u32 p, r, 0, p; @p bra AGAIN; shl.b32 r, r, 8; or.b32 r, r, round; st.global.u32 [o], r; ret; }}"
    );
    let module = Module::parse(&text).unwrap();
    assert_eq!(module.targets().len(), 1, "the runtime's own text is for every device");
    let loaded = Loaded::new(&d.memory, module).unwrap();
    let k = &loaded.kernels()[0];
    let (o, s) = (d.put(&[9u32; 4 * 48]), d.put(&[0u32]));
    let params = pack(k, &[o, s].map(Arg::U64));
    let launch =
        Launch { grid: [4, 1, 1], block: [48, 1, 1], params, cooperative: true, ..Launch::default() };
    d.engine.run(k, &launch).unwrap();
    assert_eq!(d.get::<u32>(s, 1), [5 * 4 * 48]);
    assert!(d.get::<u32>(o, 4 * 48).iter().all(|r| *r == 5));
    // A launch that is not cooperative has no grid barrier: cudaErrorInvalidValue.
    let (o, s) = (d.put(&[9u32]), d.put(&[0u32]));
    d.run(k, [1; 3], [1; 3], &[o, s].map(Arg::U64)).unwrap();
    assert_eq!(d.get::<u32>(o, 1), [1 << 8 | 1]);
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}

/// Of several texts a message says which one it is about, and a fault as well.
#[test]
fn a_line_is_told_with_its_text() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let first = format!("{head}.extern .func f();\n.visible .entry k() {{ call f, (); ret; }}\n");
    let bad = format!("{head}.visible .func f() {{\n.reg .b32 r;\nnonsense r;\n}}\n");
    let error = softcuda_engine::Module::link(&[&first, &bad]).unwrap_err();
    assert_eq!((error.text, error.line), (2, 6), "{error}");
    assert!(error.to_string().starts_with("ptx text 2, line 6: "), "{error}");
    let trap = format!("{head}.visible .func f() {{\n.reg .b32 r;\n\ntrap;\n}}\n");
    let d = common::Device::new();
    for (texts, place) in [([&first, &trap], "text 2, line 7"), ([&trap, &first], "text 1, line 7")] {
        let module = softcuda_engine::Module::link(&texts.map(|t| t.as_str())).unwrap();
        let loaded = softcuda_engine::Loaded::new(&d.memory, module).unwrap();
        let fault = d.run(&loaded.kernels()[0], [1; 3], [1; 3], &[]).unwrap_err();
        assert!(fault.message.contains(&format!("PTX {place})")), "{fault}");
    }
    let missing =
        softcuda_engine::Module::link(&[&trap, &first.replace("f(", "g(").replace(" f", " g")]).unwrap();
    let error = softcuda_engine::Loaded::new(&d.memory, missing).unwrap_err();
    assert_eq!(error.to_string(), "ptx text 2, line 5: unresolved extern symbol `g`");
}
