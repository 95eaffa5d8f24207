//! What any libcuda.so.1 must show to a CUDA runtime: symbols, versions, private tables, error names.
