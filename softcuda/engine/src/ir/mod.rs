//! The intermediate representation: typed operations over virtual registers, in basic blocks, each with its PTX line.
//!
//! It is not SSA: a PTX register stays a register, and the code generator's frontend builds SSA from it. It is
//! written for one thread; the passes ([`passes`]) and code generators decide how many threads run at once.

pub mod flow;
pub mod matrix;
mod optimise;
pub mod passes;
pub mod pressure;
pub mod texture;
mod visit;

use crate::ptx::Target;

/// A virtual register; an index into [`Function::regs`].
pub type Reg = u32;
/// A basic block; an index into [`Function::blocks`].
pub type BlockId = u32;

/// PTX's fundamental types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Ty { Pred, B8, B16, B32, B64, B128, U8, U16, U32, U64, S8, S16, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64 }

impl Ty {
    pub fn parse(s: &str) -> Option<Ty> {
        Some(match s {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "b128" => Ty::B128,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            _ => return None,
        })
    }

    /// Size in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Ty::Pred | Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => 2,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => 4,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
            Ty::B128 => 16,
        }
    }

    pub fn bits(self) -> u32 {
        self.bytes() * 8
    }

    pub fn signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// A floating-point type of any width.
    pub fn float(self) -> bool {
        matches!(self, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::F32 | Ty::F64)
    }

    /// An integer type proper, not `.bN` and not a float.
    pub fn integer(self) -> bool {
        self.signed() || matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }

    /// How a value of this type is held in a register.
    pub fn class(self) -> Class {
        match self {
            Ty::Pred => Class::Pred,
            Ty::F32 => Class::F32,
            Ty::F64 => Class::F64,
            t => match t.bytes() {
                1 => Class::I8,
                2 => Class::I16,
                4 => Class::I32,
                8 => Class::I64,
                _ => Class::I128,
            },
        }
    }
}

/// How a register is held. 16-bit floats are held as their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Class { Pred, I8, I16, I32, I64, I128, F32, F64 }

impl Class {
    pub fn bits(self) -> u32 {
        match self {
            Class::Pred | Class::I8 => 8,
            Class::I16 => 16,
            Class::I32 | Class::F32 => 32,
            Class::I64 | Class::F64 => 64,
            Class::I128 => 128,
        }
    }
}

/// State spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Space {
    Generic, Global, Const, Shared, Local, Param,
    /// `.shared::cluster`: only while a text is read; what comes out of it has generic addresses.
    Cluster,
}

/// Special registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Sreg {
    Tid(u8), Ntid(u8), Ctaid(u8), Nctaid(u8), LaneId, WarpId, NWarpId, SmId, NSmId, GridId,
    ClusterId(u8), NClusterId(u8), ClusterCtaId(u8), ClusterNCtaId(u8), ClusterCtaRank, ClusterNCtaRank, IsExplicitCluster,
    LaneMaskEq, LaneMaskLe, LaneMaskLt, LaneMaskGe, LaneMaskGt, Clock, ClockHi, Clock64, GlobalTimer, GlobalTimerLo, GlobalTimerHi,
    DynamicSmemSize, TotalSmemSize, WarpSize, Zero,
    /// Upper and lower half of the address of the grid workspace, which only cooperative launches have.
    WorkspaceHi, WorkspaceLo,
}

/// What a symbol stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A `.global` or `.const` variable: index into [`Program::vars`].
    Var(u32),
    /// Offset in the block's shared memory: index into [`Program::vars`].
    Shared(u32),
    /// Offset in the function's frame in local memory.
    Frame(u32),
    /// Offset in the call area of the frame.
    Call(u32),
    /// Offset in the function's own parameters.
    Arg(u32),
    /// Offset in the function's return values.
    Ret(u32),
    /// A function: index into [`Program::functions`].
    Function(u32),
}

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Opd {
    Reg(Reg),
    /// Bits, as wide as the operation's type.
    Imm(u64),
    Special(Sreg),
    /// Address of a symbol plus an offset.
    Sym(Symbol, i64),
}

/// What an address starts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Base {
    Reg(Reg),
    Sym(Symbol),
    /// The offset is the whole address.
    None,
}

/// A memory operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Addr {
    pub space: Space,
    pub base: Base,
    pub offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum IntOp { Add, Sub, AddSat, SubSat, Mul, MulHi, MulWide, Mul24, Mul24Hi, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr, Bmsk }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum IntUnary { Neg, Abs, Not, Cnot, Popc, Clz, Brev, Bfind { shift: bool } }
