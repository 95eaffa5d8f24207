//! Random structured kernels, run by the engine and by an interpreter of a few lines: nested branches, loops of different
//! length, guarded operations, and, where all threads are together, shuffles, votes and exchanges over barriers.

mod common;

use common::{Arg, Device};
use std::fmt::Write;

/// Registers of a random kernel.
const REGS: usize = 8;
const INPUT: usize = 64;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Debug, Clone, Copy)]
enum Value {
    Reg(usize),
    Imm(u32),
}

#[derive(Debug, Clone)]
enum Stmt {
    /// `d = a op b`, perhaps only where `guard` (a register) is odd.
    Int {
        op: usize,
        d: usize,
        a: Value,
        b: Value,
        guard: Option<usize>,
    },
    /// `d = a < b ? x : y`
    Select {
        d: usize,
        a: Value,
        b: Value,
        x: Value,
        y: Value,
    },
    /// The upper half of a signed product, by 64 bits.
    Wide {
        d: usize,
        a: usize,
        by: i32,
    },
    /// Through `f32`: `d = int(float(a & 0xfff) * 1.5)`
    Float {
        d: usize,
        a: usize,
    },
    /// `d = input[a % 64]`
    Load {
        d: usize,
        a: usize,
    },
    If {
        a: Value,
        b: Value,
        then: Vec<Stmt>,
        other: Vec<Stmt>,
    },
    /// The body runs `(a & 7) + 1` times.
    Loop {
        a: usize,
        body: Vec<Stmt>,
    },
    /// By 32 lanes: mode, amount.
    Shuffle {
        d: usize,
        a: usize,
        mode: usize,
        b: u32,
    },
    /// `d` = the lanes of the warp where `a` is odd, perhaps only among those of a mask.
    Ballot {
        d: usize,
        a: usize,
    },
    /// `d` = `a` of another thread of the block.
    Exchange {
        d: usize,
        a: usize,
        step: u32,
    },
    /// `d` = how many threads of the block have an odd `a`.
    Count {
        d: usize,
        a: usize,
    },
}

type Eval = fn(u32, u32) -> u32;
const OPS: &[(&str, Eval)] = &[
    ("add.u32", |a, b| a.wrapping_add(b)),
    ("sub.s32", |a, b| a.wrapping_sub(b)),
    ("mul.lo.s32", |a, b| a.wrapping_mul(b)),
    ("xor.b32", |a, b| a ^ b),
    ("and.b32", |a, b| a & b),
    ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
    ("max.u32", |a, b| a.max(b)),
    ("shl.b32", |a, b| if b > 31 { 0 } else { a << b }),
    ("shr.s32", |a, b| (a as i32 >> b.min(31)) as u32),
    ("div.u32", |a, b| a.checked_div(b).unwrap_or(u32::MAX)),
];

struct Maker {
    r: Random,
    /// Whole warps, so that shuffles are defined.
    warps: bool,
}

impl Maker {
    fn reg(&mut self) -> usize {
        self.r.below(REGS as u64) as usize
    }

    fn value(&mut self) -> Value {
        match self.r.below(4) {
            0 => Value::Imm(self.r.below(40) as u32),
            1 if self.r.below(3) == 0 => Value::Imm(self.r.next() as u32),
            _ => Value::Reg(self.reg()),
        }
    }

    fn block(&mut self, depth: u32, together: bool) -> Vec<Stmt> {
        let n = 1 + self.r.below(if together { 7 } else { 4 });
        (0..n).map(|_| self.stmt(depth, together)).collect()
    }

