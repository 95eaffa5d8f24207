//! The bars: what each figure may be at most, or must be at least, and whether it is.

use std::fmt::Write;

use crate::report::{COPY_BYTES, Measure, Report, Times};

/// A figure and its bar.
pub struct Bar {
    /// What is measured.
    pub what: String,
    /// The figure, for reading.
    pub measured: String,
    /// The bar, for reading.
    pub bar: String,
    /// The figure as a part of its bar: up to 1 it passes.
    pub part: f64,
}

impl Bar {
    /// A figure that may be at most `most`; `show` makes either readable.
    pub fn at_most(what: &str, figure: f64, most: f64, show: impl Fn(f64) -> String) -> Bar {
        let bar = format!("≤ {}", show(most));
        Bar { what: what.to_owned(), measured: show(figure), bar, part: figure / most }
    }

    /// A figure that must be at least `least`.
    pub fn at_least(what: &str, figure: f64, least: f64, show: impl Fn(f64) -> String) -> Bar {
        let bar = format!("≥ {}", show(least));
        Bar { what: what.to_owned(), measured: show(figure), bar, part: least / figure.max(1e-9) }
    }

    /// Whether the figure reaches its bar.
    pub fn passes(&self) -> bool {
        self.part <= 1.0
    }
}

/// Nanoseconds, readable.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e5 => format!("{:.2} µs", n / 1e3),
        n if n < 1e7 => format!("{:.0} µs", n / 1e3),
        n => format!("{:.1} ms", n / 1e6),
    }
}

/// Bytes a nanosecond, which are GB/s.
fn rate(rate: f64) -> String {
    format!("{rate:.2} GB/s")
}

/// A plain ratio.
pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// What is answered without the pool, and the calls that it makes.
const LOCAL: [(Measure, u32); 5] = [
    (Measure::CtxGetCurrent, 1),
    (Measure::DeviceGet, 1),
    (Measure::DeviceAttribute, 1),
    (Measure::CtxPushPop, 2),
    (Measure::ProcAddress, 1),
];

/// The bars of calls, steps and copies.
pub fn of_report(report: &Report) -> Vec<Bar> {
    let find = |variant: &str, measure: Measure| -> Option<&Times> {
        report.variants.iter().find(|v| v.name == variant)?.median.get(&measure)
    };
    let p50 = |variant: &str, measure: Measure| find(variant, measure).map(|times| times.p50_ns as f64);
    let mut bars = Vec::new();
    let mut times = |what: &str, figure: Option<f64>, most: Option<f64>| {
        if let (Some(figure), Some(most)) = (figure, most) {
            bars.push(Bar::at_most(what, figure, most, time));
        }
    };
    let p99 = |variant, measure| find(variant, measure).map(|times| times.p99_ns as f64);
    let raw = |transport| p50(transport, Measure::PingPong);
    let sync = "sync DtoH, 4 bytes";
    times(
        &format!("{sync}, shm, p50: 1.5 × raw"),
        p50("shm", Measure::SyncDtoh4),
        raw("raw shm").map(|t| 1.5 * t),
    );
    let raw_p99 = p99("raw shm", Measure::PingPong).map(|t| 2.0 * t);
    times(&format!("{sync}, shm, p99: 2 × raw"), p99("shm", Measure::SyncDtoh4), raw_p99);
    let step =
        p50("shm", Measure::MemsetAsync).zip(raw("raw shm")).map(|(post, raw)| 300.0 * post + 2.0 * raw);
    times("step, shm: 300 × post + 2 × raw", p50("shm", Measure::Step300), step);
    times(
        &format!("{sync}, tcp: 1.15 × raw"),
        p50("tcp", Measure::SyncDtoh4),
        raw("raw tcp").map(|t| 1.15 * t),
    );
    for (measure, calls) in LOCAL {
        let what = format!("{}, local, {calls} × 50 ns", measure.title());
        times(&what, p50("shm", measure), Some(50.0 * f64::from(calls)));
    }
    times("step, tcp: 2 × raw + 100 µs", p50("tcp", Measure::Step300), raw("raw tcp").map(|t| 2.0 * t + 1e5));
    for (measure, name, part) in [
        (Measure::HtodPinned, "HtoD pinned", 0.9),
        (Measure::DtohPinned, "DtoH pinned", 0.9),
        (Measure::HtodPageable, "HtoD pageable", 0.6),
        (Measure::DtohPageable, "DtoH pageable", 0.6),
    ] {
        for (transport, part) in [("shm", part), ("tcp", 0.9)] {
            let per = |variant: &str, measure| p50(variant, measure).map(|t| COPY_BYTES as f64 / t);
            if let Some((got, bare)) =
                per(transport, measure).zip(per(&format!("raw {transport}"), Measure::Bulk))
            {
                let what = format!("64 MiB {name}, {transport}: {part} × raw");
                bars.push(Bar::at_least(&what, got, part * bare, rate));
            }
        }
    }
    bars
}

