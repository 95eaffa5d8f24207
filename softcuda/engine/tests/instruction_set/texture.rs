//! Textures and surfaces by their instructions, with values worked out from "Texture Fetching" of the programming guide and from the
//! PTX manual's descriptions.

use crate::common::{Arg, Device};
use softcuda_engine::{Addressing, Channel, FaultKind, Format, Image, Sampler, Texture};

pub const POINT: Sampler = Sampler {
    addressing: [Addressing::Clamp; 3],
    linear: false,
    normalized: false,
    fractions: false,
    srgb: false,
    linear_levels: false,
    bias: 0.0,
    levels: [0.0, 99.0],
    border: [0.0; 4],
};

/// An image of these bytes: texels, width, height and depth or layers.
pub fn image<T: Copy>(
    d: &Device,
    texels: &[T],
    channel: Channel,
    channels: u32,
    size: [u32; 3],
    layered: bool,
) -> Image {
    let format = Format { channel, channels };
    let row = u64::from(size[0] * format.bytes());
    let [extent, layers] = if layered { [[size[0], size[1], 1], [size[2], 0, 0]] } else { [size, [1, 0, 0]] };
    assert_eq!(size_of_val(texels) as u64, row * u64::from(size[1] * size[2]));
    Image {
        base: d.put(texels),
        format,
        extent,
        layers: layers[0],
        row,
        plane: row * u64::from(size[1]),
        linear: false,
    }
}

fn texture(d: &Device, image: Image, sampler: Sampler) -> u64 {
    d.memory.bind_texture(Texture { levels: vec![image], sampler })
}

/// Runs a body by one thread; what it stored behind `o`.
fn run(d: &Device, handle: u64, body: &str) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 ph, .param .u64 po) {{\n\
         .reg .b64 h, o, d<4>; .reg .b32 r<16>; .reg .f32 f<8>; .reg .b16 s<4>; .reg .pred p;\n\
         ld.param.u64 h, [ph]; ld.param.u64 o, [po];\n{body}\nret; }}\n"
    );
    let o = d.put(&[0xdead_beefu32; 16]);
    d.run(&d.load(&text).kernels()[0], [1; 3], [1; 3], &[handle, o].map(Arg::U64)).unwrap();
    d.get(o, 16)
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

/// Texel (x, y, z) holds 100 z + 10 y + x.
pub fn numbers(size: [u32; 3]) -> Vec<u32> {
    let [w, h, d] = size;
    (0..d).flat_map(|z| (0..h).flat_map(move |y| (0..w).map(move |x| 100 * z + 10 * y + x))).collect()
}

const STORE4: &str = "st.global.v4.b32 [o], {r0, r1, r2, r3};";

#[test]
fn integers_at_integer_and_float_coordinates() {
    let d = Device::new();
    let h = texture(&d, image(&d, &numbers([4, 3, 1]), Channel::U32, 1, [4, 3, 1], false), POINT);
    let got = run(
        &d,
        h,
        &format!(
            "mov.u32 r4, 2; mov.u32 r5, 1; tex.2d.v4.u32.s32 {{r0, r1, r2, r3}}, [h, {{r4, r5}}]; {STORE4}"
        ),
    );
    assert_eq!(got[..4], [12, 0, 0, 1]);
    // Point sampling takes the texel in which the coordinate lies; clamping the nearest.
    let got = run(
        &d,
        h,
        &format!(
            "mov.f32 f4, 0f406CCCCD; mov.f32 f5, 0fC0A00000; tex.2d.v4.u32.f32 {{r0, r1, r2, r3}}, [h, {{f4, f5}}]; {STORE4}"
        ),
    );
    assert_eq!(got[0], 3, "3.7, -5");
    let line = texture(&d, image(&d, &numbers([5, 1, 1]), Channel::U32, 1, [5, 1, 1], false), POINT);
    let got =
        run(&d, line, &format!("mov.u32 r4, 3; tex.1d.v4.s32.s32 {{r0, r1, r2, r3}}, [h, {{r4}}]; {STORE4}"));
    assert_eq!(got[0], 3);
}

