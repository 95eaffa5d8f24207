//! A CUDA driver whose device is the CPU.
