//! Launches: everything that can be wrong is found before the work is queued.

mod attributes;
pub mod clusters;
pub mod legacy;
mod parameters;

pub use attributes::{Attributes, PRIORITY, Value};
pub use parameters::parameters;

use crate::attributes::{MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK};
use crate::context::{self, Context};
use crate::error::*;
use crate::function::{self, Function};
use crate::op::Op;
use crate::stream::Work;
use crate::{host, log};
use cudarc::driver::sys::CUresult;
use parameters::Values;
use softcuda_engine as engine;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// Why a launch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// For one of CUDA's reasons.
    Code(CUresult),
    /// See [`cuda_abi::errors::INVALID_CONFIGURATION`]: for functions that NVIDIA's runtime loaded.
    Configuration,
}

impl From<CUresult> for Refusal {
    fn from(code: CUresult) -> Self {
        Self::Code(code)
    }
}

/// The dimensions of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// All blocks at once.
    pub cooperative: bool,
}

/// A launch that is found to be possible.
pub struct KernelOp {
    /// The function as the program named it: a `CUfunction`, or a `CUkernel` in its place.
    pub named: usize,
    /// The function.
    pub function: Arc<Function>,
    /// Its context.
    pub context: Arc<Context>,
    /// Its dimensions.
    pub shape: Shape,
    /// Its attributes.
    pub attributes: Attributes,
    stream: u64,
    launch: engine::Launch,
    values: OnceLock<Values>,
}

/// What a launch is made of, besides its parameters.
#[derive(Debug, Clone)]
pub struct Request {
    /// A `CUfunction`, or a `CUkernel` in its place.
    pub function: usize,
    /// Its dimensions.
    pub shape: Shape,
    /// Its attributes.
    pub attributes: Attributes,
    /// The number of its stream, for the log; 0 in a graph.
    pub stream: u64,
    /// The priority of its stream, unless its attributes say another one.
    pub priority: i32,
}

