//! A module whose variables have addresses.

use crate::error::{LoadError, PtxError};
use crate::ir::passes::prepare;
use crate::ir::{Addr, Base, Callee, Op, Opd, Program, Space, Symbol, Var};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::module::Module;
use crate::texture::{self, Reference};
use std::sync::Arc;

/// A `.global` or `.const` variable of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The name in the PTX.
    pub name: String,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// It lies in constant space.
    pub constant: bool,
}

/// A module with its variables placed and initialised. They are freed when this value and all its kernels are gone.
#[derive(Debug)]
pub struct Loaded {
    globals: Vec<Global>,
    kernels: Vec<Arc<Kernel>>,
    references: Vec<Reference>,
    /// A module may have variables and no kernel.
    _placed: Arc<Placed>,
}

/// The memory of a module's variables.
pub(crate) struct Placed {
    memory: Arc<Memory>,
    owned: Vec<u64>,
    /// The numbers of variables of opaque types.
    objects: Vec<u64>,
    /// By variable; 0 for shared ones. Those of opaque types have numbers of [`Memory::bind`] for addresses.
    pub addresses: Vec<u64>,
    pub const_base: u64,
    pub const_size: u64,
}

impl std::fmt::Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} allocations", self.owned.len())
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for a in &self.owned {
            self.memory.free(*a);
        }
        for object in &self.objects {
            self.memory.unbind(*object);
        }
    }
}

/// Bytes of constant memory of a module (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
const MOST_CONSTANTS: u64 = 64 << 10;

const TOKEN: u64 = 0xf00d_0000_0000_0000;

/// The address that a function pointer holds: no address of memory, so that wild calls and accesses are caught.
pub(crate) fn function_token(index: u32) -> u64 {
    TOKEN | (u64::from(index) + 1) << 4
}

/// The function that a pointer holds.
pub(crate) fn function_index(token: u64) -> Option<u32> {
    let low = token ^ TOKEN;
    let index = (low >> 4).checked_sub(1)?;
    (low & 15 == 0).then_some(u32::try_from(index).ok()?)
}

impl Loaded {
    /// Places a module's variables in `memory` and initialises them.
    ///
    /// # Errors
    /// [`LoadError`]: no room, or a name that nobody defines.
    pub fn new(memory: &Arc<Memory>, module: Module) -> Result<Arc<Loaded>, LoadError> {
        let mut program = module.program;
        unresolved(&program)?;
        prepare(&mut program, module.optimise);
        let placed = Arc::new(place(memory, &program)?);
        let program = Arc::new(program);
        let globals = program
            .vars
            .iter()
            .zip(&placed.addresses)
            .filter(|(v, _)| v.space != Space::Shared && defined(v) && v.opaque.is_none())
            .map(|(v, a)| {
                let constant = v.space == Space::Const;
                Global { name: v.name.clone(), addr: *a, size: v.size, constant }
            })
            .collect();
        let references = program
            .vars
            .iter()
            .zip(&placed.addresses)
            .filter(|(v, _)| defined(v))
            .filter_map(|(v, number)| Some(Reference::of(v.name.clone(), *number, v.opaque?)))
            .collect();
        let kernels = (0..program.functions.len() as u32)
            .filter(|i| program.functions[*i as usize].kernel && !program.functions[*i as usize].external)
            .map(|i| Arc::new(Kernel::new(&program, &placed, i)))
            .collect();
        Ok(Arc::new(Loaded { globals, kernels, references, _placed: placed }))
    }

    /// The variables, in the order of the text.
    pub fn globals(&self) -> impl Iterator<Item = &Global> {
        self.globals.iter()
    }

    /// The variables of type `.texref`, `.surfref` and `.samplerref`, in the order of the text.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The kernels, in the order of the text.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }
}

/// Whether a variable is this module's own, and not one that gave way to another.
fn defined(v: &Var) -> bool {
    !v.external && !v.name.is_empty()
}

fn unresolved_name(p: &Program, name: &str, line: u32) -> LoadError {
    let (text, line) = p.lines.place(line);
    LoadError::Unresolved { name: name.into(), text, line }
}

