//! A kernel that can be launched.

use crate::codegen::cache::CodeCache;
use crate::codegen::{Code, Exec, Generator, Object, Part, Unit, Variant};
use crate::error::of_text;
use crate::ir::passes::{Reach, reach};
use crate::ir::{Op, Opd, Program, Symbol};
use crate::loaded::Placed;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// A plausible number of registers a thread (a CPU has none to count); never so many that a block of 1024 threads
    /// would not fit a card.
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
        let words: u32 = f.regs.iter().map(|c| c.bits().div_ceil(32)).sum();
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
            num_regs: (10 + words / 3).clamp(16, 64),
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

    /// The code for blocks of these dimensions, made now if this is the first time.
    pub(crate) fn code(
        &self,
        generator: &dyn Generator,
        cache: Option<&CodeCache>,
        block: [u32; 3],
    ) -> Result<Arc<Code>, String> {
        let variant = Variant::of(&self.program, &self.reach, block);
        let mut all = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(variant).or_insert_with(|| self.make(generator, cache, variant)).clone()
    }

    fn make(
        &self,
        generator: &dyn Generator,
        cache: Option<&CodeCache>,
        variant: Variant,
    ) -> Result<Arc<Code>, String> {
        let object = self.compile(generator, cache, variant, Part::Kernel)?;
        object.link(&self.placed.addresses).map(Arc::new).map_err(no_memory)
    }

    /// The version of its code for single lanes.
    pub(crate) fn make_lanes(
        &self,
        generator: &dyn Generator,
        cache: Option<&CodeCache>,
        code: &Code,
    ) -> Result<Exec, String> {
        let object = self.compile(generator, cache, code.variant, Part::Lanes(&code.places))?;
        object.map(&self.placed.addresses).map_err(no_memory)
    }

    fn compile(
        &self,
        generator: &dyn Generator,
        cache: Option<&CodeCache>,
        variant: Variant,
        part: Part,
    ) -> Result<Object, String> {
        let unit = Unit {
            program: &self.program,
            reach: &self.reach,
            shared: &self.shared,
            variant,
            local: self.local_step(),
            part,
        };
        // A compiler that gives up by panicking has given up all the same.
        let compile = std::panic::AssertUnwindSafe(|| match cache {
            Some(cache) => cache.object(generator, &unit),
            None => generator.compile(&unit),
        });
        let made = std::panic::catch_unwind(compile);
        made.unwrap_or_else(|_| Err("the code generator panicked".to_string()))
    }
}

fn no_memory(e: std::io::Error) -> String {
    format!("no memory for code: {e}")
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
