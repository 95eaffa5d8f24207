//! Devices of other compute capabilities than the default.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see tests/api")]

mod api;

use api::*;
use std::process::Stdio;

const FLEET: &str = "[[device]]\ncapability = \"9.0\"\n[[device]]\ncapability = \"12.0\"\n[[device]]\n";

/// A kernel for a target.
fn text(target: &str) -> std::ffi::CString {
    let text = format!(".version 8.7 .target {target} .address_size 64 .visible .entry k() {{ ret; }}");
    std::ffi::CString::new(text).unwrap()
}

#[test]
fn limits_and_images_follow_the_capability() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("capabilities.toml");
    std::fs::write(&file, FLEET).unwrap();
    let path = file.to_str().unwrap();
    in_child("limits_and_images_follow_the_capability", &[("SOFTCUDA_DEVICES", path)], Stdio::null(), || {
        // Attributes 75, 76, 39, 106, 81, 97 and 120: capability; threads and blocks of a multiprocessor; its shared
        // memory, a block's most; clusters. From the programming guide.
        let table = [
            [9, 0, 2048, 32, 228 << 10, 227 << 10, 1],
            [12, 0, 1536, 24, 100 << 10, 99 << 10, 1],
            [8, 9, 1536, 24, 100 << 10, 99 << 10, 0],
        ];
        for (device, row) in table.iter().enumerate() {
            for (attribute, expected) in [75, 76, 39, 106, 81, 97, 120].iter().zip(row) {
                let mut value = 0;
                ok!(cuDeviceGetAttribute(&mut value, *attribute, device as i32));
                assert_eq!(value, *expected, "attribute {attribute} of device {device}");
            }
            on_a_device(device as i32, row);
        }
    });
}

/// What a function may have on a device, and which texts load.
fn on_a_device(device: i32, row: &[i32; 7]) {
    let mut context = 0;
    ok!(cuCtxCreate_v2(&mut context, 0, device));
    let context = Context(context);
    let architecture = (10 * row[0] + row[1]) as u32;
    for target in [75, 89, 90, 120] {
        let mut module = 0;
        let result = cu!(cuModuleLoadData(&mut module, text(&format!("sm_{target}")).as_ptr().cast()));
        let expected = if target <= architecture { CUDA_SUCCESS } else { CUDA_ERROR_NO_BINARY_FOR_GPU };
        assert_eq!(result, expected, "sm_{target} on sm_{architecture}");
    }
    for (target, own) in [("sm_90a", 90), ("sm_120a", 120), ("sm_120f", 120)] {
        let mut module = 0;
        let result = cu!(cuModuleLoadData(&mut module, text(target).as_ptr().cast()));
        let expected = if own == architecture { CUDA_SUCCESS } else { CUDA_ERROR_NO_BINARY_FOR_GPU };
        assert_eq!(result, expected, "{target} on sm_{architecture}");
    }
    let kernel = function(module(text("sm_75").to_str().unwrap()), "k");
    let mut value = 0;
    ok!(cuFuncGetAttribute(&mut value, 6, kernel));
    assert_eq!(value as u32, architecture);
    // A multiprocessor is filled by blocks of 512 threads, and by small ones as far as it has places for blocks.
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut value, kernel, 512, 0));
    assert_eq!(value, row[2] / 512);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut value, kernel, 32, 0));
    assert_eq!(value, row[3]);
    ok!(cuFuncSetAttribute(kernel, 8, row[5]));
    assert_eq!(cu!(cuFuncSetAttribute(kernel, 8, row[5] + 1)), CUDA_ERROR_INVALID_VALUE);
    drop(context);
}
