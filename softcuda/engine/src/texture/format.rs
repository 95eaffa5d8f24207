//! Texels: what their bytes mean.

/// The type of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it: unsigned, signed and float of so many bits")]
#[rustfmt::skip]
pub enum Channel { U8, U16, U32, S8, S16, S32, F16, F32 }

impl Channel {
    /// Bytes of one channel.
    pub fn bytes(self) -> u32 {
        match self {
            Channel::U8 | Channel::S8 => 1,
            Channel::U16 | Channel::S16 | Channel::F16 => 2,
            _ => 4,
        }
    }

    /// Its number as the PTX manual has it (`channel_data_type`), after OpenCL's; `fractions`: integers of 8 and 16 bits are read as such.
    pub(super) fn number(self, fractions: bool) -> u64 {
        match (self, fractions) {
            (Channel::S8, true) => 0x10d0,
            (Channel::S16, true) => 0x10d1,
            (Channel::U8, true) => 0x10d2,
            (Channel::U16, true) => 0x10d3,
            (Channel::S8, false) => 0x10d7,
            (Channel::S16, false) => 0x10d8,
            (Channel::S32, _) => 0x10d9,
            (Channel::U8, false) => 0x10da,
            (Channel::U16, false) => 0x10db,
            (Channel::U32, _) => 0x10dc,
            (Channel::F16, _) => 0x10dd,
            (Channel::F32, _) => 0x10de,
        }
    }

    /// Whether it holds floats.
    pub fn is_float(self) -> bool {
        matches!(self, Channel::F16 | Channel::F32)
    }
}

/// What a texel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The type of each channel.
    pub channel: Channel,
    /// 1, 2 or 4.
    pub channels: u32,
}

/// The largest texel.
pub(super) const LARGEST: usize = 16;

impl Format {
    /// Bytes of a texel.
    pub fn bytes(self) -> u32 {
        self.channel.bytes() * self.channels
    }

    /// The channels of a texel as bits: integers extended to 32 bits, floats of 16 bits widened. What is not there is 0,
    /// and 1 for alpha.
    pub(super) fn bits(self, texel: &[u8; LARGEST]) -> [u32; 4] {
        let one = if self.channel.is_float() { 1f32.to_bits() } else { 1 };
        let mut all = [0, 0, 0, one];
        for (i, out) in all.iter_mut().enumerate().take(self.channels as usize) {
            let at = i * self.channel.bytes() as usize;
            let half = || u16::from_le_bytes([texel[at], texel[at + 1]]);
            *out = match self.channel {
                Channel::U8 => texel[at].into(),
                Channel::S8 => i32::from(texel[at] as i8) as u32,
                Channel::U16 => half().into(),
                Channel::S16 => i32::from(half() as i16) as u32,
                Channel::F16 => half::f16::from_bits(half()).to_f32().to_bits(),
                _ => u32::from_le_bytes([texel[at], texel[at + 1], texel[at + 2], texel[at + 3]]),
            };
        }
        all
    }

    /// The channels as floats: fractions of the largest value for integers of 8 and 16 bits (the least value is -1 as well).
    pub(super) fn floats(self, texel: &[u8; LARGEST], srgb: bool) -> [f32; 4] {
        let bits = self.bits(texel);
        let mut all = [0.0, 0.0, 0.0, 1.0];
        for (i, out) in all.iter_mut().enumerate().take(self.channels as usize) {
            let signed = bits[i] as i32 as f32;
            *out = match self.channel {
                Channel::F16 | Channel::F32 => f32::from_bits(bits[i]),
                Channel::U8 => bits[i] as f32 / 255.0,
                Channel::U16 => bits[i] as f32 / 65535.0,
                Channel::S8 => (signed / 127.0).max(-1.0),
                Channel::S16 => (signed / 32767.0).max(-1.0),
                Channel::U32 => bits[i] as f32,
                Channel::S32 => signed,
            };
            if srgb && i < 3 {
                *out = linear(*out);
            }
        }
        all
    }

    /// A texel of channels of 32 bits: floats are narrowed, integers clamped to what the channel holds (`sust.p`).
    pub(super) fn pack(self, values: &[u32]) -> [u8; LARGEST] {
        let mut texel = [0; LARGEST];
        for (i, value) in values.iter().enumerate().take(self.channels as usize) {
            let (n, at) = (self.channel.bytes() as usize, i * self.channel.bytes() as usize);
            let signed = *value as i32;
            let bits = match self.channel {
                Channel::U8 => (*value).min(0xff),
                Channel::U16 => (*value).min(0xffff),
                Channel::S8 => signed.clamp(i8::MIN.into(), i8::MAX.into()) as u32,
                Channel::S16 => signed.clamp(i16::MIN.into(), i16::MAX.into()) as u32,
                Channel::F16 => half::f16::from_f32(f32::from_bits(*value)).to_bits().into(),
                _ => *value,
            };
            texel[at..at + n].copy_from_slice(&bits.to_le_bytes()[..n]);
        }
        texel
    }
}

/// The intensity of an sRGB value (IEC 61966-2-1).
fn linear(c: f32) -> f32 {
    if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
}
