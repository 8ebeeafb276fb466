//! mock-device