#[test]
fn layers_volumes_and_cubes() {
    let d = Device::new();
    let numbers_of = |size| image(&d, &numbers(size), Channel::U32, 1, size, true);
    let layers = texture(&d, numbers_of([4, 3, 5]), POINT);
    let at = |h, layer: u32| {
        run(
            &d,
            h,
            &format!(
                "mov.u32 r4, {layer}; mov.u32 r5, 1; mov.u32 r6, 2; tex.a2d.v4.u32.s32 {{r0, r1, r2, r3}}, [h, {{r4, r5, r6, r6}}]; {STORE4}"
            ),
        )[0]
    };
    assert_eq!([at(layers, 0), at(layers, 3), at(layers, 9)], [21, 321, 421], "layers are clamped");
    let rows = texture(&d, image(&d, &numbers([4, 1, 3]), Channel::U32, 1, [4, 1, 3], true), POINT);
    let got = run(
        &d,
        rows,
        &format!(
            "mov.u32 r4, 2; mov.u32 r5, 3; tex.a1d.v4.u32.s32 {{r0, r1, r2, r3}}, [h, {{r4, r5}}]; {STORE4}"
        ),
    );
    assert_eq!(got[0], 203);
    let volume = texture(&d, image(&d, &numbers([4, 3, 2]), Channel::U32, 1, [4, 3, 2], false), POINT);
    let got = run(
        &d,
        volume,
        &format!(
            "mov.u32 r4, 3; mov.u32 r5, 2; mov.u32 r6, 1; tex.3d.v4.u32.s32 {{r0, r1, r2, r3}}, [h, {{r4, r5, r6, r6}}]; {STORE4}"
        ),
    );
    assert_eq!(got[0], 123);
    // The faces of a cube: +x, -x, +y, -y, +z, -z. A face of one texel, whose number is that of the face.
    let cube = texture(
        &d,
        image(&d, &[0u32, 1, 2, 3, 4, 5], Channel::U32, 1, [1, 1, 6], true),
        Sampler { normalized: true, ..POINT },
    );
    for (face, direction) in [
        [1.0f32, 0.1, 0.2],
        [-1.0, 0.1, 0.2],
        [0.1, 2.0, 0.3],
        [0.1, -2.0, 0.3],
        [0.4, 0.1, 3.0],
        [0.4, 0.1, -3.0],
    ]
    .iter()
    .enumerate()
    {
        let [x, y, z] = direction.map(f32::to_bits);
        let got = run(
            &d,
            cube,
            &format!(
                "mov.b32 f4, {x}; mov.b32 f5, {y}; mov.b32 f6, {z}; tex.cube.v4.u32.f32 {{r0, r1, r2, r3}}, [h, {{f4, f5, f6, f6}}]; {STORE4}"
            ),
        );
        assert_eq!(got[0], face as u32, "{direction:?}");
    }
}

/// Cubes in layers: the layer, then the direction; what is past the last layer is the last one.
#[test]
fn layers_of_cubes() {
    let d = Device::new();
    let texels: Vec<u32> = (0..18).map(|n| 100 * (n / 6) + n % 6).collect();
    let cubes = texture(
        &d,
        image(&d, &texels, Channel::U32, 1, [1, 1, 18], true),
        Sampler { normalized: true, ..POINT },
    );
    let directions = [
        [1.0f32, 0.1, 0.2],
        [-1.0, 0.1, 0.2],
        [0.1, 2.0, 0.3],
        [0.1, -2.0, 0.3],
        [0.4, 0.1, 3.0],
        [0.4, 0.1, -3.0],
    ];
    for layer in [0u32, 1, 2, 7] {
        for (face, direction) in directions.iter().enumerate() {
            let [x, y, z] = direction.map(f32::to_bits);
            let got = run(
                &d,
                cubes,
                &format!(
                    "mov.b32 r4, {layer}; mov.b32 r5, {x}; mov.b32 r6, {y}; mov.b32 r7, {z}; tex.acube.v4.u32.f32 {{r0, r1, r2, r3}}, [h, {{r4, r5, r6, r7}}]; {STORE4}"
                ),
            );
            assert_eq!(got[0], 100 * layer.min(2) + face as u32, "layer {layer}, {direction:?}");
        }
    }
}

