//! The frame of a function: entry, the loop over threads, blocks and their ends, values of operands.

use super::Clif;
use super::vector::Test;
use crate::codegen::Unit;
use crate::ir::passes::listens;
use crate::ir::{self, Class, Guard, Inst, Opd, Reg, Sreg, Symbol, Term, Ty};
use crate::runtime::context::{Block as BlockContext, Thread};
use crate::runtime::helpers::Helper;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    Block, BlockCall, ExternalName, GlobalValueData, InstBuilder, JumpTableData, MemFlagsData, SigRef,
    StackSlot, Type, UserExternalName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use std::collections::HashMap;
use std::mem::offset_of;

/// Stack that helpers may use below a frame: checked at the entry of functions that can be deep.
const HELPER_ROOM: i64 = 16 << 10;

/// One function while it is emitted.
pub struct Emit<'a> {
    pub b: FunctionBuilder<'a>,
    pub clif: &'a Clif,
    pub unit: &'a Unit<'a>,
    pub f: &'a ir::Function,
    pub regs: Vec<Variable>,
    pub thread: Value,
    pub block: Value,
    pub args: Value,
    pub rets: Value,
    pub frame: Value,
    pub line: u32,
    pub sigs: HashMap<(Vec<Type>, Option<Type>, CallConv), SigRef>,
    /// See [`Emit::buffer`].
    pub slot: Option<StackSlot>,
    /// See [`Emit::buffer_of_lane`].
    pub lane_slots: Option<StackSlot>,
    /// In a thread loop: where a thread that has ended goes.
    next_thread: Option<Block>,
    /// In a thread loop: `%tid.x`.
    tid_x: Option<Variable>,
    /// How warp operations are emitted.
    pub phase: Phase,
    /// Memory that was found accessible. Only of vector code.
    pub covered: Vec<Held<'a>>,
}

/// A cover of a test that was made, whose register is still what it was.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    pub test: &'a Test,
    pub cover: usize,
    /// The host address of the register's value.
    pub host: Value,
}

impl Held<'_> {
    /// The register whose value was tested.
    pub fn base(&self) -> ir::Reg {
        self.test.covers[self.cover].base
    }
}

/// Which part of a warp operation is emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The lane brings its operands, waits for the others, and takes its result.
    Whole,
    /// The lane only leaves its operands.
    Bring,
    /// The lane only takes its result.
    Take,
}

/// How a class is held.
pub fn class_type(c: Class) -> Type {
    match c {
        Class::Pred | Class::I8 => types::I8,
        Class::I16 => types::I16,
        Class::I32 => types::I32,
        Class::I64 => types::I64,
        Class::I128 => types::I128,
        Class::F32 => types::F32,
        Class::F64 => types::F64,
    }
}

/// Flags of accesses that were checked, or need no check.
pub fn flags() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Emits a whole function; `looped` makes it run all threads of the block.
pub fn function<'a>(
    clif: &'a Clif,
    unit: &'a Unit<'a>,
    f: &'a ir::Function,
    looped: bool,
    into: &'a mut cranelift_codegen::ir::Function,
    context: &'a mut FunctionBuilderContext,
    config: TargetFrontendConfig,
) {
    let mut e = Emit::new(clif, unit, f, into, context);
    e.body(looped);
    e.b.seal_all_blocks();
    e.b.finalize(config);
}

impl<'a> Emit<'a> {
    /// A function at its entry.
    pub fn new(
        clif: &'a Clif,
        unit: &'a Unit<'a>,
        f: &'a ir::Function,
        into: &'a mut cranelift_codegen::ir::Function,
        context: &'a mut FunctionBuilderContext,
    ) -> Emit<'a> {
        let mut b = FunctionBuilder::new(into, context);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let p = b.block_params(entry).to_vec();
        let regs = f.regs.iter().map(|c| b.declare_var(class_type(*c))).collect();
        let block = b.ins().load(types::I64, flags(), p[0], offset_of!(Thread, block) as i32);
        Emit {
            b,
            clif,
            unit,
            f,
            regs,
            thread: p[0],
            block,
            args: p[1],
            rets: p[2],
            frame: p[3],
            line: f.line,
            sigs: HashMap::new(),
            slot: None,
            lane_slots: None,
            next_thread: None,
            tid_x: None,
            phase: Phase::Whole,
            covered: Vec::new(),
        }
    }
}

