//! Module scope: version, target, variables, functions.

use super::cursor::{Cursor, Result};
use super::data::{self, Head, Linkage};
use super::function::{self, Named};
use super::lexer::{Kind, lex};
use super::target::Target;
use super::{MAX_FRAME, MAX_KERNEL_PARAMETERS};
use crate::error::PtxError;
use crate::ir::texture::OpaqueKind;
use crate::ir::{Formal, Function, Program, Space, Symbol, Ty, Var};
use std::collections::{HashMap, HashSet};

/// What module scope knows while a text is read.
pub struct Scope<'a> {
    pub cursor: Cursor<'a>,
    pub program: Program,
    /// What the names of this text mean.
    pub names: HashMap<&'a str, Symbol>,
    /// Names that all texts share: `.visible`, `.extern`, `.weak` and `.common` ones.
    shared: HashMap<&'a str, Symbol>,
    /// Names of `.alias`: resolved when a call is read.
    pub aliases: HashMap<&'a str, &'a str>,
    /// Results and parameters of functions as this text declares them: what its calls pass.
    pub prototypes: HashMap<u32, (Vec<Formal>, Vec<Formal>)>,
    /// `.common` variables: another text may have them too.
    common: HashSet<u32>,
    /// `.weak` variables and functions that are defined: another text may define them otherwise.
    weak_variables: HashSet<u32>,
    weak_functions: HashSet<u32>,
    /// See [`Scope::reserved_shared`].
    reserved: Option<u32>,
    /// Registers declared so far.
    pub registers: usize,
    /// `.target texmode_independent`: samplers are apart from textures in this text.
    pub independent_samplers: bool,
}

/// Bytes of a block's reserved shared memory: what cooperative groups expect there is 288.
pub const RESERVED_SHARED: u64 = 320;

/// What NVIDIA's device runtime library offers for cooperative grids. That library holds machine code only.
const DEVICE_RUNTIME: &str = include_str!("device_runtime.ptx");
const DEVICE_RUNTIME_PREFIX: &str = "cudaCG";

/// Whether two lists of parameters lie in memory alike.
fn alike(a: &[Formal], b: &[Formal]) -> bool {
    a.iter().map(|f| (f.offset, f.size)).eq(b.iter().map(|f| (f.offset, f.size)))
}

fn same(a: &(Vec<Formal>, Vec<Formal>), b: &(Vec<Formal>, Vec<Formal>)) -> bool {
    alike(&a.0, &b.0) && alike(&a.1, &b.1)
}

/// The shorter list, if the other one starts with it.
fn shorter<'l>(a: &'l [Formal], b: &'l [Formal]) -> Option<&'l [Formal]> {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    alike(short, &long[..short.len()]).then_some(short)
}

#[cfg(test)]
pub fn parse(text: &str) -> Result<Program> {
    parse_all(&[text])
}

/// Reads PTX texts into one program, as a linker puts them together: what is not visible stays a text's own.
pub fn parse_all(texts: &[&str]) -> Result<Program> {
    let mut digest = blake3::Hasher::new();
    let mut s = Scope {
        cursor: Cursor::new(Vec::new()),
        program: Program::default(),
        names: HashMap::new(),
        shared: HashMap::new(),
        aliases: HashMap::new(),
        prototypes: HashMap::new(),
        common: HashSet::new(),
        weak_variables: HashSet::new(),
        weak_functions: HashSet::new(),
        reserved: None,
        registers: 0,
        independent_samplers: false,
    };
    s.program.lines.several = texts.len() > 1;
    for text in texts {
        digest.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        s.text(text).map_err(|e| e.located(&s.program.lines))?;
    }
    if s.program.functions.iter().any(|f| f.external && f.name.starts_with(DEVICE_RUNTIME_PREFIX)) {
        let targets = s.program.targets.len();
        s.text(DEVICE_RUNTIME)?;
        s.program.targets.truncate(targets);
    }
    s.program.digest = *digest.finalize().as_bytes();
    Ok(s.program)
}

