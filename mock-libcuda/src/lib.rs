//! mock-libcuda
