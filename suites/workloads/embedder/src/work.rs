//! Dispatches and copies: recorded, submitted while the context is held, and waited for.

use std::ffi::CStr;

use ash::vk;

use crate::boundary::{Binding, Ticket};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::handle::{ContextId, DispatchId, RegionId};
use crate::modules::Modules;
use crate::runtime::{Runtime, State};

/// Most storage buffers of a kernel: what every device can bind.
pub const MOST_BUFFERS: u32 = 4;
/// Most words of constants: what every device has.
pub const MOST_CONSTANTS: u32 = 32;

const SPIRV: u32 = 0x0723_0203;

/// A compute shader: storage buffers of words from binding 0 of set 0 on, and constants.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    pub words: &'a [u32],
    pub entry: &'a CStr,
    pub buffers: u32,
    /// Words of constants that each launch gives. Before them the shader has one word for each buffer: where it begins in
    /// what is bound for it, in words, because a descriptor cannot begin everywhere.
    pub scalars: u32,
}

/// A kernel with what it works on.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    pub kernel: &'a Kernel<'a>,
    pub buffers: &'a [&'a Buffer],
    pub scalars: &'a [u32],
    pub groups: [u32; 3],
}

impl Kernel<'_> {
    fn checked(&self) -> Result<()> {
        for (what, asked, most) in [
            ("buffers", self.buffers, MOST_BUFFERS),
            (
                "constants",
                self.buffers.saturating_add(self.scalars),
                MOST_CONSTANTS,
            ),
        ] {
            if asked > most {
                return Err(Error::TooMany {
                    what,
                    asked: asked.into(),
                    most: most.into(),
                });
            }
        }
        match self.words.first() {
            Some(&SPIRV) => Ok(()),
            _ => Err(Error::NotSpirv {
                words: self.words.len(),
            }),
        }
    }
}

impl Launch<'_> {
    fn checked(&self, limits: &vk::PhysicalDeviceLimits) -> Result<()> {
        self.kernel.checked()?;
        for (what, wanted, given) in [
            ("buffers", self.kernel.buffers, self.buffers.len()),
            ("scalars", self.kernel.scalars, self.scalars.len()),
        ] {
            if wanted as usize != given {
                return Err(Error::Count {
                    what,
                    wanted,
                    given,
                });
            }
        }
        let axes = ["workgroups of x", "workgroups of y", "workgroups of z"];
        let sizes = self.groups.iter().zip(&limits.max_compute_work_group_count);
        for (what, (&asked, &most)) in axes.into_iter().zip(sizes) {
            if asked > most {
                return Err(Error::TooMany {
                    what,
                    asked: asked.into(),
                    most: most.into(),
                });
            }
        }
        Ok(())
    }
}

/// What is bound for each buffer, and the constants.
struct Arguments {
    bindings: [Binding; MOST_BUFFERS as usize],
    constants: [u8; 4 * MOST_CONSTANTS as usize],
}

impl Runtime {
    /// Hands a kernel to the context's queue and comes back at once. Until [`Runtime::wait`] its buffers cannot be freed, nor
    /// its allocator released.
    ///
    /// # Errors
    /// What the launch asks that cannot be; [`Error::NotAcquired`]; what Vulkan answers.
    pub fn launch(&self, context: ContextId, launch: &Launch<'_>) -> Result<DispatchId> {
        let _turn = self.acquire_context(context)?;
        let (id, ticket) = {
            let mut state = self.state();
            recorded(&mut state, context, launch)?
        };
        // Not under the state's lock: an enforcer may let a submission wait.
        ticket.submit().inspect_err(|_| self.arrived(id, false))?;
        Ok(id)
    }

    /// Until the dispatch is done. What ends the wait earlier, a device's loss aside, leaves it under way.
    ///
    /// # Errors
    /// [`Error::UnknownDispatch`]; [`Error::NotDone`] after [`Settings::patience`](crate::Settings); [`Error::DeviceLost`],
    /// and then the dispatch is over all the same; what else Vulkan answers.
    pub fn wait(&self, id: DispatchId) -> Result<()> {
        let ticket = {
            let mut state = self.state();
            let flight = state.allocator(id.allocator().context())?.flight(id)?;
            if std::mem::replace(&mut flight.claimed, true) {
                return Err(Error::UnknownDispatch { dispatch: id });
            }
            flight.frame.ticket()
        };
        match ticket.wait(self.settings.patience) {
            Ok(true) => self.arrived(id, true),
            Err(lost @ Error::DeviceLost { .. }) => {
                self.arrived(id, false);
                return Err(lost);
            }
            early => {
                self.unclaimed(id);
                early?;
                return Err(Error::NotDone { dispatch: id });
            }
        }
        Ok(())
    }

    /// [`Runtime::launch`], and [`Runtime::wait`].
    ///
    /// # Errors
    /// As theirs. What is still under way then, a refusal to release the allocator names.
    pub fn dispatch(&self, context: ContextId, launch: &Launch<'_>) -> Result<()> {
        self.wait(self.launch(context, launch)?)
    }