impl<'a> Scope<'a> {
    /// One text, from its header on.
    fn text(&mut self, text: &'a str) -> Result<()> {
        let first = self.program.lines.begin(text);
        self.cursor = Cursor::new(lex(text, first)?);
        self.header()?;
        while self.cursor.peek().kind != Kind::End {
            self.item()?;
        }
        for fixup in self.program.vars.iter_mut().flat_map(|var| &mut var.fixups) {
            fixup.target = fixup.target.or_else(|| self.names.get(fixup.symbol.as_str()).copied());
            if fixup.target.is_none() {
                return Err(PtxError::new(fixup.line, format!("`{}` is not known", fixup.symbol)));
            }
        }
        self.names.clear();
        self.aliases.clear();
        self.prototypes.clear();
        Ok(())
    }

    /// What a name that is declared here stands for, if it was declared before: in this text, or, if others see it, in another one.
    fn declared(&mut self, name: &'a str, linkage: &Linkage) -> Option<Symbol> {
        let found =
            self.names.get(name).or_else(|| self.shared.get(name).filter(|_| linkage.public())).copied();
        if let Some(symbol) = found {
            self.names.insert(name, symbol);
            if linkage.public() {
                self.shared.entry(name).or_insert(symbol);
            }
        }
        found
    }

    /// Gives a name its meaning.
    fn name(&mut self, name: &'a str, linkage: &Linkage, symbol: Symbol) {
        self.names.insert(name, symbol);
        if linkage.public() {
            self.shared.insert(name, symbol);
        }
    }

    /// `.version 9.3  .target sm_90, debug  .address_size 64`.
    fn header(&mut self) -> Result<()> {
        if !self.cursor.eat_dot("version") {
            return self.cursor.expected("`.version`");
        }
        let t = self.cursor.next();
        let version = t.text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some((major, minor)) = version.filter(|&(a, b): &(u32, u32)| a < 100 && b < 10) else {
            return Err(PtxError::new(t.line, format!("`{}` is not a PTX version", t.text)));
        };
        self.program.version = self.program.version.max(major * 10 + minor);
        self.independent_samplers = false;
        if !self.cursor.eat_dot("target") {
            return self.cursor.expected("`.target`");
        }
        loop {
            let line = self.cursor.line();
            let name = self.cursor.ident()?;
            self.program.debug |= name == "debug";
            self.independent_samplers |= name == "texmode_independent";
            if name.starts_with("sm_") || name.starts_with("compute_") {
                let Some(target) = Target::named(name) else {
                    return Err(PtxError::new(line, format!("`{name}` is not a target")));
                };
                self.program.targets.push(target);
            }
            if !self.cursor.eat(b',') {
                break;
            }
        }
        let line = self.cursor.line();
        if self.cursor.eat_dot("address_size") && self.cursor.size(64)? != 64 {
            return Err(PtxError::new(line, "only 64-bit addresses are supported"));
        }
        Ok(())
    }

    fn item(&mut self) -> Result<()> {
        let t = self.cursor.peek();
        if t.kind == Kind::Punct(b';') {
            self.cursor.next();
            return Ok(());
        }
        if t.kind != Kind::Dot {
            return self.cursor.expected("a directive");
        }
        match t.text {
            "file" | "loc" => self.cursor.skip_line(),
            "section" => {
                self.cursor.next();
                while !self.cursor.is(b'{') {
                    if self.cursor.next().kind == Kind::End {
                        return self.cursor.expected("`{`");
                    }
                }
                self.cursor.skip_braces()?;
            }
            "pragma" | "noreturn" => self.statement_end()?,
            "alias" => {
                self.cursor.next();
                let new = self.cursor.ident()?;
                self.cursor.want(b',')?;
                let old = self.cursor.ident()?;
                self.cursor.want(b';')?;
                if let Some(Symbol::Function(old)) = self.names.get(old).copied() {
                    self.names.insert(new, Symbol::Function(old));
                }
                self.aliases.insert(new, old);
            }
            _ => self.declaration()?,
        }
        Ok(())
    }

    pub fn statement_end(&mut self) -> Result<()> {
        loop {
            match self.cursor.next().kind {
                Kind::Punct(b';') => return Ok(()),
                Kind::End => return self.cursor.expected("`;`"),
                _ => {}
            }
        }
    }

