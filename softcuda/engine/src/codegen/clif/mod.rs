//! The Cranelift code generator: scalar code, one thread at a time.
//!
//! `opt_level` is `none`: PTX comes optimised, and Cranelift's own hoisting makes unrolled kernels slower. All calls go
//! through tables that the code finds in the block it is handed, so that the machine code has no relocations.

mod access;
mod call;
mod convert;
mod emit;
mod float;
mod helper;
mod int;
mod warp;

use super::{Fixup, Generator, Mode, Object, Unit};
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

impl Generator for Clif {
    fn compile(&self, unit: &Unit) -> Result<Object, String> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut entries = Vec::new();
        let mut fixups = Vec::new();
        let mut frame = 0;
        let mut builder_context = FunctionBuilderContext::new();
        for (i, &number) in unit.reach.functions.iter().enumerate() {
            let f = &unit.program.functions[number as usize];
            let looped = i == 0 && unit.mode == Mode::ThreadLoop;
            let mut context = Context::new();
            context.func.signature = Clif::signature();
            emit::function(
                self,
                unit,
                f,
                looped,
                &mut context.func,
                &mut builder_context,
                self.isa.frontend_config(),
            );
            let compiled = context
                .compile(&*self.isa, &mut ControlPlane::default())
                .map_err(|e| format!("{}: {}", f.name, e.inner))?;
            frame = frame.max(compiled.buffer.frame_layout().map_or(4096, |l| l.frame_to_fp_offset));
            bytes.resize(bytes.len().next_multiple_of(64), 0xcc);
            entries.push(bytes.len() as u32);
            bytes.extend_from_slice(compiled.code_buffer());
            let start = entries[i];
            let relocs: Vec<_> = compiled
                .buffer
                .relocs()
                .iter()
                .map(|r| (r.offset, r.kind, r.target.clone(), r.addend))
                .collect();
            for (offset, kind, target, addend) in relocs {
                let Some(var) = variable(&context.func, kind, &target) else {
                    return Err(format!("{}: code needs {target:?}", f.name));
                };
                fixups.push(Fixup { at: start + offset, var, addend });
            }
        }
        let mut by_number = vec![0; unit.program.functions.len()];
        for (i, &n) in unit.reach.functions.iter().enumerate() {
            // Kernels do not check how deep they are, since nobody calls them.
            if !unit.program.functions[n as usize].kernel {
                by_number[n as usize] = i as u32 + 1;
            }
        }
        Ok(Object { mode: unit.mode, bytes, entries, by_number, frame, fixups })
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
