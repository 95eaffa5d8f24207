//! Walks over the operands of an operation.

use super::{Addr, Base, Callee, Op, Opd, Reg};

impl Op {
    /// Calls `f` for each source operand that may be replaced by another.
    pub fn sources_mut(&mut self, f: &mut dyn FnMut(&mut Opd)) {
        match self {
            Op::Mov { a, .. }
            | Op::Unpack { a, .. }
            | Op::IntUnary { a, .. }
            | Op::FloatUnary { a, .. }
            | Op::Testp { a, .. }
            | Op::Cvt { a, .. }
            | Op::Cvta { a, .. }
            | Op::Isspacep { a, .. }
            | Op::StackRestore { a }
            | Op::Alloca { size: a, .. } => f(a),
            Op::Pack { parts, .. } => parts.iter_mut().for_each(f),
            Op::Int { a, b, .. } | Op::Float { a, b, .. } | Op::CvtPack { a, b, .. } => {
                f(a);
                f(b);
            }
            Op::Int3 { a, b, c, .. }
            | Op::Mad { a, b, c, .. }
            | Op::Fma { a, b, c, .. }
            | Op::Slct { a, b, c, .. } => {
                f(a);
                f(b);
                f(c);
            }
            Op::Bfi { a, b, pos, len, .. } => {
                f(a);
                f(b);
                f(pos);
                f(len);
            }
            Op::Setp { a, b, with, .. } | Op::Set { a, b, with, .. } => {
                f(a);
                f(b);
                if let Some((_, p)) = with {
                    f(p);
                }
            }
            Op::Selp { a, b, p, .. } => {
                f(a);
                f(b);
                f(p);
            }
            Op::St { a, .. } => a.iter_mut().for_each(f),
            Op::Atom { b, c, .. } => {
                f(b);
                f(c);
            }
            Op::Call { callee: Callee::Pointer(p), .. } => f(p),
            Op::Bar { id, count, p, .. } => {
                f(id);
                count.iter_mut().for_each(&mut *f);
                p.iter_mut().for_each(f);
            }
            Op::Shfl { a, b, c, mask, .. } => {
                f(a);
                f(b);
                f(c);
                mask.iter_mut().for_each(f);
            }
            Op::Vote { p, mask, .. } => {
                f(p);
                mask.iter_mut().for_each(f);
            }
            Op::Match { a, mask, .. } | Op::Redux { a, mask, .. } => {
                f(a);
                f(mask);
            }
            Op::Texture { object, a, .. } => {
                f(object);
                a.iter_mut().for_each(f);
            }
            Op::Elect { mask, .. } | Op::BarWarp { mask } => f(mask),
            Op::Pure { a, .. } | Op::Memory { a, .. } | Op::Collective { a, .. } => {
                a.iter_mut().for_each(|(_, o)| f(o));
            }
            Op::Ld { .. }
            | Op::Call { .. }
            | Op::ClusterBarrier { .. }
            | Op::Fence
            | Op::ActiveMask { .. }
            | Op::StackSave { .. }
            | Op::Nanosleep
            | Op::Yield
            | Op::Trap
            | Op::Nop => {}
        }
    }

    /// The address operand of a memory access.
    pub fn address(&self) -> Option<&Addr> {
        match self {
            Op::Ld { addr, .. } | Op::St { addr, .. } | Op::Atom { addr, .. } | Op::Memory { addr, .. } => {
                Some(addr)
            }
            _ => None,
        }
    }

    /// See [`Op::address`].
    pub fn address_mut(&mut self) -> Option<&mut Addr> {
        match self {
            Op::Ld { addr, .. } | Op::St { addr, .. } | Op::Atom { addr, .. } => Some(addr),
            _ => None,
        }
    }

    /// Calls `f` for each register that is written.
    pub fn dests(&self, f: &mut dyn FnMut(Reg)) {
        match self {
            Op::Mov { d, .. }
            | Op::Pack { d, .. }
            | Op::Int { d, .. }
            | Op::IntUnary { d, .. }
            | Op::Int3 { d, .. }
            | Op::Bfi { d, .. }
            | Op::Mad { d, .. }
            | Op::Float { d, .. }
            | Op::FloatUnary { d, .. }
            | Op::Fma { d, .. }
            | Op::Set { d, .. }
            | Op::Selp { d, .. }
            | Op::Slct { d, .. }
            | Op::Testp { d, .. }
            | Op::Cvt { d, .. }
            | Op::CvtPack { d, .. }
            | Op::Cvta { d, .. }
            | Op::Isspacep { d, .. }
            | Op::Pure { d, .. }
            | Op::Vote { d, .. }
            | Op::Redux { d, .. }
            | Op::StackSave { d }
            | Op::Alloca { d, .. }
            | Op::ActiveMask { d } => f(*d),
            Op::Setp { d, d2, .. } => {
                f(*d);
                d2.iter().for_each(|r| f(*r));
            }
            Op::Shfl { d, p, .. } | Op::Match { d, p, .. } => {
                f(*d);
                p.iter().for_each(|r| f(*r));
            }
            Op::Elect { d, p, .. } => {
                d.iter().for_each(|r| f(*r));
                f(*p);
            }
            Op::Unpack { d, .. } | Op::Ld { d, .. } | Op::Texture { d, .. } => {
                d.iter().flatten().for_each(|r| f(*r))
            }
            Op::Atom { d, .. } | Op::Bar { d, .. } => d.iter().for_each(|r| f(*r)),
            Op::Memory { d, .. } | Op::Collective { d, .. } => {
                d.iter().filter_map(|(_, r)| *r).for_each(f);
            }
            Op::St { .. }
            | Op::StackRestore { .. }
            | Op::ClusterBarrier { .. }
            | Op::Fence
            | Op::Call { .. }
            | Op::BarWarp { .. }
            | Op::Nanosleep
            | Op::Yield
            | Op::Trap
            | Op::Nop => {}
        }
    }

    /// Calls `f` for each register that is read.
    pub fn uses(&self, f: &mut dyn FnMut(Reg)) {
        if let Some(Addr { base: Base::Reg(r), .. }) = self.address() {
            f(*r);
        }
        self.clone().sources_mut(&mut |o| {
            if let Opd::Reg(r) = o {
                f(*r);
            }
        });
    }
}
