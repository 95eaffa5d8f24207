//! What particular programs print, and programs that nobody here wrote.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use std::path::Path;
use std::time::Duration;

use gpupool_e2e::{Road, build, client, repository, run};

const LIMIT: Duration = Duration::from_secs(120);

gpupool_e2e::on_every_road!(numba_vector_add numba_block_reduction kernel_printf broken_ptx no_fitting_image only_machine_code);

fn numba(road: Road, script: &str, last_line: &str) {
    let mut command = road.command(build::python());
    command.arg(repository().join("tests/numba").join(script));
    // numba links through the driver; a CUDA toolkit installed on this machine is not to be found by chance.
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH").current_dir(repository());
    run(command, LIMIT).expect_last_line(last_line);
}

fn numba_vector_add(road: Road) {
    numba(road, "vector_add.py", "PASS numba vector_add");
}

fn numba_block_reduction(road: Road) {
    numba(road, "block_reduction.py", "PASS numba block_reduction");
}

/// What a kernel prints stands between what the host prints before the launch and after the synchronise.
fn kernel_printf(road: Road) {
    let outcome = run(road.command(build::case("static13", "printf")), LIMIT);
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 8, "{outcome:?}");
    lines[1..4].sort_unstable(); // threads may print in any order
    let thread = |n: i32, half: &str| {
        format!("device hello: thread {n} of 3, {half}, 1234567890123456789, 0xbeef, z%")
    };
    let expected = [
        "host: before the launch",
        &thread(0, "0.000"),
        &thread(1, "0.500"),
        &thread(2, "1.000"),
        "host: after the first synchronise",
        "device: no argument",
        "host: after the second synchronise",
        "PASS printf",
    ];
    assert_eq!(lines, expected, "{outcome:?}");
    assert!(outcome.status.success());
}

fn load(road: Road, image: &Path) -> String {
    let mut command = road.command(client("jit"));
    command.arg(image);
    let outcome = run(command, LIMIT);
    outcome.expect_last_line("PASS jit");
    outcome.stdout
}

/// CUDA_ERROR_INVALID_PTX, with the line in the error log.
fn broken_ptx(road: Road) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("broken.ptx");
    let ptx = ".version 8.0\n.target sm_70\n.address_size 64\n\n.visible .entry k()\n{\n  .reg .b32 %r<2>;\n  frobnicate.b32 %r1, 7;\n  ret;\n}\n";
    std::fs::write(&image, ptx).unwrap();
    let said = load(road, &image);
    assert!(said.starts_with("load 218\n"), "{said}");
    let log = said.strip_prefix("load 218\n").unwrap();
    assert!(log.contains("line 8"), "the error log does not name line 8: {said}");
}

/// CUDA_ERROR_NO_BINARY_FOR_GPU for machine code of another architecture alone.
fn no_fitting_image(road: Road) {
    let said = load(road, &repository().join("target/cases/machine_code.fatbin"));
    assert!(said.starts_with("load 209\n"), "{said}");
}

/// The same through cudart: the program is told that the device has no kernel image.
fn only_machine_code(road: Road) {
    let outcome = run(road.command(repository().join("target/cases/machine_code")), LIMIT);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("-> 209 "), "{outcome:?}");
}