#[test]
fn fractions_colours_levels_and_filters() {
    let d = Device::new();
    // 188 of 255 is 0.5028865 by the curve of sRGB (IEC 61966-2-1); alpha is not on the curve.
    let colour = image(&d, &[188u8, 0, 255, 188], Channel::U8, 4, [1, 1, 1], false);
    let read = "mov.f32 f4, 0f3F000000; tex.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f4}]; st.global.v4.f32 [o], {f0, f1, f2, f3};";
    let plain = texture(&d, colour, Sampler { fractions: true, ..POINT });
    assert_eq!(floats(&run(&d, plain, read)[..4]), [188.0 / 255.0, 0.0, 1.0, 188.0 / 255.0]);
    let srgb = texture(&d, colour, Sampler { fractions: true, srgb: true, ..POINT });
    let got = floats(&run(&d, srgb, read)[..4]);
    assert!(
        (got[0] - 0.502_886_5).abs() < 1e-5 && got[1] == 0.0 && got[2] == 1.0 && got[3] == 188.0 / 255.0,
        "{got:?}"
    );
    // Half way between the texels 0 and 1 of both rows.
    let grid = image(&d, &[0.0f32, 8.0, 16.0, 24.0], Channel::F32, 1, [2, 2, 1], false);
    let linear = texture(&d, grid, Sampler { linear: true, ..POINT });
    let one = "mov.f32 f4, 0f3F800000; mov.f32 f5, 0f3F400000; tex.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5}]; st.global.v4.f32 [o], {f0, f1, f2, f3};";
    assert_eq!(floats(&run(&d, linear, one)[..1]), [4.0 + 0.25 * 16.0]);
    // Two levels: 1.0 everywhere, and 3.0 in the smaller one.
    let levels = vec![grid_of(&d, 1.0, 2), grid_of(&d, 3.0, 1)];
    let sampler = Sampler { normalized: true, linear_levels: true, linear: true, ..POINT };
    let h = d.memory.bind_texture(Texture { levels, sampler });
    let level = "mov.f32 f4, 0f3F000000; mov.f32 f5, 0f3E800000; tex.level.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f4}], f5; \
         st.global.v4.f32 [o], {f0, f1, f2, f3}; mov.f32 f6, 0f3F800000; mov.f32 f7, 0f00000000; \
         tex.grad.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f4}], {f6, f7}, {f7, f7}; st.global.f32 [o+16], f0;";
    let got = floats(&run(&d, h, level)[..5]);
    assert_eq!((got[0], got[4]), (1.5, 3.0), "level 0.25; a step of two texels is level 1");
    let query = "txq.width.b32 r0, [h]; txq.height.b32 r1, [h]; txq.num_mipmap_levels.b32 r2, [h]; txq.level.width.b32 r3, [h], 1; st.global.v4.b32 [o], {r0, r1, r2, r3};";
    assert_eq!(run(&d, h, query)[..4], [2, 2, 2, 1]);
}

fn grid_of(d: &Device, value: f32, n: u32) -> Image {
    image(d, &vec![value; (n * n) as usize], Channel::F32, 1, [n, n, 1], false)
}

/// `tld4`: a channel of the four texels around, (0, 1), (1, 1), (1, 0), (0, 0) from the one below and left.
#[test]
fn gathers() {
    let d = Device::new();
    let texels: Vec<[u32; 2]> = numbers([4, 4, 1]).into_iter().map(|n| [n, n + 500]).collect();
    let h = texture(&d, image(&d, &texels, Channel::U32, 2, [4, 4, 1], false), POINT);
    for (component, plus) in [("r", 0), ("g", 500)] {
        let body = format!(
            "mov.f32 f4, 0f40000000; mov.f32 f5, 0f3F8CCCCD; tld4.{component}.2d.v4.u32.f32 {{r0, r1, r2, r3}}, [h, {{f4, f5}}]; {STORE4}"
        );
        assert_eq!(run(&d, h, &body)[..4], [11, 12, 2, 1].map(|n| n + plus));
    }
}

