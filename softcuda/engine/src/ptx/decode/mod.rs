//! Opcodes and their modifiers to operations.

mod asynchronous;
mod build;
mod control;
mod convert;
mod float;
mod int;
mod matrix;
mod memory;
mod mixed;
mod narrow;
mod simd;
pub mod stack;
mod sync;
mod texture;
mod video;
mod warp;
mod wmma;

use super::cursor::Result;
use super::function::Body;
use crate::error::PtxError;
use crate::ir::{Op, Round, Ty};

/// An opcode's modifiers, each to be taken once.
pub struct Mods<'a> {
    pub name: &'a str,
    all: Vec<&'a str>,
    left: Vec<&'a str>,
}

impl<'a> Mods<'a> {
    pub fn new(name: &'a str, words: Vec<&'a str>) -> Self {
        Mods { name, all: words.clone(), left: words }
    }

    /// The whole opcode as written.
    pub fn full(&self) -> String {
        std::iter::once(self.name).chain(self.all.iter().copied()).collect::<Vec<_>>().join(".")
    }

    /// Takes a modifier if it is there.
    pub fn eat(&mut self, word: &str) -> bool {
        let found = self.left.iter().position(|w| *w == word);
        if let Some(i) = found {
            self.left.remove(i);
        }
        found.is_some()
    }

    /// Whether a modifier is there and not taken yet.
    pub fn has(&self, word: &str) -> bool {
        self.left.contains(&word)
    }

    /// Whether the first type of the opcode is none of these.
    pub fn first_type_is_not<T>(&self, names: &[(&str, T)]) -> bool {
        let is = |w: &str| names.iter().any(|(n, _)| *n == w);
        self.all.iter().find(|w| is(w) || Ty::parse(w).is_some()).is_some_and(|w| !is(w))
    }

    /// Takes the first of these that is there.
    pub fn one_of<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(w, _)| self.eat(w)).map(|(_, t)| *t)
    }

    /// Takes the first type.
    pub fn ty(&mut self, b: &Body) -> Result<Ty> {
        let Some(i) = self.left.iter().position(|w| Ty::parse(w).is_some()) else {
            return b.error(format!("`{}` has no type", self.full()));
        };
        Ok(Ty::parse(self.left.remove(i)).unwrap_or(Ty::B32))
    }

    /// All modifiers as written.
    pub fn all(&self) -> &[&'a str] {
        &self.all
    }

    /// Takes any word that satisfies `f`.
    pub fn take(&mut self, f: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.left.iter().position(|w| f(w)).map(|i| self.left.remove(i))
    }

    pub fn round(&mut self) -> Option<Round> {
        self.one_of(&[
            ("rn", Round::Near),
            ("rz", Round::Zero),
            ("rm", Round::Down),
            ("rp", Round::Up),
            ("rni", Round::NearInt),
            ("rzi", Round::ZeroInt),
            ("rmi", Round::DownInt),
            ("rpi", Round::UpInt),
        ])
    }

    /// All modifiers must be taken by now.
    pub fn end(&self, b: &Body) -> Result<()> {
        match self.left.first() {
            None => Ok(()),
            Some(w) => {
                let all = self.full();
                b.error(format!("`{all}` is not supported (modifier `.{w}`)"))
            }
        }
    }

    /// The error for an operation in a type that it does not have.
    pub fn unsupported<T>(&self, b: &Body) -> Result<T> {
        Err(PtxError::new(b.line, format!("`{}` is not supported", self.full())))
    }
}

