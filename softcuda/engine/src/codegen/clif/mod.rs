//! The Cranelift code generator: scalar code, one thread at a time, and on top of it `vector`, a group of lanes at a time.
//!
//! `opt_level` is `none`: PTX comes optimised, and Cranelift's own hoisting makes unrolled kernels slower. All calls go
//! through tables that the code finds in the block it is handed, so that the machine code has no relocations.

mod access;
mod call;
mod convert;
mod doors;
mod emit;
mod float;
mod helper;
mod int;
mod outer;
mod stack;
mod texture;
mod vector;
mod warp;

pub use doors::{BEGIN, NEVER};
pub use vector::takes;

use super::{Covered, Fixup, Generator, Mode, Object, Part, Segments, Unit};
use cranelift_codegen::Context;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, ExternalName, Function, Signature, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;

/// Compiles with Cranelift for this machine.
pub struct Clif {
    isa: OwnedTargetIsa,
    pub(crate) has_fma: bool,
}

impl Clif {
    pub fn new() -> Result<Clif, String> {
        let mut flags = settings::builder();
        let set = [
            ("opt_level", "none"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ];
        for (name, value) in set {
            flags.set(name, value).map_err(|e| e.to_string())?;
        }
        let isa =
            cranelift_native::builder()?.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())?;
        let has = |name: &str| isa.isa_flags().iter().any(|f| f.name == name && f.as_bool() == Some(true));
        if !has("has_sse41") {
            return Err("softcuda needs a CPU with SSE4.1".into());
        }
        let has_fma = has("has_fma");
        Ok(Clif { isa, has_fma })
    }

    /// Every compiled function: thread, arguments, results, frame.
    fn signature() -> Signature {
        let mut s = Signature::new(CallConv::SystemV);
        s.params.extend([AbiParam::new(types::I64); 4]);
        s
    }
}

/// Machine code of several functions, one behind the other.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    entries: Vec<u32>,
    fixups: Vec<Fixup>,
    covers: Vec<Vec<Covered>>,
    places: Vec<u32>,
    segments: Option<Segments>,
    frame: u32,
}

impl Clif {
    /// Compiles what `emit` makes and appends it; its stack frame.
    fn append(
        &self,
        text: &mut Text,
        name: &str,
        emit: impl FnOnce(&mut cranelift_codegen::ir::Function),
    ) -> Result<u32, String> {
        let mut context = Context::new();
        context.func.signature = Clif::signature();
        emit(&mut context.func);
        let compiled = context
            .compile(&*self.isa, &mut ControlPlane::default())
            .map_err(|e| format!("{name}: {}", e.inner))?;
        text.bytes.resize(text.bytes.len().next_multiple_of(64), 0xcc);
        let start = text.bytes.len() as u32;
        text.entries.push(start);
        text.bytes.extend_from_slice(compiled.code_buffer());
        let frame = compiled.buffer.frame_layout().map_or(4096, |l| l.frame_to_fp_offset);
        let relocs: Vec<_> =
            compiled.buffer.relocs().iter().map(|r| (r.offset, r.kind, r.target.clone(), r.addend)).collect();
        for (offset, kind, target, addend) in relocs {
            let Some(var) = variable(&context.func, kind, &target) else {
                return Err(format!("{name}: code needs {target:?}"));
            };
            text.fixups.push(Fixup { at: start + offset, var, addend });
        }
        Ok(frame)
    }

    /// The kernel as vectors, and the functions.
    fn compile_groups(&self, unit: &Unit, text: &mut Text) -> Result<u32, String> {
        let config = self.isa.frontend_config();
        let plan = vector::Plan::new(unit, setting(unit));
        let name = &plan.f.name;
        let mut builder = FunctionBuilderContext::new();
        let group =
            self.append(text, name, |into| vector::function(self, unit, &plan, into, &mut builder, config))?;
        self.compile_functions(unit, 1, text)?;
        // The version for lanes is made later, but stacks must be large enough for it by then.
        text.frame = text.frame.max(lanes_frame(&plan));
        text.places = plan.frame.places();
        text.segments = plan.segments;
        text.covers = plan.tests.into_iter().map(|t| t.list).collect();
        Ok(group)
    }

