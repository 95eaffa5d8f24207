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

use super::{Code, Exec, Generator, Mode, Unit};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Signature, types};
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
    fn compile(&self, unit: &Unit) -> Result<Code, String> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = Vec::new();
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
            if let Some(r) = compiled.buffer.relocs().first() {
                return Err(format!("{}: code needs {:?}", f.name, r.target));
            }
            frame = frame.max(compiled.buffer.frame_layout().map_or(4096, |l| l.frame_to_fp_offset));
            bytes.resize(bytes.len().next_multiple_of(64), 0xcc);
            offsets.push(bytes.len());
            bytes.extend_from_slice(compiled.code_buffer());
        }
        let exec = Exec::new(&bytes).map_err(|e| format!("no memory for code: {e}"))?;
        let entries = offsets.iter().map(|o| exec.address() + o).collect();
        let mut by_number = vec![0; unit.program.functions.len()];
        for (i, &n) in unit.reach.functions.iter().enumerate() {
            // Kernels do not check how deep they are, since nobody calls them.
            if !unit.program.functions[n as usize].kernel {
                by_number[n as usize] = i as u32 + 1;
            }
        }
        Ok(Code { mode: unit.mode, _exec: exec, entries, by_number, frame })
    }
}
