//! `stacksave`, `stackrestore`, `alloca`.

use super::Mods;
use crate::ir::{BlockId, Function, Inst, Op, Opd, Term, Ty};
use crate::ptx::cursor::Result;
use crate::ptx::function::Body;

/// Alignment of `alloca` where the instruction gives none (PTX manual, `alloca`), and the largest one that is taken.
const ALIGN: u64 = 8;
const MAX_ALIGN: u64 = 1 << 12;

/// Sizes and stack pointers have the width of addresses, which is 64 bits.
fn wide(b: &Body, m: &mut Mods) -> Result<()> {
    if m.ty(b)? != Ty::U64 {
        return m.unsupported(b);
    }
    m.end(b)
}

pub fn save(b: &mut Body, mut m: Mods) -> Result<()> {
    wide(b, &mut m)?;
    let d = b.dest(Ty::U64.class())?;
    b.push(Op::StackSave { d });
    Ok(())
}

pub fn restore(b: &mut Body, mut m: Mods) -> Result<()> {
    wide(b, &mut m)?;
    let a = b.source(Ty::U64)?;
    b.push(Op::StackRestore { a });
    Ok(())
}

/// `alloca.type ptr, size{, align}`.
pub fn alloca(b: &mut Body, mut m: Mods) -> Result<()> {
    wide(b, &mut m)?;
    let d = b.dest(Ty::U64.class())?;
    b.comma()?;
    let size = b.source(Ty::U64)?;
    let align = if b.module.cursor.eat(b',') { b.module.cursor.size(MAX_ALIGN)? } else { ALIGN };
    if !align.is_power_of_two() {
        return b.error(format!("an alignment is a power of two, not {align}"));
    }
    b.push(Op::Alloca { d, size, align: align as u32 });
    Ok(())
}

/// What a function takes by `alloca` it gives back at its ends.
pub fn give_back(f: &mut Function) {
    let takes = |b: &crate::ir::Block| b.insts.iter().any(|i| matches!(i.op, Op::Alloca { .. }));
    if !f.blocks.iter().any(takes) {
        return;
    }
    f.regs.push(Ty::U64.class());
    let saved = f.regs.len() as BlockId - 1;
    let plain = |line, op| Inst { guard: None, line, op };
    for b in f.blocks.iter_mut().filter(|b| matches!(b.term, Term::Ret | Term::Exit)) {
        let line = b.insts.last().map_or(f.line, |i| i.line);
        b.insts.push(plain(line, Op::StackRestore { a: Opd::Reg(saved) }));
    }
    // Nothing jumps to the first block: a label begins a new one.
    f.blocks[0].insts.insert(0, plain(f.line, Op::StackSave { d: saved }));
}
