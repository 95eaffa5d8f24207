//! The worker: one process a session, plain threads. This module is its process shell; what it does with a driver
//! and a data connection is behind [`Work`].
//!
//! The worker's standard input is the tie to the daemon. A thread of its own answers the daemon's pings, so that a long
//! compilation is not taken for death, and ends the process when the tie closes. The main thread loads the driver,
//! reports, waits for a session and its data connection, and runs the session until it ends.

mod answer;
mod arena;
mod args;
mod callbacks;
mod calls;
mod code;
mod context;
pub mod cuda;
mod dispatch;
pub mod driver;
mod errors;
mod functions;
mod heap;
mod helpers;
mod landing;
mod lanes;
mod objects;
mod others;
mod output;
mod parcels;
mod primary;
pub mod session;
mod staging;
mod streams;
mod tie;
mod watcher;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use gpupool_protocol::control::{DataSocket, Snapshot, Transport};

use crate::tie::{FromWorker, SessionSpec, ToWorker};
use others::Others;
use tie::Order;

/// What a worker process does with a driver. The product has one implementation; tests have others, which need none.
pub trait Work {
    /// A loaded driver.
    type Driver;

    /// Loads the driver's library by absolute path. Creates nothing on a device.
    fn open(path: &Path) -> anyhow::Result<Self::Driver>;

    /// Asks the driver what it shows, and says which calls this worker answers. Creates no context.
    fn inventory(driver: &Self::Driver) -> anyhow::Result<Snapshot>;

    /// Runs the session until the client is gone or the session is broken. The process ends afterwards.
    fn run(setup: WorkerSetup<Self::Driver>, data: Data) -> anyhow::Result<()>;
}

/// A session's data connections.
#[derive(Debug)]
pub struct Data {
    /// The first one.
    pub first: DataSocket,
    /// The others, which carry long bytes only.
    pub more: Vec<DataSocket>,
}

/// What a session starts with.
#[derive(Debug)]
pub struct WorkerSetup<D> {
    /// The loaded driver.
    pub driver: D,
    /// Whose session it is and what it may use.
    pub session: SessionSpec,
    /// What runs over the data connection.
    pub transport: Transport,
    /// The way to the other sessions.
    pub others: Others,
}

/// Runs the worker process over the tie on standard input. Ends the process at the end of the session without running
/// destructors: the kernel frees everything, and a driver's own exit code has nothing left to save.
pub fn main<W: Work>() -> anyhow::Result<()> {
    let (tie, orders) = tie::start()?;
    let outcome = serve::<W>(&tie, &orders);
    let code = match &outcome {
        Ok(()) => 0,
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::error!("{reason}");
            // The daemon may be gone; then nobody is left to tell.
            let _ = tie.send(&FromWorker::Failed { reason });
            1
        }
    };
    tie::end_process(code)
}

fn serve<W: Work>(tie: &Arc<tie::Tie>, orders: &tie::Orders) -> anyhow::Result<()> {
    let path = match orders.next()? {
        Order { message: ToWorker::Setup { driver }, .. } => driver,
        other => bail!("the tie began with {:?} instead of Setup", other.message),
    };
    let driver = W::open(&path).with_context(|| format!("cannot load the driver {}", path.display()))?;
    let snapshot =
        W::inventory(&driver).with_context(|| format!("the driver {} gives no inventory", path.display()))?;
    tie.send(&FromWorker::Ready { snapshot }).context("cannot report to the daemon")?;

    let session = match orders.next()? {
        Order { message: ToWorker::Begin(session), .. } => *session,
        other => bail!("{:?} came over the tie instead of Begin", other.message),
    };
    let span = tracing::info_span!("session", id = session.session);
    let _entered = span.enter();
    let (transport, data) = connections(orders)?;
    W::run(WorkerSetup { driver, session, transport, others: Others::new(Arc::clone(tie)) }, data)
}

/// Waits for the data connections, which come in any order.
fn connections(orders: &tie::Orders) -> anyhow::Result<(Transport, Data)> {
    let mut come: Vec<(u8, DataSocket)> = Vec::new();
    loop {
        match orders.next()? {
            Order { message: ToWorker::Data { transport, connection, connections }, fd: Some(fd) } => {
                come.push((
                    connection,
                    DataSocket::from_fd(fd).context("the data connection cannot be used")?,
                ));
                if come.len() < usize::from(connections) {
                    continue;
                }
                come.sort_by_key(|(number, _)| *number);
                let mut all = come.into_iter().map(|(_, socket)| socket);
                let first = all.next().context("no data connection")?;
                return Ok((transport, Data { first, more: all.collect() }));
            }
            Order { message: ToWorker::Data { .. }, fd: None } => {
                bail!("a data connection came without its descriptor")
            }
            other => bail!("{:?} came over the tie instead of Data", other.message),
        }
    }
}

#[cfg(test)]
mod tests;
