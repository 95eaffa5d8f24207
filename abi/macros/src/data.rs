//! The list of symbols, read from the data file.

use serde_json::Value;

const JSON: &str = include_str!("../../data/getproc-versions.json");

/// One symbol of `cuda.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name that a program asks `cuGetProcAddress` for.
    pub base: String,
    /// The CUDA version (1000 × major + 10 × minor) that brought this form of it.
    pub version: i32,
    /// The exported name.
    pub symbol: String,
    /// Whether this is the per-thread-default-stream form (`_ptsz`, `_ptds`).
    pub per_thread: bool,
}

/// All rows, sorted by base, legacy before per-thread, newest first.
///
/// # Panics
/// If the data file is not the array of `[base, version, symbol | null, per-thread symbol | null]` that it should be:
/// that stops the build.
pub fn rows() -> Vec<Row> {
    let parsed: Vec<(String, i32, Option<String>, Option<String>)> = serde_json::from_str::<Vec<Value>>(JSON)
        .expect("getproc-versions.json is a JSON array")
        .into_iter()
        .map(|row| serde_json::from_value(row).expect("a row is [base, version, symbol, per-thread symbol]"))
        .collect();
    let mut rows: Vec<Row> = parsed
        .into_iter()
        .map(|(base, version, legacy, per_thread)| match (legacy, per_thread) {
            (Some(symbol), None) => Row { base, version, symbol, per_thread: false },
            (None, Some(symbol)) => Row { base, version, symbol, per_thread: true },
            _ => panic!("{base} at {version}: exactly one of the two symbols must be given"),
        })
        .collect();
    rows.sort_by(|a, b| (&a.base, a.per_thread, -a.version).cmp(&(&b.base, b.per_thread, -b.version)));
    rows
}

#[cfg(test)]
mod tests {
    use super::rows;
    use std::collections::HashSet;

    #[test]
    fn rows_are_the_headers_685_distinct_symbols() {
        let rows = rows();
        let symbols: HashSet<_> = rows.iter().map(|r| r.symbol.as_str()).collect();
        assert_eq!(rows.len(), 685);
        assert_eq!(symbols.len(), 685);
        assert_eq!(rows.iter().filter(|r| r.per_thread).count(), 105);
    }
}
