//! Single instructions: one line each, with inputs and the expected result.

mod common;

use common::{Arg, Device};
use std::fmt::Write;

/// `result <- operands : code : inputs = expected`. The operands are called a, b, c, the result d. Numbers are decimal,
/// hexadecimal, `nan`, `inf`, or (for floats) `0x` bits; `~` before an expected float allows 1e-6 relative error.
const TABLE: &str = include_str!("instructions.txt");

struct Case<'a> {
    row: &'a str,
    code: &'a str,
    types: Vec<&'a str>,
    inputs: Vec<&'a str>,
    want: &'a str,
}

fn cases() -> Vec<Case<'static>> {
    let rows = TABLE.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    rows.map(|row| {
        let parts: Vec<&str> = row.split(" : ").collect();
        assert_eq!(parts.len(), 3, "{row}");
        let (inputs, want) = parts[2].split_once('=').unwrap_or_else(|| panic!("{row}"));
        let types = parts[0].split_whitespace().filter(|t| *t != "<-").collect();
        Case { row, code: parts[1], types, inputs: inputs.split_whitespace().collect(), want: want.trim() }
    })
    .collect()
}

fn bits(ty: &str, text: &str) -> u64 {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).unwrap();
    }
    match ty {
        "f32" => u64::from(text.parse::<f32>().unwrap().to_bits()),
        "f64" => text.parse::<f64>().unwrap().to_bits(),
        _ => text.parse::<i128>().unwrap_or_else(|_| panic!("{text}")) as u64,
    }
}

fn width(ty: &str) -> u32 {
    match ty {
        "pred" => 32,
        t => t[1..].parse().unwrap(),
    }
}

fn module(cases: &[Case]) -> String {
    let mut s = String::from(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pin, .param .u64 pout) {\n\
         .reg .b64 in, out; ld.param.u64 in, [pin]; ld.param.u64 out, [pout];\n",
    );
    for (i, c) in cases.iter().enumerate() {
        s.push_str("{\n");
        for (j, (t, name)) in c.types.iter().zip(["d", "a", "b", "c", "e"]).enumerate() {
            writeln!(s, ".reg .{t} {name};").unwrap();
            if j == 0 {
                continue;
            }
            let at = i * 64 + (j - 1) * 16;
            if *t == "pred" {
                writeln!(
                    s,
                    ".reg .b32 t{name}; ld.global.u32 t{name}, [in+{at}]; setp.ne.u32 {name}, t{name}, 0;"
                )
                .unwrap();
            } else {
                writeln!(s, "ld.global.{t} {name}, [in+{at}];").unwrap();
            }
        }
        writeln!(s, "{};", c.code).unwrap();
        let at = i * 16;
        if c.types[0] == "pred" {
            writeln!(s, ".reg .b32 td; selp.u32 td, 1, 0, d; st.global.u32 [out+{at}], td;").unwrap();
        } else {
            writeln!(s, "st.global.{} [out+{at}], d;", c.types[0]).unwrap();
        }
        s.push_str("}\n");
    }
    s.push_str("ret;\n}\n");
    s
}

fn agrees(ty: &str, got: u64, want: &str) -> bool {
    let float = |b: u64| if ty == "f32" { f64::from(f32::from_bits(b as u32)) } else { f64::from_bits(b) };
    if let Some(w) = want.strip_prefix('~') {
        let (g, w) = (float(got), float(bits(ty, w)));
        return (g - w).abs() <= 1e-6 * w.abs().max(1e-30);
    }
    if want == "nan" {
        return float(got).is_nan();
    }
    let mask = if width(ty) == 64 { u64::MAX } else { (1 << width(ty)) - 1 };
    got & mask == bits(ty, want) & mask
}

#[test]
fn table() {
    let cases = cases();
    let d = Device::new();
    let mut input = vec![0u64; cases.len() * 8];
    for (i, c) in cases.iter().enumerate() {
        assert_eq!(c.inputs.len() + 1, c.types.len(), "{}", c.row);
        for (j, (t, v)) in c.types[1..].iter().zip(&c.inputs).enumerate() {
            input[i * 8 + j * 2] = bits(t, v);
        }
    }
    let m = d.load(&module(&cases));
    let (din, out) = (d.put(&input), d.put(&vec![0u64; cases.len() * 2]));
    d.run(&m.kernels()[0], [1; 3], [1; 3], &[Arg::U64(din), Arg::U64(out)]).unwrap();
    let got: Vec<u64> = d.get(out, cases.len() * 2);
    let bad: Vec<String> = cases
        .iter()
        .zip(got.iter().step_by(2))
        .filter(|(c, g)| !agrees(c.types[0], **g, c.want))
        .map(|(c, g)| format!("{}\n    got {g:#x}", c.row))
        .collect();
    assert!(bad.is_empty(), "{} of {} rows:\n{}", bad.len(), cases.len(), bad.join("\n"));
    assert!(cases.len() > 200);
}

#[test]
fn again_one_thread_at_a_time() {
    common::again_one_thread_at_a_time();
}
