//! The library that stands in for libcuda.so.1 and forwards its calls to a pool server.
