//! The proc macro that exports every symbol of cuda.h that a library does not implement.