    fn stmt(&mut self, depth: u32, together: bool) -> Stmt {
        let (d, a) = (self.reg(), self.reg());
        match self.r.below(if together { 17 } else { 12 }) {
            0..=3 => {
                let guard = (self.r.below(4) == 0).then(|| self.reg());
                let op = self.r.below(OPS.len() as u64) as usize;
                Stmt::Int { op, d, a: self.value(), b: self.value(), guard }
            }
            4 => Stmt::Select { d, a: self.value(), b: self.value(), x: self.value(), y: self.value() },
            5 => Stmt::Wide { d, a, by: self.r.next() as i32 % 1000 },
            6 => Stmt::Float { d, a },
            7 => Stmt::Load { d, a },
            8..=9 if depth > 0 => {
                let (x, y) = (self.value(), self.value());
                let (then, other) = (self.block(depth - 1, false), self.block(depth - 1, false));
                Stmt::If { a: x, b: y, then, other: if self.r.below(2) == 0 { vec![] } else { other } }
            }
            10..=11 if depth > 0 => Stmt::Loop { a, body: self.block(depth - 1, false) },
            12..=13 if self.warps => {
                Stmt::Shuffle { d, a, mode: self.r.below(4) as usize, b: self.r.below(32) as u32 }
            }
            14 if self.warps => Stmt::Ballot { d, a },
            15 => Stmt::Exchange { d, a, step: 1 + self.r.below(40) as u32 },
            16 => Stmt::Count { d, a },
            _ => Stmt::Int { op: 0, d, a: Value::Reg(a), b: self.value(), guard: None },
        }
    }
}

// ---- as PTX

#[derive(Default)]
struct Text {
    out: String,
    labels: u32,
    /// Loop counters, one a loop.
    counters: u32,
}

fn v(value: Value) -> String {
    match value {
        Value::Reg(r) => format!("r{r}"),
        Value::Imm(i) => format!("{}", i as i32),
    }
}

