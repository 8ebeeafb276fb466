//! Device memory of this process that other processes or APIs hold too, as objects of the world.

use std::collections::BTreeMap;

use abi::cuda::CUresult;
use mock_device::{Bytes, Kind, Object, ObjectError, ObjectId};

use crate::driver::{Driver, Ordinal};
use crate::process::Process;

/// A range of device addresses whose contents are an object's.
struct Range {
    len: u64,
    device: Ordinal,
    object: Object<'static>,
    /// Opened here, made elsewhere (or by another API).
    imported: bool,
}

/// By first address.
#[derive(Default)]
pub struct Sharing(BTreeMap<u64, Range>);

impl Sharing {
    /// The object whose memory begins at `base`.
    pub fn object(&self, base: u64) -> Option<&Object<'static>> {
        self.0.get(&base).map(|range| &range.object)
    }

    /// The range that holds an address: its base and its length.
    pub fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (&base, range) = self.0.range(..=address).next_back()?;
        (address < base + range.len).then_some((base, range.len))
    }

    /// Where an object is mapped here, and whether it was made elsewhere.
    pub fn of(&self, id: ObjectId) -> Option<(u64, bool)> {
        let mut ranges = self.0.iter();
        let (base, range) = ranges.find(|(_, range)| range.object.id() == id)?;
        Some((*base, range.imported))
    }

    /// Ends a range; false where there is none. Its memory goes back when nobody else holds it.
    pub fn end(&mut self, base: u64) -> bool {
        self.0.remove(&base).is_some()
    }
}

fn answer(error: &ObjectError) -> CUresult {
    match error {
        ObjectError::OutOfMemory(_) => CUresult::ERROR_OUT_OF_MEMORY,
        ObjectError::Gone(_) | ObjectError::Foreign(_) => CUresult::ERROR_INVALID_VALUE,
        ObjectError::Full | ObjectError::Io(_) => CUresult::ERROR_OPERATING_SYSTEM,
    }
}

impl Process {
    /// Makes an object of memory that begins at `base`, if it is none yet; its contents stay.
    pub fn share(
        &mut self,
        driver: &'static Driver,
        device: Ordinal,
        kind: Kind,
        base: u64,
        len: u64,
    ) -> Result<&Object<'static>, CUresult> {
        if self.sharing.object(base).is_none() {
            self.others_look(driver);
            let index = driver.index(device);
            let object = driver
                .world
                .share(index, kind, Bytes(len))
                .map_err(|error| answer(&error))?;
            let contents = &mut self.arena(driver, device)?.contents;
            if contents
                .share(base, base + len, (object.file(), 0), true)
                .is_err()
            {
                drop(object);
                return Err(CUresult::ERROR_OPERATING_SYSTEM);
            }
            let range = Range {
                len,
                device,
                object,
                imported: false,
            };
            self.sharing.0.insert(base, range);
        }
        Ok(self.sharing.object(base).expect("just made"))
    }

    /// Gives an object addresses on its device. They cost nothing: the object is counted already.
    pub fn adopt(
        &mut self,
        driver: &Driver,
        object: Object<'static>,
    ) -> Result<(u64, Ordinal), CUresult> {
        let device = driver
            .ordinals()
            .find(|ordinal| driver.index(*ordinal) == object.device())
            .ok_or(CUresult::ERROR_INVALID_DEVICE)?;
        self.others_look(driver);
        let block = driver.profile(device).block.0;
        let len = object.size().0.next_multiple_of(block);
        let arena = self.arena(driver, device)?;
        let base = arena.holes.take(len).ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
        let file = object.file();
        if arena
            .contents
            .share(base, base + len, (file, 0), false)
            .is_err()
        {
            arena.holes.give(base, len);
            return Err(CUresult::ERROR_OPERATING_SYSTEM);
        }
        let range = Range {
            len,
            device,
            object,
            imported: true,
        };
        self.sharing.0.insert(base, range);
        Ok((base, device))
    }

    /// Takes an adopted object's addresses away.
    pub fn abandon(&mut self, driver: &Driver, base: u64) {
        let Some(range) = self.sharing.0.remove(&base) else {
            return;
        };
        if let Ok(arena) = self.arena(driver, range.device) {
            arena.contents.forget(base, base + range.len);
            arena.holes.give(base, range.len);
        }
    }
}
