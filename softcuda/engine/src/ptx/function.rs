//! The body of a function: scopes, registers, labels, statements.

use super::MAX_FRAME;
use super::cursor::Result;
use super::data::{self, Linkage};
use super::decode::{self, Mods};
use super::lexer::Kind;
use super::module::Scope;
use super::{MAX_MODULE_REGS, MAX_REGS};
use crate::error::PtxError;
use crate::ir::{
    Addr, Base, Block, BlockId, Class, Formal, Function, Guard, Inst, Op, Opd, Order, Reg, Space, Symbol,
    Term, Ty,
};
use std::collections::HashMap;

/// A label that is used is known by this bit and its number until the function has been read.
const LABEL: BlockId = 1 << 31;
/// Braces deeper than this are refused.
const MAX_DEPTH: usize = 200;

/// What a name means inside a function.
#[derive(Clone, Copy)]
pub enum Name {
    Reg(Reg, Ty),
    Symbol(Symbol),
}

/// One `{ … }`.
#[derive(Default)]
struct Braces<'a> {
    parent: usize,
    names: HashMap<&'a str, Name>,
    /// `%r<9>`: first register, count, type.
    ranges: HashMap<&'a str, (Reg, u32, Ty)>,
    /// Sizes of `.param` variables, by offset in the call area.
    labels: HashMap<&'a str, BlockId>,
    protos: HashMap<&'a str, (Vec<Formal>, Vec<Formal>)>,
    targets: HashMap<&'a str, Vec<BlockId>>,
    /// Where the call area stood when this one was opened.
    call_mark: u32,
}

/// A function being read.
pub struct Body<'s, 'a> {
    pub module: &'s mut Scope<'a>,
    pub f: Function,
    braces: Vec<Braces<'a>>,
    /// The open ones, innermost last.
    open: Vec<usize>,
    uses: Vec<(usize, &'a str, u32)>,
    current: Vec<Inst>,
    call_top: u32,
    pub guard: Option<Guard>,
    pub line: u32,
    /// Sizes of parameter symbols, for bounds of constant offsets.
    pub sizes: HashMap<Symbol, u32>,
    /// The carry flag, once something has asked for it.
    carry: Option<Reg>,
    /// Results in registers, and where the caller looks for them.
    register_results: Vec<(Reg, Ty, Symbol)>,
}

/// A formal parameter or result by name.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub name: &'a str,
    pub symbol: Symbol,
    pub size: u32,
    /// `.reg`: it is a register of this type inside of the function.
    pub register: Option<Ty>,
}

/// Reads a body from its `{` on.
pub fn body<'a>(module: &mut Scope<'a>, f: Function, formals: Vec<Named<'a>>) -> Result<Function> {
    let mut b = Body {
        module,
        f,
        braces: vec![Braces::default()],
        open: vec![0],
        uses: Vec::new(),
        current: Vec::new(),
        call_top: 0,
        guard: None,
        line: 0,
        sizes: HashMap::new(),
        carry: None,
        register_results: Vec::new(),
    };
    for formal in formals {
        b.formal(&formal);
    }
    b.module.cursor.want(b'{')?;
    while !b.open.is_empty() {
        b.statement()?;
    }
    let end = if b.f.kernel { Term::Exit } else { Term::Ret };
    b.end(end);
    b.resolve_labels()?;
    decode::stack::give_back(&mut b.f);
    Ok(b.f)
}

