//! Warm workers: processes that have loaded the driver and wait for a session. A worker serves one session, ever.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::process::{Spawner, Worker};

/// How long a driver may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// How long nobody must have taken a worker before the next is warmed: starting one costs the processors that those who
/// come together need.
const QUIET: Duration = Duration::from_millis(20);
/// How often warm workers that are dead or stopped are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// Gives out workers.
#[derive(Debug)]
pub struct WorkerPool {
    spawner: Spawner,
    driver: PathBuf,
    size: usize,
    warm: Mutex<Vec<Worker>>,
    taken: Notify,
    /// How often a worker was asked for.
    asked: AtomicU64,
}

impl WorkerPool {
    /// A pool that keeps `size` workers warm once [`WorkerPool::keep_warm`] was called.
    pub fn new(spawner: Spawner, driver: PathBuf, size: usize) -> Arc<Self> {
        Arc::new(Self {
            spawner,
            driver,
            size,
            warm: Mutex::default(),
            taken: Notify::new(),
            asked: AtomicU64::new(0),
        })
    }

    /// A worker that has served nobody: a warm one if there is one, else a new one.
    pub async fn take(&self) -> anyhow::Result<Worker> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        while let Some(mut worker) = self.pop() {
            self.taken.notify_one();
            if worker.is_fit() {
                return Ok(worker);
            }
        }
        self.start().await
    }

    /// A worker that was not warm, whatever the pool holds.
    pub async fn start(&self) -> anyhow::Result<Worker> {
        Worker::start(&self.spawner, &self.driver, LOAD_LIMIT).await
    }

    fn pop(&self) -> Option<Worker> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Starts the task that fills the pool and clears out of it what is dead or stopped, for as long as the pool lives.
    pub fn keep_warm(self: &Arc<Self>) {
        if self.size > 0 {
            tokio::spawn(keep_warm(Arc::downgrade(self)));
        }
    }

    /// Ends all warm workers.
    pub async fn close(&self) {
        while let Some(mut worker) = self.pop() {
            worker.end().await;
        }
    }

    /// Waits until nobody has asked for a worker for a moment, but not for ever.
    async fn wait_for_quiet(&self) {
        let asked = || self.asked.load(Ordering::Relaxed);
        for _ in 0..SWEEP.as_millis() / QUIET.as_millis() {
            let before = asked();
            tokio::time::sleep(QUIET).await;
            if asked() == before {
                return;
            }
        }
    }

    async fn fill(&self) -> anyhow::Result<()> {
        loop {
            let unfit: Vec<Worker> = {
                let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
                warm.extract_if(.., |worker| !worker.is_fit()).collect()
            };
            for mut worker in unfit {
                let how = worker.end().await.how;
                tracing::warn!(
                    "another warm worker takes the place of one that had died or was stopped: it {how}"
                );
            }
            if self.warm.lock().unwrap_or_else(PoisonError::into_inner).len() >= self.size {
                return Ok(());
            }
            self.wait_for_quiet().await;
            let worker = self.start().await?;
            self.warm.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
    }
}

async fn keep_warm(pool: Weak<WorkerPool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        if let Err(error) = pool.fill().await {
            tracing::warn!("cannot keep a worker warm: {error:#}");
            drop(pool);
            tokio::time::sleep(SWEEP).await;
            continue;
        }
        // The pool must not be kept alive by its own helper for longer than a sweep.
        let _ = tokio::time::timeout(SWEEP, pool.taken.notified()).await;
    }
}
