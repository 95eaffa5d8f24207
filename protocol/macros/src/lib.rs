//! The proc macro that reads gpupool's call list.
