//! Operands.

use super::cursor::Result;
use super::function::{Body, Name};
use super::lexer::{Kind, Number};
use super::module::RESERVED_SHARED;
use crate::ir::{Addr, Base, Class, IntOp, IntUnary, Op, Opd, Pure, Reg, Space, Sreg, Symbol, Ty};

/// The bits of a literal in an instruction of type `ty`.
fn literal(ty: Ty, n: Number) -> u64 {
    let bits = match (ty, n) {
        (Ty::F32, Number::F64(b)) => u64::from((f64::from_bits(b) as f32).to_bits()),
        (Ty::F64, Number::F32(b)) => f64::from(f32::from_bits(b)).to_bits(),
        (Ty::F16, Number::F64(b)) => u64::from(half::f16::from_f64(f64::from_bits(b)).to_bits()),
        (_, Number::Int(v)) => v,
        (_, Number::F32(b)) => u64::from(b),
        (_, Number::F64(b)) => b,
    };
    match ty {
        Ty::Pred => u64::from(bits != 0),
        _ if ty.bits() >= 64 => bits,
        _ => bits & ((1 << ty.bits()) - 1),
    }
}

fn special(name: &str, part: Option<&str>) -> Option<Sreg> {
    let axis = match part {
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        _ => None,
    };
    Some(match (name, axis) {
        ("%tid", Some(a)) => Sreg::Tid(a),
        ("%ntid", Some(a)) => Sreg::Ntid(a),
        ("%ctaid", Some(a)) => Sreg::Ctaid(a),
        ("%nctaid", Some(a)) => Sreg::Nctaid(a),
        ("%clusterid", Some(a)) => Sreg::ClusterId(a),
        ("%nclusterid", Some(a)) => Sreg::NClusterId(a),
        ("%cluster_ctaid", Some(a)) => Sreg::ClusterCtaId(a),
        ("%cluster_nctaid", Some(a)) => Sreg::ClusterNCtaId(a),
        ("%cluster_ctarank", None) => Sreg::ClusterCtaRank,
        ("%cluster_nctarank", None) => Sreg::ClusterNCtaRank,
        ("%is_explicit_cluster", None) => Sreg::IsExplicitCluster,
        ("%laneid", None) => Sreg::LaneId,
        ("%warpid", None) => Sreg::WarpId,
        ("%nwarpid", None) => Sreg::NWarpId,
        ("%smid", None) => Sreg::SmId,
        ("%nsmid", None) => Sreg::NSmId,
        ("%gridid", None) => Sreg::GridId,
        ("%lanemask_eq", None) => Sreg::LaneMaskEq,
        ("%lanemask_le", None) => Sreg::LaneMaskLe,
        ("%lanemask_lt", None) => Sreg::LaneMaskLt,
        ("%lanemask_ge", None) => Sreg::LaneMaskGe,
        ("%lanemask_gt", None) => Sreg::LaneMaskGt,
        ("%clock", None) => Sreg::Clock,
        ("%clock_hi", None) => Sreg::ClockHi,
        ("%clock64", None) => Sreg::Clock64,
        ("%globaltimer", None) => Sreg::GlobalTimer,
        ("%globaltimer_lo", None) => Sreg::GlobalTimerLo,
        ("%globaltimer_hi", None) => Sreg::GlobalTimerHi,
        ("%dynamic_smem_size", None) => Sreg::DynamicSmemSize,
        ("%total_smem_size", None) => Sreg::TotalSmemSize,
        // How cooperative groups find the barrier of the grid.
        ("%envreg1", None) => Sreg::WorkspaceHi,
        ("%envreg2", None) => Sreg::WorkspaceLo,
        // Nobody counts events, and the other environment registers belong to the driver.
        ("%pm0" | "%pm1" | "%pm2" | "%pm3" | "%pm4" | "%pm5" | "%pm6" | "%pm7", None) => Sreg::Zero,
        ("%aggr_smem_size", None) => Sreg::TotalSmemSize,
        // No graph is launched from the device.
        ("%current_graph_exec", None) => Sreg::Zero,
        (name, None)
            if name.strip_prefix("%envreg").is_some_and(|n| n.parse::<u8>().is_ok_and(|n| n < 32)) =>
        {
            Sreg::Zero
        }
        ("WARP_SZ", None) => Sreg::WarpSize,
        _ => return None,
    })
}

