//! Timing loops: a warm-up, then samples until a time or a count is reached, into a histogram.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::report::Times;

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The time for one measure, warm-up not counted.
    pub time: Duration,
    /// At most this many samples.
    pub most: u64,
    /// At least this many, however long they take.
    pub least: u64,
}

impl Effort {
    /// For single calls.
    pub fn calls(quick: bool) -> Effort {
        Effort { time: Duration::from_millis(if quick { 50 } else { 500 }), most: 200_000, least: 20 }
    }

    /// For large copies.
    pub fn copies(quick: bool) -> Effort {
        Effort {
            time: Duration::from_millis(if quick { 100 } else { 500 }),
            most: 50,
            least: if quick { 3 } else { 7 },
        }
    }
}

/// Times `sample` again and again; each sample's time is divided by `calls`, the number of calls that it makes.
/// `between` runs after every sample and is not timed.
pub fn times(
    effort: Effort,
    calls: u64,
    mut sample: impl FnMut() -> anyhow::Result<()>,
    mut between: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Times> {
    let mut histogram = Histogram::<u64>::new(3)?;
    let warm_up = Instant::now();
    for _ in 0..effort.least {
        sample()?;
        between()?;
        if warm_up.elapsed() > effort.time {
            break;
        }
    }
    let start = Instant::now();
    while histogram.len() < effort.least || (histogram.len() < effort.most && start.elapsed() < effort.time) {
        let before = Instant::now();
        sample()?;
        let taken = before.elapsed();
        histogram.record((taken.as_nanos() as u64 / calls).max(1))?;
        between()?;
    }
    Ok(Times {
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        samples: histogram.len(),
    })
}
