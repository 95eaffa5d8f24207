use super::sample::fetch;
use super::*;
use crate::ir::texture::{Shape, TextureKind, TextureOp};

fn sampler() -> Sampler {
    Sampler {
        addressing: [Addressing::Clamp; 3],
        linear: false,
        normalized: false,
        fractions: false,
        srgb: false,
        linear_levels: false,
        bias: 0.0,
        levels: [0.0, 99.0],
        border: [0.0; 4],
    }
}

/// A row of floats.
fn row(memory: &Memory, values: &[f32]) -> Image {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let base = memory.alloc(bytes.len() as u64, 256).unwrap();
    assert!(memory.write(base, &bytes));
    let format = Format { channel: Channel::F32, channels: 1 };
    let n = values.len() as u32;
    Image { base, format, extent: [n, 1, 1], layers: 1, row: u64::from(n) * 4, plane: 0, linear: false }
}

fn read(memory: &Memory, image: Image, sampler: Sampler, x: f32) -> f32 {
    let op = TextureOp::new(TextureKind::Fetch, Shape::D1);
    let words = fetch(memory, &[image], &sampler, op, &[u64::from(x.to_bits())]).unwrap();
    f32::from_bits(words[0] as u32)
}

#[test]
fn address_modes() {
    let memory = Memory::new(1 << 20).unwrap();
    let image = row(&memory, &[10.0, 20.0, 30.0, 40.0]);
    let with = |mode, normalized, x| {
        let s = Sampler { addressing: [mode; 3], normalized, border: [7.0; 4], ..sampler() };
        read(&memory, image, s, x)
    };
    // Texel n holds the coordinates from n to n + 1.
    for (x, right) in
        [(0.0, 10.0), (0.99, 10.0), (1.0, 20.0), (3.5, 40.0), (4.0, 40.0), (-3.0, 10.0), (1e9, 40.0)]
    {
        assert_eq!(with(Addressing::Clamp, false, x), right, "{x}");
        assert_eq!(with(Addressing::Wrap, false, x), right, "{x}: wrapping needs normalised coordinates");
        assert_eq!(with(Addressing::ClampOgl, false, x), right, "{x}: without mixing there is no border");
    }
    for (x, right) in [(0.1, 10.0), (0.26, 20.0), (1.1, 10.0), (-0.1, 40.0), (2.9, 40.0)] {
        assert_eq!(with(Addressing::Wrap, true, x), right, "wrap {x}");
    }
    // 0 1 2 3 | 3 2 1 0 | 0 1 2 3
    for (x, right) in [(0.1, 10.0), (1.1, 40.0), (1.9, 10.0), (2.1, 10.0), (-0.1, 10.0), (-0.9, 40.0)] {
        assert_eq!(with(Addressing::Mirror, true, x), right, "mirror {x}");
    }
    for (x, right) in [(-0.5, 7.0), (0.5, 10.0), (3.9, 40.0), (4.0, 7.0), (f32::NAN, 10.0)] {
        assert_eq!(with(Addressing::Border, false, x), right, "border {x}");
    }
}

/// tex(x) = (1 - a) T[i] + a T[i + 1] with i = floor(x - 0.5) and a = frac(x - 0.5) in 1.8 fixed point.
#[test]
fn interpolation_has_weights_of_eight_bits() {
    let memory = Memory::new(1 << 20).unwrap();
    let image = row(&memory, &[0.0, 256.0, 512.0]);
    let s = Sampler { linear: true, ..sampler() };
    for (x, right) in [
        (0.5, 0.0),
        (1.0, 128.0),
        (1.5, 256.0),
        // 77.3 of 256 steps: 77.
        (0.5 + 77.3 / 256.0, 77.0),
        (0.5 + 77.6 / 256.0, 78.0),
        (0.2, 0.0),
        (2.75, 512.0),
    ] {
        assert_eq!(read(&memory, image, s.clone(), x), right, "{x}");
    }
    let border = Sampler { addressing: [Addressing::Border; 3], ..s.clone() };
    assert_eq!(read(&memory, image, border, 2.75), 384.0, "three quarters of the last texel");
    // GL_CLAMP: coordinates stay in [0, 3], so that the border has half of the weight at most.
    let ogl = Sampler { addressing: [Addressing::ClampOgl; 3], border: [1024.0; 4], ..s };
    for (x, right) in [(1.0, 128.0), (2.75, 640.0), (3.0, 768.0), (9.0, 768.0), (-5.0, 512.0)] {
        assert_eq!(read(&memory, image, ogl.clone(), x), right, "{x}");
    }
}

#[test]
fn memory_that_is_gone_is_a_fault() {
    let memory = Memory::new(8 << 20).unwrap();
    let image = row(&memory, &[1.0; 1 << 20]);
    let op = TextureOp::new(TextureKind::Fetch, Shape::D1);
    assert!(fetch(&memory, &[image], &sampler(), op, &[0]).is_ok());
    assert!(memory.free(image.base));
    assert_eq!(fetch(&memory, &[image], &sampler(), op, &[0]), Err(Refusal::Memory(image.base)));
}
