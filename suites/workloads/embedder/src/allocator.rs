//! What a context has: regions, its own and the notes about what others own, and the submissions under way.

use std::sync::Arc;
use std::time::Duration;

use ash::vk;

use crate::blocks::{Blocks, Place};
use crate::boundary::{ForeignBuffer, Frame, List, Mapping, Object, Tables, pushed, room};
use crate::buffer::{Ownership, Usage, View};
use crate::error::{Error, Result};
use crate::handle::{AllocatorId, DispatchId, RegionId};
use crate::runtime::Settings;

/// Whose the bytes are.
enum Root {
    Owned {
        /// Before its memory, in the order of fields.
        _buffer: Object<vk::Buffer>,
        place: Place,
        usage: Usage,
    },
    Wrapped,
    /// Of the region that owns or wraps: never of another crop.
    CropOf(RegionId),
}

impl Root {
    fn ownership(&self) -> Ownership {
        match self {
            Self::Owned { .. } => Ownership::Owned,
            Self::Wrapped => Ownership::Wrapped,
            Self::CropOf(_) => Ownership::CropAlias,
        }
    }
}

struct Region {
    id: RegionId,
    view: View,
    root: Root,
    crops: u32,
    /// Dispatches under way that read or write it.
    uses: u32,
}

/// A submission that was not waited for.
pub(crate) struct Flight {
    pub id: DispatchId,
    /// In [`Modules`](crate::modules::Modules).
    pub module: u64,
    pub regions: List<RegionId>,
    pub frame: Frame,
    /// Somebody waits for it.
    pub claimed: bool,
}

pub(crate) struct Allocator {
    pub id: AllocatorId,
    pub tables: Arc<Tables>,
    // In the order in which they are destroyed.
    flights: List<Flight>,
    idle: List<Frame>,
    regions: List<Region>,
    blocks: Blocks,
    patience: Duration,
}

impl Allocator {
    pub fn new(id: AllocatorId, tables: Arc<Tables>, settings: Settings) -> Self {
        let host = tables.host();
        Self {
            id,
            flights: List::new_in(host),
            idle: List::new_in(host),
            regions: List::new_in(host),
            blocks: Blocks::new(Arc::clone(&tables), settings.block),
            tables,
            patience: settings.patience,
        }
    }

    /// # Errors
    /// [`Error::StillInUse`].
    pub fn ready_for_release(&self) -> Result<()> {
        if self.regions.is_empty() && self.flights.is_empty() {
            return Ok(());
        }
        Err(Error::StillInUse {
            allocator: self.id,
            regions: self.regions.iter().map(|region| region.id).collect(),
            dispatches: self.flights.iter().map(|flight| flight.id).collect(),
        })
    }

    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// What the driver gave for blocks.
    pub fn held(&self) -> u64 {
        self.blocks.held()
    }

    /// Gives empty blocks back to the driver, and answers how many bytes that were.
    pub fn trim(&mut self) -> u64 {
        self.blocks.trim()
    }

    fn find(&self, id: RegionId) -> Result<&Region> {
        let found = self.regions.iter().find(|region| region.id == id);
        found.ok_or(Error::UnknownRegion { region: id })
    }

    fn find_mut(&mut self, id: RegionId) -> Result<&mut Region> {
        let found = self.regions.iter_mut().find(|region| region.id == id);
        found.ok_or(Error::UnknownRegion { region: id })
    }

    pub fn view(&self, id: RegionId) -> Result<View> {
        Ok(self.find(id)?.view)
    }

    pub fn ownership(&self, id: RegionId) -> Result<Ownership> {
        Ok(self.find(id)?.root.ownership())
    }

    /// The region that owns or wraps what this one is a part of.
    pub fn owner(&self, id: RegionId) -> Result<RegionId> {
        Ok(match self.find(id)?.root {
            Root::CropOf(owner) => owner,
            Root::Owned { .. } | Root::Wrapped => id,
        })
    }

    /// There is room for it: [`room`] was asked.
    fn add(&mut self, view: View, root: Root) -> RegionId {
        let id = RegionId::new(self.id);
        self.regions.push(Region {
            id,
            view,
            root,
            crops: 0,
            uses: 0,
        });
        id
    }