    /// A variable or function with its linkage.
    fn declaration(&mut self) -> Result<()> {
        let mut linkage = Linkage::default();
        loop {
            let line = self.cursor.line();
            match self.cursor.dot()? {
                "extern" => linkage.external = true,
                "visible" => linkage.visible = true,
                "common" => (linkage.visible, linkage.common) = (true, true),
                "weak" => linkage.weak = true,
                "global" => return self.variable(Space::Global, &linkage),
                "const" => return self.variable(Space::Const, &linkage),
                "shared" => return self.variable(Space::Shared, &linkage),
                "tex" => return self.texture_names(&linkage),
                "entry" => return self.function(true, &linkage),
                "func" => return self.function(false, &linkage),
                other => {
                    return Err(PtxError::new(line, format!("directive `.{other}` is not supported here")));
                }
            }
        }
    }

    /// A comma list of variables of one type. Shared ones may also stand in a function.
    pub fn variable(&mut self, space: Space, linkage: &Linkage) -> Result<()> {
        let declared = self.declare_variables(space, linkage)?;
        self.name_variables(declared, space, linkage)
    }

    /// `.tex .u64 name`: as `.global .texref name` (5.1.8 of the manual).
    fn texture_names(&mut self, linkage: &Linkage) -> Result<()> {
        data::head(&mut self.cursor)?;
        let head = data::opaque_head(OpaqueKind::Texture);
        let declared = self.variables_of(&head, Space::Global, linkage)?;
        self.name_variables(declared, Space::Global, linkage)
    }

