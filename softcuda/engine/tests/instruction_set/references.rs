//! Variables of opaque types (PTX manual 5.3): texture, sampler and surface references, in both texture modes.

use crate::common::{Arg, Device, pack};
use crate::texture::{POINT, image, numbers};
use softcuda_engine::{
    Addressing, Bindings, Bound, Channel, Fault, FaultKind, Image, Launch, LoadError, Loaded, Module,
    ReferenceKind, Sampler, Texture,
};
use std::sync::Arc;

/// A module with these declarations and a kernel `k` whose body stores behind `o`.
fn text(mode: &str, declarations: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80{mode}\n.address_size 64\n{declarations}\n.visible .entry k(.param .u64 po, .param .u64 ph) {{\n\
         .reg .b64 h, o, d<4>; .reg .b32 r<16>; .reg .f32 f<8>; .reg .pred p;\n\
         ld.param.u64 o, [po]; ld.param.u64 h, [ph];\n{body}\nret; }}\n"
    )
}

/// Runs `k` by one thread with what is bound by name, and a number of the test's; what it stored.
fn run(d: &Device, m: &Arc<Loaded>, bound: Vec<(&str, Bound)>, number: u64) -> Result<Vec<u32>, Fault> {
    let o = d.put(&[0xdead_beefu32; 16]);
    let k = &m.kernels()[0];
    let of_name = |name: &str| m.references().iter().find(|r| r.name == name).unwrap().number;
    let bindings: Bindings = bound.into_iter().map(|(name, bound)| (of_name(name), bound)).collect();
    let params = pack(k, &[Arg::U64(o), Arg::U64(number)]);
    d.engine.run(k, &Launch { grid: [1; 3], block: [1; 3], params, bindings, ..Launch::default() })?;
    Ok(d.get(o, 16))
}

fn grid(d: &Device, size: [u32; 3]) -> Image {
    image(d, &numbers(size), Channel::U32, 1, size, false)
}

fn texture(image: Image, sampler: Sampler) -> Bound {
    Bound::Texture(Texture { levels: vec![image], sampler })
}

fn floats(d: &Device, texels: &[f32]) -> Image {
    image(d, texels, Channel::F32, 1, [texels.len() as u32, 1, 1], false)
}

fn error(text: &str) -> String {
    Module::parse(text).err().map(|e| e.to_string()).unwrap_or_else(|| panic!("{text} is accepted"))
}

#[test]
fn a_named_texture_is_what_the_launch_binds() {
    let d = Device::new();
    let read = "mov.u32 r4, 2; mov.u32 r5, 1; tex.2d.v4.u32.s32 {r0, r1, r2, r3}, [t, {r4, r5}]; st.global.v4.b32 [o], {r0, r1, r2, r3};\n\
        txq.width.b32 r0, [t]; txq.height.b32 r1, [t]; txq.addr_mode_0.b32 r2, [t]; st.global.v2.b32 [o+16], {r0, r1}; st.global.b32 [o+24], r2;";
    for declaration in [
        ".global .texref t;",
        ".tex .u64 t;",
        ".visible .global .texref t = { width = 7, filter_mode = linear };",
    ] {
        let m = d.load(&text("", declaration, read));
        let got = run(&d, &m, vec![("t", texture(grid(&d, [4, 3, 1]), POINT))], 0).unwrap();
        assert_eq!(got[..7], [12, 0, 0, 1, 4, 3, 3], "{declaration}");
        // Another launch, another image: one that lies in a mirror.
        let mirror = Sampler { addressing: [Addressing::Mirror; 3], normalized: true, ..POINT };
        let got = run(&d, &m, vec![("t", texture(grid(&d, [3, 2, 1]), mirror))], 0).unwrap();
        assert_eq!(got[..7], [12, 0, 0, 1, 3, 2, 1]);
        // It has no memory of its own.
        assert_eq!(m.globals().count(), 0);
    }
}

#[test]
fn pointers_to_references_go_through_registers_memory_and_functions() {
    let d = Device::new();
    let declarations = ".global .texref a;\n.global .texref b;\n.global .surfref s;\n.global .u64 kept;\n\
        .func (.reg .b32 v) read(.reg .b64 t) { .reg .b32 x<4>, i; mov.u32 i, 3; tex.1d.v4.u32.s32 {x0, x1, x2, x3}, [t, {i}]; mov.b32 v, x0; ret; }";
    let body = "mov.u64 d0, a; st.global.u64 [kept], d0; ld.global.u64 d1, [kept]; call (r0), read, (d1);\n\
        mov.u64 d0, b; call (r1), read, (d0); mov.u64 d2, s; mov.u32 r4, 4; suld.b.1d.b32.trap r2, [d2, {r4}]; suq.width.b32 r3, [d2];\n\
        st.global.v4.b32 [o], {r0, r1, r2, r3};\n\
        istypep.texref p, d0; selp.u32 r0, 1, 0, p; istypep.surfref p, d0; selp.u32 r1, 1, 0, p; istypep.surfref p, d2; selp.u32 r2, 1, 0, p;\n\
        st.global.v2.b32 [o+16], {r0, r1}; st.global.b32 [o+24], r2;";
    let m = d.load(&text("", declarations, body));
    let line =
        |from: u32| image(&d, &[from, from + 1, from + 2, from + 3], Channel::U32, 1, [4, 1, 1], false);
    let bound = vec![
        ("a", texture(line(10), POINT)),
        ("b", texture(line(20), POINT)),
        ("s", Bound::Surface(line(30))),
    ];
    assert_eq!(run(&d, &m, bound, 0).unwrap()[..7], [13, 23, 31, 4, 1, 0, 1]);
}

