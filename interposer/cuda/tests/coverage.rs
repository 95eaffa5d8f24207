//! `docs/api-coverage.md` says of every symbol of `cuda.h` what it does here. It is made from the call list and the
//! symbol table; this test says when it is out of date. `GPUPOOL_BLESS=1 cargo test -p gpupool-interposer --test coverage`
//! writes it anew.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use cuda_abi::symbols::ROWS;
use gpupool_protocol::api::{Class, SYMBOLS, Symbol};

const HEAD: &str = "\
# What each CUDA driver function does here

Made from the call list (`protocol/src/api/list`) and the symbol table of cuda.h 13.5; a test keeps it fresh.

* **local**: answered from what the client knows. **post**: recorded and sent, returns at once. **call**: waits for its answer.
* **refused**: exported, answers CUDA_ERROR_NOT_SUPPORTED, logged once; `cuGetProcAddress` does not find it.
* A symbol with a declaration of another name has the same meaning (an older version, or a per-thread variant).
";

fn class(symbol: &Symbol) -> &'static str {
    match symbol.class {
        Class::Local => "local",
        Class::Post => "post",
        Class::Call => "call",
    }
}

fn page() -> String {
    let ours: HashMap<&str, &Symbol> = SYMBOLS.iter().map(|symbol| (symbol.symbol, symbol)).collect();
    let mut rows = String::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for row in &ROWS {
        let (how, declared) = match ours.get(row.symbol) {
            Some(symbol) if symbol.call == row.symbol => (class(symbol), String::new()),
            Some(symbol) => (class(symbol), format!("`{}`", symbol.call)),
            None => ("refused", String::new()),
        };
        *counts.entry(how).or_default() += 1;
        let (major, minor) = (row.version / 1000, row.version % 1000 / 10);
        let _ = writeln!(rows, "| `{}` | {major}.{minor} | {how} | {declared} |", row.symbol);
    }
    let count = |how| counts.get(how).copied().unwrap_or(0);
    let (local, post, call, refused) = (count("local"), count("post"), count("call"), count("refused"));
    format!(
        "{HEAD}\n{} symbols: {local} local, {post} post, {call} call, {refused} refused.\n\n\
         | symbol | since CUDA | how | declared as |\n|---|---|---|---|\n{rows}",
        ROWS.len()
    )
}

#[test]
fn the_coverage_table_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api-coverage.md");
    let page = page();
    if std::env::var_os("GPUPOOL_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(want, is)| want != is);
    assert!(
        page == written,
        "docs/api-coverage.md is out of date (first difference: {differs:?}); run this test with GPUPOOL_BLESS=1"
    );
}