#[test]
fn surfaces_are_read_and_written() {
    let d = Device::new();
    let image = image(&d, &numbers([4, 3, 2]), Channel::U32, 1, [4, 3, 2], true);
    let h = d.memory.bind_surface(image);
    // The first coordinate counts bytes.
    let body = "mov.u32 r4, 1; mov.u32 r5, 4; mov.u32 r6, 2; suld.b.a2d.v2.b32.trap {r0, r1}, [h, {r4, r5, r6, r6}]; st.global.v2.b32 [o], {r0, r1};\n\
        mov.u32 r7, 777; mov.b64 d0, {r7, r7}; sust.b.a2d.b64.trap [h, {r4, r5, r6, r6}], d0; suld.b.a2d.b32.trap r2, [h, {r4, r5, r6, r6}]; st.global.b32 [o+8], r2;\n\
        mov.u32 r5, 16; suld.b.a2d.b32.zero r2, [h, {r4, r5, r6, r6}]; st.global.b32 [o+12], r2; suld.b.a2d.b32.clamp r2, [h, {r4, r5, r6, r6}]; st.global.b32 [o+16], r2;\n\
        sust.b.a2d.b32.zero [h, {r4, r5, r6, r6}], r7;\n\
        suq.width.b32 r0, [h]; suq.height.b32 r1, [h]; suq.array_size.b32 r2, [h]; st.global.v2.b32 [o+24], {r0, r1}; st.global.b32 [o+32], r2;";
    let got = run(&d, h, body);
    assert_eq!(got[..5], [121, 122, 777, 0, 123], "what is outside is zero, or the last one of the row");
    assert_eq!(got[6..9], [4, 3, 2]);
    let mut want = numbers([4, 3, 2]);
    (want[12 + 8 + 1], want[12 + 8 + 2]) = (777, 777);
    assert_eq!(d.get::<u32>(image.base, 24), want);
}

/// Volumes and layers of lines: the first coordinate counts bytes, the layer stands before it.
#[test]
fn surfaces_of_volumes_and_of_layers_of_lines() {
    let d = Device::new();
    let volume = image(&d, &numbers([4, 3, 2]), Channel::U32, 1, [4, 3, 2], false);
    let h = d.memory.bind_surface(volume);
    let body = "mov.u32 r4, 8; mov.u32 r5, 2; mov.u32 r6, 1; suld.b.3d.b32.trap r0, [h, {r4, r5, r6, r6}]; st.global.b32 [o], r0;\n\
        suld.b.3d.v2.b32.trap {r0, r1}, [h, {r4, r5, r6, r6}]; st.global.v2.b32 [o+8], {r0, r1}; mov.u32 r7, 777; sust.b.3d.b32.trap [h, {r4, r5, r6, r6}], r7;\n\
        mov.u32 r6, 2; suld.b.3d.b32.zero r0, [h, {r4, r5, r6, r6}]; st.global.b32 [o+16], r0; mov.u32 r6, -1; suld.b.3d.b32.clamp r0, [h, {r4, r5, r6, r6}]; st.global.b32 [o+20], r0;\n\
        suq.depth.b32 r0, [h]; st.global.b32 [o+24], r0;";
    let got = run(&d, h, body);
    assert_eq!([got[0], got[2], got[3], got[4], got[5], got[6]], [122, 122, 123, 0, 22, 2]);
    let mut want = numbers([4, 3, 2]);
    want[12 + 8 + 2] = 777;
    assert_eq!(d.get::<u32>(volume.base, 24), want);

    let lines = image(&d, &numbers([4, 1, 3]), Channel::U32, 1, [4, 1, 3], true);
    let h = d.memory.bind_surface(lines);
    let body = "mov.u32 r4, 2; mov.u32 r5, 12; suld.b.a1d.b32.trap r0, [h, {r4, r5}]; st.global.b32 [o], r0;\n\
        mov.u32 r7, 888; sust.b.a1d.b32.trap [h, {r4, r5}], r7; mov.u32 r5, 16; suld.b.a1d.b32.zero r0, [h, {r4, r5}]; st.global.b32 [o+4], r0;\n\
        suld.b.a1d.b32.clamp r0, [h, {r4, r5}]; st.global.b32 [o+8], r0;";
    assert_eq!(run(&d, h, body)[..3], [203, 0, 888]);
    let mut want = numbers([4, 1, 3]);
    want[8 + 3] = 888;
    assert_eq!(d.get::<u32>(lines.base, 12), want);
}