    pub fn allocate(&mut self, bytes: u64, usage: Usage) -> Result<RegionId> {
        room(&mut self.regions)?;
        let buffer = self.tables.buffer(bytes)?;
        let needs = self.tables.requirements(&buffer);
        let place = self.blocks.take(usage, &needs)?;
        if let Err(error) = self.blocks.bind(&buffer, place) {
            self.blocks.give_back(place);
            return Err(error);
        }
        let view = View {
            buffer: buffer.raw(),
            offset: 0,
            bytes,
        };
        let root = Root::Owned {
            _buffer: buffer,
            place,
            usage,
        };
        Ok(self.add(view, root))
    }

    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Empty`].
    pub fn wrap(&mut self, foreign: ForeignBuffer, offset: u64, bytes: u64) -> Result<RegionId> {
        let view = foreign.view().cropped(offset, bytes)?;
        room(&mut self.regions)?;
        Ok(self.add(view, Root::Wrapped))
    }

    pub fn crop(&mut self, of: RegionId, start: u64, bytes: u64) -> Result<RegionId> {
        let view = self.view(of)?.cropped(start, bytes)?;
        let owner = self.owner(of)?;
        room(&mut self.regions)?;
        self.find_mut(owner)?.crops += 1;
        Ok(self.add(view, Root::CropOf(owner)))
    }

    /// Memory, VkBuffer and note of what is owned; the note of what is not.
    pub fn free(&mut self, id: RegionId) -> Result<()> {
        let region = self.find(id)?;
        if region.crops != 0 {
            return Err(Error::HasCrops {
                region: id,
                crops: region.crops,
            });
        }
        if region.uses != 0 {
            return Err(Error::Busy {
                region: id,
                dispatches: region.uses,
            });
        }
        let Some(index) = self.regions.iter().position(|region| region.id == id) else {
            return Err(Error::UnknownRegion { region: id });
        };
        match self.regions.swap_remove(index).root {
            Root::Owned {
                _buffer: buffer,
                place,
                ..
            } => {
                drop(buffer);
                self.blocks.give_back(place);
            }
            Root::CropOf(owner) => self.find_mut(owner)?.crops -= 1,
            Root::Wrapped => {}
        }
        Ok(())
    }

    /// Where the region's bytes are mapped: in what it owns, or in what owns the bytes that it is a part of.
    fn mapped(&mut self, id: RegionId) -> Result<(&mut Mapping, u64, u64)> {
        let region = self.find(id)?;
        let (view, ownership) = (region.view, region.root.ownership());
        let owner = self.find(self.owner(id)?)?;
        let &Root::Owned { place, usage, .. } = &owner.root else {
            return Err(Error::NotMappable {
                region: id,
                ownership,
            });
        };
        let not_visible = Error::NotVisible { region: id };
        if usage != Usage::HostVisible {
            return Err(not_visible);
        }
        let mapping = self.blocks.mapping(place).ok_or(not_visible)?;
        // What is owned has a VkBuffer of its own, so that a view's offset is one into its place.
        Ok((mapping, place.start + view.offset, view.bytes))
    }

    pub fn write(&mut self, id: RegionId, at: u64, bytes: &[u8]) -> Result<()> {
        let (mapping, start, within) = self.mapped(id)?;
        inside(at, bytes.len(), within)?;
        mapping.write(start + at, bytes)
    }

    pub fn read(&mut self, id: RegionId, at: u64, bytes: &mut [u8]) -> Result<()> {
        let (mapping, start, within) = self.mapped(id)?;
        inside(at, bytes.len(), within)?;
        mapping.read(start + at, bytes)
    }

    /// A frame that is ready to record.
    pub fn frame(&mut self) -> Result<Frame> {
        match self.idle.pop() {
            // One that cannot be reset is dropped.
            Some(mut frame) => frame.reset().map(|()| frame),
            None => Frame::new(&self.tables),
        }
    }

    /// Notes a submission, which is then under way.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`], [`Error::UnknownRegion`]: then nothing is noted.
    pub fn depart(&mut self, frame: Frame, module: u64, used: &[RegionId]) -> Result<DispatchId> {
        let mut regions = List::new_in(self.tables.host());
        for &region in used {
            self.find(region)?;
            pushed(&mut regions, region)?;
        }
        let id = DispatchId::new(self.id);
        let flight = Flight {
            id,
            module,
            regions,
            frame,
            claimed: false,
        };
        pushed(&mut self.flights, flight)?;
        for region in used {
            self.find_mut(*region)?.uses += 1;
        }
        Ok(id)
    }

    /// Until nothing is under way, and whether that came. On a lost device nothing is.
    pub fn settles(&self) -> bool {
        let ends = |flight: &Flight| match flight.frame.ticket().wait(self.patience) {
            Ok(done) => done,
            Err(error) => matches!(error, Error::DeviceLost { .. }),
        };
        self.flights.iter().all(ends)
    }

    pub fn flight(&mut self, id: DispatchId) -> Result<&mut Flight> {
        let found = self.flights.iter_mut().find(|flight| flight.id == id);
        found.ok_or(Error::UnknownDispatch { dispatch: id })
    }

    /// Ends a submission, and answers which module it used. Its frame is kept if it ended well.
    pub fn arrive(&mut self, id: DispatchId, well: bool) -> Result<u64> {
        let index = self.flights.iter().position(|flight| flight.id == id);
        let index = index.ok_or(Error::UnknownDispatch { dispatch: id })?;
        let flight = self.flights.swap_remove(index);
        for region in &flight.regions {
            self.find_mut(*region)?.uses -= 1;
        }
        if well && room(&mut self.idle).is_ok() {
            self.idle.push(flight.frame);
        }
        Ok(flight.module)
    }
}

fn inside(at: u64, bytes: usize, within: u64) -> Result<()> {
    match at.checked_add(bytes as u64) {
        Some(end) if end <= within => Ok(()),
        _ => Err(Error::OutOfRange {
            start: at,
            bytes: bytes as u64,
            within,
        }),
    }
}
