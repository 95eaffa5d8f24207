//! The table, in markdown.

use crate::measure::{Figures, Row};
use std::fmt::Write;

/// Rows down, numbers of workers across. The last column is how much faster the second number of workers is, and how much
/// more C code the machine did with as many threads at that time.
pub fn table(rows: &[Row], columns: &[(u32, Vec<(String, Figures)>)]) -> String {
    let mut out = String::from("| | bar |");
    for (workers, _) in columns {
        let plural = if *workers == 1 { "" } else { "s" };
        let _ = write!(out, " {workers} worker{plural} |");
    }
    out.push_str(if columns.len() == 2 { " speed-up |\n|---|---|" } else { "\n|---|---|" });
    out.push_str(&"---|".repeat(columns.len() + usize::from(columns.len() == 2)));
    out.push('\n');
    for row in rows {
        let found: Vec<Option<Figures>> =
            columns.iter().map(|(_, f)| f.iter().find(|f| f.0 == row.name).map(|f| f.1)).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(out, "| {} | {} |", row.name, row.bar);
        for figures in &found {
            let _ = write!(out, " {} |", figures.map_or("did not run".to_string(), cell));
        }
        if let [one, two] = found[..] {
            let _ = write!(out, " {} |", one.zip(two).map_or(String::new(), |(a, b)| gain(a, b)));
        }
        out.push('\n');
    }
    out
}

fn gain(one: Figures, two: Figures) -> String {
    let Some(machine) = two.machine else { return String::new() };
    format!("{:.2}× (C: {machine:.2}×)", one.ours / two.ours)
}

fn cell(f: Figures) -> String {
    match (f.ratio, f.theirs) {
        (Some(ratio), Some(theirs)) => {
            format!("**{ratio:.2}×** ({} / {})", duration(f.ours), duration(theirs))
        }
        _ => duration(f.ours),
    }
}

/// Three digits and a unit.
fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_did_not_run_are_told_apart_from_rows_not_asked_for() {
        let row = |name| Row { name, bar: "≤ 1×", measure: |_| Ok(Figures::alone(0.0)) };
        let figures = Figures { ours: 0.002, theirs: Some(0.001), ratio: Some(2.0), machine: None };
        let columns = [(1, vec![("a".to_string(), figures)]), (2, vec![])];
        let text = table(&[row("a"), row("b")], &columns);
        assert!(text.contains("| a | ≤ 1× | **2.00×** (2.00 ms / 1.00 ms) | did not run |  |"), "{text}");
        assert!(!text.contains("| b |"), "{text}");
    }

    #[test]
    fn durations() {
        assert_eq!([duration(1.5e-6), duration(0.0123), duration(12.0)], ["1.50 µs", "12.3 ms", "12.0 s"]);
    }
}