/// `Shf`: funnel shift. `Dp4a` and `Dp2a`: the second type's sign is `b_signed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum IntOp3 { Sad, Bfe, Prmt(PrmtMode), Shf { left: bool, clamp: bool }, Lop3(u8), Dp4a { b_signed: bool }, Dp2a { b_signed: bool, hi: bool }, Fns }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum PrmtMode { Index, F4e, B4e, Rc8, Ecl, Ecr, Rc16 }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum MadOp { Lo, Hi, HiSat, Wide, Lo24, Hi24 }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum FloatOp { Add, Sub, Mul, Div, Min, Max, Copysign }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum FloatUnary { Neg, Abs, Sqrt, Rcp, Rsqrt, Sin, Cos, Lg2, Ex2, Tanh }
/// Rounding: to nearest even, to zero, down, up; the `I` ones round to an integer in float format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[rustfmt::skip]
pub enum Round { Near, Zero, Down, Up, NearInt, ZeroInt, DownInt, UpInt }
/// What goes with a float operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatMode {
    pub round: Round,
    /// Denormal inputs and results become zero.
    pub ftz: bool,
    /// Clamp to [0, 1], NaN to 0.
    pub sat: bool,
    /// `min.NaN`: NaN wins.
    pub nan: bool,
    /// `fma.relu`: clamp below at 0.
    pub relu: bool,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Cmp { Eq, Ne, Lt, Le, Gt, Ge, Lo, Ls, Hi, Hs, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum BoolOp { And, Or, Xor }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum TestOp { Finite, Infinite, Number, NotANumber, Normal, Subnormal }
/// How an access takes part in the memory model. Everything but `Weak` is an atomic access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Order { Weak, Volatile, Relaxed, Acquire, Release }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum AtomOp { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum BarOp { Sync, Arrive, RedPopc, RedAnd, RedOr }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum ShflMode { Up, Down, Bfly, Idx }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum VoteMode { All, Any, Uni, Ballot }
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum ReduxOp { Add, Min, Max, And, Or, Xor,
    /// Of floats: one that is no number makes the result none.
    MinNan, MaxNan,
}
/// Functions of their operands that the run time computes: see [`Op::Pure`] and `runtime::pure`, which says what the detail
/// of each means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Pure { Vmad, Narrow, NarrowOne, Widen, Tf32, MapShared, MapGeneric, RankOfShared, RankOfGeneric, ClusterToGeneric, GenericToCluster, IsCluster }
/// Operations on checked memory that the run time does: see [`Op::Memory`] and `runtime::access`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum MemoryFn {
    /// 128 bits at once.
    Load128, Store128, Exchange128, Compare128,
    /// Each lane of a vector of floats, atomically one by one.
    VectorAtomic,
    MbarrierInit, MbarrierExpect, MbarrierComplete, MbarrierArrive, MbarrierTest,
    /// In the block's shared memory, a multiple of 8 bytes.
    Zeros,
}
/// Operations that all lanes of a warp do together: see [`Op::Collective`] and `runtime::collective`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum CollectiveFn { Mma, Wmma, LoadMatrix, StoreMatrix, MoveMatrix }
/// Functions that the driver supplies to device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Builtin {
    Vprintf, AssertFail, Malloc, Free,
    /// Never in a program: it is decoded into a store.
    SetConditional,
}

/// The condition of a guarded instruction or branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub reg: Reg,
    /// `@!p`.
    pub negated: bool,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Inst {
    pub guard: Option<Guard>,
    pub line: u32,
    pub op: Op,
}

/// Who is called.
#[derive(Debug, Clone, PartialEq)]
pub enum Callee {
    Function(u32),
    Pointer(Opd),
    Builtin(Builtin),
}

