//! c-witness
