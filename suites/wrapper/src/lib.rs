//! A layer that gives out handles of its own, as capture tools and debuggers do: to stand above and below the layer under test.
//!
//! Every dispatchable handle (instance, physical device, device, queue, command buffer) that comes up through it is an object of its
//! own whose first word is the loader's; so is, as a number that never comes again, every memory object, buffer, image and fence. Going
//! down each is what the layer below knows. A handle that is none of its own, or that is gone, ends the process with a line: whoever
//! called looked through a wrapped handle, or mixed two chains.
//!
//! It changes nothing else. What a structure chain holds beyond what `boundary::holders` names goes down as it is.

#![allow(
    clippy::missing_safety_doc,
    reason = "each command's obligation is the specification's"
)]

mod boundary;
#[path = "../../recorder/layer/src/commands.rs"]
mod commands;
mod settings;
