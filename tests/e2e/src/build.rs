//! Where the built things lie.

use std::path::{Path, PathBuf};

/// The top of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/e2e lies two below the top").to_path_buf()
}

/// The programs and libraries of one profile.
pub struct Build {
    /// `target/<profile>`.
    pub directory: PathBuf,
}

impl Build {
    /// The profile in which the running test itself was built.
    pub fn find() -> Build {
        let test = std::env::current_exe().expect("a test knows its own path");
        // target/<profile>/deps/<test>
        let directory = test.ancestors().nth(2).expect("a test lies in deps").to_path_buf();
        Build { directory }
    }

    /// A built file, which must be there.
    pub fn file(&self, name: &str) -> PathBuf {
        existing(self.directory.join(name), "cargo build --workspace, in the profile of the tests")
    }

    /// The interposer's `libcuda.so.1`.
    pub fn interposer(&self) -> PathBuf {
        self.file("gpupool/libcuda.so.1")
    }

    /// The driver whose device is the CPU.
    pub fn softcuda(&self) -> PathBuf {
        self.file("libsoftcuda.so")
    }
}

/// A case built in one of the ways of scripts/build-cases (`static13`, `shared13`, `cudart12`, `per_thread`, `debug`, …).
pub fn case(kind: &str, name: &str) -> PathBuf {
    built("cases", &format!("{kind}/{name}"))
}

/// A case of `tests/cases/cub`.
pub fn cub_case(name: &str) -> PathBuf {
    existing(repository().join("target/cases/cub").join(name), "scripts/build-cub-cases")
}

/// One of the small driver-API clients in `tests/e2e/clients`.
pub fn client(name: &str) -> PathBuf {
    built("cases", &format!("clients/{name}"))
}

/// The Python of the virtual environment with numba-cuda in it.
pub fn python() -> PathBuf {
    existing(repository().join("target/venv/bin/python"), "scripts/setup --test")
}

fn built(directory: &str, name: &str) -> PathBuf {
    existing(repository().join("target").join(directory).join(name), "scripts/build-cases")
}

fn existing(path: PathBuf, maker: &str) -> PathBuf {
    assert!(path.exists(), "{} is missing; made by: {maker}", path.display());
    path
}