/// Names that are used but only declared.
pub(crate) fn unresolved(p: &Program) -> Result<(), LoadError> {
    let check = |s: Symbol, line: u32| {
        let name = match s {
            Symbol::Var(i) if p.vars[i as usize].external => &p.vars[i as usize].name,
            Symbol::Function(i) if p.functions[i as usize].external => &p.functions[i as usize].name,
            _ => return Ok(()),
        };
        Err(unresolved_name(p, name, line))
    };
    for inst in p.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        if let Some(Addr { base: Base::Sym(s), .. }) = inst.op.address() {
            check(*s, inst.line)?;
        }
        if let Op::Call { callee: Callee::Function(i), .. } = inst.op {
            check(Symbol::Function(i), inst.line)?;
        }
        let mut bad = Ok(());
        inst.op.clone().sources_mut(&mut |o| {
            if let Opd::Sym(s, _) = o
                && bad.is_ok()
            {
                bad = check(*s, inst.line);
            }
        });
        bad?;
    }
    Ok(())
}

fn place(memory: &Arc<Memory>, p: &Program) -> Result<Placed, LoadError> {
    let mut placed = Placed {
        memory: memory.clone(),
        owned: Vec::new(),
        objects: Vec::new(),
        addresses: vec![0; p.vars.len()],
        const_base: 0,
        const_size: 0,
    };
    let constants = p.vars.iter().enumerate().filter(|(_, v)| v.space == Space::Const && !v.external);
    let mut offsets = Vec::new();
    for (i, v) in constants {
        placed.const_size = placed.const_size.next_multiple_of(u64::from(v.align.max(1)));
        offsets.push((i, placed.const_size));
        placed.const_size += v.size;
        if placed.const_size > MOST_CONSTANTS {
            let message = format!(
                "too much constant data: `{}` ends at {} bytes, and {MOST_CONSTANTS} are the most",
                v.name, placed.const_size
            );
            return Err(PtxError::new(v.line, message).located(&p.lines).into());
        }
    }
    if placed.const_size > 0 {
        placed.const_base = memory.alloc(placed.const_size, 256)?;
        placed.owned.push(placed.const_base);
    }
    for (i, o) in offsets {
        placed.addresses[i] = placed.const_base + o;
    }
    for (i, v) in p.vars.iter().enumerate() {
        if v.space != Space::Global || !defined(v) {
            continue;
        }
        if let Some(opaque) = v.opaque {
            placed.addresses[i] = memory.bind(texture::Object::of(opaque));
            placed.objects.push(placed.addresses[i]);
        } else {
            placed.addresses[i] = memory.alloc(v.size, u64::from(v.align))?;
            placed.owned.push(placed.addresses[i]);
        }
    }
    initialise(memory, p, &placed)?;
    Ok(placed)
}

/// The number that stands for a symbol in an initial value; `None` for what is only declared, or is in a block's memory.
fn value(p: &Program, placed: &Placed, symbol: Symbol) -> Option<u64> {
    match symbol {
        Symbol::Function(i) if !p.functions[i as usize].external => Some(function_token(i)),
        Symbol::Var(i) if !p.vars[i as usize].external => Some(placed.addresses[i as usize]),
        _ => None,
    }
}

fn initialise(memory: &Memory, p: &Program, placed: &Placed) -> Result<(), LoadError> {
    for (v, &addr) in p.vars.iter().zip(&placed.addresses) {
        if v.space == Space::Shared || v.external || v.size == 0 || addr == 0 {
            continue;
        }
        let mut bytes = v.init.clone();
        for f in &v.fixups {
            let Some(base) = f.target.and_then(|symbol| value(p, placed, symbol)) else {
                return Err(unresolved_name(p, &f.symbol, f.line));
            };
            let value = base.wrapping_add(f.addend as u64) >> f.shift.min(63);
            let (at, width) = (f.offset as usize, (f.width as usize).min(8));
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        let done = memory.fill(addr, &[0], v.size) && memory.write(addr, &bytes);
        if !done {
            let message = format!("`{}` could not be initialised", v.name);
            return Err(PtxError::new(v.line, message).located(&p.lines).into());
        }
    }
    Ok(())
}