/// `sust.p` counts texels and converts to the format: integers are clamped, what is missing in the format is dropped.
#[test]
fn formatted_stores() {
    let d = Device::new();
    let image = image(&d, &[0u8; 16], Channel::U8, 4, [2, 2, 1], false);
    let h = d.memory.bind_surface(image);
    run(
        &d,
        h,
        "mov.u32 r4, 1; mov.u32 r0, 7; mov.u32 r1, 255; mov.u32 r2, 256; mov.u32 r3, 100000; sust.p.2d.v4.b32.trap [h, {r4, r4}], {r0, r1, r2, r3};",
    );
    assert_eq!(d.get::<u8>(image.base, 16), [[0; 4], [0; 4], [0; 4], [7, 255, 255, 255]].concat());
}

#[test]
fn reductions_of_surfaces() {
    let d = Device::new();
    let image = image(
        &d,
        &[10u32, 10, 10, 0xffff_fff0, 0xffff_fff0, 0xf0f0, 0xf0f0, 10],
        Channel::U32,
        1,
        [8, 1, 1],
        false,
    );
    let h = d.memory.bind_surface(image);
    let all = [
        ("add.1d.u32", 5u32),
        ("min.1d.u32", 3),
        ("max.1d.u32", 30),
        ("min.1d.s32", 4),
        ("max.1d.s32", 4),
        ("and.1d.b32", 0xff),
        ("or.1d.b32", 0xff),
    ];
    let mut body = String::new();
    for (i, (op, value)) in all.iter().enumerate() {
        body += &format!("mov.u32 r4, {}; mov.u32 r0, {value}; sured.b.{op}.trap [h, {{r4}}], r0;\n", 4 * i);
    }
    run(&d, h, &(body + "mov.u32 r4, 99; sured.b.add.1d.u32.zero [h, {r4}], r0;"));
    assert_eq!(d.get::<u32>(image.base, 8), [15, 3, 30, 0xffff_fff0, 4, 0xf0, 0xf0ff, 10]);
}

#[test]
fn wrong_handles_and_places_are_faults() {
    let d = Device::new();
    let h = d.memory.bind_surface(image(&d, &[0u32; 4], Channel::U32, 1, [4, 1, 1], false));
    let fault = |handle: u64, body: &str| {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 ph) {{ .reg .b64 h; .reg .b32 r<8>; .reg .f32 f<5>; ld.param.u64 h, [ph];\n{body}\nret; }}\n"
        );
        d.run(&d.load(&text).kernels()[0], [1; 3], [1; 3], &[Arg::U64(handle)]).unwrap_err().kind
    };
    assert_eq!(
        fault(h, "mov.u32 r4, 16; suld.b.1d.b32.trap r0, [h, {r4}]; st.shared.b32 [0], r0;"),
        FaultKind::Trap
    );
    assert_eq!(fault(h, "mov.u32 r4, -4; sust.b.1d.b32.trap [h, {r4}], r4;"), FaultKind::Trap);
    assert_eq!(
        fault(h, "mov.f32 f4, 0f00000000; tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4}];"),
        FaultKind::IllegalAddress
    );
    assert_eq!(fault(12345, "mov.u32 r4, 0; sust.b.1d.b32.trap [h, {r4}], r4;"), FaultKind::IllegalAddress);
}

