//! The optimiser changes nothing: random programs with and without it.

mod common;

use common::{Arg, Device};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use softcuda_engine::{Loaded, Module};
use std::fmt::Write;
use std::sync::Arc;

const THREADS: usize = 32;
const WORDS: usize = 8;

/// Writes a random program; every register that is read has a value on every way to that place.
struct Writer<'a> {
    choices: &'a [u32],
    at: usize,
    text: String,
    /// Registers that have a value here.
    known: Vec<u32>,
    predicates: Vec<u32>,
    registers: u32,
    next_predicate: u32,
    labels: u32,
}

impl Writer<'_> {
    fn pick(&mut self, n: u32) -> u32 {
        let c = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        c % n
    }

    fn source(&mut self) -> String {
        const LITERALS: [i64; 10] = [0, 1, -1, 2, 4, 31, 32, 33, 0x7fff_ffff, -0x8000_0000];
        match self.pick(4) {
            0 => LITERALS[self.pick(10) as usize].to_string(),
            _ => self.register(),
        }
    }

    fn register(&mut self) -> String {
        let i = self.pick(self.known.len() as u32) as usize;
        format!("%r{}", self.known[i])
    }

    /// Mostly a new register, so that many have one definition; sometimes one that has a value.
    fn target(&mut self) -> u32 {
        if self.pick(4) == 0 {
            let i = self.pick(self.known.len() as u32) as usize;
            return self.known[i];
        }
        self.registers += 1;
        self.registers
    }

    fn predicate(&mut self) -> u32 {
        let i = self.pick(self.predicates.len() as u32) as usize;
        self.predicates[i]
    }

    fn statements(&mut self, count: u32, depth: u32) {
        for _ in 0..count {
            match self.pick(12) {
                0 if depth < 3 => self.branch(depth),
                1 if depth < 2 => self.repeat(depth),
                2 => {
                    let (a, b) = (self.source(), self.source());
                    self.next_predicate += 1;
                    let op =
                        ["setp.lt.s32", "setp.eq.u32", "setp.hi.u32", "setp.ge.s32"][self.pick(4) as usize];
                    let n = self.next_predicate;
                    writeln!(self.text, "{op} %p{n}, {a}, {b};").unwrap();
                    self.predicates.push(n);
                }
                3 => {
                    let (p, a) = (self.predicate(), self.source());
                    let i = self.pick(self.known.len() as u32) as usize;
                    let (no, r) = (if self.pick(2) == 0 { "" } else { "!" }, self.known[i]);
                    writeln!(self.text, "@{no}%p{p} add.s32 %r{r}, %r{r}, {a};").unwrap();
                }
                4 => self.memory(),
                _ => self.compute(),
            }
        }
    }

    fn compute(&mut self) {
        const OPS: [&str; 14] = [
            "add.s32",
            "sub.s32",
            "mul.lo.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "shl.b32",
            "shr.s32",
            "shr.u32",
            "min.s32",
            "max.u32",
            "mul.hi.u32",
            "mov.u32",
            "selp.b32",
        ];
        let op = OPS[self.pick(14) as usize];
        let (a, b) = (self.source(), self.source());
        let rest = match op {
            "mov.u32" => a,
            "selp.b32" => format!("{a}, {b}, %p{}", self.predicate()),
            _ => format!("{a}, {b}"),
        };
        let d = self.target();
        writeln!(self.text, "{op} %r{d}, {rest};").unwrap();
        if !self.known.contains(&d) {
            self.known.push(d);
        }
    }

    /// A word of this thread's row, by an address that is computed anew.
    fn memory(&mut self) {
        let (index, v) = (self.register(), self.register());
        let offset = self.pick(WORDS as u32) * 4;
        let sum = self.pick(WORDS as u32) * 4;
        let d = self.target();
        writeln!(
            self.text,
            "{{ .reg .b32 i; .reg .b64 q, s; and.b32 i, {index}, 7; mul.wide.u32 q, i, 4; add.s64 s, row, q;
             add.s64 s, s, {sum}; st.global.u32 [s+{offset}], {v}; ld.global.u32 %r{d}, [s+{offset}]; }}"
        )
        .unwrap();
        if !self.known.contains(&d) {
            self.known.push(d);
        }
    }

    /// A part whose new registers are not known behind it.
    fn part(&mut self, depth: u32) {
        let (known, predicates) = (self.known.clone(), self.predicates.clone());
        let count = 1 + self.pick(5);
        self.statements(count, depth + 1);
        (self.known, self.predicates) = (known, predicates);
    }

    fn branch(&mut self, depth: u32) {
        let (p, l) = (self.predicate(), self.labels);
        self.labels += 1;
        writeln!(self.text, "@%p{p} bra ELSE{l};").unwrap();
        self.part(depth);
        writeln!(self.text, "bra END{l}; ELSE{l}:").unwrap();
        self.part(depth);
        writeln!(self.text, "END{l}:").unwrap();
    }

    fn repeat(&mut self, depth: u32) {
        let l = self.labels;
        self.labels += 1;
        let bound = self.register();
        writeln!(self.text, "and.b32 %n{l}, {bound}, 3; LOOP{l}:").unwrap();
        self.part(depth);
        writeln!(self.text, "sub.s32 %n{l}, %n{l}, 1; setp.ge.s32 %q{l}, %n{l}, 0; @%q{l} bra LOOP{l};")
            .unwrap();
    }
}