impl KernelOp {
    /// Checks a launch.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` for no function or one of another context; what [`check`] and [`parameters`] say.
    ///
    /// # Safety
    /// As [`parameters`].
    pub unsafe fn prepare(
        context: &Arc<Context>,
        request: Request,
        values: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> std::result::Result<Arc<KernelOp>, Refusal> {
        let function = function::find_in(request.function, context)?;
        // SAFETY: the caller vouches for both arrays.
        unsafe { Self::of_function(context, function, request, |kernel| parameters(kernel, values, extra)) }
    }

    /// # Errors
    /// As [`KernelOp::prepare`].
    fn of_function(
        context: &Arc<Context>,
        function: Arc<Function>,
        request: Request,
        packed: impl FnOnce(&engine::Kernel) -> Result<Vec<u8>>,
    ) -> std::result::Result<Arc<KernelOp>, Refusal> {
        if function.context != context.handle {
            return Err(CUDA_ERROR_INVALID_HANDLE.into());
        }
        let Request { function: named, mut shape, attributes, stream, priority } = request;
        shape.cooperative |= attributes.cooperative();
        if !shape.is_possible() {
            let runtime = function.from_runtime;
            return Err(if runtime { Refusal::Configuration } else { CUDA_ERROR_INVALID_VALUE.into() });
        }
        check(context, &function, &shape)?;
        let cluster = attributes.cluster();
        clusters::check(&context.device, &function.kernel, &shape, cluster)?;
        let launch = engine::Launch {
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.shared,
            params: packed(&function.kernel)?,
            cooperative: shape.cooperative,
            cluster,
            priority: attributes.priority().unwrap_or(priority),
            owner: context.id,
            bindings: function.references.bindings(),
        };
        let context = context.clone();
        Ok(Arc::new(KernelOp {
            named,
            function,
            context,
            shape,
            attributes,
            stream,
            launch,
            values: OnceLock::new(),
        }))
    }

    /// The same launch with other attributes.
    ///
    /// # Errors
    /// As [`KernelOp::prepare`].
    pub fn with_attributes(&self, attributes: Attributes) -> std::result::Result<Arc<KernelOp>, Refusal> {
        let shape = Shape { cooperative: false, ..self.shape };
        let (stream, priority) = (self.stream, self.launch.priority);
        let request = Request { function: self.named, shape, attributes, stream, priority };
        Self::of_function(&self.context, self.function.clone(), request, |_| Ok(self.launch.params.clone()))
    }

    /// Pointers to the values of its parameters; they are good as long as this launch is held.
    pub fn values(&self) -> *mut *mut c_void {
        self.values.get_or_init(|| Values::of(&self.function.kernel, &self.launch.params)).as_ptr()
    }

    /// Runs the grid.
    ///
    /// # Errors
    /// The code of the fault that ended it.
    pub fn run(&self) -> Result {
        let (kernel, device) = (&self.function.kernel, &self.context.device);
        let run = || {
            host::forget_what_is_gone();
            device.engine.run_in(kernel, &self.launch, self.context.view(), &self.context.realm)
        };
        device.share.kernel(self.stream, &kernel.name, run).map_err(|fault| {
            log::line(|| format!("kernel {}: {fault}", kernel.name));
            of_fault(&fault)
        })
    }
}

/// `cuLaunchKernel` and its relatives.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE` for no stream; as [`KernelOp::prepare`].
///
/// # Safety
/// As [`parameters`].
pub unsafe fn kernel(
    mut request: Request,
    stream: usize,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> std::result::Result<(), Refusal> {
    let (context, stream) = context::stream(stream)?;
    context.fate.check()?;
    (request.stream, request.priority) = (stream.id, stream.priority);
    let events: Vec<_> = request.attributes.events().map(crate::event::find).collect::<Result<_>>()?;
    // SAFETY: the caller vouches for both arrays.
    let launch = unsafe { KernelOp::prepare(&context, request, values, extra)? };
    context.submit(&stream, Work::Do(Op::Kernel(launch)))?;
    for event in events {
        // CUDA lets these events come as late as the kernel's end.
        crate::event::record_in(&event, &context, &stream, 0)?;
    }
    Ok(())
}

impl Shape {
    /// Whether the device can have such a grid and such blocks at all.
    pub fn is_possible(&self) -> bool {
        let within =
            |value: &[u32; 3], most: &[u32; 3]| value.iter().zip(most).all(|(v, m)| (1..=*m).contains(v));
        within(&self.grid, &MAX_GRID)
            && within(&self.block, &MAX_BLOCK)
            && self.threads() <= MAX_THREADS_PER_BLOCK
    }

    /// Threads a block.
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// Whether a function can be launched so, which is possible in itself.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for a block or shared memory that the function does not allow,
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES` for a block with more threads than this function's registers allow,
/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`.
pub fn check(context: &Context, function: &Function, shape: &Shape) -> Result {
    let kernel = &function.kernel;
    let threads = shape.threads();
    let bounds_broken = threads > kernel.max_threads_per_block;
    if bounds_broken || kernel.required_block.is_some_and(|block| block != shape.block) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if threads > function::max_threads(kernel) {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    if shape.shared > function.settings.max_dynamic_shared()
        || kernel.static_shared.saturating_add(shape.shared) > context.device.capability.shared_of_block
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if shape.cooperative {
        let blocks = shape.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        if blocks > resident_blocks(context, kernel, threads, shape.shared) {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// How many blocks can run at once: what occupancy says for all multiprocessors, and what the engine can hold.
fn resident_blocks(context: &Context, kernel: &engine::Kernel, threads: u32, shared: u32) -> u64 {
    let capability = &context.device.capability;
    let each = u64::from(crate::occupancy::blocks_per_multiprocessor(capability, kernel, threads, shared));
    let held = u64::from(context.device.engine.max_resident_blocks(kernel, threads, shared));
    (each * u64::from(context.device.multiprocessors)).min(held)
}
