//! The C code, compiled and loaded.
#![allow(unsafe_code)]

use anyhow::{Context, bail};
use libloading::{Library, Symbol};
use std::process::Command;

/// Compiled C functions; safe to call, since slices carry their lengths.
pub struct Baseline {
    library: Library,
}

type Matmul = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i32);

impl Baseline {
    /// Compiles `baseline.c` with gcc (`$CC`, if it is set) and loads it.
    pub fn compile() -> anyhow::Result<Baseline> {
        let directory = tempfile::tempdir()?;
        let (source, object) = (directory.path().join("baseline.c"), directory.path().join("baseline.so"));
        std::fs::write(&source, include_str!("../baseline.c"))?;
        let compiler = std::env::var_os("CC").unwrap_or("gcc".into());
        let mut command = Command::new(&compiler);
        command.args(["-O3", "-fPIC", "-shared", "-o"]).arg(&object).arg(&source).arg("-lm");
        let status = command.status().with_context(|| format!("cannot run {}", compiler.display()))?;
        if !status.success() {
            bail!("{} could not compile baseline.c: {status}", compiler.display());
        }
        // SAFETY: what was just compiled has no constructors.
        let library = unsafe { Library::new(&object) }.context("cannot load the compiled baseline")?;
        Ok(Baseline { library })
    }

    fn get<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: each caller gives the type that baseline.c declares.
        unsafe { self.library.get(name.as_bytes()) }
            .unwrap_or_else(|e| panic!("baseline.c has no {name}: {e}"))
    }

    /// c = a + b.
    pub fn vector_add(&self, a: &[f32], b: &[f32], c: &mut [f32]) {
        assert!(a.len() == c.len() && b.len() == c.len());
        let f: Symbol<unsafe extern "C" fn(*const f32, *const f32, *mut f32, usize)> = self.get("vector_add");
        // SAFETY: all three have this length.
        unsafe { f(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), c.len()) }
    }

    /// c = a · b by one of the tiled products or `gemm`, n × n.
    pub fn matmul(&self, name: &str, a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
        assert!([a.len(), b.len(), c.len()] == [n * n; 3] && n.is_multiple_of(32));
        // SAFETY: all three have n² elements, and n is a multiple of every tile.
        unsafe { self.get::<Matmul>(name)(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), n as i32) }
    }

    /// The sum.
    pub fn sum(&self, x: &[f32]) -> f32 {
        let f: Symbol<unsafe extern "C" fn(*const f32, usize) -> f32> = self.get("sum");
        // SAFETY: the slice has this length.
        unsafe { f(x.as_ptr(), x.len()) }
    }

    /// Iteration counts of a picture.
    pub fn mandelbrot(&self, out: &mut [i32], width: usize, height: usize, most: i32) {
        assert!(out.len() == width * height);
        let f: Symbol<unsafe extern "C" fn(*mut i32, i32, i32, i32)> = self.get("mandelbrot");
        // SAFETY: the slice has an element for each point.
        unsafe { f(out.as_mut_ptr(), width as i32, height as i32, most) }
    }

    /// Prices of call options.
    pub fn black_scholes(&self, spot: &[f32], strike: &[f32], years: &[f32], call: &mut [f32]) {
        let n = call.len();
        assert!([spot.len(), strike.len(), years.len()] == [n; 3]);
        type F = unsafe extern "C" fn(*const f32, *const f32, *const f32, *mut f32, i32);
        // SAFETY: all four have n elements.
        unsafe {
            self.get::<F>("black_scholes")(
                spot.as_ptr(),
                strike.as_ptr(),
                years.as_ptr(),
                call.as_mut_ptr(),
                n as i32,
            )
        }
    }

    /// Forces on bodies of {x, y, z, mass}.
    pub fn nbody(&self, bodies: &[f32], forces: &mut [f32]) {
        assert!(bodies.len() == forces.len() && bodies.len().is_multiple_of(4));
        let f: Symbol<unsafe extern "C" fn(*const f32, *mut f32, i32)> = self.get("nbody");
        // SAFETY: both have four floats a body.
        unsafe { f(bodies.as_ptr(), forces.as_mut_ptr(), (bodies.len() / 4) as i32) }
    }
}