fn program(choices: &[u32]) -> String {
    let mut w = Writer {
        choices,
        at: 0,
        text: String::new(),
        known: vec![0, 1, 2],
        predicates: vec![0],
        registers: 2,
        next_predicate: 0,
        labels: 0,
    };
    w.statements(30, 0);
    let known = w.known.clone();
    let mut text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 data) {{
         .reg .b32 %r<{}>, %n<{}>; .reg .pred %p<{}>, %q<{}>; .reg .b64 row, base; .reg .b32 t;
         ld.param.u64 base, [data]; mov.u32 t, %tid.x; mad.wide.u32 row, t, 128, base;
         ld.global.u32 %r0, [row]; ld.global.u32 %r1, [row+4]; mov.u32 %r2, %tid.x; setp.lt.s32 %p0, %r0, %r1;\n",
        w.registers + 1,
        w.labels + 1,
        w.next_predicate + 1,
        w.labels + 1
    );
    text.push_str(&w.text);
    // Everything that is left counts.
    text.push_str(".reg .b32 sum; mov.u32 sum, 0;\n");
    for r in known {
        writeln!(text, "mad.lo.s32 sum, sum, 31, %r{r};").unwrap();
    }
    text + "st.global.u32 [row+124], sum; ret; }\n"
}

fn outcome(d: &Device, m: &Arc<Loaded>, input: &[u32]) -> Vec<u32> {
    let data = d.put(input);
    d.run(&m.kernels()[0], [1; 3], [THREADS as u32, 1, 1], &[Arg::U64(data)]).unwrap();
    let out = d.get(data, input.len());
    d.memory.free(data);
    out
}

#[test]
fn random_programs_do_the_same_with_and_without_it() {
    let d = Device::new();
    let strategy =
        (prop::collection::vec(any::<u32>(), 400), prop::collection::vec(any::<u32>(), THREADS * 32));
    let mut runner = TestRunner::new(Config { cases: 40, max_shrink_iters: 100, ..Config::default() });
    let run = |(choices, input): (Vec<u32>, Vec<u32>)| {
        let text = program(&choices);
        let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let plain = Loaded::new(&d.memory, module.clone().unoptimised()).unwrap();
        let optimised = Loaded::new(&d.memory, module).unwrap();
        prop_assert_eq!(outcome(&d, &plain, &input), outcome(&d, &optimised, &input), "{}", text);
        Ok(())
    };
    runner.run(&strategy, run).unwrap_or_else(|e| panic!("{e}"));
}

/// `s` has one definition, at the end of a loop, and `d` is a copy of what the round before left in it.
#[test]
fn a_copy_of_the_last_rounds_value_is_kept_apart() {
    let d = Device::new();
    let m = d.load(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 data) {
         .reg .b32 i, s, d, e, sum; .reg .pred p, first; .reg .b64 a; ld.param.u64 a, [data];
         mov.u32 i, 0; mov.u32 sum, 0;
         L: setp.eq.s32 first, i, 0; mov.u32 d, s; mul.lo.s32 s, i, 10; selp.b32 e, 1000, d, first;
         add.s32 sum, sum, e; add.s32 i, i, 1; setp.lt.s32 p, i, 4; @p bra L;
         st.global.u32 [a], sum; ret; }",
    );
    let data = d.put(&[0u32]);
    d.run(&m.kernels()[0], [1; 3], [1; 3], &[Arg::U64(data)]).unwrap();
    assert_eq!(d.get::<u32>(data, 1), [1000 + 10 + 20]);
}