/// What is to happen when a figure misses its bar.
#[derive(clap::Args)]
pub struct Gate {
    /// End with status 1 when a figure misses its bar (on a machine that does nothing else)
    #[arg(long)]
    gate: bool,
}

impl Gate {
    /// A miss is an error.
    pub const ALWAYS: Self = Self { gate: true };

    /// Prints the bars as a table.
    ///
    /// # Errors
    /// One is missed, and that is to be an error.
    pub fn show(&self, bars: &[Bar]) -> anyhow::Result<()> {
        print!("{}", table(bars));
        let missed = bars.iter().filter(|bar| !bar.passes()).count();
        anyhow::ensure!(!self.gate || missed == 0, "{missed} of {} bars missed", bars.len());
        Ok(())
    }
}

/// The bars as a Markdown table.
fn table(bars: &[Bar]) -> String {
    let mut text = String::from("| figure | measured | bar | |\n| --- | ---: | ---: | --- |\n");
    for bar in bars {
        let verdict =
            if bar.passes() { "pass".to_owned() } else { format!("miss, {:.2} of the bar", bar.part) };
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {} | {} | {verdict} |", bar.what, bar.measured, bar.bar);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::{Run, Variant};

    fn variant(name: &str, times: &[(Measure, u64, u64)]) -> Variant {
        let times: BTreeMap<Measure, Times> = times
            .iter()
            .map(|(m, p50_ns, p99_ns)| (*m, Times { p50_ns: *p50_ns, p99_ns: *p99_ns, samples: 1 }))
            .collect();
        Variant::new(name, vec![Run { device: None, times }])
    }

    #[test]
    fn bars_are_measured_against_the_bare_transport() {
        let report = Report {
            machine: String::new(),
            device: String::new(),
            runs: 1,
            variants: vec![
                variant(
                    "shm",
                    &[
                        (Measure::SyncDtoh4, 450, 900),
                        (Measure::MemsetAsync, 100, 100),
                        (Measure::Step300, 30_601, 30_601),
                        (Measure::HtodPinned, 10_000_000, 0),
                    ],
                ),
                variant("raw shm", &[(Measure::PingPong, 300, 440), (Measure::Bulk, 9_100_000, 0)]),
            ],
        };
        let verdicts: Vec<(String, bool)> =
            of_report(&report).iter().map(|bar| (bar.what.clone(), bar.passes())).collect();
        let expected = [
            ("sync DtoH, 4 bytes, shm, p50: 1.5 × raw", true), // 450 of 450
            ("sync DtoH, 4 bytes, shm, p99: 2 × raw", false),  // 900 of 880
            ("step, shm: 300 × post + 2 × raw", false),        // 30,601 of 30,600
            ("64 MiB HtoD pinned, shm: 0.9 × raw", true),      // 0.91 of 0.9
        ];
        assert_eq!(verdicts, expected.map(|(what, passes)| (what.to_owned(), passes)));
    }
}
