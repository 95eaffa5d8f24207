//! One run of the CUDA measurements against one driver library.

use std::path::Path;

use bench_driver::{Driver, EMPTY_KERNEL};

use crate::measure::{Effort, times};
use crate::report::{COPY_BYTES, Measure, Run};

/// Calls of one sample of a measure whose single call is shorter than reading the clock.
const BATCH: u64 = 100;
/// Calls that are posted without a wait: the command ring holds about 20,000.
const BURST: u64 = 100_000;

/// Calls one function `calls` times, with a synchronise after every hundred: for tools that count instructions.
pub fn repeat(library: &Path, function: Repeated, calls: u32) -> anyhow::Result<()> {
    let cuda = Driver::load(library)?;
    let buffer = cuda.alloc(4096)?;
    let stream = cuda.stream()?;
    let kernel = cuda.kernel(EMPTY_KERNEL, "empty")?;
    let context = cuda.current()?;
    for call in 1..=calls {
        match function {
            Repeated::Memset => cuda.memset_async(buffer, call, stream)?,
            Repeated::Launch => cuda.launch(kernel, buffer, stream)?,
            Repeated::Current => cuda.current().map(drop)?,
            Repeated::Device => cuda.device()?,
            Repeated::Attribute => cuda.attribute()?,
            Repeated::PushPop => cuda.push_and_pop(context)?,
            Repeated::ProcAddress => cuda.proc_address()?,
        }
        if call % 100 == 0 {
            cuda.synchronize()?;
        }
    }
    cuda.synchronize()
}

/// What [`repeat`] can call.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Repeated {
    /// `cuMemsetD32Async`.
    Memset,
    /// `cuLaunchKernel`.
    Launch,
    /// `cuCtxGetCurrent`.
    Current,
    /// `cuDeviceGet`.
    Device,
    /// `cuDeviceGetAttribute`.
    Attribute,
    /// `cuCtxPushCurrent` and `cuCtxPopCurrent`.
    PushPop,
    /// `cuGetProcAddress`.
    ProcAddress,
}

/// Measures everything once.
pub fn measure(library: &Path, quick: bool) -> anyhow::Result<Run> {
    let cuda = Driver::load(library)?;
    let mut run = Run { device: Some(cuda.device_name()?), ..Run::default() };
    let small = cuda.alloc(4096)?;
    let stream = cuda.stream()?;
    let kernel = cuda.kernel(EMPTY_KERNEL, "empty")?;
    let effort = Effort::calls(quick);
    let nothing = || Ok(());
    let synchronize = || cuda.synchronize();
    let mut word = [0u8; 4];

    let mut put = |measure, result| {
        run.times.insert(measure, result);
    };
    put(Measure::SyncDtoh4, times(effort, 1, || cuda.dtoh(&mut word, small), nothing)?);
    put(Measure::MemGetInfo, times(effort, 1, || cuda.mem_get_info(), nothing)?);
    let memsets =
        |count: u64| (0..count).try_for_each(|value| cuda.memset_async(small, value as u32, stream));
    put(Measure::MemsetAsync, times(effort, BATCH, || memsets(BATCH), synchronize)?);
    let launches = || (0..BATCH).try_for_each(|_| cuda.launch(kernel, small, stream));
    put(Measure::Launch, times(effort, BATCH, launches, synchronize)?);
    let mut step = [0u8; 4];
    let whole_step = || memsets(300).and_then(|()| cuda.dtoh(&mut step, small));
    put(Measure::Step300, times(effort, 1, whole_step, synchronize)?);
    let burst = || memsets(BURST).and_then(|()| cuda.synchronize());
    put(Measure::Burst, times(effort, BURST, burst, nothing)?);

    let context = cuda.current()?;
    let mut local = |measure, call: &dyn Fn() -> anyhow::Result<()>| {
        // A driver need not have all of them; then its place in the table stays empty.
        if call().is_err() {
            return anyhow::Ok(());
        }
        let calls = || (0..BATCH).try_for_each(|_| call());
        times(effort, BATCH, calls, nothing).map(|times| put(measure, times))
    };
    local(Measure::CtxGetCurrent, &|| cuda.current().map(drop))?;
    local(Measure::DeviceGet, &|| cuda.device())?;
    local(Measure::DeviceAttribute, &|| cuda.attribute())?;
    local(Measure::CtxPushPop, &|| cuda.push_and_pop(context))?;
    local(Measure::ProcAddress, &|| cuda.proc_address())?;

    let effort = Effort::copies(quick);
    let large = cuda.alloc(COPY_BYTES)?;
    let mut pageable = vec![1u8; COPY_BYTES];
    put(Measure::HtodPageable, times(effort, 1, || cuda.htod(large, &pageable), synchronize)?);
    put(Measure::DtohPageable, times(effort, 1, || cuda.dtoh(&mut pageable, large), synchronize)?);
    let pinned = cuda.pinned(COPY_BYTES)?;
    put(Measure::HtodPinned, times(effort, 1, || cuda.htod(large, pinned), synchronize)?);
    put(Measure::DtohPinned, times(effort, 1, || cuda.dtoh(pinned, large), synchronize)?);
    Ok(run)
}
