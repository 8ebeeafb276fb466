//! A libcuda that does nothing: what a call through a library costs by itself. Told to, it works on the way of an allocation or a free
//! as a card's driver does, and so shows what a hook costs beside work: stores that a locked instruction has to wait for, and
//! lines, branches and instructions that a hook's own have to share the processor with.

mod boundary;
mod work;