/// The operations. `d` is the destination, `a`, `b`, `c` the sources; `ty` the instruction's type.
#[derive(Debug, Clone, PartialEq)]
#[rustfmt::skip]
pub enum Op {
    Mov { ty: Ty, d: Reg, a: Opd },
    /// `mov.b64 d, {a, b}`: `part` is the type of one element.
    Pack { part: Ty, d: Reg, parts: Vec<Opd> },
    Unpack { part: Ty, d: Vec<Option<Reg>>, a: Opd },
    Int { op: IntOp, ty: Ty, d: Reg, a: Opd, b: Opd },
    IntUnary { op: IntUnary, ty: Ty, d: Reg, a: Opd },
    Int3 { op: IntOp3, ty: Ty, d: Reg, a: Opd, b: Opd, c: Opd },
    Bfi { ty: Ty, d: Reg, a: Opd, b: Opd, pos: Opd, len: Opd },
    Mad { op: MadOp, ty: Ty, d: Reg, a: Opd, b: Opd, c: Opd },
    Float { op: FloatOp, ty: Ty, mode: FloatMode, d: Reg, a: Opd, b: Opd },
    FloatUnary { op: FloatUnary, ty: Ty, mode: FloatMode, d: Reg, a: Opd },
    Fma { ty: Ty, mode: FloatMode, d: Reg, a: Opd, b: Opd, c: Opd },
    /// `d = (a cmp b) bool c`, `d2 = !(a cmp b) bool c`.
    Setp { cmp: Cmp, ty: Ty, ftz: bool, d: Reg, d2: Option<Reg>, a: Opd, b: Opd, with: Option<(BoolOp, Opd)> },
    /// All ones (or 1.0) when true.
    Set { cmp: Cmp, to: Ty, ty: Ty, ftz: bool, d: Reg, a: Opd, b: Opd, with: Option<(BoolOp, Opd)> },
    Selp { ty: Ty, d: Reg, a: Opd, b: Opd, p: Opd },
    /// `d = c >= 0 ? a : b`.
    Slct { ty: Ty, by: Ty, ftz: bool, d: Reg, a: Opd, b: Opd, c: Opd },
    Testp { test: TestOp, ty: Ty, d: Reg, a: Opd },
    Cvt { to: Ty, from: Ty, mode: FloatMode, d: Reg, a: Opd },
    /// Two floats to a packed pair; `a` is the upper half.
    CvtPack { to: Ty, mode: FloatMode, d: Reg, a: Opd, b: Opd },
    Cvta { to_space: bool, space: Space, d: Reg, a: Opd },
    Isspacep { space: Space, d: Reg, a: Opd },
    Ld { ty: Ty, order: Order, d: Vec<Option<Reg>>, addr: Addr },
    St { ty: Ty, order: Order, a: Vec<Opd>, addr: Addr },
    Atom { op: AtomOp, ty: Ty, d: Option<Reg>, addr: Addr, b: Opd, c: Opd },
    Fence,
    /// `args` and `ret` are offsets in the call area.
    Call { callee: Callee, args: u32, ret: u32 },
    /// Copies inside the frame's call area, or to it.
    Bar { op: BarOp, d: Option<Reg>, id: Opd, count: Option<Opd>, p: Option<Opd> },
    Shfl { mode: ShflMode, d: Reg, p: Option<Reg>, a: Opd, b: Opd, c: Opd, mask: Option<Opd> },
    Vote { mode: VoteMode, d: Reg, p: Opd, mask: Option<Opd> },
    Match { all: bool, ty: Ty, d: Reg, p: Option<Reg>, a: Opd, mask: Opd },
    Redux { op: ReduxOp, ty: Ty, d: Reg, a: Opd, mask: Opd },
    ActiveMask { d: Reg },
    Elect { d: Option<Reg>, p: Reg, mask: Opd },
    BarWarp { mask: Opd },
    /// `to` is the type of the results, or of the values that are stored; `from` that of the coordinates. `a` holds the
    /// layer, coordinates, and what else [`texture::TextureOp`] asks for.
    Texture { op: texture::TextureOp, to: Ty, from: Ty, d: Vec<Option<Reg>>, object: Opd, a: Vec<Opd> },
    Nanosleep,
    /// `f` of up to three operands, which it gets as 64 bits each (extended by their type's sign); no memory is touched, and equal
    /// operands give an equal result in one thread.
    Pure { f: Pure, detail: u32, ty: Ty, d: Reg, a: Vec<(Ty, Opd)> },
    /// `f` at the checked address of `size` bytes. Operands and results go through a buffer of 32-bit words, each in as
    /// many as its type needs.
    Memory { f: MemoryFn, detail: u32, size: u32, d: Vec<(Ty, Option<Reg>)>, addr: Addr, a: Vec<(Ty, Opd)> },
    /// All living lanes of the warp meet, and the last one computes for all. Operands and results go through buffers as above.
    Collective { f: CollectiveFn, detail: u64, d: Vec<(Ty, Option<Reg>)>, a: Vec<(Ty, Opd)> },
    /// `barrier.cluster.arrive`, or the wait that goes with it.
    ClusterBarrier { wait: bool },
    /// At the back edge of a loop that may wait for somebody: let others run.
    Yield,
    Trap,
    Nop,
    /// The top of what the thread has taken by [`Op::Alloca`], which grows downwards.
    StackSave { d: Reg },
    StackRestore { a: Opd },
    /// `size` bytes (of 64 bits) of local memory, aligned to `align`: their generic address.
    Alloca { d: Reg, size: Opd, align: u32 },
}