    fn name_variables(
        &mut self,
        declared: Vec<(&'a str, Symbol, u32)>,
        space: Space,
        linkage: &Linkage,
    ) -> Result<()> {
        for (name, symbol, line) in declared {
            let (Symbol::Var(new) | Symbol::Shared(new)) = symbol else { continue };
            match self.declared(name, linkage) {
                None => {
                    self.name(name, linkage, symbol);
                    self.note(new, linkage);
                }
                Some(Symbol::Var(old) | Symbol::Shared(old))
                    if self.program.vars[old as usize].space == space && self.alike(old, new) =>
                {
                    self.one_of(old, new, linkage)
                        .map_err(|()| PtxError::new(line, format!("`{name}` is defined twice")))?;
                }
                Some(_) => return Err(PtxError::new(line, format!("`{name}` is defined twice"))),
            }
        }
        Ok(())
    }

    /// Whether two variables are both memory, or both names of the same kind of thing.
    fn alike(&self, a: u32, b: u32) -> bool {
        let kind = |i: u32| self.program.vars[i as usize].opaque.map(|opaque| opaque.kind);
        kind(a) == kind(b)
    }

    /// The variable that stands for the block's reserved shared memory, which only those pay for who ask where it is.
    pub fn reserved_shared(&mut self) -> u32 {
        if let Some(var) = self.reserved {
            return var;
        }
        let var = self.program.vars.len() as u32;
        self.program.vars.push(Var {
            name: String::new(),
            space: Space::Shared,
            size: RESERVED_SHARED,
            align: 16,
            external: false,
            init: Vec::new(),
            fixups: Vec::new(),
            opaque: None,
            line: self.cursor.line(),
        });
        self.reserved = Some(var);
        var
    }

    /// A variable that is declared again: of an extern declaration and its definition, a weak one and another, and several
    /// `.common` ones, one stays, in the place of the first. Of `.common` ones it is the largest.
    ///
    /// # Errors
    /// Both are definitions that do not give way.
    fn one_of(&mut self, old: u32, new: u32, linkage: &Linkage) -> std::result::Result<(), ()> {
        let var = self.program.vars[new as usize].clone();
        self.program.vars[new as usize] =
            Var { name: String::new(), size: 0, external: false, ..var.clone() };
        let kept = &mut self.program.vars[old as usize];
        let gives_way = linkage.external || linkage.weak || linkage.common;
        let was_common = self.common.contains(&old);
        let weaker = was_common || self.weak_variables.contains(&old);
        if kept.external || (weaker && !gives_way) || (was_common && linkage.common && var.size > kept.size) {
            *kept = var;
            self.note(old, linkage);
            return Ok(());
        }
        if gives_way { Ok(()) } else { Err(()) }
    }

    /// Keeps what kind of definition a variable has now.
    fn note(&mut self, var: u32, linkage: &Linkage) {
        for (set, is) in [(&mut self.common, linkage.common), (&mut self.weak_variables, linkage.weak)] {
            if is {
                set.insert(var);
            } else {
                set.remove(&var);
            }
        }
    }

    /// Reads the variables and adds them to the program, without giving them names in any scope.
    pub fn declare_variables(
        &mut self,
        space: Space,
        linkage: &Linkage,
    ) -> Result<Vec<(&'a str, Symbol, u32)>> {
        let head = data::head(&mut self.cursor)?;
        self.variables_of(&head, space, linkage)
    }

    fn variables_of(
        &mut self,
        head: &Head,
        space: Space,
        linkage: &Linkage,
    ) -> Result<Vec<(&'a str, Symbol, u32)>> {
        let mut out = Vec::new();
        loop {
            let line = self.cursor.line();
            let var = data::variable(&mut self.cursor, head, space, linkage)?;
            let index = self.program.vars.len() as u32;
            let symbol = if space == Space::Shared { Symbol::Shared(index) } else { Symbol::Var(index) };
            out.push((var.0, symbol, line));
            self.program.vars.push(var.1);
            if !self.cursor.eat(b',') {
                break;
            }
        }
        self.cursor.want(b';')?;
        Ok(out)
    }

    /// `.entry name (params) directives { … }`, `.func (ret) name (params) …`, or only declared, with `;`.
    fn function(&mut self, kernel: bool, linkage: &Linkage) -> Result<()> {
        let line = self.cursor.line();
        let mut f = Function { line, kernel, ..Function::default() };
        let mut formals = Vec::new();
        while self.cursor.peek().kind == Kind::Dot && !kernel {
            self.cursor.next(); // `.attribute`-like words before the name
        }
        if self.cursor.is(b'(') && !kernel {
            f.rets = self.formals(&mut formals, Symbol::Ret)?;
        }
        let name = self.cursor.ident()?;
        f.name = name.to_string();
        if self.cursor.is(b'(') {
            f.params = self.formals(&mut formals, Symbol::Arg)?;
        }
        if kernel && f.params.last().is_some_and(|last| last.offset + last.size > MAX_KERNEL_PARAMETERS) {
            return Err(PtxError::new(
                line,
                format!("`{name}` has more than {MAX_KERNEL_PARAMETERS} bytes of parameters"),
            ));
        }
        self.function_directives(&mut f)?;
        let index = match self.declared(name, linkage) {
            Some(Symbol::Function(i)) => i,
            Some(_) => return Err(PtxError::new(line, format!("`{name}` is defined twice"))),
            None => {
                let i = self.program.functions.len() as u32;
                self.name(name, linkage, Symbol::Function(i));
                self.program.functions.push(Function { external: true, ..f.clone() });
                i
            }
        };
        if !self.agrees(index, &f, !self.cursor.is(b';')) {
            return Err(PtxError::new(
                line,
                format!("`{name}` was declared with other parameters, or as a kernel"),
            ));
        }
        if self.cursor.eat(b';') {
            return Ok(());
        }
        if !self.program.functions[index as usize].external {
            if linkage.weak {
                return self.cursor.skip_braces();
            }
            if !self.weak_functions.remove(&index) {
                return Err(PtxError::new(line, format!("`{name}` is defined twice")));
            }
        } else if linkage.weak {
            self.weak_functions.insert(index);
        }
        let f = function::body(self, f, formals)?;
        self.program.functions[index as usize] = f;
        Ok(())
    }

    /// Whether a function that was declared may be declared, or defined, like this. In one text all must be the same. Texts may
    /// differ as far as the calling convention carries it, as with NVIDIA's linker: a function may take fewer parameters than it is
    /// passed, and give fewer results than are read (numba declares every function with one).
    fn agrees(&mut self, index: u32, f: &Function, defines: bool) -> bool {
        let old = &mut self.program.functions[index as usize];
        let new = (f.rets.clone(), f.params.clone());
        let strict = f.kernel || self.prototypes.get(&index).is_some_and(|here| !same(here, &new));
        let before = (old.rets.clone(), old.params.clone());
        if old.kernel != f.kernel || (strict && !same(&before, &new)) {
            return false;
        }
        let (Some(rets), Some(params)) = (shorter(&before.0, &new.0), shorter(&before.1, &new.1)) else {
            return false;
        };
        let least = (rets.to_vec(), params.to_vec());
        // What runs must be content with what every text passes.
        let runs = match (old.external, defines) {
            (false, _) => &before,
            (true, true) => &new,
            (true, false) => &least,
        };
        if !same(runs, &least) {
            return false;
        }
        if old.external {
            (old.rets, old.params) = least;
        }
        self.prototypes.insert(index, new);
        true
    }

    fn function_directives(&mut self, f: &mut Function) -> Result<()> {
        while self.cursor.peek().kind == Kind::Dot {
            let line = self.cursor.line();
            match self.cursor.dot()? {
                "maxntid" => f.max_threads = Some(self.three()?),
                "reqntid" => f.required_threads = Some(self.three()?),
                "reqnctapercluster" => f.required_cluster = Some(self.three()?),
                "explicitcluster" => {
                    f.required_cluster.get_or_insert([0; 3]);
                }
                "maxclusterrank" => {
                    self.cursor.integer()?;
                }
                "maxnreg" => f.max_registers = u32::try_from(self.cursor.integer()?).ok(),
                "minnctapersm" | "maxnctapersm" | "abi_preserve" | "abi_preserve_control" => {
                    self.cursor.integer()?;
                }
                "noreturn" => {}
                "pragma" => self.statement_end()?,
                other => {
                    return Err(PtxError::new(
                        line,
                        format!("function directive `.{other}` is not supported"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn three(&mut self) -> Result<[u32; 3]> {
        let mut v = [1; 3];
        for (i, x) in v.iter_mut().enumerate() {
            if i > 0 && !self.cursor.eat(b',') {
                break;
            }
            *x = self.cursor.size(u64::from(u32::MAX))? as u32;
        }
        Ok(v)
    }

    /// `( .param .align 8 .b8 name[16], .param .u32 name, … )`.
    fn formals(&mut self, names: &mut Vec<Named<'a>>, make: fn(u32) -> Symbol) -> Result<Vec<Formal>> {
        self.cursor.want(b'(')?;
        let mut out = Vec::new();
        let mut offset = 0u64;
        while !self.cursor.is(b')') {
            let line = self.cursor.line();
            let register = self.cursor.eat_dot("reg");
            if !register && !self.cursor.eat_dot("param") {
                return self.cursor.expected("`.param` or `.reg`");
            }
            let head = data::head(&mut self.cursor)?;
            let (name, size) = if self.cursor.peek().kind == Kind::Ident {
                data::shape(&mut self.cursor, &head)?
            } else {
                ("_", u64::from(head.ty.bytes())) // a prototype may leave names out
            };
            if head.ty == Ty::Pred {
                return Err(PtxError::new(line, "a predicate cannot be a parameter"));
            }
            let align = head.align.max(1);
            offset = offset.next_multiple_of(u64::from(align));
            if offset + size > MAX_FRAME {
                return Err(PtxError::new(line, "parameters are too large"));
            }
            let register = register.then_some(head.ty);
            names.push(Named { name, symbol: make(offset as u32), size: size as u32, register });
            out.push(Formal { offset: offset as u32, size: size as u32, align });
            offset += size;
            if !self.cursor.eat(b',') {
                break;
            }
        }
        self.cursor.want(b')')?;
        Ok(out)
    }

    /// A `.callprototype` as far as its shape: return values and parameters.
    pub fn prototype(&mut self) -> Result<(Vec<Formal>, Vec<Formal>)> {
        let mut names = Vec::new();
        let rets = if self.cursor.is(b'(') { self.formals(&mut names, Symbol::Ret)? } else { Vec::new() };
        self.cursor.ident()?; // `_`
        let params = if self.cursor.is(b'(') { self.formals(&mut names, Symbol::Arg)? } else { Vec::new() };
        Ok((rets, params))
    }
}