/// Offsets are whole texels, also where texels are mixed, and of normalised coordinates.
#[test]
fn offsets_are_whole_texels() {
    let d = Device::new();
    let numbers_at = |size: [u32; 3], sampler| {
        let texels: Vec<f32> = numbers(size).into_iter().map(|n| n as f32).collect();
        texture(&d, image(&d, &texels, Channel::F32, 1, size, false), sampler)
    };
    let h = numbers_at([8, 8, 1], POINT);
    let linear = numbers_at([8, 8, 1], Sampler { linear: true, normalized: true, ..POINT });
    let volume = numbers_at([4, 4, 4], POINT);
    let line = numbers_at([8, 1, 1], POINT);
    let read = |h, before: &str, read: &str| {
        let body = format!("{before} {read}; st.global.v4.f32 [o], {{f0, f1, f2, f3}};");
        floats(&run(&d, h, &body)[..4])
    };
    let place = "mov.f32 f4, 0f40200000; mov.f32 f5, 0f40200000;"; // 2.5, 2.5
    let got = read(h, place, "tex.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5}], {3, -2}");
    assert_eq!(got[0], 5.0, "(2 + 3, 2 - 2)");
    let got =
        read(h, "mov.u32 r4, 1; mov.u32 r5, 6;", "tex.2d.v4.f32.s32 {f0, f1, f2, f3}, [h, {r4, r5}], {2, 1}");
    assert_eq!(got[0], 73.0);
    let got = read(h, place, "tex.level.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5}], f6, {-1, 4}");
    assert_eq!(got[0], 61.0);
    let got = read(line, place, "tex.1d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4}], 4");
    assert_eq!(got[0], 6.0);
    let got = read(volume, place, "tex.3d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5, f5, f5}], {1, -1, 0, 0}");
    assert_eq!(got[0], 213.0);
    // Texels 2 and 3 in both directions, half and half: 27.5; three to the right and one up of that.
    let half = "mov.f32 f4, 0f3EC00000; mov.f32 f5, 0f3EC00000;"; // 3 / 8
    let got = read(linear, half, "tex.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5}], {3, -1}");
    assert_eq!(got[0], 27.5 + 3.0 - 10.0);
    let got = read(linear, half, "tld4.r.2d.v4.f32.f32 {f0, f1, f2, f3}, [h, {f4, f5}], {1, 2}");
    assert_eq!(got, [53.0, 54.0, 44.0, 43.0], "counter-clockwise from the lower left");
}

#[test]
fn what_a_texture_says_of_itself() {
    let d = Device::new();
    let bytes: Vec<u8> = (0..32).collect();
    let picture = image(&d, &bytes, Channel::U8, 2, [4, 4, 1], false);
    let sampler = Sampler {
        addressing: [Addressing::Mirror, Addressing::Border, Addressing::Clamp],
        linear: true,
        normalized: true,
        fractions: true,
        ..POINT
    };
    let h = texture(&d, picture, sampler);
    let ask = |words: &[&str]| -> String {
        (0..)
            .zip(words)
            .map(|(i, w)| format!("{w}.b32 r0, [h]; st.global.b32 [o+{}], r0;\n", 4 * i))
            .collect()
    };
    let body = ask(&[
        "txq.normalized_coords",
        "txq.filter_mode",
        "txq.addr_mode_0",
        "txq.addr_mode_1",
        "txq.addr_mode_2",
        "txq.channel_data_type",
        "txq.channel_order",
    ]);
    assert_eq!(run(&d, h, &body)[..7], [1, 1, 1, 4, 3, 0x10d2, 0x10b2]);
    let surface = d.memory.bind_surface(picture);
    let body = ask(&["suq.channel_data_type", "suq.channel_order", "suq.memory_layout"]);
    assert_eq!(run(&d, surface, &body)[..3], [0x10da, 0x10b2, 0]);
    let types: String = (0..)
        .zip(["texref", "surfref", "samplerref"])
        .map(|(i, w)| format!("istypep.{w} p, h; selp.u32 r0, 1, 0, p; st.global.b32 [o+{}], r0;\n", 4 * i))
        .collect();
    for (handle, want) in [(h, [1, 0, 0]), (surface, [0, 1, 0]), (12345, [0, 0, 0])] {
        assert_eq!(run(&d, handle, &types)[..3], want);
    }
}