#[test]
fn surfaces_by_name() {
    let d = Device::new();
    let body = "mov.u32 r4, 8; mov.u32 r5, 1; mov.u32 r6, 55; sust.b.2d.b32.trap [s, {r4, r5}], r6; suld.b.2d.b32.trap r0, [s, {r4, r5}]; st.global.b32 [o], r0;\n\
        sured.b.add.2d.u32.trap [s, {r4, r5}], r6; suq.height.b32 r0, [s]; st.global.b32 [o+4], r0;";
    let m = d.load(&text("", ".global .surfref s;", body));
    let grid = grid(&d, [4, 3, 1]);
    assert_eq!(run(&d, &m, vec![("s", Bound::Surface(grid))], 0).unwrap()[..2], [55, 3]);
    assert_eq!(d.get::<u32>(grid.base, 12)[6], 110);
}

/// Entry parameters may be of opaque types: they hold what stands for one, here a texture object.
#[test]
fn parameters_of_opaque_types() {
    let d = Device::new();
    for parameter in [".param .texref t", ".param .u64 .ptr .texref t"] {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 po, {parameter}) {{ .reg .b64 o; .reg .b32 r<6>;\n\
             ld.param.u64 o, [po]; mov.u32 r4, 2; tex.1d.v4.u32.s32 {{r0, r1, r2, r3}}, [t, r4]; st.global.b32 [o], r0; ret; }}\n"
        );
        let image = image(&d, &[7u32, 8, 9], Channel::U32, 1, [3, 1, 1], false);
        let handle = d.memory.bind_texture(Texture { levels: vec![image], sampler: POINT });
        assert_eq!(run(&d, &d.load(&text), vec![], handle).unwrap()[0], 9, "{parameter}");
    }
}

/// In independent mode samplers say how coordinates are taken, and one texture may be read by several.
#[test]
fn samplers_apart_from_textures() {
    let d = Device::new();
    let declarations = ".global .texref t;\n.global .samplerref plain = { force_unnormalized_coords = 1, addr_mode_0 = clamp_to_edge, filter_mode = nearest };\n\
        .global .samplerref mixed = { addr_mode_0 = wrap, filter_mode = linear };\n.global .samplerref mirrored = { addr_mode_0 = mirror, addr_mode_1 = clamp_ogl, addr_mode_2 = clamp_to_border };";
    // 3.5 in texels; 0.25, which is between the texels 0 and 1 of four; -1/8, the mirrored texel 0; by the texture's own sampler texel 1.
    let body = "mov.f32 f4, 0f40600000; tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [t, plain, {f4}]; st.global.f32 [o], f0;\n\
        mov.f32 f4, 0f3E800000; tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [t, mixed, f4]; st.global.f32 [o+4], f0;\n\
        mov.f32 f5, 0fBE000000; tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [t, mirrored, {f5}]; st.global.f32 [o+8], f0;\n\
        tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [t, {f4}]; st.global.f32 [o+12], f0;\n\
        txq.force_unnormalized_coords.b32 r0, [plain]; txq.force_unnormalized_coords.b32 r1, [mixed]; txq.filter_mode.b32 r2, [mixed]; txq.addr_mode_0.b32 r3, [mirrored];\n\
        st.global.v4.b32 [o+16], {r0, r1, r2, r3}; txq.addr_mode_1.b32 r0, [mirrored]; txq.addr_mode_2.b32 r1, [mirrored]; txq.normalized_coords.b32 r2, [t];\n\
        mov.u64 d0, mixed; istypep.samplerref p, d0; selp.u32 r3, 1, 0, p; st.global.v4.b32 [o+32], {r0, r1, r2, r3};";
    let m = d.load(&text(", texmode_independent", declarations, body));
    let sampler = Sampler { normalized: true, ..POINT };
    let got = run(&d, &m, vec![("t", texture(floats(&d, &[10.0, 20.0, 30.0, 40.0]), sampler))], 0).unwrap();
    let values: Vec<f32> = got[..4].iter().map(|w| f32::from_bits(*w)).collect();
    assert_eq!(values, [40.0, 15.0, 10.0, 20.0]);
    assert_eq!(got[4..12], [1, 0, 1, 1, 2, 4, 1, 1]);
    let kinds: Vec<_> = m.references().iter().map(|r| (r.name.as_str(), r.kind)).collect();
    use ReferenceKind::{Sampler as S, Texture as T};
    assert_eq!(kinds, [("t", T), ("plain", S), ("mixed", S), ("mirrored", S)]);
}