impl Text {
    fn stmts(&mut self, all: &[Stmt], threads: u32) {
        for s in all {
            self.stmt(s, threads);
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn stmt(&mut self, s: &Stmt, threads: u32) {
        match s {
            Stmt::Int { op, d, a, b, guard } => {
                let mut at = "";
                if let Some(g) = guard {
                    self.line(&format!("and.b32 t0, r{g}, 1; setp.ne.u32 p0, t0, 0;"));
                    at = "@p0 ";
                }
                self.line(&format!("{at}{} r{d}, {}, {};", OPS[*op].0, v(*a), v(*b)));
            }
            Stmt::Select { d, a, b, x, y } => {
                self.line(&format!("setp.lt.s32 p0, {}, {}; selp.b32 r{d}, {}, {}, p0;", v(*a), v(*b), v(*x), v(*y)));
            }
            Stmt::Wide { d, a, by } => {
                self.line(&format!("mul.wide.s32 q8, r{a}, {by}; shr.u64 q8, q8, 32; cvt.u32.u64 r{d}, q8;"));
            }
            Stmt::Float { d, a } => self.line(&format!(
                "and.b32 t0, r{a}, 4095; cvt.rn.f32.u32 f0, t0; mul.f32 f0, f0, 0f3FC00000; cvt.rzi.u32.f32 r{d}, f0;"
            )),
            Stmt::Load { d, a } => self.line(&format!(
                "and.b32 t0, r{a}, 63; mul.wide.u32 q8, t0, 4; add.u64 q8, q0, q8; ld.global.u32 r{d}, [q8];"
            )),
            Stmt::If { a, b, then, other } => {
                let n = self.labels;
                self.labels += 1;
                self.line(&format!("setp.ge.s32 p1, {}, {}; @p1 bra E{n};", v(*a), v(*b)));
                self.stmts(then, threads);
                self.line(&format!("bra J{n};\nE{n}:"));
                self.stmts(other, threads);
                self.line(&format!("J{n}:"));
            }
            Stmt::Loop { a, body } => {
                let (n, c) = (self.labels, self.counters);
                self.labels += 1;
                self.counters += 1;
                self.line(&format!("and.b32 c{c}, r{a}, 7;\nL{n}:"));
                self.stmts(body, threads);
                self.line(&format!("sub.s32 c{c}, c{c}, 1; setp.ge.s32 p1, c{c}, 0; @p1 bra L{n};"));
            }
            Stmt::Shuffle { d, a, mode, b } => {
                let (name, c) = SHUFFLES[*mode];
                self.line(&format!("shfl.sync.{name}.b32 r{d}, r{a}, {b}, {c}, -1;"));
            }
            Stmt::Ballot { d, a } => self.line(&format!(
                "and.b32 t0, r{a}, 1; setp.ne.u32 p0, t0, 0; vote.sync.ballot.b32 r{d}, p0, -1;"
            )),
            Stmt::Exchange { d, a, step } => self.line(&format!(
                "st.shared.u32 [t1], r{a}; bar.sync 0; add.u32 t0, t2, {step}; rem.u32 t0, t0, {threads}; \
                 shl.b32 t0, t0, 2; mov.u32 t3, cells; add.u32 t0, t0, t3; ld.shared.u32 r{d}, [t0]; bar.sync 0;"
            )),
            Stmt::Count { d, a } => self.line(&format!(
                "and.b32 t0, r{a}, 1; setp.ne.u32 p0, t0, 0; bar.red.popc.u32 r{d}, 0, p0;"
            )),
        }
    }
}

const SHUFFLES: [(&str, u32); 4] = [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)];

fn ptx(program: &[Stmt], block: [u32; 3]) -> String {
    let threads = block.iter().product::<u32>();
    let mut t = Text::default();
    t.stmts(program, threads);
    let mut s = String::from(".version 8.0\n.target sm_80\n.address_size 64\n");
    write!(
        s,
        ".visible .entry k(.param .u64 pa, .param .u64 pb) {{ .shared .align 4 .b8 cells[4096];\n\
         .reg .pred p<2>; .reg .b32 r<{REGS}>; .reg .b32 t<8>; .reg .b32 c<{}>; .reg .b64 q<9>; .reg .f32 f<1>;\n\
         ld.param.u64 q0, [pa]; ld.param.u64 q1, [pb];\n\
         mov.u32 r0, %tid.x; mov.u32 r1, %tid.y; mov.u32 r2, %ctaid.x; mov.u32 t3, %ntid.x;\n\
         mad.lo.u32 t2, r1, t3, r0; mov.u32 t4, {threads}; mad.lo.u32 t5, r2, t4, t2;\n\
         mov.u32 r3, 7; mul.lo.u32 r4, t2, -1640531527; shr.u32 r5, r4, 13; and.b32 r6, r5, 3; mov.u32 r7, t2;\n\
         mov.u32 t3, cells; shl.b32 t1, t2, 2; add.u32 t1, t1, t3;\n",
        t.counters.max(1)
    )
    .unwrap();
    s.push_str(&t.out);
    for r in 0..REGS {
        writeln!(
            s,
            "mul.wide.u32 q2, t5, {}; add.u64 q2, q1, q2; st.global.u32 [q2+{}], r{r};",
            4 * REGS,
            4 * r
        )
        .unwrap();
    }
    s.push_str("ret;\n}\n");
    s
}

// ---- by hand

type State = [u32; REGS];

struct Machine<'a> {
    threads: Vec<State>,
    input: &'a [u32],
}

fn of(s: &State, v: Value) -> u32 {
    match v {
        Value::Reg(r) => s[r],
        Value::Imm(i) => i,
    }
}

impl Machine<'_> {
    fn run(&mut self, program: &[Stmt]) {
        for s in program {
            self.step(s);
        }
    }

    fn step(&mut self, s: &Stmt) {
        let old = self.threads.clone();
        let n = old.len();
        match s {
            Stmt::Shuffle { d, a, mode, b } => {
                for t in 0..n {
                    let lane = (t % 32) as i64;
                    let from = match mode {
                        0 => lane - i64::from(*b),
                        1 => lane + i64::from(*b),
                        2 => lane ^ i64::from(*b),
                        _ => i64::from(*b),
                    };
                    let from = if (0..32).contains(&from) { from } else { lane };
                    self.threads[t][*d] = old[t / 32 * 32 + from as usize][*a];
                }
            }
            Stmt::Ballot { d, a } => {
                for t in 0..n {
                    let warp = &old[t / 32 * 32..t / 32 * 32 + 32];
                    self.threads[t][*d] = warp.iter().enumerate().map(|(l, s)| (s[*a] & 1) << l).sum();
                }
            }
            Stmt::Exchange { d, a, step } => {
                for t in 0..n {
                    self.threads[t][*d] = old[(t + *step as usize) % n][*a];
                }
            }
            Stmt::Count { d, a } => {
                let count = old.iter().map(|s| s[*a] & 1).sum();
                self.threads.iter_mut().for_each(|s| s[*d] = count);
            }
            s => {
                let input = self.input;
                self.threads.iter_mut().for_each(|t| alone(s, t, input));
            }
        }
    }
}

