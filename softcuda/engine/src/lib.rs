//! Compiles PTX for the CPU and runs its grids.