#[test]
fn initial_values_are_told() {
    let d = Device::new();
    let m = d.load(&text(
        "",
        ".global .texref t = { normalized_coords = 1, filter_mode = linear, addr_mode_0 = wrap, addr_mode_2 = clamp_to_border,\n array_size = 3, num_mipmap_levels = 2 };\n.global .surfref s = { width = 20, memory_layout = 1 };",
        "",
    ));
    let t = &m.references()[0];
    assert_eq!((t.normalized, t.linear), (true, true));
    assert_eq!(t.addressing, [Some(Addressing::Wrap), None, Some(Addressing::Border)]);
}

#[test]
fn what_is_not_bound_is_a_fault() {
    let d = Device::new();
    let fault = |declarations: &str, body: &str, bound| {
        run(&d, &d.load(&text("", declarations, body)), bound, 0).unwrap_err()
    };
    let read = "mov.u32 r4, 0; tex.1d.v4.u32.s32 {r0, r1, r2, r3}, [t, {r4}]; st.global.b32 [o], r0;";
    let unbound = fault(".global .texref t;", read, vec![]);
    assert_eq!(unbound.kind, FaultKind::IllegalAddress);
    assert!(unbound.to_string().contains("bound"), "{unbound}");
    // A pointer to a reference is no address.
    for access in [
        "ld.global.u32 r0, [d0]",
        "ld.global.u32 r0, [t]",
        "ld.global.u64 d1, [t]",
        "ld.global.u8 r0, [t]",
        "st.global.u32 [d0], r0",
    ] {
        let body = format!("mov.u64 d0, t; {access}; st.global.b32 [o], r0;");
        let kind = fault(".global .texref t;", &body, vec![("t", texture(grid(&d, [4, 1, 1]), POINT))]).kind;
        assert!(
            matches!(kind, FaultKind::IllegalAddress | FaultKind::MisalignedAddress),
            "{access}: {kind:?}"
        );
    }
    // When the module is gone, so are its numbers.
    let m = d.load(&text("", ".global .texref t;", ""));
    let number = m.references()[0].number;
    drop(m);
    let by_number = "mov.u32 r4, 0; tex.1d.v4.u32.s32 {r0, r1, r2, r3}, [h, {r4}]; istypep.texref p, h; st.global.b32 [o], r0;";
    let gone = run(&d, &d.load(&text("", "", by_number)), vec![], number).unwrap_err();
    assert_eq!(gone.kind, FaultKind::IllegalAddress);
}

#[test]
fn references_are_linked_by_name() {
    let d = Device::new();
    let first = text(
        "",
        ".extern .global .texref t;",
        "mov.u32 r4, 1; tex.1d.v4.u32.s32 {r0, r1, r2, r3}, [t, {r4}]; st.global.b32 [o], r0;",
    );
    let second = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .texref t;\n";
    let link = |texts: &[&str]| Loaded::new(&d.memory, Module::link(texts).unwrap());
    let m = link(&[&first, second]).unwrap();
    let line = image(&d, &[5u32, 6], Channel::U32, 1, [2, 1, 1], false);
    assert_eq!(run(&d, &m, vec![("t", texture(line, POINT))], 0).unwrap()[0], 6);
    assert!(matches!(link(&[&first]), Err(LoadError::Unresolved { .. })));
    let other = second.replace("texref", "surfref");
    assert!(Module::link(&[&first, &other]).is_err(), "a texture here and a surface there");
}

#[test]
fn wrong_uses_are_refused() {
    let use_of = |declaration: &str, statement: &str| error(&text("", declaration, statement));
    use_of(".global .surfref s;", "tex.1d.v4.u32.s32 {r0, r1, r2, r3}, [s, {r4}];");
    use_of(".global .texref s;", "suld.b.1d.b32.trap r0, [s, {r4}];");
    use_of(".global .u64 s;", "tex.1d.v4.u32.s32 {r0, r1, r2, r3}, [s, {r4}];");
    use_of(
        ".global .texref s;\n.global .samplerref p0;",
        "tex.1d.v4.u32.f32 {r0, r1, r2, r3}, [s, p0, {f4}];",
    );
    use_of(".global .samplerref s;", "txq.force_unnormalized_coords.b32 r0, [s];");
    for declaration in [
        ".shared .texref s;",
        ".const .texref s;",
        ".global .texref s[4];",
        ".global .texref s = { no_such_member = 1 };",
        ".global .texref s = { filter_mode = cubic };",
        ".global .texref s = { force_unnormalized_coords = 1 };",
        ".global .surfref s = { filter_mode = linear };",
        ".global .samplerref s = { width = 3 };",
        ".global .texref s = { normalized_coords = 2 };",
        ".global .texref s = { width = 2",
        ".global .texref s = 5;",
    ] {
        use_of(declaration, "");
    }
}
