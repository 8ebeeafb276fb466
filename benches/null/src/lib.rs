//! A libcuda that does nothing: what a call through a library costs by itself.

mod boundary;
