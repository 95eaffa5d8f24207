//! Branches, calls, ends.

use super::Mods;
use crate::ir::{Addr, Base, Builtin, Callee, Formal, Op, Opd, Order, Space, Symbol, Term, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::{Body, Name};
use crate::ptx::lexer::Kind;

pub fn branch(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("uni");
    m.end(b)?;
    let name = b.module.cursor.ident()?;
    let to = b.label(name);
    b.jump(to);
    Ok(())
}

/// `brx.idx index, list`.
pub fn branch_indexed(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("uni");
    if !m.eat("idx") {
        return m.unsupported(b);
    }
    m.end(b)?;
    let index = b.source(Ty::U32)?;
    b.comma()?;
    let name = b.module.cursor.ident()?;
    let Some(targets) = b.targets(name) else {
        return b.error(format!("`{name}` is not a list of branch targets"));
    };
    let line = b.line;
    b.leave(Term::Switch { index, targets, line });
    Ok(())
}

pub fn leave(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("uni");
    m.end(b)?;
    b.leave(if m.name == "ret" && !b.f.kernel { Term::Ret } else { Term::Exit });
    Ok(())
}

pub fn nothing(b: &mut Body, mut m: Mods) -> Result<()> {
    while m.take(|_| true).is_some() {}
    if b.module.cursor.peek().kind != Kind::Punct(b';') {
        b.source(Ty::U32)?;
    }
    Ok(())
}

pub fn nanosleep(b: &mut Body, mut m: Mods) -> Result<()> {
    m.ty(b)?;
    m.end(b)?;
    b.source(Ty::U32)?;
    b.push(Op::Nanosleep);
    Ok(())
}

/// An actual parameter.
enum Actual {
    /// A `.param` variable: offset and size.
    Param(u32, u32),
    Value(Opd),
}

fn actuals(b: &mut Body) -> Result<Vec<Actual>> {
    b.module.cursor.want(b'(')?;
    let mut out = Vec::new();
    while !b.module.cursor.is(b')') {
        let t = b.module.cursor.peek();
        let found = if t.kind == Kind::Ident { b.name(t.text) } else { None };
        out.push(match found {
            Some(Name::Symbol(s @ Symbol::Call(offset))) => {
                b.module.cursor.next();
                Actual::Param(offset, b.sizes.get(&s).copied().unwrap_or(0))
            }
            // The type is not known here; it is taken from the callee's parameter.
            Some(Name::Reg(r, _)) => {
                b.module.cursor.next();
                Actual::Value(Opd::Reg(r))
            }
            _ => Actual::Value(b.source(Ty::B64)?),
        });
        if !b.module.cursor.eat(b',') {
            break;
        }
    }
    b.module.cursor.want(b')')?;
    Ok(out)
}

/// `call (ret), name, (args)`, or through a pointer with a prototype.
pub fn call(b: &mut Body, mut m: Mods) -> Result<()> {
    m.eat("uni");
    m.end(b)?;
    let mut rets = Vec::new();
    if b.module.cursor.is(b'(') {
        rets = actuals(b)?;
        b.comma()?;
    }
    let name = b.module.cursor.ident()?;
    let mut args = Vec::new();
    if b.module.cursor.eat(b',') && b.module.cursor.is(b'(') {
        args = actuals(b)?;
        b.module.cursor.eat(b',');
    }
    let (callee, formals) = match b.name(name) {
        Some(Name::Symbol(Symbol::Function(f))) => {
            let g = &b.module.program.functions[f as usize];
            if g.kernel {
                return b.error(format!("`{name}` is a kernel, which is launched and not called"));
            }
            let declared = b.module.prototypes.get(&f).cloned();
            let (rets, params) = declared.unwrap_or_else(|| (g.rets.clone(), g.params.clone()));
            let callee = match builtin(name, g.external) {
                Some(x) if !x.fits(&rets, &params) => {
                    return b.error(format!("`{name}` is declared with another prototype than CUDA's"));
                }
                Some(x) => Callee::Builtin(x),
                None => Callee::Function(f),
            };
            (callee, (rets, params))
        }
        Some(Name::Reg(r, _)) => {
            let proto = b.module.cursor.ident()?;
            let Some(p) = b.prototype(proto) else {
                return b.error(format!("`{proto}` is not a call prototype"));
            };
            (Callee::Pointer(Opd::Reg(r)), p)
        }
        _ => return b.error(format!("`{name}` is not a function")),
    };
    let (ret_formals, arg_formals) = formals;
    if rets.len() != ret_formals.len() || args.len() != arg_formals.len() {
        return b.error(format!("`{name}` is called with the wrong number of parameters"));
    }
    let arg_at = pass(b, &args, &arg_formals, true)?;
    if let Callee::Builtin(Builtin::SetConditional) = callee {
        set_conditional(b, arg_at);
        return Ok(());
    }
    let ret_at = pass(b, &rets, &ret_formals, false)?;
    b.push(Op::Call { callee, args: arg_at, ret: ret_at });
    for (actual, formal) in rets.iter().zip(&ret_formals) {
        match *actual {
            Actual::Param(at, size) => copy(b, ret_at + formal.offset, at, size.min(formal.size)),
            Actual::Value(Opd::Reg(r)) => {
                let addr = call_address(ret_at + formal.offset);
                let ty = bits_type(b, formal.size)?;
                b.push(Op::Ld { ty, order: Order::Weak, d: vec![Some(r)], addr });
            }
            Actual::Value(_) => return b.error("a result must go to a register or `.param` variable"),
        }
    }
    Ok(())
}

impl Builtin {
    /// Whether results and parameters have the sizes that the run time reads and writes.
    fn fits(self, rets: &[Formal], params: &[Formal]) -> bool {
        let (ret, param): (&[u32], &[u32]) = match self {
            Builtin::Vprintf => (&[4], &[8, 8]),
            Builtin::AssertFail => (&[], &[8, 8, 4, 8, 8]),
            Builtin::Malloc => (&[8], &[8]),
            Builtin::Free => (&[], &[8]),
            Builtin::SetConditional => (&[], &[8, 4]),
        };
        rets.iter().map(|f| f.size).eq(ret.iter().copied())
            && params.iter().map(|f| f.size).eq(param.iter().copied())
            && params
                .iter()
                .scan(0, |end, f| {
                    let at = u32::next_multiple_of(*end, f.size);
                    *end = at + f.size;
                    Some(at == f.offset)
                })
                .all(|natural| natural)
    }
}

fn builtin(name: &str, external: bool) -> Option<Builtin> {
    if !external {
        return None;
    }
    Some(match name {
        "vprintf" => Builtin::Vprintf,
        "__assertfail" => Builtin::AssertFail,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        "cudaGraphSetConditional" => Builtin::SetConditional,
        _ => return None,
    })
}

/// `cudaGraphSetConditional(handle, value)`: the handle is the address of a word that the graph's launch looks at.
fn set_conditional(b: &mut Body, args: u32) {
    let (handle, value) = (b.temp(Ty::B64.class()), b.temp(Ty::B32.class()));
    let load = |ty, r, at| Op::Ld { ty, order: Order::Weak, d: vec![Some(r)], addr: call_address(at) };
    b.push(load(Ty::B64, handle, args));
    b.push(load(Ty::B32, value, args + 8));
    let addr = Addr { space: Space::Global, base: Base::Reg(handle), offset: 0 };
    b.push(Op::St { ty: Ty::B32, order: Order::Relaxed, a: vec![Opd::Reg(value)], addr });
}

fn call_address(offset: u32) -> Addr {
    Addr { space: Space::Param, base: Base::Sym(Symbol::Call(offset)), offset: 0 }
}

fn bits_type(b: &Body, size: u32) -> Result<Ty> {
    match size {
        1 => Ok(Ty::B8),
        2 => Ok(Ty::B16),
        4 => Ok(Ty::B32),
        8 => Ok(Ty::B64),
        _ => b.error("a value of this size must be passed in a `.param` variable"),
    }
}

/// Makes the actual parameters one structure, laid out as the callee's formal ones, and returns where it is. Compilers
/// declare them in order, so that mostly they are one already.
fn pass(b: &mut Body, actual: &[Actual], formal: &[Formal], copy_in: bool) -> Result<u32> {
    let Some(first) = actual.first() else { return Ok(0) };
    // The callee reads and writes as much as it declares.
    for (a, f) in actual.iter().zip(formal) {
        if let Actual::Param(_, size) = a
            && *size < f.size
        {
            return b.error(format!("a parameter of {size} bytes is given where {} are declared", f.size));
        }
    }
    if let Actual::Param(start, _) = *first
        && start.is_multiple_of(16)
        && actual
            .iter()
            .zip(formal)
            .all(|(a, f)| matches!(*a, Actual::Param(at, _) if at == start + f.offset))
    {
        return Ok(start);
    }
    let last = formal[formal.len() - 1];
    let base = b.call_room(last.offset + last.size, 16)?;
    if copy_in {
        for (a, f) in actual.iter().zip(formal) {
            match *a {
                Actual::Param(at, size) => copy(b, at, base + f.offset, size.min(f.size)),
                Actual::Value(v) => {
                    let ty = bits_type(b, f.size)?;
                    let addr = call_address(base + f.offset);
                    b.push(Op::St { ty, order: Order::Weak, a: vec![v], addr });
                }
            }
        }
    }
    Ok(base)
}

fn copy(b: &mut Body, from: u32, to: u32, size: u32) {
    if from == to {
        return;
    }
    let mut done = 0;
    while done < size {
        let step = [8, 4, 2, 1].into_iter().find(|s| {
            size - done >= *s && (from + done).is_multiple_of(*s) && (to + done).is_multiple_of(*s)
        });
        let (step, ty) = match step.unwrap_or(1) {
            8 => (8, Ty::B64),
            4 => (4, Ty::B32),
            2 => (2, Ty::B16),
            _ => (1, Ty::B8),
        };
        let r = b.temp(ty.class());
        let (load, store) = (call_address(from + done), call_address(to + done));
        b.push(Op::Ld { ty, order: Order::Weak, d: vec![Some(r)], addr: load });
        b.push(Op::St { ty, order: Order::Weak, a: vec![Opd::Reg(r)], addr: store });
        done += step;
    }
}
