//! Programs that look at GPUs, on softcuda's NVML.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

use gpupool_e2e::{build, repository, run};
use std::process::Command;
use std::time::Duration;

#[test]
fn nvidia_ml_py_gpustat_and_nvitop_show_the_fleet() {
    let mut command = Command::new(build::python());
    command.arg(repository().join("tests/nvml/clients.py"));
    command.arg(build::Build::find().file("libsoftnvml.so")).arg(build::Build::find().file("libsoftcuda.so"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    run(command, Duration::from_secs(180)).expect_last_line("PASS nvml clients");
}
