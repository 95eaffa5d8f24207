//! The results: one run's, all runs' together, and the table made of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is measured. The order is the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The bytes of a call that fetches 4 bytes, and of its answer, over the bare transport.
    PingPong,
    /// 64 MiB over the bare transport: a copy in memory, or a TCP stream until its end is acknowledged.
    Bulk,
    /// `cuMemcpyDtoH` of 4 bytes to pageable memory.
    SyncDtoh4,
    /// `cuMemGetInfo`.
    MemGetInfo,
    /// `cuMemsetD32Async`, per call of a batch of 100.
    MemsetAsync,
    /// `cuLaunchKernel` of an empty kernel with four parameters, per call of a batch of 100.
    Launch,
    /// 300 `cuMemsetD32Async` and one `cuMemcpyDtoH` of 4 bytes.
    Step300,
    /// 100,000 `cuMemsetD32Async` and one `cuCtxSynchronize`, per memset: far more than the ring holds.
    Burst,
    /// `cuCtxGetCurrent`, per call of a batch of 100, as the other local calls.
    CtxGetCurrent,
    /// `cuDeviceGet`.
    DeviceGet,
    /// `cuDeviceGetAttribute`.
    DeviceAttribute,
    /// `cuCtxPushCurrent` and `cuCtxPopCurrent`: two calls.
    CtxPushPop,
    /// `cuGetProcAddress`.
    ProcAddress,
    /// 64 MiB to the device from pageable memory.
    HtodPageable,
    /// 64 MiB from the device to pageable memory.
    DtohPageable,
    /// 64 MiB to the device from pinned memory.
    HtodPinned,
    /// 64 MiB from the device to pinned memory.
    DtohPinned,
}

/// The bytes that the copies move.
pub const COPY_BYTES: usize = 64 << 20;

impl Measure {
    /// The measure's name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Measure::PingPong => "ping-pong, a call's bytes",
            Measure::Bulk => "64 MiB, bare",
            Measure::SyncDtoh4 => "sync DtoH, 4 bytes",
            Measure::MemGetInfo => "cuMemGetInfo",
            Measure::MemsetAsync => "async memset, per call",
            Measure::Launch => "launch, 4 parameters, per call",
            Measure::Step300 => "step: 300 async memsets + 1 DtoH",
            Measure::Burst => "100,000 async memsets + 1 wait, per memset",
            Measure::CtxGetCurrent => "cuCtxGetCurrent",
            Measure::DeviceGet => "cuDeviceGet",
            Measure::DeviceAttribute => "cuDeviceGetAttribute",
            Measure::CtxPushPop => "cuCtxPushCurrent + cuCtxPopCurrent",
            Measure::ProcAddress => "cuGetProcAddress",
            Measure::HtodPageable => "HtoD 64 MiB, pageable",
            Measure::DtohPageable => "DtoH 64 MiB, pageable",
            Measure::HtodPinned => "HtoD 64 MiB, pinned",
            Measure::DtohPinned => "DtoH 64 MiB, pinned",
        }
    }

    fn is_copy(self) -> bool {
        use Measure::{Bulk, DtohPageable, DtohPinned, HtodPageable, HtodPinned};
        matches!(self, Bulk | HtodPageable | DtohPageable | HtodPinned | DtohPinned)
    }
}

/// What the time of one measure looked like in one run. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// How many samples these are of.
    pub samples: u64,
}

/// One run of one variant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The device's name, where there is one.
    pub device: Option<String>,
    /// The times of what was measured.
    pub times: BTreeMap<Measure, Times>,
}

/// All runs: by variant (`native`, `shm`, `tcp`, `raw shm`, `raw tcp`), in the order in which they were made.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The processor, the number of cores and the kernel.
    pub machine: String,
    /// The device that the driver shows.
    pub device: String,
    /// Runs per variant, interleaved.
    pub runs: usize,
    /// The variants, in the order of the table's columns.
    pub variants: Vec<Variant>,
}

/// The runs of one variant and their medians.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// The variant's name.
    pub name: String,
    /// The median over the runs, of each run's median and of each run's 99th percentile.
    pub median: BTreeMap<Measure, Times>,
    /// Every run, in order.
    pub runs: Vec<Run>,
}

