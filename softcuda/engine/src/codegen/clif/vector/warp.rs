//! Barriers, yields, and operations among the lanes, while all lanes of a group are at the same place.

use super::emit::Vector;
use super::value::Row;
use crate::codegen::clif::emit::Phase;
use crate::ir::{BarOp, Class, Inst, Op, Opd, Reg, ShflMode, Ty};
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::{InstBuilder, types};

impl Vector<'_> {
    /// An operation by which threads wait for each other. Whether it was one; those have no guard.
    pub fn waits_together(&mut self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Yield => {
                let t = self.group;
                self.e.helper(Helper::Yield, &[t], None);
            }
            Op::ClusterBarrier { wait } => {
                let (t, wait) = (self.group, self.e.imm(types::I32, i64::from(*wait)));
                self.e.helper(Helper::ClusterBarrier, &[t, wait], None);
            }
            // All lanes are here.
            Op::BarWarp { .. } => {}
            Op::Bar { op, d, id, count, p } => self.barrier(*op, *d, id, count.as_ref(), p.as_ref()),
            Op::Shfl { mode, d, p, a, b, c, mask }
                if self.constant_shuffle(*mode, *d, *p, a, b, c, mask.as_ref()) => {}
            Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::ActiveMask { .. }
            | Op::Elect { .. }
            | Op::Collective { .. } => self.among_lanes(inst),
            _ => return false,
        }
        true
    }

    /// Each lane leaves what it brings, one call computes for all, each takes its result.
    fn among_lanes(&mut self, inst: &Inst) {
        self.e.phase = Phase::Bring;
        self.lanes(inst);
        let t = self.group;
        self.e.helper(Helper::AmongLanes, &[t], None);
        self.e.phase = Phase::Take;
        let mut same = Vec::new();
        inst.op.dests(&mut |d| same.extend((!self.differs(d)).then_some(d)));
        if same.is_empty() {
            self.lanes(inst);
        } else {
            // What all lanes get is lane 0's.
            self.e.op(&inst.op);
        }
        self.e.phase = Phase::Whole;
    }

    fn barrier(&mut self, op: BarOp, d: Option<Reg>, id: &Opd, count: Option<&Opd>, p: Option<&Opd>) {
        let lanes = i64::from(self.width);
        let votes = match p {
            Some(p) if self.plan.shapes().operand(Ty::Pred, p).uniform() => {
                let p = self.e.value(Ty::Pred, p);
                let p = self.e.b.ins().uextend(types::I32, p);
                let n = self.e.imm(types::I32, lanes);
                self.e.b.ins().imul(p, n)
            }
            Some(p) => {
                let mask = self.operand(Ty::Pred, p).unwrap_or_default();
                let bits = self.bits(&mask);
                self.e.b.ins().popcnt(bits)
            }
            None => self.e.imm(types::I32, 0),
        };
        let code = self.e.imm(types::I32, op as i64);
        let id = self.e.value(Ty::U32, id);
        let count = match count {
            Some(c) => self.e.value(Ty::U32, c),
            None => self.e.imm(types::I32, 0),
        };
        let t = self.group;
        let r = self.e.helper(Helper::Barrier, &[t, code, id, count, votes], Some(types::I32));
        let Some(d) = d else { return };
        if op == BarOp::RedPopc {
            self.e.set(Ty::U32, d, r);
        } else {
            let r = self.e.b.ins().ireduce(types::I8, r);
            self.e.set(Ty::Pred, d, r);
        }
        if self.differs(d) {
            self.widen_result(d, 0);
        }
    }

    /// A shuffle of a full warp by a constant distance: a permutation of vectors.
    #[allow(clippy::too_many_arguments)]
    fn constant_shuffle(
        &mut self,
        mode: ShflMode,
        d: Reg,
        p: Option<Reg>,
        a: &Opd,
        b: &Opd,
        c: &Opd,
        mask: Option<&Opd>,
    ) -> bool {
        let (Opd::Imm(b), Opd::Imm(c)) = (b, c) else { return false };
        let all = matches!(mask, None | Some(Opd::Imm(0xffff_ffff | u64::MAX)));
        let p_fits = p.is_none_or(|p| self.in_vectors(p));
        if self.width != 32 || !all || !self.in_vectors(d) || self.class(d).bits() != 32 || !p_fits {
            return false;
        }
        let Some(row) = self.operand(Ty::B32, a) else { return false };
        let sources: Vec<(u32, bool)> = (0..32)
            .map(|l| crate::runtime::warp::source_lane(l, mode as u32, (*b & 0xffff_ffff) | *c << 32))
            .collect();
        let out: Row = sources.chunks(4).map(|s| self.gathered(&row, s)).collect();
        let Some(out) = self.fit(out, Class::I32, self.class(d), false) else { return false };
        self.define(d, &out);
        if let Some(p) = p {
            let valid: Row = sources
                .chunks(4)
                .map(|s| {
                    let bytes: Vec<u8> = s.iter().flat_map(|(_, v)| [if *v { 0xff } else { 0 }; 4]).collect();
                    self.constant(types::I32X4, &bytes)
                })
                .collect();
            self.define(p, &valid);
        }
        true
    }

    /// One vector of the lanes given.
    fn gathered(&mut self, row: &Row, lanes: &[(u32, bool)]) -> cranelift_codegen::ir::Value {
        let mut from: Vec<u32> = lanes.iter().map(|l| l.0 / 4).collect();
        from.dedup();
        let vector = |l: u32| row[l as usize / 4];
        if let [one] = from[..] {
            let picks: Vec<u8> = lanes.iter().map(|l| (l.0 % 4) as u8).collect();
            let v = row[one as usize];
            return if picks == [0, 1, 2, 3] { v } else { self.shuffle(v, v, 4, &picks) };
        }
        if let [x, y] = from[..] {
            let picks: Vec<u8> =
                lanes.iter().map(|l| (l.0 % 4) as u8 + if l.0 / 4 == x { 0 } else { 4 }).collect();
            return self.shuffle(row[x as usize], row[y as usize], 4, &picks);
        }
        let mut all = vector(lanes[0].0);
        for (i, (l, _)) in lanes.iter().enumerate() {
            let v = self.e.b.ins().extractlane(vector(*l), (*l % 4) as u8);
            all = self.e.b.ins().insertlane(all, v, i as u8);
        }
        all
    }
}