    /// The kernel's version for single lanes.
    fn compile_lanes(&self, unit: &Unit, places: &[u32], text: &mut Text) -> Result<(), String> {
        let config = self.isa.frontend_config();
        let plan = vector::Plan::new(unit, setting(unit));
        plan.frame.restore(places);
        let mut builder = FunctionBuilderContext::new();
        let name = &plan.f.name;
        let frame =
            self.append(text, name, |into| doors::function(self, unit, &plan, into, &mut builder, config))?;
        if frame > lanes_frame(&plan) {
            return Err(format!("{name}: a lane needs a frame of {frame} bytes, more than there can be"));
        }
        text.frame = frame;
        Ok(())
    }

    /// The functions of the unit from the one numbered `first` on, one thread at a time.
    fn compile_functions(&self, unit: &Unit, first: usize, text: &mut Text) -> Result<(), String> {
        let mut builder = FunctionBuilderContext::new();
        for (i, &number) in unit.reach.functions.iter().enumerate().skip(first) {
            let f = &unit.program.functions[number as usize];
            let looped = i == 0 && unit.variant.mode == Mode::ThreadLoop;
            let config = self.isa.frontend_config();
            let frame = self.append(text, &f.name, |into| {
                emit::function(self, unit, f, looped, into, &mut builder, config);
            })?;
            text.frame = text.frame.max(frame);
        }
        Ok(())
    }
}

fn setting(unit: &Unit) -> vector::Setting {
    vector::Setting { rows: unit.variant.rows, width: unit.variant.width, local: unit.local }
}

/// The largest stack frame that the version of a kernel for single lanes may have: room for every register, and for what operations need.
fn lanes_frame(plan: &vector::Plan) -> u32 {
    16 * plan.f.regs.len() as u32 + (8 << 10)
}

impl Generator for Clif {
    fn compile(&self, unit: &Unit) -> Result<Object, String> {
        let mut text = Text::default();
        let mut group_frame = 0;
        match unit.part {
            Part::Lanes(places) => self.compile_lanes(unit, places, &mut text)?,
            Part::Kernel if unit.variant.mode.groups() => {
                group_frame = self.compile_groups(unit, &mut text)?
            }
            Part::Kernel => self.compile_functions(unit, 0, &mut text)?,
        }
        let mut by_number = vec![0; unit.program.functions.len()];
        for (i, &n) in unit.reach.functions.iter().enumerate() {
            // Kernels do not check how deep they are, since nobody calls them.
            if !unit.program.functions[n as usize].kernel {
                by_number[n as usize] = i as u32 + 1;
            }
        }
        let Text { bytes, entries, fixups, covers, places, segments, frame } = text;
        let variant = unit.variant;
        Ok(Object {
            variant,
            bytes,
            entries,
            by_number,
            frame,
            group_frame,
            fixups,
            places,
            segments,
            covers,
        })
    }

    fn identity(&self) -> String {
        let flags: Vec<String> = self.isa.isa_flags().iter().map(|f| f.to_string()).collect();
        format!("clif {} {} {}", self.isa.triple(), self.isa.flags(), flags.join(" "))
    }
}

/// The variable of the program whose address code wants at a place.
fn variable(f: &Function, kind: Reloc, target: &cranelift_codegen::FinalizedRelocTarget) -> Option<u32> {
    match target {
        cranelift_codegen::FinalizedRelocTarget::ExternalName(ExternalName::User(name))
            if kind == Reloc::Abs8 =>
        {
            Some(f.params.user_named_funcs()[*name].index)
        }
        _ => None,
    }
}
