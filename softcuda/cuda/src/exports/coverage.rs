//! `docs/driver-api.md`: what each symbol of `cuda.h` does, made from the lists of exports.

use super::implements;
use cuda_abi::symbols::{self, Row};
use std::fmt::Write;

/// Why calls are refused: beginnings of symbols, and the reason. The first that fits counts.
const REASONS: &[(&[&str], &str)] = &[
    (
        &["cuImportExternal", "cuDestroyExternal", "cuExternalMemory", "cuSignalExternal", "cuWaitExternal"],
        "memory and semaphores of graphics APIs, which have no device here",
    ),
    (&["cuGraphAddExternal", "cuGraphExecExternal", "cuGraphExternal"], "semaphores of graphics APIs"),
    (&["cuGraphics"], "buffers of graphics APIs, which have no device here"),
    (&["cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig"], "graphics command lists"),
    (&["cuStreamBeginRecaptureToGraph"], "capturing again into a graph that exists"),
    (&["cuMulticast"], "multicast objects need NVSwitch (attribute 132 is 0)"),
    (
        &["cuLogicalEndpoint", "cuFabricCpy", "cuDeviceGetFabric", "cuDeviceGetClique"],
        "NVLink fabrics: there is none",
    ),
    (&["cuTensorMap"], "tensor maps (attribute 127 is 0): `cp.async.bulk` is refused at load"),
    (&["cuMemMapArrayAsync"], "sparse arrays (attribute 112 is 0)"),
    (&["cuMemBatchDecompressAsync"], "a decompression engine (attribute 136 is 0)"),
    (&["cuMemGetLocationInfo"], "where pages are: host and device have the same memory"),
    (&["cuFlushGPUDirectRDMAWrites"], "GPUDirect RDMA (attribute 116 is 0)"),
    (
        &["cuLaunchCooperativeKernelMultiDevice"],
        "cooperative launches over several devices (attribute 96 is 0; gone from CUDA 13's runtime)",
    ),
    (&["cuCheckpoint"], "checkpoints of processes"),
    (&["cuCoredump"], "core dumps of a device"),
    (&["cuLogs"], "the driver's log: `SOFTCUDA_LOG=stderr` writes it"),
    (&["cuDeviceGetLuid", "cuDeviceGetNvSciSyncAttributes"], "Windows and Drive OS only"),
];

/// What is left: the forms of CUDA 3.1 and older.
const OLD: &str = "addresses and sizes of 32 bits (CUDA 3.1 and older), which do not hold this device's";

fn reason(row: &Row) -> &'static str {
    let fits = |(beginnings, _): &&(&[&str], &str)| beginnings.iter().any(|b| row.symbol.starts_with(b));
    match REASONS.iter().find(fits) {
        Some((_, reason)) => reason,
        None => {
            let newer = symbols::rows_of(row.base).iter().any(|other| other.version > row.version);
            assert!(newer && row.version <= 3010, "{}: refused without a reason", row.symbol);
            OLD
        }
    }
}

fn text() -> String {
    let rows = &symbols::ROWS;
    let works = rows.iter().filter(|row| implements(row.symbol)).count();
    let mut text = format!(
        "# What each function of the driver API does in softcuda\n\n\
         Made from softcuda's lists of exports and the symbol table of cuda.h 13.5; a test keeps it fresh\n\
         (`GPUPOOL_BLESS=1 cargo test -p softcuda --lib coverage` writes it).\n\n\
         * **works**: does what CUDA's manual says; what differs is in `softcuda/cuda/README.md`.\n\
         * **801**: exported, answers CUDA_ERROR_NOT_SUPPORTED; `cuGetProcAddress` does not find it.\n\n\
         {} symbols: {works} work, {} are refused.\n\n\
         | symbol | since CUDA | answer | because it is about |\n|---|---|---|---|\n",
        rows.len(),
        rows.len() - works,
    );
    for row in rows {
        let version = format!("{}.{}", row.version / 1000, row.version % 1000 / 10);
        let (answer, why) = if implements(row.symbol) { ("works", "") } else { ("801", reason(row)) };
        let _ = writeln!(text, "| `{}` | {version} | {answer} | {why} |", row.symbol);
    }
    text
}

#[test]
fn the_documentation_says_what_each_symbol_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/driver-api.md");
    let text = text();
    if std::env::var_os("GPUPOOL_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == text, "docs/driver-api.md is not what the exports say");
}
