//! Objects in the world's books: which rows hold which, whose they count as, and when one ends.
//!
//! An object lives while a row holds it or an exported descriptor is open anywhere; the latter is told by a lock that
//! every exported descriptor carries. Call everything but [`any_unheld`] with the world's mutex held.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::memory::Kind;
use crate::os;
use crate::process::{Image, Place};
use crate::region::{Hold, MAX_HOLDS, MAX_OBJECTS, ObjectEntry, Region, Row, state};
use crate::units::Bytes;

/// Where an exported descriptor's lock lies: far behind the end of any contents.
const EXPORT_LOCK: u64 = 1 << 60;

/// Shares the lock that says "this descriptor is open".
pub(crate) fn mark_exported(file: &File) -> bool {
    os::share_byte(file, EXPORT_LOCK)
}

/// The file of an object's contents.
pub(crate) fn path_of(place: &Place, id: u64) -> PathBuf {
    let mut path = place.path.as_os_str().to_owned();
    path.push(format!(".object-{id}"));
    PathBuf::from(path)
}

/// One life of one row: a process through one library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) row: usize,
    pub(crate) generation: u64,
}

/// What an entry says of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) id: u64,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    /// Of a store: when it was read.
    pub(crate) size: u64,
    pub(crate) is_store: bool,
    /// Device and inode of its contents.
    pub(crate) file: (u64, u64),
}

impl Facts {
    pub(crate) fn read(entry: &ObjectEntry) -> Self {
        let kind = entry.kind.load(Relaxed) as usize;
        Self {
            id: entry.id.load(Relaxed),
            device: entry.device.load(Relaxed) as usize,
            kind: Kind::ALL.get(kind).copied().unwrap_or(Kind::Other),
            size: entry.size.load(Relaxed),
            is_store: entry.store.load(Relaxed) == 1,
            file: (
                entry.file_device.load(Relaxed),
                entry.file_inode.load(Relaxed),
            ),
        }
    }
}

/// Writes an object into the books, its first hold included; `None` where they are full. The caller has counted it.
pub(crate) fn enter(region: &Region, holder: Holder, facts: &Facts) -> Option<Claim> {
    let mut entries = region.all_objects().iter().enumerate();
    let (index, entry) = entries.find(|(_, entry)| !entry.is_live())?;
    let claim = hold(region, holder, facts.id)?;
    entry.device.store(facts.device as u32, Relaxed);
    entry.kind.store(facts.kind as u32, Relaxed);
    entry.id.store(facts.id, Relaxed);
    entry.size.store(facts.size, Relaxed);
    entry.file_device.store(facts.file.0, Relaxed);
    entry.file_inode.store(facts.file.1, Relaxed);
    entry.made_with.store(claim.opened, Relaxed);
    entry.store.store(facts.is_store.into(), Relaxed);
    entry.shown.store(0, Relaxed);
    let bound = index.min(MAX_OBJECTS - 1) as u32 + 1;
    region.header().object_bound.fetch_max(bound, Release);
    entry.live.store(1, Release);
    Some(claim)
}

/// One hold of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) holder: Holder,
    /// Its number among all holds.
    opened: u64,
}

/// One more hold of a row; `None` where the books are full.
pub(crate) fn hold(region: &Region, holder: Holder, id: u64) -> Option<Claim> {
    let holds = region.all_holds();
    let index = holds
        .iter()
        .position(|hold| hold.object.load(Relaxed) == 0)?;
    let hold = &holds[index];
    hold.row.store(holder.row as u32, Relaxed);
    hold.row_generation.store(holder.generation, Relaxed);
    let opened = region.header().opened.fetch_add(1, Relaxed);
    hold.opened.store(opened, Relaxed);
    let bound = index.min(MAX_HOLDS - 1) as u32 + 1;
    region.header().hold_bound.fetch_max(bound, Release);
    hold.object.store(id, Release);
    Some(Claim { holder, opened })
}

/// Takes a hold away.
pub(crate) fn release(region: &Region, claim: Claim, id: u64) {
    let Some(hold) = hold_of(region, claim, id) else {
        region.header().overreturns.fetch_add(1, Relaxed);
        return;
    };
    hold.object.store(0, Release);
}

fn hold_of(region: &Region, claim: Claim, id: u64) -> Option<&Hold> {
    let Claim { holder, opened } = claim;
    region.holds().iter().find(|hold| {
        hold.is_of(holder.row, holder.generation)
            && hold.object.load(Relaxed) == id
            && hold.opened.load(Relaxed) == opened
    })
}

pub(crate) fn find(region: &Region, id: u64) -> Option<&ObjectEntry> {
    let mut objects = region.objects().iter();
    objects.find(|object| object.is_live() && object.id.load(Relaxed) == id)
}

/// The object whose contents a file is.
pub(crate) fn find_by_file(region: &Region, device: u64, inode: u64) -> Option<&ObjectEntry> {
    let is_it = |object: &&ObjectEntry| {
        object.is_live()
            && object.file_device.load(Relaxed) == device
            && object.file_inode.load(Relaxed) == inode
    };
    region.objects().iter().find(is_it)
}

fn holds_of<'a>(
    region: &'a Region,
    object: &'a ObjectEntry,
) -> impl Iterator<Item = (&'a Hold, &'a Row)> {
    let id = object.id.load(Relaxed);
    region.holds().iter().filter_map(move |hold| {
        let row = region.all_rows().get(hold.row.load(Relaxed) as usize)?;
        let holds = hold.object.load(Relaxed) == id
            && row.state.load(Relaxed) != state::FREE
            && row.generation.load(Relaxed) == hold.row_generation.load(Relaxed);
        holds.then_some((hold, row))
    })
}

