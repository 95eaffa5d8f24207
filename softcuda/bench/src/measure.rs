//! How a row is measured: interleaved pairs, and the median of their ratios.

use crate::baseline::Baseline;
use bench_driver::Driver;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Barrier;

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Row {
    /// What is measured.
    pub name: &'static str,
    /// What it is to reach, in words.
    pub bar: &'static str,
    /// Measures it.
    pub measure: fn(&Bench) -> anyhow::Result<Figures>,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Seconds of the kernel, or of whatever is timed.
    pub ours: f64,
    /// Seconds of the C code, if there is any.
    pub theirs: Option<f64>,
    /// Median of the ratios of the pairs (not the ratio of the medians).
    pub ratio: Option<f64>,
    /// How much more C code the machine does with as many threads as there are workers than with one, at the same time
    /// as the pairs: what the most is that a kernel could gain. None with one worker.
    pub machine: Option<f64>,
}

impl Figures {
    /// One time without anything to compare it with.
    pub fn alone(seconds: f64) -> Figures {
        Figures { ours: seconds, theirs: None, ratio: None, machine: None }
    }

    /// As a line of text for the process that makes the table.
    pub fn line(&self, name: &str) -> String {
        let number = |v: Option<f64>| v.map_or("-".to_string(), |v| v.to_string());
        let [theirs, ratio, machine] = [self.theirs, self.ratio, self.machine].map(number);
        format!("{name}\t{}\t{theirs}\t{ratio}\t{machine}", self.ours)
    }

    /// The reverse of [`Figures::line`].
    pub fn parse(line: &str) -> Option<(String, Figures)> {
        let mut parts = line.split('\t');
        let (name, ours) = (parts.next()?, parts.next()?.parse().ok()?);
        let mut number = || Some(parts.next()?.parse().ok());
        Some((name.to_string(), Figures { ours, theirs: number()?, ratio: number()?, machine: number()? }))
    }
}

/// What every measurement needs.
pub struct Bench {
    /// softcuda.
    pub driver: Driver,
    /// The C code.
    pub baseline: Baseline,
    runs: usize,
    workers: usize,
    clock: ClockId,
}

impl Bench {
    /// Loads the driver and compiles the C code.
    pub fn new(driver: &Path, runs: usize, workers: usize, processor_time: bool) -> anyhow::Result<Bench> {
        let clock = if processor_time { ClockId::ProcessCPUTime } else { ClockId::Monotonic };
        Ok(Bench { driver: Driver::load(driver)?, baseline: Baseline::compile()?, runs, workers, clock })
    }

    /// Seconds that `f` takes.
    pub fn time<T>(&self, f: impl FnOnce() -> T) -> (T, f64) {
        let now = || {
            let t = clock_gettime(self.clock);
            t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
        };
        let start = now();
        let result = f();
        (result, now() - start)
    }

    /// Times the pair interleaved, after one run of each that is not counted (it compiles, and touches memory).
    pub fn pair(
        &self,
        mut ours: impl FnMut() -> anyhow::Result<()>,
        mut theirs: impl FnMut(),
    ) -> anyhow::Result<Figures> {
        ours()?;
        theirs();
        let (mut pairs, mut machine) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            let (result, a) = self.time(&mut ours);
            result?;
            let ((), b) = self.time(&mut theirs);
            pairs.push((a, b));
            machine.extend((self.workers > 1).then(|| self.machine()));
        }
        Ok(Figures {
            machine: (!machine.is_empty()).then(|| median(machine.into_iter())),
            ours: median(pairs.iter().map(|p| p.0)),
            theirs: Some(median(pairs.iter().map(|p| p.1))),
            ratio: Some(median(pairs.iter().map(|p| p.0 / p.1))),
        })
    }

    /// How much more threads, one a worker, do of a product that fits in the caches than one thread does.
    fn machine(&self) -> f64 {
        const N: usize = 256;
        let factor = vec![1.0; N * N];
        let work = |out: &mut [f32]| self.baseline.matmul("matmul32", &factor, &factor, out, N);
        let mut outs = vec![vec![0.0; N * N]; self.workers];
        let alone = self.time(|| work(&mut outs[0])).1;
        let start = Barrier::new(self.workers);
        let together = std::thread::scope(|scope| {
            let threads = outs.iter_mut().map(|out| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    self.time(|| work(out)).1
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().expect("it only multiplies")).fold(0.0, f64::max)
        });
        self.workers as f64 * alone / together
    }

    /// The median of as many runs.
    pub fn alone(&self, mut f: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Figures> {
        let times = (0..self.runs).map(|_| f()).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Figures::alone(median(times.into_iter())))
    }
}

/// The middle value (the upper one of two).
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Keeps this process, with all threads that it will start, on the processor that it runs on.
pub fn stay_on_one_processor() -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_a_line() {
        let all = Figures { ours: 0.25, theirs: Some(0.5), ratio: Some(0.5), machine: Some(1.75) };
        assert_eq!(Figures::parse(&all.line("a row")), Some(("a row".to_string(), all)));
        let alone = Figures::alone(1e-6);
        assert_eq!(Figures::parse(&alone.line("b")), Some(("b".to_string(), alone)));
        assert_eq!(Figures::parse("nonsense"), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}
