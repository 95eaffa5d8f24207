//! What a worker process does in the product: a CUDA driver, and sessions on it.

use std::path::Path;

use gpupool_protocol::control::Snapshot;

use super::driver::{self, Driver};
use super::{Data, Work, WorkerSetup, session};

/// Work with a CUDA driver.
#[derive(Debug, Clone, Copy)]
pub struct Cuda;

impl Work for Cuda {
    type Driver = Driver;

    fn open(path: &Path) -> anyhow::Result<Driver> {
        driver::open(path)
    }

    fn inventory(driver: &Driver) -> anyhow::Result<Snapshot> {
        driver::inventory(driver)
    }

    fn run(setup: WorkerSetup<Driver>, data: Data) -> anyhow::Result<()> {
        session::run(setup, data)
    }
}
