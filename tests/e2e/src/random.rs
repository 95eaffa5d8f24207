//! Numbers that look random and are the same every time.

/// A sequence by Knuth's MMIX constants.
pub struct Random(pub u64);

impl Random {
    /// The next number, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.below(1 << 31) << 33 ^ self.below(1 << 31) << 16 ^ self.below(1 << 31)
    }
}