    /// Copies all of one buffer over all of another of the same context and size, byte by byte wherever they begin.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for unequal sizes, [`Error::Overlap`], [`Error::ForeignRegion`]; as [`Runtime::dispatch`].
    pub fn copy(&self, from: &Buffer, to: &Buffer) -> Result<()> {
        let (source, target) = (from.named()?, to.named()?);
        let context = source.allocator().context();
        let turn = self.acquire_context(context)?;
        let (id, ticket) = {
            let mut state = self.state();
            let (allocator, _) = state.parts(context)?;
            same_context(1, target, context)?;
            let (source_view, target_view) = (allocator.view(source)?, allocator.view(target)?);
            if source_view.bytes != target_view.bytes {
                return Err(Error::OutOfRange {
                    start: 0,
                    bytes: source_view.bytes,
                    within: target_view.bytes,
                });
            }
            if source_view.overlaps(target_view) {
                return Err(Error::Overlap);
            }
            let region = vk::BufferCopy {
                src_offset: source_view.offset,
                dst_offset: target_view.offset,
                size: source_view.bytes,
            };
            let mut frame = allocator.frame()?;
            frame.record_copy(source_view.buffer, target_view.buffer, region)?;
            let ticket = frame.ticket();
            (
                allocator.depart(frame, Modules::NONE, &[source, target])?,
                ticket,
            )
        };
        ticket.submit().inspect_err(|_| self.arrived(id, false))?;
        drop(turn);
        self.wait(id)
    }

    /// Anybody may wait for it.
    fn unclaimed(&self, id: DispatchId) {
        let mut state = self.state();
        if let Ok(allocator) = state.allocator(id.allocator().context())
            && let Ok(flight) = allocator.flight(id)
        {
            flight.claimed = false;
        }
    }

    fn arrived(&self, id: DispatchId, well: bool) {
        let mut state = self.state();
        // Without an allocator the device is gone, and the dispatch with it.
        if let Ok((allocator, modules)) = state.parts(id.allocator().context())
            && let Ok(module) = allocator.arrive(id, well)
        {
            modules.put_back(module);
        }
    }
}

fn same_context(index: usize, region: RegionId, context: ContextId) -> Result<()> {
    match region.allocator().context() == context {
        true => Ok(()),
        false => Err(Error::ForeignRegion {
            index,
            region,
            given: context,
        }),
    }
}

/// Records the launch and notes it as under way.
fn recorded(
    state: &mut State,
    context: ContextId,
    launch: &Launch<'_>,
) -> Result<(DispatchId, Ticket)> {
    let (allocator, modules) = state.parts(context)?;
    launch.checked(allocator.tables.limits())?;
    let mut regions = [None; MOST_BUFFERS as usize];
    for (index, buffer) in launch.buffers.iter().enumerate() {
        let region = buffer.named()?;
        same_context(index, region, context)?;
        regions[index] = Some(region);
    }
    let mut arguments = Arguments {
        bindings: Default::default(),
        constants: [0; 4 * MOST_CONSTANTS as usize],
    };
    let limits = allocator.tables.limits();
    let alignment = limits.min_storage_buffer_offset_alignment.max(1);
    for (index, region) in regions.iter().flatten().enumerate() {
        let view = allocator.view(*region)?;
        let (bound, words) = view.aligned(alignment).ok_or(Error::Misaligned {
            index,
            offset: view.offset,
            alignment,
        })?;
        let most = limits.max_storage_buffer_range.into();
        if bound.bytes > most {
            return Err(Error::TooLong {
                index,
                bytes: bound.bytes,
                most,
            });
        }
        arguments.bindings[index] = Binding {
            buffer: bound.buffer,
            offset: bound.offset,
            range: bound.bytes,
        };
        arguments.put(index, words);
    }
    for (index, scalar) in launch.scalars.iter().enumerate() {
        arguments.put(launch.buffers.len() + index, *scalar);
    }
    let count = launch.buffers.len();
    let used = regions.map(|region| region.unwrap_or(RegionId::NONE));
    let mut frame = allocator.frame()?;
    let (module, built) = modules.take(&allocator.tables, allocator.id, launch.kernel)?;
    let made = (|| {
        let constants = 4 * (count + launch.scalars.len());
        frame.record_dispatch(
            &built.pipeline,
            &built.layout,
            &built.set,
            &arguments.bindings[..count],
            &arguments.constants[..constants],
            launch.groups,
        )?;
        let ticket = frame.ticket();
        Ok((allocator.depart(frame, module, &used[..count])?, ticket))
    })();
    if made.is_err() {
        modules.put_back(module);
    }
    made
}

impl Arguments {
    fn put(&mut self, index: usize, word: u32) {
        self.constants[4 * index..][..4].copy_from_slice(&word.to_ne_bytes());
    }
}
