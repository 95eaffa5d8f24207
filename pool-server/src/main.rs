//! Owns GPUs and runs the CUDA calls of remote programs on them.

use std::process::ExitCode;

fn main() -> ExitCode {
    match pool_server::cli::main::<pool_server::worker::cuda::Cuda>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pool-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}
