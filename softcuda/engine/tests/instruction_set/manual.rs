//! NVIDIA's list of instructions, each done and tested for its value elsewhere, or refused when it is loaded; and the list of
//! them in the documentation.

use crate::common::Device;
use softcuda_engine::Module;
use std::fmt::Write;
use std::path::Path;

const TABLE: &str = include_str!("manual.txt");

struct Row {
    section: &'static str,
    name: &'static str,
    statement: &'static str,
    /// Why it is refused.
    refused: Option<&'static str>,
}

fn rows() -> Vec<Row> {
    let mut section = "";
    let mut all = Vec::new();
    for line in TABLE.lines().filter(|l| !l.is_empty() && !l.starts_with("# ")) {
        if let Some(title) = line.strip_prefix("== ") {
            section = title;
        } else if let Some((name, rest)) = line.split_once(" ! ") {
            let (statement, why) = rest.rsplit_once(" : ").unwrap_or_else(|| panic!("{line}"));
            all.push(Row { section, name, statement, refused: Some(why) });
        } else {
            let (name, statement) = line.split_once(" : ").unwrap_or_else(|| panic!("{line}"));
            all.push(Row { section, name, statement, refused: None });
        }
    }
    all
}

/// A kernel whose line 9 is the statement.
fn text(statement: &str) -> String {
    format!(
        ".version 9.0\n.target sm_75\n.address_size 64\n\
         .func (.reg .b32 a) function(.reg .b32 b) {{ mov.b32 a, b; ret; }}\n\
         .visible .entry k(.param .u64 memory) {{ .shared .align 16 .b8 s[1024]; .reg .pred p, q; .reg .b16 h<4>; .reg .b32 r<16>;\n\
         .reg .b64 d<4>; .reg .b128 w<2>; .reg .f32 f<8>; .reg .f64 g<4>; ld.param.u64 d1, [memory];\n\
         LIST: .branchtargets END, NEXT;\n\
         NEXT:\n\
         {statement};\n\
         END: ret; }}\n"
    )
}

#[test]
fn every_instruction_is_done_or_refused_by_its_name_and_line() {
    let d = Device::new();
    for row in rows() {
        let text = text(row.statement);
        match (Module::parse(&text), row.refused) {
            (Ok(_), None) => {
                for kernel in d.load(&text).kernels() {
                    d.engine.prepare(kernel).unwrap_or_else(|e| panic!("{}: {e}", row.statement));
                }
            }
            (Err(error), Some(_)) => {
                let opcode = row.statement.split(' ').next().unwrap_or_default();
                assert_eq!(error.line, 9, "{}: {error}", row.statement);
                assert!(error.message.contains(opcode), "{}: {error}", row.statement);
            }
            (Ok(_), Some(_)) => panic!("{} is not refused", row.statement),
            (Err(error), None) => panic!("{}: {error}", row.statement),
        }
    }
}

/// The text of all tests but this table.
fn tests() -> String {
    fn read(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if path.is_dir() {
                read(&path, all);
            } else if matches!(extension, "rs" | "ptx" | "txt") && !path.ends_with("manual.txt") {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut all = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"), &mut all);
    all
}

/// Instructions that compute nothing: hints to caches and processors, and events for tools.
const WITHOUT_VALUE: [&str; 9] = [
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "brkpt",
    "pmevent",
    "setmaxnreg",
    "griddepcontrol",
    "ldu",
];

#[test]
fn what_is_done_is_used_in_another_test() {
    let tests = tests();
    let mut missing = Vec::new();
    for row in rows().iter().filter(|r| r.refused.is_none() && !WITHOUT_VALUE.contains(&r.name)) {
        // `mad.cc` is written with more between; the type's own forms are in the tests of their class.
        let parts: Vec<&str> = row.name.split('.').collect();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let found = tests.match_indices(parts[0]).any(|(at, found)| {
            let rest = &tests[at + found.len()..];
            let opcode = &rest[..rest.find(|c: char| !word(c) && c != '.' && c != ':').unwrap_or(rest.len())];
            !tests[..at].ends_with(word)
                && parts[1..].iter().all(|part| opcode.split('.').any(|o| o == *part))
                && !opcode.starts_with(word)
        });
        if !found {
            missing.push(row.name);
        }
    }
    assert_eq!(missing, Vec::<&str>::new());
}

/// `docs/ptx.md` is this table. `UPDATE=1` writes it anew.
#[test]
fn the_documentation_lists_every_instruction() {
    let rows = rows();
    let (done, refused) = (
        rows.iter().filter(|r| r.refused.is_none()).count(),
        rows.iter().filter(|r| r.refused.is_some()).count(),
    );
    let mut text = format!(
        "# PTX that softcuda runs\n\n\
         Every instruction of NVIDIA's PTX manual. {done} are done; the other {refused} are refused when a module is loaded: 218\n\
         (`CUDA_ERROR_INVALID_PTX`), and the error log names the instruction and its line. Texts for `sm_30` to `sm_121` load where the device's\n\
         compute capability is that or higher (`sm_90a`, `sm_100f`: that device or family alone), else 209 (`CUDA_ERROR_NO_BINARY_FOR_GPU`).\n\
         Kernels that launch kernels are refused too: the functions of the device runtime are undefined references (218), except\n\
         `cudaCGGetIntrinsicHandle`, `cudaCGSynchronize` and `cudaGraphSetConditional`.\n\n\
         Made from `softcuda/engine/tests/instruction_set/manual.txt`, which a test checks instruction by instruction:\n\
         `UPDATE=1 cargo test --release -p softcuda-engine --test instruction_set manual` writes it anew.\n"
    );
    let mut section = "";
    for row in &rows {
        if row.section != section {
            section = row.section;
            let _ = write!(text, "\n## {section}\n\n| instruction | state | an example |\n|---|---|---|\n");
        }
        let state = row.refused.map_or("done".to_owned(), |why| format!("refused: {why}"));
        let _ = writeln!(text, "| `{}` | {state} | `{}` |", row.name, row.statement.replace('|', "\\|"));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptx.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).is_ok_and(|there| there == text),
        "docs/ptx.md is not what the table says"
    );
}