/// Reads one instruction up to its `;`.
pub fn instruction<'a>(b: &mut Body<'_, 'a>, m: Mods<'a>) -> Result<()> {
    match m.name {
        "add" | "sub" | "mul" | "fma" | "min" | "max" | "neg" if simd::is(&m) => simd::instruction(b, m),
        "add" | "sub" | "fma" if mixed::is(&m) => mixed::instruction(b, m),
        "add" | "sub" | "mul" | "div" | "min" | "max" => int::arithmetic(b, m),
        "addc" | "subc" | "madc" => int::carry(b, m),
        "mad" => int::mad(b, m),
        "mul24" | "mad24" => int::mul24(b, m),
        "rem" | "and" | "or" | "xor" | "shl" | "shr" | "bmsk" => int::binary(b, m),
        "neg" | "abs" => int::negate(b, m),
        "not" | "cnot" | "popc" | "clz" | "brev" | "bfind" => int::unary(b, m),
        "sad" | "bfe" | "prmt" | "shf" | "lop3" | "dp4a" | "dp2a" | "fns" => int::ternary(b, m),
        "bfi" => int::bfi(b, m),
        "fma" => float::fma(b, m),
        "sqrt" | "rcp" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => float::unary(b, m),
        "copysign" => float::copysign(b, m),
        "testp" => float::testp(b, m),
        "setp" => float::setp(b, m),
        "set" => float::set(b, m),
        "selp" => float::selp(b, m),
        "slct" => float::slct(b, m),
        "cvt" if m.has("pack") => narrow::pack(b, m),
        "cvt" => convert::cvt(b, m),
        "mov" => convert::mov(b, m),
        "szext" => convert::szext(b, m),
        "cvta" => convert::cvta(b, m),
        "isspacep" => convert::isspacep(b, m),
        "ld" | "ldu" => memory::load(b, m),
        "st" => memory::store(b, m),
        "atom" | "red" => memory::atomic(b, m),
        "membar" | "fence" => memory::fence(b, m),
        "cp" => memory::copy_async(b, m),
        "createpolicy" => memory::policy(b, m),
        "prefetch" | "prefetchu" | "applypriority" | "discard" => memory::hint(b, m),
        "tex" => texture::fetch(b, m),
        "tld4" => texture::gather(b, m),
        "txq" | "suq" => texture::query(b, m),
        "istypep" => texture::is_type(b, m),
        "suld" => texture::load(b, m),
        "sust" => texture::store(b, m),
        "sured" => texture::reduce(b, m),
        "bra" => control::branch(b, m),
        "brx" => control::branch_indexed(b, m),
        "call" => control::call(b, m),
        "ret" | "exit" => control::leave(b, m),
        "trap" => plain(b, &m, Op::Trap),
        // Launches never overlap what they depend on here, and registers are not counted.
        "brkpt" | "pmevent" | "griddepcontrol" | "setmaxnreg" => control::nothing(b, m),
        "nanosleep" => control::nanosleep(b, m),
        "bar" | "barrier" => warp::barrier(b, m),
        "shfl" => warp::shuffle(b, m),
        "vote" => warp::vote(b, m),
        "match" => warp::matching(b, m),
        "redux" => warp::redux(b, m),
        "activemask" => warp::activemask(b, m),
        "elect" => warp::elect(b, m),
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" => video::scalar(b, m),
        "vset" => video::set(b, m),
        "vmad" => video::mad(b, m),
        "vadd2" | "vadd4" | "vsub2" | "vsub4" | "vavrg2" | "vavrg4" | "vabsdiff2" | "vabsdiff4" | "vmin2"
        | "vmin4" | "vmax2" | "vmax4" | "vset2" | "vset4" => video::simd(b, m),
        "mma" => matrix::mma(b, m),
        "ldmatrix" => matrix::load(b, m),
        "stmatrix" => matrix::store(b, m),
        "movmatrix" => matrix::transpose(b, m),
        "wmma" => wmma::wmma(b, m),
        "mbarrier" => sync::mbarrier(b, m),
        "clusterlaunchcontrol" => sync::cancel(b, m),
        "mapa" => sync::map_address(b, m),
        "getctarank" => sync::rank(b, m),
        "stacksave" => stack::save(b, m),
        "stackrestore" => stack::restore(b, m),
        "alloca" => stack::alloca(b, m),
        _ => m.unsupported(b),
    }
}

fn plain(b: &mut Body, m: &Mods, op: Op) -> Result<()> {
    m.end(b)?;
    b.push(op);
    Ok(())
}