impl<'a> Body<'_, 'a> {
    pub fn comma(&mut self) -> Result<()> {
        self.module.cursor.want(b',')
    }

    /// A destination register; `_` gives one that nobody reads.
    pub fn dest(&mut self, class: Class) -> Result<Reg> {
        match self.sink(class)? {
            Some(r) => Ok(r),
            None => Ok(self.temp(class)),
        }
    }

    /// A destination register, or `None` for `_`.
    pub fn sink(&mut self, class: Class) -> Result<Option<Reg>> {
        let name = self.module.cursor.ident()?;
        if name == "_" {
            return Ok(None);
        }
        match self.name(name) {
            Some(Name::Reg(r, ty)) if (ty == Ty::Pred) == (class == Class::Pred) => Ok(Some(r)),
            Some(Name::Reg(..)) => self.error(format!("`{name}` has the wrong type for this place")),
            _ => self.error(format!("`{name}` is not a register")),
        }
    }

    /// A source operand of type `ty`.
    pub fn source(&mut self, ty: Ty) -> Result<Opd> {
        let t = self.module.cursor.peek();
        match t.kind {
            Kind::Punct(b'!') => {
                self.module.cursor.next();
                let a = self.source(Ty::Pred)?;
                let d = self.temp(Class::Pred);
                self.push(Op::IntUnary { op: IntUnary::Not, ty: Ty::Pred, d, a });
                Ok(Opd::Reg(d))
            }
            Kind::Ident => self.named(ty),
            // A plain literal; anything longer is a constant expression of integers.
            Kind::Number if !self.expression_follows() => {
                let n = self.module.cursor.number()?;
                Ok(Opd::Imm(literal(ty, n)))
            }
            Kind::Punct(b'-') if self.module.cursor.peek_at(1).kind == Kind::Number => {
                let n = self.module.cursor.number()?;
                Ok(Opd::Imm(literal(ty, n)))
            }
            Kind::Number | Kind::Punct(b'-' | b'(' | b'~') => {
                let v = self.module.cursor.integer()?;
                Ok(Opd::Imm(literal(ty, Number::Int(v as u64))))
            }
            _ => self.module.cursor.expected("an operand"),
        }
    }

    fn expression_follows(&self) -> bool {
        let next = self.module.cursor.peek_at(1).kind;
        matches!(next, Kind::Punct(b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'&' | b'^'))
    }

    fn named(&mut self, ty: Ty) -> Result<Opd> {
        let name = self.module.cursor.ident()?;
        match self.name(name) {
            Some(Name::Reg(r, have)) if (have == Ty::Pred) == (ty == Ty::Pred) => return Ok(Opd::Reg(r)),
            Some(Name::Reg(..)) => return self.error(format!("`{name}` has the wrong type for this place")),
            Some(Name::Symbol(s)) => {
                let offset = self.offset()?;
                return Ok(Opd::Sym(s, offset));
            }
            None => {}
        }
        if let Some(part) = name.strip_prefix("%reserved_smem_offset_") {
            return self.reserved_shared(name, part);
        }
        let part = (self.module.cursor.peek().kind == Kind::Dot).then(|| self.module.cursor.next().text);
        match special(name, part) {
            Some(s) => Ok(Opd::Special(s)),
            None if name.starts_with('%') => self.error(format!("register `{name}` is not known")),
            None => self.error(format!("`{name}` is not known")),
        }
    }

    /// Where the shared memory lies that NVIDIA's headers take for themselves (cooperative groups of several warps).
    fn reserved_shared(&mut self, name: &str, part: &str) -> Result<Opd> {
        let start = Symbol::Shared(self.module.reserved_shared());
        match part {
            "begin" | "0" | "1" => Ok(Opd::Sym(start, 0)),
            "end" | "cap" => Ok(Opd::Sym(start, RESERVED_SHARED as i64)),
            _ => self.error(format!("register `{name}` is not known")),
        }
    }

    /// `+8`, `-8`, `+-8` or nothing.
    fn offset(&mut self) -> Result<i64> {
        let c = &mut self.module.cursor;
        if c.eat(b'+') || c.is(b'-') { c.integer() } else { Ok(0) }
    }

    /// `[address]`, for an access of `size` bytes.
    pub fn address(&mut self, space: Space, size: u32) -> Result<Addr> {
        self.module.cursor.want(b'[')?;
        let a = self.bare_address(space, size)?;
        self.module.cursor.want(b']')?;
        if space == Space::Cluster { self.cluster_address(a, size) } else { Ok(a) }
    }

    /// A `.shared::cluster` address as a generic one, for an access of `size` bytes. Variables are the block's own.
    fn cluster_address(&mut self, a: Addr, size: u32) -> Result<Addr> {
        let register = match a.base {
            Base::Sym(_) => return Ok(Addr { space: Space::Shared, ..a }),
            Base::Reg(r) => Opd::Reg(r),
            Base::None => Opd::Imm(0),
        };
        let sum = self.int(IntOp::Add, Ty::U32, register, Opd::Imm(a.offset as u64));
        let d = self.temp(Class::I64);
        let a = vec![(Ty::U32, sum)];
        self.push(Op::Pure { f: Pure::ClusterToGeneric, detail: size, ty: Ty::U64, d, a });
        Ok(Addr { space: Space::Generic, base: Base::Reg(d), offset: 0 })
    }

    /// What stands between the brackets.
    pub fn bare_address(&mut self, space: Space, size: u32) -> Result<Addr> {
        if self.module.cursor.peek().kind != Kind::Ident {
            let offset = self.module.cursor.integer()?;
            return Ok(Addr { space, base: Base::None, offset });
        }
        let name = self.module.cursor.ident()?;
        let found = self.name(name);
        let offset = self.offset()?;
        match found {
            Some(Name::Reg(r, ty)) if matches!(ty.bytes(), 4 | 8) => {
                Ok(Addr { space, base: Base::Reg(r), offset })
            }
            Some(Name::Reg(..)) => self.error(format!("`{name}` cannot hold an address")),
            Some(Name::Symbol(symbol)) => self.symbol_address(name, space, symbol, offset, size),
            None => self.error(format!("`{name}` is not known")),
        }
    }

    /// Parameters and locals with constant offsets are reached without a check, so they are checked here.
    fn symbol_address(
        &self,
        name: &str,
        space: Space,
        symbol: Symbol,
        offset: i64,
        size: u32,
    ) -> Result<Addr> {
        let room = match symbol {
            Symbol::Function(_) => return self.error(format!("`{name}` is a function, not a variable")),
            Symbol::Var(_) | Symbol::Shared(_) => None,
            Symbol::Arg(_) if self.f.kernel && space != Space::Param => {
                return self
                    .error(format!("`{name}` is a parameter of the kernel, to be read by `ld.param`"));
            }
            _ => Some(self.sizes.get(&symbol).copied().unwrap_or(0)),
        };
        if let Some(room) = room
            && (offset < 0 || offset.saturating_add(i64::from(size)) > i64::from(room))
        {
            return self.error(format!("[{name}+{offset}] is outside of `{name}` ({room} bytes)"));
        }
        Ok(Addr { space, base: Base::Sym(symbol), offset })
    }

    /// `{a, b}` or a single operand, as `many` wants it.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if !self.module.cursor.eat(b'{') {
            return Ok(vec![one(self)?]);
        }
        let mut v = Vec::new();
        loop {
            v.push(one(self)?);
            if v.len() > 64 {
                return self.error("vector is too long");
            }
            if !self.module.cursor.eat(b',') {
                break;
            }
        }
        self.module.cursor.want(b'}')?;
        Ok(v)
    }
}