impl Emit<'_> {
    fn body(&mut self, looped: bool) {
        let blocks: Vec<Block> = self.f.blocks.iter().map(|_| self.b.create_block()).collect();
        if !self.f.kernel {
            self.depth_check();
        }
        if looped {
            self.thread_loop(blocks[0]);
        } else {
            self.b.ins().jump(blocks[0], &[]);
        }
        let listens = listens(self.f);
        for (i, source) in self.f.blocks.iter().enumerate() {
            self.b.switch_to_block(blocks[i]);
            for inst in &source.insts {
                self.inst(inst);
            }
            if listens[i] {
                self.listen();
            }
            self.term(&source.term, &blocks);
        }
    }

    /// Recursion may be deeper than the stack or the local memory, of whose end `alloca` takes.
    fn depth_check(&mut self) {
        if !self.unit.reach.unbounded {
            return;
        }
        let need = self.imm(types::I64, i64::from(self.f.frame()));
        let end = self.b.ins().iadd(self.frame, need);
        let limit = self.thread_field(types::I64, offset_of!(Thread, local_top));
        let over_local = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, limit);
        let sp = self.b.ins().get_stack_pointer(types::I64);
        let room = self.imm(types::I64, HELPER_ROOM);
        let low = self.b.ins().isub(sp, room);
        let limit = self.thread_field(types::I64, offset_of!(Thread, stack_limit));
        let over_stack = self.b.ins().icmp(IntCC::UnsignedLessThan, low, limit);
        let over = self.b.ins().bor(over_local, over_stack);
        self.cold_if(over, |e| {
            let line = e.imm(types::I32, i64::from(e.f.line));
            e.helper(Helper::StackOverflow, &[e.thread, line], None);
        });
    }

    /// for z, y, x: set tid, run the body; ends come back to the loop. Only the step in x is on the quick path.
    fn thread_loop(&mut self, body: Block) {
        let [x, y, z, linear] = std::array::from_fn(|_| self.b.declare_var(types::I32));
        let (zero, one) = (self.imm(types::I32, 0), self.imm(types::I32, 1));
        for v in [x, y, z, linear] {
            self.b.def_var(v, zero);
        }
        let [row, head, next, step_y, step_z, done] = std::array::from_fn(|_| self.b.create_block());
        self.next_thread = Some(next);
        self.tid_x = Some(x);
        self.b.ins().jump(row, &[]);

        self.b.switch_to_block(row);
        self.set_tid(y, 1);
        self.set_tid(z, 2);
        self.b.ins().jump(head, &[]);

        self.b.switch_to_block(head);
        self.set_tid(x, 0);
        self.set_tid(linear, 3);
        self.b.ins().jump(body, &[]);

        self.b.switch_to_block(next);
        let n = self.b.use_var(linear);
        let n = self.b.ins().iadd(n, one);
        self.b.def_var(linear, n);
        let more = self.step(x, one, 0);
        self.b.ins().brif(more, head, &[], step_y, &[]);

        self.b.switch_to_block(step_y);
        self.b.def_var(x, zero);
        let more = self.step(y, one, 1);
        self.b.ins().brif(more, row, &[], step_z, &[]);

        self.b.switch_to_block(step_z);
        self.b.def_var(y, zero);
        let more = self.step(z, one, 2);
        self.b.ins().brif(more, row, &[], done, &[]);

        self.b.switch_to_block(done);
        self.b.ins().return_(&[]);
    }

    /// Stores a coordinate where everybody else reads it; 3 is the linear number, which follows the three.
    fn set_tid(&mut self, v: Variable, axis: usize) {
        let v = self.b.use_var(v);
        let at = offset_of!(Thread, tid) + 4 * axis;
        self.b.ins().store(flags(), v, self.thread, at as i32);
    }

    /// One further on an axis; whether that is still inside of the block.
    fn step(&mut self, v: Variable, one: Value, axis: usize) -> Value {
        let n = self.b.use_var(v);
        let n = self.b.ins().iadd(n, one);
        self.b.def_var(v, n);
        let limit = self.block_field(types::I32, offset_of!(BlockContext, ntid) + 4 * axis);
        self.b.ins().icmp(IntCC::UnsignedLessThan, n, limit)
    }

    pub fn inst(&mut self, inst: &Inst) {
        self.line = inst.line;
        let Some(guard) = inst.guard else { return self.op(&inst.op) };
        let (then, after) = (self.b.create_block(), self.b.create_block());
        self.guarded(guard, then, after);
        self.b.switch_to_block(then);
        self.op(&inst.op);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    pub fn guarded(&mut self, guard: Guard, then: Block, other: Block) {
        let p = self.get(guard.reg);
        let (then, other) = if guard.negated { (other, then) } else { (then, other) };
        self.b.ins().brif(p, then, &[], other, &[]);
    }

    pub fn term(&mut self, term: &Term, blocks: &[Block]) {
        match term {
            Term::Jump(t) => {
                self.b.ins().jump(blocks[*t as usize], &[]);
            }
            Term::Branch { guard, then, other } => {
                self.guarded(*guard, blocks[*then as usize], blocks[*other as usize]);
            }
            Term::Switch { index, targets, line } => self.switch(index, targets, *line, blocks),
            Term::Exit => match (self.next_thread, self.f.kernel) {
                (Some(next), _) => {
                    self.b.ins().jump(next, &[]);
                }
                (None, true) => {
                    self.b.ins().return_(&[]);
                }
                (None, false) => {
                    self.helper(Helper::Exit, &[self.thread], None);
                    self.b.ins().return_(&[]);
                }
            },
            Term::Ret => {
                self.b.ins().return_(&[]);
            }
        }
    }

    pub fn switch(&mut self, index: &Opd, targets: &[ir::BlockId], line: u32, blocks: &[Block]) {
        let i = self.value(Ty::U32, index);
        let out = self.b.create_block();
        let pool = &mut self.b.func.dfg.value_lists;
        let table: Vec<BlockCall> =
            targets.iter().map(|t| BlockCall::new(blocks[*t as usize], [], pool)).collect();
        let default = BlockCall::new(out, [], pool);
        let table = self.b.create_jump_table(JumpTableData::new(default, &table));
        self.b.ins().br_table(i, table);
        self.b.switch_to_block(out);
        let line = self.imm(types::I32, i64::from(line));
        self.helper(Helper::BadBranch, &[self.thread, line], None);
        self.b.ins().return_(&[]);
    }

    /// Looks whether code is to stop or to wait for another process: see `runtime::bell`.
    pub fn listen(&mut self) {
        let bell = self.block_field(types::I64, offset_of!(BlockContext, bell));
        let rings = self.b.ins().atomic_load(types::I32, flags(), bell);
        self.cold_if(rings, |e| {
            e.helper(Helper::Attend, &[e.thread], None);
        });
    }

    /// Runs `f` in a cold block when `p` holds, and goes on.
    pub fn cold_if(&mut self, p: Value, f: impl FnOnce(&mut Self)) {
        let (cold, after) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(cold);
        self.b.ins().brif(p, cold, &[], after, &[]);
        self.b.switch_to_block(cold);
        f(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    // ---- values

    pub fn imm(&mut self, t: Type, v: i64) -> Value {
        let v = match t.bits() {
            8 => v & 0xff,
            16 => v & 0xffff,
            32 => v & 0xffff_ffff,
            _ => v,
        };
        self.b.ins().iconst(t, v)
    }

    pub fn thread_field(&mut self, t: Type, offset: usize) -> Value {
        self.b.ins().load(t, flags(), self.thread, offset as i32)
    }

    pub fn block_field(&mut self, t: Type, offset: usize) -> Value {
        self.b.ins().load(t, flags(), self.block, offset as i32)
    }

    /// Where the block's shared memory begins.
    pub fn shared_base(&mut self) -> Value {
        self.block_field(types::I64, offset_of!(BlockContext, shared_base))
    }

    pub fn get(&mut self, r: Reg) -> Value {
        self.b.use_var(self.regs[r as usize])
    }

    /// An operand as a value of the class of `ty`.
    pub fn value(&mut self, ty: Ty, o: &Opd) -> Value {
        match *o {
            Opd::Reg(r) => {
                let v = self.get(r);
                self.fit(v, self.f.regs[r as usize], ty.class(), ty.signed())
            }
            Opd::Imm(v) => self.literal(ty, v),
            Opd::Special(s) => {
                let (v, class) = self.special(s);
                self.fit(v, class, ty.class(), false)
            }
            Opd::Sym(s, offset) => {
                let v = self.symbol(s, offset);
                self.fit(v, Class::I64, ty.class(), false)
            }
        }
    }

    pub fn literal(&mut self, ty: Ty, v: u64) -> Value {
        match ty.class() {
            Class::F32 => self.b.ins().f32const(f32::from_bits(v as u32)),
            Class::F64 => self.b.ins().f64const(f64::from_bits(v)),
            Class::I128 => {
                let (lo, hi) = (self.imm(types::I64, v as i64), self.imm(types::I64, 0));
                self.b.ins().iconcat(lo, hi)
            }
            c => self.imm(class_type(c), v as i64),
        }
    }

    /// Bits of a value of one class in another: cut, or extended.
    pub fn fit(&mut self, v: Value, from: Class, to: Class, signed: bool) -> Value {
        if class_type(from) == class_type(to) {
            return v;
        }
        let bits = |c| match c {
            Class::F32 => Class::I32,
            Class::F64 => Class::I64,
            c => c,
        };
        let v = if bits(from) == from { v } else { self.bitcast(class_type(bits(from)), v) };
        let (have, want) = (class_type(bits(from)), class_type(bits(to)));
        let v = match have.bits().cmp(&want.bits()) {
            std::cmp::Ordering::Equal => v,
            std::cmp::Ordering::Greater => self.b.ins().ireduce(want, v),
            std::cmp::Ordering::Less if signed => self.b.ins().sextend(want, v),
            std::cmp::Ordering::Less => self.b.ins().uextend(want, v),
        };
        if bits(to) == to { v } else { self.bitcast(class_type(to), v) }
    }

    pub fn bitcast(&mut self, to: Type, v: Value) -> Value {
        if self.b.func.dfg.value_type(v) == to { v } else { self.b.ins().bitcast(to, MemFlagsData::new(), v) }
    }

    /// Writes a value of type `ty` to a register.
    pub fn set(&mut self, ty: Ty, r: Reg, v: Value) {
        let v = self.fit(v, ty.class(), self.f.regs[r as usize], ty.signed());
        self.b.def_var(self.regs[r as usize], v);
    }

    /// The address (or offset, in shared space) of a symbol.
    pub fn symbol(&mut self, s: Symbol, offset: i64) -> Value {
        let (base, add) = match s {
            Symbol::Var(i) => return self.variable(i, offset),
            Symbol::Shared(i) => (None, self.unit.shared[i as usize] as i64),
            Symbol::Frame(o) => (Some(self.frame), i64::from(o)),
            Symbol::Call(o) => (Some(self.frame), i64::from(self.f.locals.next_multiple_of(16) + o)),
            Symbol::Arg(o) => (Some(self.args), i64::from(o)),
            Symbol::Ret(o) => (Some(self.rets), i64::from(o)),
            Symbol::Function(i) => (None, crate::loaded::function_token(i) as i64),
        };
        let add = self.imm(types::I64, add.wrapping_add(offset));
        match base {
            Some(base) => self.b.ins().iadd(base, add),
            None => add,
        }
    }

    /// The address of a global or constant variable: known when the code is linked.
    fn variable(&mut self, var: u32, offset: i64) -> Value {
        let name = self.b.func.declare_imported_user_function(UserExternalName { namespace: 0, index: var });
        let data = GlobalValueData::Symbol {
            name: ExternalName::user(name),
            offset: Imm64::new(offset),
            colocated: false,
            tls: false,
        };
        let place = self.b.create_global_value(data);
        self.b.ins().symbol_value(types::I64, place)
    }

    fn special(&mut self, s: Sreg) -> (Value, Class) {
        let w = types::I32;
        let v = match s {
            Sreg::Tid(0) if self.tid_x.is_some() => self.tid_x.map_or(self.thread, |x| self.b.use_var(x)),
            Sreg::Tid(a) => self.thread_field(w, offset_of!(Thread, tid) + 4 * a as usize),
            Sreg::Ntid(a) => self.block_field(w, offset_of!(BlockContext, ntid) + 4 * a as usize),
            Sreg::Ctaid(a) => self.block_field(w, offset_of!(BlockContext, ctaid) + 4 * a as usize),
            Sreg::Nctaid(a) => self.block_field(w, offset_of!(BlockContext, nctaid) + 4 * a as usize),
            Sreg::SmId => self.block_field(w, offset_of!(BlockContext, smid)),
            Sreg::NSmId => self.block_field(w, offset_of!(BlockContext, nsmid)),
            Sreg::DynamicSmemSize => self.block_field(w, offset_of!(BlockContext, dynamic_shared)),
            // In units of what a card allocates, which are 128 bytes from sm_80 on.
            Sreg::TotalSmemSize => {
                let n = self.block_field(w, offset_of!(BlockContext, total_shared));
                let (up, whole) = (self.imm(w, 127), self.imm(w, !127));
                let n = self.b.ins().iadd(n, up);
                self.b.ins().band(n, whole)
            }
            Sreg::GridId => {
                return (self.block_field(types::I64, offset_of!(BlockContext, grid_id)), Class::I64);
            }
            Sreg::WorkspaceHi => self.block_field(w, offset_of!(BlockContext, workspace) + 4),
            Sreg::WorkspaceLo => self.block_field(w, offset_of!(BlockContext, workspace)),
            Sreg::LaneId => self.lane(),
            Sreg::WarpId => {
                let (t, five) = (self.thread_field(w, offset_of!(Thread, linear)), self.imm(w, 5));
                self.b.ins().ushr(t, five)
            }
            Sreg::NWarpId => {
                let n = self.block_field(w, offset_of!(BlockContext, threads));
                let (up, five) = (self.imm(w, 31), self.imm(w, 5));
                let n = self.b.ins().iadd(n, up);
                self.b.ins().ushr(n, five)
            }
            Sreg::LaneMaskEq | Sreg::LaneMaskLe | Sreg::LaneMaskLt | Sreg::LaneMaskGe | Sreg::LaneMaskGt => {
                self.lane_mask(s)
            }
            Sreg::Clock | Sreg::ClockHi | Sreg::Clock64 => {
                return self.clock(Helper::Clock, s == Sreg::ClockHi);
            }
            Sreg::GlobalTimer | Sreg::GlobalTimerLo | Sreg::GlobalTimerHi => {
                return self.clock(Helper::GlobalTimer, s == Sreg::GlobalTimerHi);
            }
            Sreg::ClusterId(a) => self.block_field(w, offset_of!(BlockContext, clusterid) + 4 * a as usize),
            Sreg::NClusterId(a) => self.block_field(w, offset_of!(BlockContext, nclusterid) + 4 * a as usize),
            Sreg::ClusterCtaId(a) => {
                self.block_field(w, offset_of!(BlockContext, cluster_ctaid) + 4 * a as usize)
            }
            Sreg::ClusterNCtaId(a) => {
                self.block_field(w, offset_of!(BlockContext, cluster_nctaid) + 4 * a as usize)
            }
            Sreg::ClusterCtaRank => self.block_field(w, offset_of!(BlockContext, cluster_ctarank)),
            Sreg::ClusterNCtaRank => self.block_field(w, offset_of!(BlockContext, cluster_nctarank)),
            Sreg::IsExplicitCluster => self.block_field(w, offset_of!(BlockContext, explicit_cluster)),
            Sreg::WarpSize => self.imm(w, 32),
            Sreg::Zero => self.imm(w, 0),
        };
        (v, Class::I32)
    }

    pub fn lane(&mut self) -> Value {
        let (t, m) = (self.thread_field(types::I32, offset_of!(Thread, linear)), self.imm(types::I32, 31));
        self.b.ins().band(t, m)
    }

    fn lane_mask(&mut self, s: Sreg) -> Value {
        let w = types::I32;
        let lane = self.lane();
        let (one, two, all) = (self.imm(w, 1), self.imm(w, 2), self.imm(w, -1));
        match s {
            Sreg::LaneMaskEq => self.b.ins().ishl(one, lane),
            Sreg::LaneMaskGe => self.b.ins().ishl(all, lane),
            Sreg::LaneMaskLt => {
                let m = self.b.ins().ishl(all, lane);
                self.b.ins().bnot(m)
            }
            // 2 << 31 is 0, which is what is wanted.
            _ => {
                let m = self.b.ins().ishl(two, lane);
                if s == Sreg::LaneMaskGt { self.b.ins().ineg(m) } else { self.b.ins().isub(m, one) }
            }
        }
    }

    fn clock(&mut self, h: Helper, high: bool) -> (Value, Class) {
        let v = self.helper(h, &[], Some(types::I64));
        if !high {
            return (v, Class::I64);
        }
        let n = self.imm(types::I64, 32);
        (self.b.ins().ushr(v, n), Class::I64)
    }
}