fn holders<'a>(region: &'a Region, object: &'a ObjectEntry) -> impl Iterator<Item = &'a Row> {
    holds_of(region, object).map(|(_, row)| row)
}

/// Whose bytes the objects of a device are: its maker's while that one lives and has the hold that it was made with, an import of its own being none; nobody's, whoever imported it, while a
/// descriptor of it is open; then the living holder's who opened it last, or a dying one's while nobody else is left. Of a store what its
/// maker shows is that one's, and the rest nobody's. So says an H200 (fixtures/oracle/{shared-memory,shared-pools,held}-580.txt).
pub(crate) fn attributed(
    region: &Region,
    device: usize,
    place: Option<&Place>,
) -> Vec<(Image, usize, Bytes)> {
    let objects = region.objects().iter();
    objects
        .filter(|object| object.is_live() && object.device.load(Relaxed) as usize == device)
        .filter_map(|object| {
            let is_living = |row: &&Row| row.state.load(Relaxed) == state::LIVE;
            let made_with = object.made_with.load(Relaxed);
            let maker = holds_of(region, object)
                .find(|(hold, _)| hold.opened.load(Relaxed) == made_with)
                .map(|(_, row)| row);
            let facts = Facts::read(object);
            let owner = match maker.filter(is_living) {
                Some(maker) if facts.is_store => {
                    let shown = Bytes(object.shown.load(Relaxed));
                    let any = shown > Bytes::ZERO;
                    return any.then(|| (Image::read(maker), facts.kind as usize, shown));
                }
                Some(maker) => maker,
                None if facts.is_store => return None,
                None if is_exported(object, place) => return None,
                None => {
                    let mut openers: Vec<_> = holds_of(region, object).collect();
                    openers.sort_by_key(|(hold, _)| std::cmp::Reverse(hold.opened.load(Relaxed)));
                    let living = openers.iter().find(|(_, row)| is_living(row));
                    living.or(openers.first()).map(|(_, row)| *row)?
                }
            };
            Some((Image::read(owner), facts.kind as usize, Bytes(facts.size)))
        })
        .collect()
}

/// Whether some object has no holder, so that its descriptors decide.
pub(crate) fn any_unheld(region: &Region) -> bool {
    let mut objects = region.objects().iter();
    objects.any(|object| object.is_live() && holders(region, object).next().is_none())
}

/// Ends every object that neither a row nor an open descriptor holds.
pub(crate) fn bury_unheld(region: &Region, place: Option<&Place>) {
    for object in region.objects() {
        if object.is_live()
            && holders(region, object).next().is_none()
            && !is_exported(object, place)
        {
            bury(region, object, place);
        }
    }
}

fn bury(region: &Region, object: &ObjectEntry, place: Option<&Place>) {
    let total = &region.totals()[object.device.load(Relaxed) as usize];
    let size = object.size.load(Relaxed);
    object.live.store(0, Release);
    total.used.store(total.used.load(Relaxed) - size, Relaxed);
    if let Some(place) = place {
        let _ = std::fs::remove_file(path_of(place, object.id.load(Relaxed)));
    }
}

/// A dead row's holds end with the teardown of their device; true while some are still to end.
pub(crate) fn end_row(region: &Region, index: usize, row: &Row, age: u64) -> bool {
    let generation = row.generation.load(Relaxed);
    let mut left = false;
    for hold in region.holds() {
        if !hold.is_of(index, generation) {
            continue;
        }
        let lag = find(region, hold.object.load(Relaxed)).map_or(0, |object| {
            let device = object.device.load(Relaxed) as usize;
            region.totals()[device].lag_ns.load(Relaxed)
        });
        if age < lag {
            left = true;
        } else {
            hold.object.store(0, Release);
        }
    }
    left
}

fn is_exported(object: &ObjectEntry, place: Option<&Place>) -> bool {
    let file = match place {
        Some(place) => os::open(&path_of(place, object.id.load(Relaxed))).ok(),
        None => find_descriptor(object),
    };
    // Where locks cannot be asked about (gVisor) an export without importers ends with its exporter.
    file.is_some_and(|file| os::byte_is_locked(&file, EXPORT_LOCK) == Some(true))
}

/// A private world has no folder: an exported descriptor is one of this process's own.
fn find_descriptor(object: &ObjectEntry) -> Option<File> {
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?;
    let same = |meta: std::fs::Metadata| {
        (meta.dev(), meta.ino())
            == (
                object.file_device.load(Relaxed),
                object.file_inode.load(Relaxed),
            )
    };
    let found = descriptors
        .flatten()
        .find(|entry| std::fs::metadata(entry.path()).is_ok_and(same))?;
    os::open(&found.path()).ok()
}

/// A new, empty file for the contents of object `id`. It has its name before the books have the object: a kill between
/// leaves an empty file, never an object without contents.
pub(crate) fn contents_file(place: Option<&Place>, id: u64, size: u64) -> io::Result<File> {
    let file = match place {
        None => os::named_memfd(c"ringfence-object")?,
        Some(place) => os::create_new(&path_of(place, id))?,
    };
    file.set_len(size)?;
    Ok(file)
}
