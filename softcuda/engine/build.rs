//! Gives this build of the engine a number: code that another build has cached is not taken for its own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

fn files(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

fn main() {
    let mut all = Vec::new();
    files(Path::new("src"), &mut all);
    // The versions of the compiler that is built in.
    all.push(PathBuf::from("../../Cargo.lock"));
    all.sort();
    let mut hasher = DefaultHasher::new();
    for path in all {
        if let Ok(bytes) = std::fs::read(&path) {
            (path.as_os_str(), bytes).hash(&mut hasher);
        }
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    println!("cargo::rustc-env=SOFTCUDA_ENGINE_BUILD={:016x}", hasher.finish());
}