/// What a thread does by itself.
fn alone(s: &Stmt, t: &mut State, input: &[u32]) {
    match s {
        Stmt::Int { op, d, a, b, guard } => {
            if guard.is_none_or(|g| t[g] & 1 == 1) {
                t[*d] = OPS[*op].1(of(t, *a), of(t, *b));
            }
        }
        Stmt::Select { d, a, b, x, y } => {
            t[*d] = if (of(t, *a) as i32) < of(t, *b) as i32 { of(t, *x) } else { of(t, *y) };
        }
        Stmt::Wide { d, a, by } => {
            t[*d] = ((i64::from(t[*a] as i32) * i64::from(*by)) as u64 >> 32) as u32;
        }
        Stmt::Float { d, a } => t[*d] = ((t[*a] & 4095) as f32 * 1.5) as u32,
        Stmt::Load { d, a } => t[*d] = input[(t[*a] & 63) as usize],
        Stmt::If { a, b, then, other } => {
            let yes = (of(t, *a) as i32) < of(t, *b) as i32;
            if yes { then } else { other }.iter().for_each(|s| alone(s, t, input));
        }
        Stmt::Loop { a, body } => {
            for _ in 0..=t[*a] & 7 {
                body.iter().for_each(|s| alone(s, t, input));
            }
        }
        s => unreachable!("only where all are together: {s:?}"),
    }
}

fn expected(program: &[Stmt], block: [u32; 3], ctaid: u32, input: &[u32]) -> Vec<u32> {
    let threads = (0..block.iter().product::<u32>())
        .map(|t| {
            let hash = t.wrapping_mul(-1640531527i32 as u32);
            let five = hash >> 13;
            [t % block[0], t / block[0] % block[1], ctaid, 7, hash, five, five & 3, t]
        })
        .collect();
    let mut m = Machine { threads, input };
    m.run(program);
    m.threads.concat()
}

#[test]
fn random_kernels() {
    let d = Device::new();
    let input: Vec<u32> = (0..INPUT as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let a = d.put(&input);
    let blocks = [
        [32, 1, 1],
        [64, 1, 1],
        [16, 4, 1],
        [8, 8, 1],
        [96, 1, 1],
        [100, 1, 1],
        [48, 3, 1],
        [10, 5, 1],
        [20, 1, 1],
    ];
    let mut fingerprint = 0u32;
    for seed in 1..=400u64 {
        let block = blocks[(seed % blocks.len() as u64) as usize];
        let threads = block.iter().product::<u32>();
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        r.next();
        let mut maker = Maker { r, warps: threads.is_multiple_of(32) };
        let program = maker.block(3, true);
        let text = ptx(&program, block);
        let m = d.load(&text);
        let out = d.put(&vec![0u32; 3 * threads as usize * REGS]);
        d.run(&m.kernels()[0], [3, 1, 1], block, &[Arg::U64(a), Arg::U64(out)])
            .unwrap_or_else(|f| panic!("seed {seed}: {f}\n{text}"));
        let got = d.get::<u32>(out, 3 * threads as usize * REGS);
        for ctaid in 0..3 {
            let want = expected(&program, block, ctaid, &input);
            let got = &got[ctaid as usize * want.len()..][..want.len()];
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                let (t, r) = (i / REGS, i % REGS);
                assert_eq!(
                    g, w,
                    "seed {seed}, block {ctaid} of {block:?}, thread {t}, r{r}\n{program:?}\n{text}"
                );
                fingerprint = fingerprint.rotate_left(1) ^ g;
            }
        }
        assert!(d.memory.free(out));
    }
    assert_ne!(fingerprint, 0);
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}