impl<'a> Body<'_, 'a> {
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(PtxError::new(self.line, message))
    }

    pub fn temp(&mut self, class: Class) -> Reg {
        self.f.regs.push(class);
        self.f.regs.len() as Reg - 1
    }

    /// The function's carry flag (`CC.CF`).
    pub fn carry_flag(&mut self) -> Reg {
        if let Some(r) = self.carry {
            return r;
        }
        let r = self.temp(Class::Pred);
        self.carry = Some(r);
        r
    }

    /// Adds an instruction under the current guard.
    pub fn push(&mut self, op: Op) {
        self.current.push(Inst { guard: self.guard, line: self.line, op });
    }

    /// Ends the current block; the next instruction begins another.
    pub fn close(&mut self, term: Term) {
        let insts = std::mem::take(&mut self.current);
        self.f.blocks.push(Block { insts, term });
    }

    /// The block that the next [`Body::close`] makes, plus `n`.
    pub fn ahead(&self, n: u32) -> BlockId {
        self.f.blocks.len() as BlockId + n
    }

    /// A jump that may be guarded; without a guard what follows is not reached from here.
    pub fn jump(&mut self, to: BlockId) {
        let next = self.ahead(1);
        match self.guard {
            Some(guard) => self.close(Term::Branch { guard, then: to, other: next }),
            None => self.close(Term::Jump(to)),
        }
    }

    /// `ret` or `exit`, perhaps guarded.
    pub fn leave(&mut self, term: Term) {
        if let Some(guard) = self.guard {
            let (then, other) = (self.ahead(1), self.ahead(2));
            self.close(Term::Branch { guard, then, other });
        }
        self.end(term);
    }

    /// Ends the current block with the end of the function: results that are registers go to their places.
    fn end(&mut self, term: Term) {
        if term == Term::Ret {
            for (r, ty, symbol) in self.register_results.clone() {
                let addr = Addr { space: Space::Param, base: Base::Sym(symbol), offset: 0 };
                let a = vec![Opd::Reg(r)];
                // The guard, if any, is that of the way here.
                let op = Op::St { ty, order: Order::Weak, a, addr };
                self.current.push(Inst { guard: None, line: self.line, op });
            }
        }
        self.close(term);
    }

    /// Makes a parameter or result known; one in a register is read at the beginning, or written at the end.
    fn formal(&mut self, formal: &Named<'a>) {
        let Named { name, symbol, size, register } = *formal;
        self.sizes.insert(symbol, size);
        let Some(ty) = register else {
            self.braces[0].names.insert(name, Name::Symbol(symbol));
            return;
        };
        let r = self.temp(ty.class());
        self.braces[0].names.insert(name, Name::Reg(r, ty));
        if matches!(symbol, Symbol::Ret(_)) {
            self.register_results.push((r, ty, symbol));
            return;
        }
        let addr = Addr { space: Space::Param, base: Base::Sym(symbol), offset: 0 };
        self.push(Op::Ld { ty, order: Order::Weak, d: vec![Some(r)], addr });
    }

    pub fn label(&mut self, name: &'a str) -> BlockId {
        self.uses.push((*self.open.last().unwrap_or(&0), name, self.line));
        LABEL | (self.uses.len() as BlockId - 1)
    }

    fn lookup<T>(&self, mut at: usize, find: impl Fn(&Braces<'a>) -> Option<T>) -> Option<T> {
        loop {
            if let Some(x) = find(&self.braces[at]) {
                return Some(x);
            }
            if at == 0 {
                return None;
            }
            at = self.braces[at].parent;
        }
    }

    fn innermost(&self) -> usize {
        *self.open.last().unwrap_or(&0)
    }

    /// What a name means here.
    pub fn name(&self, name: &str) -> Option<Name> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        // `%r01` is not `%r1`.
        let number: Option<u32> = number.parse().ok().filter(|_| number == "0" || !number.starts_with('0'));
        self.lookup(self.innermost(), |b| {
            b.names.get(name).copied().or_else(|| {
                let &(first, count, ty) = b.ranges.get(prefix)?;
                number.filter(|n| *n < count).map(|n| Name::Reg(first + n, ty))
            })
        })
        .or_else(|| self.module.names.get(name).map(|s| Name::Symbol(*s)))
        .or_else(|| {
            let real = self.module.aliases.get(name)?;
            self.module.names.get(real).map(|s| Name::Symbol(*s))
        })
    }

    pub fn prototype(&self, name: &str) -> Option<(Vec<Formal>, Vec<Formal>)> {
        self.lookup(self.innermost(), |b| b.protos.get(name).cloned())
    }

    pub fn targets(&self, name: &str) -> Option<Vec<BlockId>> {
        self.lookup(self.innermost(), |b| b.targets.get(name).cloned())
    }

    /// Takes room in the call area; it is given back when the current braces close.
    pub fn call_room(&mut self, size: u32, align: u32) -> Result<u32> {
        let at = u64::from(self.call_top).next_multiple_of(u64::from(align.max(1)));
        if at + u64::from(size) > MAX_FRAME {
            return self.error("parameters are too large");
        }
        self.call_top = at as u32 + size;
        self.f.call_area = self.f.call_area.max(self.call_top);
        Ok(at as u32)
    }

    fn statement(&mut self) -> Result<()> {
        let t = self.module.cursor.peek();
        self.line = t.line;
        self.guard = None;
        match t.kind {
            Kind::Punct(b'{') => self.enter(),
            Kind::Punct(b'}') => {
                self.module.cursor.next();
                let closed = self.open.pop().unwrap_or(0);
                self.call_top = self.braces[closed].call_mark;
                Ok(())
            }
            Kind::Punct(b';') => {
                self.module.cursor.next();
                Ok(())
            }
            Kind::Punct(b'@') => {
                self.module.cursor.next();
                let negated = self.module.cursor.eat(b'!');
                let name = self.module.cursor.ident()?;
                match self.name(name) {
                    Some(Name::Reg(reg, Ty::Pred)) => self.guard = Some(Guard { reg, negated }),
                    _ => return self.error(format!("`{name}` is not a predicate register")),
                }
                self.instruction()
            }
            Kind::Dot => self.directive(),
            Kind::Ident if self.module.cursor.peek_at(1).kind == Kind::Punct(b':') => self.labelled(),
            Kind::Ident => self.instruction(),
            _ => self.module.cursor.expected("a statement"),
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.module.cursor.next();
        if self.open.len() > MAX_DEPTH {
            return self.error("braces are nested too deeply");
        }
        // Arguments of a call start at a multiple of 16, as the callee's parameters do.
        let mark = self.call_top;
        self.call_top = self.call_top.next_multiple_of(16);
        self.braces.push(Braces { parent: self.innermost(), call_mark: mark, ..Braces::default() });
        self.open.push(self.braces.len() - 1);
        Ok(())
    }

    fn labelled(&mut self) -> Result<()> {
        let name = self.module.cursor.ident()?;
        self.module.cursor.want(b':')?;
        let at = self.innermost();
        if self.module.cursor.eat_dot("callprototype") {
            let proto = self.module.prototype()?;
            self.module.statement_end()?;
            self.braces[at].protos.insert(name, proto);
            return Ok(());
        }
        if self.module.cursor.eat_dot("branchtargets") {
            let mut list = Vec::new();
            loop {
                let label = self.module.cursor.ident()?;
                list.push(self.label(label));
                if !self.module.cursor.eat(b',') {
                    break;
                }
            }
            self.module.cursor.want(b';')?;
            self.braces[at].targets.insert(name, list);
            return Ok(());
        }
        if self.module.cursor.eat_dot("calltargets") {
            return self.module.statement_end();
        }
        let next = self.ahead(1);
        self.close(Term::Jump(next));
        let block = self.ahead(0);
        if self.braces[at].labels.insert(name, block).is_some() {
            return self.error(format!("label `{name}` is defined twice"));
        }
        Ok(())
    }

    fn directive(&mut self) -> Result<()> {
        let c = &mut self.module.cursor;
        match c.peek().text {
            "loc" | "file" => {
                c.skip_line();
                Ok(())
            }
            "pragma" => self.module.statement_end(),
            "reg" => self.registers(),
            "local" => self.local(),
            "param" => self.param(),
            "shared" | "extern" | "global" | "const" => self.static_variable(),
            other => {
                let message = format!("directive `.{other}` is not supported in a function");
                self.error(message)
            }
        }
    }

    fn registers(&mut self) -> Result<()> {
        self.module.cursor.next();
        let line = self.line;
        let word = self.module.cursor.dot()?;
        let Some(ty) = Ty::parse(word) else {
            return Err(PtxError::new(line, format!("registers of `.{word}` are not supported")));
        };
        loop {
            let name = self.module.cursor.ident()?;
            let first = self.f.regs.len();
            let at = self.innermost();
            let mut count = 1;
            if self.module.cursor.eat(b'<') {
                count = self.module.cursor.size(MAX_REGS as u64)? as usize;
                self.module.cursor.want(b'>')?;
                self.braces[at].ranges.insert(name, (first as Reg, count as u32, ty));
            } else {
                self.braces[at].names.insert(name, Name::Reg(first as Reg, ty));
            }
            self.module.registers += count;
            if first + count > MAX_REGS || self.module.registers > MAX_MODULE_REGS {
                return self.error("too many registers");
            }
            self.f.regs.resize(first + count, ty.class());
            if !self.module.cursor.eat(b',') {
                break;
            }
        }
        self.module.cursor.want(b';')
    }

    fn local(&mut self) -> Result<()> {
        self.module.cursor.next();
        let head = data::head(&mut self.module.cursor)?;
        loop {
            let (name, size) = data::shape(&mut self.module.cursor, &head)?;
            let offset = u64::from(self.f.locals).next_multiple_of(u64::from(head.align));
            if offset + size > MAX_FRAME {
                return self.error(format!("local variable `{name}` is too large"));
            }
            self.f.locals = (offset + size) as u32;
            let symbol = Symbol::Frame(offset as u32);
            let at = self.innermost();
            self.sizes.insert(symbol, size as u32);
            self.braces[at].names.insert(name, Name::Symbol(symbol));
            if !self.module.cursor.eat(b',') {
                break;
            }
        }
        self.module.cursor.want(b';')
    }

    fn param(&mut self) -> Result<()> {
        self.module.cursor.next();
        let head = data::head(&mut self.module.cursor)?;
        loop {
            let (name, size) = data::shape(&mut self.module.cursor, &head)?;
            if size > MAX_FRAME {
                return self.error(format!("parameter `{name}` is too large"));
            }
            let offset = self.call_room(size as u32, head.align)?;
            let at = self.innermost();
            self.sizes.insert(Symbol::Call(offset), size as u32);
            self.braces[at].names.insert(name, Name::Symbol(Symbol::Call(offset)));
            if !self.module.cursor.eat(b',') {
                break;
            }
        }
        self.module.cursor.want(b';')
    }

    fn static_variable(&mut self) -> Result<()> {
        let external = self.module.cursor.eat_dot("extern");
        let space = match self.module.cursor.dot()? {
            "shared" => Space::Shared,
            "global" => Space::Global,
            "const" => Space::Const,
            _ => return self.error("expected a state space"),
        };
        let at = self.innermost();
        for (name, symbol, _) in
            self.module.declare_variables(space, &Linkage { external, ..Linkage::default() })?
        {
            self.braces[at].names.insert(name, Name::Symbol(symbol));
        }
        Ok(())
    }

    fn instruction(&mut self) -> Result<()> {
        let name = self.module.cursor.ident()?;
        let mut words = Vec::new();
        while self.module.cursor.peek().kind == Kind::Dot {
            words.push(self.module.cursor.next().text);
        }
        decode::instruction(self, Mods::new(name, words))?;
        if !self.module.cursor.eat(b';') {
            return self.module.cursor.expected("`;`");
        }
        Ok(())
    }

    fn resolve_labels(&mut self) -> Result<()> {
        let mut blocks = Vec::with_capacity(self.uses.len());
        for &(at, name, line) in &self.uses {
            match self.lookup(at, |b| b.labels.get(name).copied()) {
                Some(b) => blocks.push(b),
                None => return Err(PtxError::new(line, format!("label `{name}` is not defined"))),
            }
        }
        let last = self.f.blocks.len() as BlockId - 1;
        let fix = |b: &mut BlockId| {
            *b = if *b & LABEL != 0 { blocks[(*b & !LABEL) as usize] } else { *b };
            *b = (*b).min(last);
        };
        for block in &mut self.f.blocks {
            match &mut block.term {
                Term::Jump(b) => fix(b),
                Term::Branch { then, other, .. } => {
                    fix(then);
                    fix(other);
                }
                Term::Switch { targets, .. } => targets.iter_mut().for_each(fix),
                Term::Ret | Term::Exit => {}
            }
        }
        Ok(())
    }
}
