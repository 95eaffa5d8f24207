//! A kernel that can be launched.

use crate::codegen::{Code, Exec, Object, Part, Unit, Variant};
use crate::engine::{Policy, PutOff};
use crate::error::of_text;
use crate::ir::passes::{Reach, reach};
use crate::ir::pressure::pressure;
use crate::ir::{Function, Op, Opd, Program, Symbol};
use crate::loaded::Placed;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a kernel parameter lies in [`crate::Launch::params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Offset in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A kernel of a loaded module. Its code is made at the first launch and kept.
pub struct Kernel {
    /// The name in the PTX (mangled).
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Bytes of statically declared shared memory.
    pub static_shared: u32,
    /// Bytes of `.const` variables of the module.
    pub const_bytes: u32,
    /// Bytes of local memory that a thread needs.
    pub local_bytes: u32,
    /// A plausible number of registers a thread (a CPU has none to count). So many that a block of 1024 threads would not fit a
    /// card are they only where the kernel does need them ([`pressure`]) and says nothing of its blocks.
    pub num_regs: u32,
    /// The largest block that this kernel can be launched with (`.maxntid`, `.reqntid`, else 1024).
    pub max_threads_per_block: u32,
    /// `.reqntid`: the block must have exactly these dimensions.
    pub required_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the cluster must have exactly these dimensions; zeros for `.explicitcluster`, where the launch must say.
    pub required_cluster: Option<[u32; 3]>,
    /// `.target`: 10 × major + minor, 75 for `sm_75`.
    pub ptx_target: u32,
    /// `.version`: 10 × major + minor, 93 for 9.3.
    pub ptx_version: u32,
    program: Arc<Program>,
    pub(crate) placed: Arc<Placed>,
    pub(crate) reach: Reach,
    /// See [`Unit::shared`].
    shared: Vec<u64>,
    /// What has been compiled, by variant. Locked while one is compiled: who needs another one waits.
    code: Mutex<HashMap<Variant, Result<Arc<Code>, String>>>,
    /// By best variant: what is put off of it.
    put_off: Mutex<HashMap<Variant, Option<Arc<PutOff>>>>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    pub(crate) fn new(program: &Arc<Program>, placed: &Arc<Placed>, index: u32) -> Kernel {
        let f = &program.functions[index as usize];
        let reach = reach(program, index);
        let (shared, static_shared) = shared_layout(program, &reach);
        let volume = |v: [u32; 3]| v.iter().fold(1u32, |a, b| a.saturating_mul(*b));
        let limit = f.required_threads.or(f.max_threads).map_or(1024, volume);
        Kernel {
            name: f.name.clone(),
            params: f
                .params
                .iter()
                .map(|p| Param { offset: p.offset, size: p.size, align: p.align })
                .collect(),
            static_shared,
            const_bytes: placed.const_size as u32,
            local_bytes: reach.local,
            num_regs: registers(f, limit),
            max_threads_per_block: limit.clamp(1, 1024),
            required_block: f.required_threads,
            required_cluster: f.required_cluster,
            ptx_target: program.targets.iter().map(|t| t.number).max().unwrap_or(0),
            ptx_version: program.version,
            program: program.clone(),
            placed: placed.clone(),
            reach,
            shared,
            code: Mutex::default(),
            put_off: Mutex::default(),
        }
    }

    /// How a fault names a line that counts through all texts of the module.
    pub(crate) fn line(&self, line: u32) -> String {
        let (text, line) = self.program.lines.place(line);
        format!("{}line {line}", of_text(text))
    }

    /// Bytes that [`crate::Launch::params`] must have.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }

    /// Bytes from one thread's local memory to the next one's.
    pub(crate) fn local_step(&self) -> u32 {
        self.local_bytes.next_multiple_of(16)
    }

    /// The best code for blocks of these dimensions.
    pub(crate) fn variant(&self, block: [u32; 3]) -> Variant {
        Variant::of(&self.program, &self.reach, block)
    }

    /// The code that is soonest made.
    pub(crate) fn quick_variant(&self) -> Variant {
        Variant::single(&self.reach)
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Variant, Result<Arc<Code>, String>>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Code that has been made.
    pub(crate) fn made(&self, variant: Variant) -> Option<Arc<Code>> {
        self.slots().get(&variant)?.clone().ok()
    }

    /// Code, made now if this is the first time.
    pub(crate) fn code(
        &self,
        variant: Variant,
        make: impl FnOnce(&Recipe) -> Result<Object, String>,
    ) -> Result<Arc<Code>, String> {
        let link =
            || make(&self.recipe(variant))?.link(&self.placed.addresses).map(Arc::new).map_err(no_memory);
        self.slots().entry(variant).or_insert_with(link).clone()
    }

    /// Code that was made beside, for the launches from now on, with its version for single lanes. Without memory for it there is none.
    pub(crate) fn install(&self, group: &Object, lanes: &Object) {
        let (Ok(code), Ok(lanes)) = (group.link(&self.placed.addresses), self.map(lanes)) else { return };
        code.has_lanes(lanes);
        let variant = code.variant;
        self.slots().entry(variant).or_insert_with(|| Ok(Arc::new(code)));
        if let Some(Some(off)) = self.put_offs().get(&variant) {
            off.set_made();
        }
    }

    /// Code with the addresses of this kernel's variables.
    pub(crate) fn map(&self, object: &Object) -> Result<Exec, String> {
        object.map(&self.placed.addresses).map_err(no_memory)
    }

    fn put_offs(&self) -> MutexGuard<'_, HashMap<Variant, Option<Arc<PutOff>>>> {
        self.put_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is put off of its best code, by the rules of `policy`.
    pub(crate) fn put_off(&self, policy: &Policy, best: Variant) -> Option<Arc<PutOff>> {
        let f = &self.program.functions[self.reach.functions[0] as usize];
        self.put_offs().entry(best).or_insert_with(|| PutOff::of(policy, f, best).map(Arc::new)).clone()
    }

    /// What its code is made from.
    pub(crate) fn recipe(&self, variant: Variant) -> Recipe {
        Recipe {
            program: self.program.clone(),
            reach: self.reach.clone(),
            shared: self.shared.clone(),
            variant,
            local: self.local_step(),
        }
    }
}

/// What code of a kernel is made from, without the kernel and what that holds of the device.
pub(crate) struct Recipe {
    program: Arc<Program>,
    reach: Reach,
    shared: Vec<u64>,
    variant: Variant,
    local: u32,
}

impl Recipe {
    /// What a generator is given.
    pub fn unit<'a>(&'a self, part: Part<'a>) -> Unit<'a> {
        let Recipe { program, reach, shared, variant, local } = self;
        Unit { program, reach, shared, variant: *variant, local: *local, part }
    }
}

fn no_memory(e: std::io::Error) -> String {
    format!("no memory for code: {e}")
}

/// Registers of a multiprocessor, of which a block has no more (all capabilities from 7.0 on).
const REGISTERS: u32 = 64 << 10;

/// See [`Kernel::num_regs`]; for blocks of so many threads.
fn registers(f: &Function, limit: u32) -> u32 {
    let words: u32 = f.regs.iter().map(|c| c.bits().div_ceil(32)).sum();
    let usual = (10 + words / 3).clamp(16, 64);
    let bounded = f.required_threads.or(f.max_threads).is_some();
    // A card's compiler keeps to what is declared, and moves to memory what has no room then.
    let most = if bounded { REGISTERS / limit.clamp(32, 1024) / 8 * 8 } else { 255 };
    let most = most.min(f.max_registers.unwrap_or(255)).clamp(16, 255);
    // Fewer words than that cannot need more.
    let need = if words > 64 && most > 64 { pressure(f) + 10 } else { 0 };
    if need > 64 { need.min(most) } else { usual.min(most) }
}

/// Offsets of the shared variables that a kernel can reach: static ones first, then, all at one place, the dynamic ones.
fn shared_layout(p: &Program, reach: &Reach) -> (Vec<u64>, u32) {
    let mut used = vec![false; p.vars.len()];
    for f in &reach.functions {
        for inst in p.functions[*f as usize].blocks.iter().flat_map(|b| &b.insts) {
            let mut see = |s: Symbol| {
                if let Symbol::Shared(i) = s {
                    used[i as usize] = true;
                }
            };
            if let Some(crate::ir::Addr { base: crate::ir::Base::Sym(s), .. }) = inst.op.address() {
                see(*s);
            }
            let mut op: Op = inst.op.clone();
            op.sources_mut(&mut |o| {
                if let Opd::Sym(s, _) = o {
                    see(*s);
                }
            });
        }
    }
    let mut addresses = vec![0; p.vars.len()];
    let mut end = 0u64;
    for (i, v) in p.vars.iter().enumerate() {
        if used[i] && !v.external {
            end = end.next_multiple_of(u64::from(v.align.max(1)));
            addresses[i] = end;
            end += v.size;
        }
    }
    let static_shared = end.min(u64::from(u32::MAX)) as u32;
    let dynamic = dynamic_offset(static_shared);
    for (i, v) in p.vars.iter().enumerate() {
        if used[i] && v.external {
            addresses[i] = u64::from(dynamic);
        }
    }
    (addresses, static_shared)
}

/// Where dynamic shared memory begins behind the static one.
pub(crate) fn dynamic_offset(static_shared: u32) -> u32 {
    static_shared.checked_next_multiple_of(128).unwrap_or(u32::MAX)
}
