//! mock-icd