impl Variant {
    /// Takes the medians of runs.
    pub fn new(name: &str, runs: Vec<Run>) -> Variant {
        let mut all: BTreeMap<Measure, Vec<Times>> = BTreeMap::new();
        for run in &runs {
            for (measure, times) in &run.times {
                all.entry(*measure).or_default().push(*times);
            }
        }
        let median = all
            .into_iter()
            .map(|(measure, times)| {
                let middle = Times {
                    p50_ns: median(times.iter().map(|times| times.p50_ns)),
                    p99_ns: median(times.iter().map(|times| times.p99_ns)),
                    samples: times.iter().map(|times| times.samples).sum(),
                };
                (measure, middle)
            })
            .collect();
        Variant { name: name.to_owned(), median, runs }
    }
}

/// The lower median; 0 for nothing.
fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The report as a Markdown table: the median and, in parentheses, the 99th percentile; copies as median and rate.
pub fn table(report: &Report) -> String {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(report.variants.iter().map(|variant| variant.name.clone()));
    let measures: std::collections::BTreeSet<Measure> =
        report.variants.iter().flat_map(|variant| variant.median.keys().copied()).collect();
    for measure in measures {
        let mut row = vec![measure.title().to_owned()];
        row.extend(report.variants.iter().map(|variant| match variant.median.get(&measure) {
            Some(times) => cell(measure, times),
            None => String::new(),
        }));
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let aligned = if column == 0 { format!("| {cell}{pad} ") } else { format!("| {pad}{cell} ") };
            text.push_str(&aligned);
        }
        text.push_str("|\n");
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                // A colon at the end of the rule sets the column to the right.
                let (dashes, end) = if column == 0 { (*width, "") } else { (width.saturating_sub(1), ":") };
                text.push_str(&format!("| {}{end} ", "-".repeat(dashes)));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn cell(measure: Measure, times: &Times) -> String {
    if measure.is_copy() {
        let rate = COPY_BYTES as f64 / times.p50_ns.max(1) as f64; // bytes per nanosecond are GB/s
        return format!("{:.1} ms, {rate:.1} GB/s", times.p50_ns as f64 / 1e6);
    }
    format!("{} ({})", microseconds(times.p50_ns), microseconds(times.p99_ns))
}

fn microseconds(nanoseconds: u64) -> String {
    let value = nanoseconds as f64 / 1e3;
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} µs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(measure: Measure, p50_ns: u64) -> Run {
        let times = Times { p50_ns, p99_ns: p50_ns * 2, samples: 10 };
        Run { device: None, times: BTreeMap::from([(measure, times)]) }
    }

    #[test]
    fn medians_are_of_the_runs() {
        let runs = [900, 100, 200].map(|p50| run(Measure::MemGetInfo, p50)).to_vec();
        let variant = Variant::new("shm", runs);
        let expected = Times { p50_ns: 200, p99_ns: 400, samples: 30 };
        assert_eq!(variant.median[&Measure::MemGetInfo], expected);
    }

    #[test]
    fn a_table_has_a_column_a_variant_and_empty_cells() {
        let report = Report {
            machine: String::new(),
            device: String::new(),
            runs: 1,
            variants: vec![
                Variant::new("shm", vec![run(Measure::SyncDtoh4, 1340)]),
                Variant::new("raw tcp", vec![run(Measure::PingPong, 19_500)]),
                Variant::new("tcp", vec![run(Measure::HtodPinned, 64 << 20)]),
            ],
        };
        let expected = "\
|                           |               shm |           raw tcp |               tcp |
| ------------------------- | ----------------: | ----------------: | ----------------: |
| ping-pong, a call's bytes |                   | 19.5 µs (39.0 µs) |                   |
| sync DtoH, 4 bytes        | 1.34 µs (2.68 µs) |                   |                   |
| HtoD 64 MiB, pinned       |                   |                   | 67.1 ms, 1.0 GB/s |
";
        assert_eq!(table(&report), expected);
    }
}
