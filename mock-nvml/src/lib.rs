//! mock-nvml