/// How a block ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Jump(BlockId),
    Branch {
        guard: Guard,
        then: BlockId,
        other: BlockId,
    },
    /// `brx.idx`; an index outside of the list is a fault.
    Switch {
        index: Opd,
        targets: Vec<BlockId>,
        line: u32,
    },
    Ret,
    Exit,
}

/// A basic block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub insts: Vec<Inst>,
    pub term: Term,
}

/// A formal parameter or return value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formal {
    pub offset: u32,
    pub size: u32,
    pub align: u32,
}

/// A kernel or device function.
#[derive(Debug, Clone, Default)]
pub struct Function {
    pub name: String,
    pub line: u32,
    pub kernel: bool,
    /// Only declared: there is no body.
    pub external: bool,
    pub params: Vec<Formal>,
    pub rets: Vec<Formal>,
    pub regs: Vec<Class>,
    pub blocks: Vec<Block>,
    /// Bytes of local variables in the frame.
    pub locals: u32,
    /// Bytes of the call area, which follows the local variables at a multiple of 16.
    pub call_area: u32,
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    /// `.maxnreg`: registers that a thread gets at most.
    pub max_registers: Option<u32>,
    /// `.reqnctapercluster`: blocks of a cluster; `[0; 3]` for `.explicitcluster`, where the launch must say.
    pub required_cluster: Option<[u32; 3]>,
}

impl Function {
    /// Whether a thread sees here which others are in its warp.
    pub fn lanes(&self) -> bool {
        let sees = |op: &Op| {
            let mut special = false;
            op.clone().sources_mut(&mut |o| {
                special |= matches!(o, Opd::Special(Sreg::LaneId | Sreg::WarpId | Sreg::NWarpId));
            });
            special || !matches!(op, Op::Bar { .. } | Op::Yield) && passes::waits(op)
        };
        self.blocks.iter().flat_map(|b| &b.insts).any(|i| sees(&i.op))
    }

    /// Bytes of the frame in local memory, a multiple of 16.
    pub fn frame(&self) -> u32 {
        self.locals.next_multiple_of(16) + self.call_area.next_multiple_of(16)
    }
}

/// A number in an initialiser that only loading can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixup {
    pub offset: u32,
    pub width: u32,
    pub symbol: String,
    /// What the name stands for; known at the end of its text.
    pub target: Option<Symbol>,
    pub addend: i64,
    /// `mask(symbol)`-style shift right in bits: which byte of the address is wanted.
    pub shift: u32,
    pub line: u32,
}

/// A module-level variable, or a shared one of any scope.
#[derive(Debug, Clone)]
pub struct Var {
    pub name: String,
    pub space: Space,
    pub size: u64,
    pub align: u32,
    /// `.extern`: defined elsewhere, or, in shared space, the dynamic part.
    pub external: bool,
    /// The first bytes; the rest is zero.
    pub init: Vec<u8>,
    pub fixups: Vec<Fixup>,
    /// A name of a texture, sampler or surface: its address is a number that only stands for that, and its size is 0.
    pub opaque: Option<texture::Opaque>,
    pub line: u32,
}

/// Lines of all texts of a module, in one numbering that runs on from text to text, so that a number tells both.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    starts: Vec<u32>,
    next: u32,
    /// There are several that the program gave; one may be of this crate.
    pub several: bool,
}

impl Lines {
    /// Another text: the number of its first line.
    pub fn begin(&mut self, text: &str) -> u32 {
        let first = self.next.max(1);
        let lines = text.bytes().filter(|b| *b == b'\n').count() + 1;
        self.starts.push(first);
        self.next = first.saturating_add(lines.min(u32::MAX as usize) as u32);
        first
    }

    /// Which text it is, counted from 1 (0 where there is only one), and the line in it.
    pub fn place(&self, line: u32) -> (u32, u32) {
        let text = self.starts.partition_point(|s| *s <= line);
        let Some(start) = text.checked_sub(1).and_then(|i| self.starts.get(i)) else { return (0, line) };
        (if self.several { text as u32 } else { 0 }, line - start + 1)
    }
}

/// A whole module.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// BLAKE3 of the texts.
    pub digest: [u8; 32],
    pub lines: Lines,
    /// 10 × major + minor; the highest of all texts.
    pub version: u32,
    /// For what the texts were made.
    pub targets: Vec<Target>,
    /// `.target …, debug`: the code is not optimised, and every load stands where the programmer wrote it.
    pub debug: bool,
    pub vars: Vec<Var>,
    pub functions: Vec<Function>,
}
