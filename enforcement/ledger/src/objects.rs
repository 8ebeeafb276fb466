//! Memory that several processes hold (decision 11): a charge follows the object, not whoever made it.
//!
//! As long as the process that made an object holds it, the object is charged in that process's word, as all it has. When it lets go
//! of it, or is dead, the row itself is charged, until the last of those that opened it has let go. The row is charged before the
//! word is relieved, and sums read the words first: at no instant does a sum miss it.
//!
//! A row's state changes by one compare-and-swap and counts its changes; a row is given up only in the very state in which nobody
//! was found holding it, so that whoever joins meanwhile is not forgotten. No lock: whoever is killed leaves a row that the
//! reaper of its slot can tell.

use crate::region::clock::Moment;
use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicUsize;
use core::time::Duration;

use budget::Bytes;

/// Objects that a ledger has room for. One more is charged to each process that opens it.
pub const OBJECTS: usize = 4096;
const HOLDERS: usize = crate::SLOTS / 64;
pub const PATH_WORDS: usize = 16;

/// How long it is asked at once what is closed. Each question is some calls of the kernel, which looks through all locks of a file.
const ASKING: Duration = Duration::from_millis(200);
/// Where the next to ask begins.
static NEXT_ASKED: AtomicUsize = AtomicUsize::new(0);

/// What an object is called by those who share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub [u64; 2]);

/// An object's row, to one of those who hold it, and which of that process's openings of it this is, as [`Holds`](crate::Holds) counts them: 0 for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    row: u32,
    opening: u32,
}

impl Object {
    pub(crate) fn is_same(self, other: Object) -> bool {
        self.row == other.row
    }

    pub(crate) fn opening(self) -> u32 {
        self.opening
    }

    pub(crate) fn as_opening(self, opening: u32) -> Object {
        Object { opening, ..self }
    }
}

/// All zeros is an empty table.
#[repr(C)]
pub struct Objects {
    /// Rows in use lie below.
    high: AtomicU64,
    /// Apart from the rows: sums read no more than these where nothing is charged.
    states: [AtomicU64; OBJECTS],
    rows: [Row; OBJECTS],
}

#[repr(C)]
struct Row {
    key: [AtomicU64; 2],
    bytes: AtomicU64,
    /// One bit for each device that it is charged on.
    devices: AtomicU64,
    /// One bit for each slot that opened it.
    holders: [AtomicU64; HOLDERS],
    /// The last four that did, the latest in the lowest sixteen bits: a slot and one.
    recent: AtomicU64,
    /// The descriptor that holds it too: name, device, inode, and a path of the file.
    descriptor: [AtomicU64; 3],
    path: [AtomicU64; PATH_WORDS],
}

impl Row {
    fn described(&self) -> Described {
        let read = |word: &AtomicU64| word.load(Ordering::SeqCst);
        Described {
            words: [0, 1, 2].map(|at: usize| self.descriptor.get(at).map_or(0, read)),
            path: core::array::from_fn(|at| self.path.get(at).map_or(0, read)),
        }
    }

    /// Whether one of `slots` opened it and has it still.
    fn is_opened_by(&self, slots: &SlotSet) -> bool {
        let mut holders = self.holders.iter().zip(slots.0);
        holders.any(|(word, asked)| word.load(Ordering::SeqCst) & asked != 0)
    }

    /// Those who have it still and are none of `known`.
    fn holders_beside(&self, known: Recent) -> impl Iterator<Item = usize> + '_ {
        let held = self.holders.iter().map(|word| word.load(Ordering::SeqCst));
        let slots = held.enumerate().flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| at * 64 + bit)
        });
        slots.filter(move |slot| known.slots().all(|of| of != *slot))
    }

    /// Whether one of `slots` opened it last, of those who have it and have not ended; `None` where one who may have ended did.
    fn is_last(&self, slots: &SlotSet, has_ended: impl Fn(usize) -> Option<bool>) -> Option<bool> {
        let recent = Recent(self.recent.load(Ordering::SeqCst));
        let mut certain = true;
        for slot in recent.slots() {
            if slots.contains(slot) {
                return certain.then_some(true);
            }
            match has_ended(slot) {
                Some(false) => return Some(false),
                _ if seeds::planted(seeds::Seed::R121) => return Some(false),
                Some(true) => {}
                None => certain = false,
            }
        }
        // How these came nobody knows: of several none is the last, and what nothing explains is charged.
        let there = |slot: &usize| slots.contains(*slot) || has_ended(*slot) != Some(true);
        let mut others = self.holders_beside(recent).filter(there);
        match (others.next(), others.next()) {
            (Some(only), None) if slots.contains(only) => certain.then_some(true),
            _ => Some(false),
        }
    }
}

/// The last four slots that opened an object, as they stand in its row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent(u64);

impl Recent {
    const WIDTH: u32 = 16;
    const MASK: u64 = (1 << Recent::WIDTH) - 1;

    /// The latest first.
    pub(crate) fn slots(self) -> impl Iterator<Item = usize> {
        let parts = (0..4).map(move |at| self.0 >> (at * Recent::WIDTH) & Recent::MASK);
        parts.filter_map(|part| part.checked_sub(1).map(|slot| slot as usize))
    }

    fn without(self, slot: usize) -> Recent {
        let parts = [3, 2, 1, 0].map(|at| self.0 >> (at * Recent::WIDTH) & Recent::MASK);
        let others = parts
            .into_iter()
            .filter(|part| *part != 0 && *part != slot as u64 + 1);
        Recent(others.fold(0, |kept, part| kept << Recent::WIDTH | part))
    }

    pub(crate) fn opened_by(self, slot: usize) -> Recent {
        Recent(self.without(slot).0 << Recent::WIDTH | (slot as u64 + 1))
    }

    /// Whether others have opened it since this slot did.
    pub fn is_behind(self, slot: usize) -> bool {
        self.slots().next().is_some_and(|latest| latest != slot)
    }

    /// The slot goes back to where it was in `before`: behind those whom it was behind then, and those who came since.
    pub(crate) fn stepped_back(self, slot: usize, before: Recent) -> Recent {
        if self.slots().all(|known| known != slot) {
            return self;
        }
        let ahead = |of: &usize| {
            let of_all = |recent: Recent| recent.slots().take_while(|known| *known != slot);
            of_all(self).chain(of_all(before)).any(|known| known == *of)
        };
        let others: Vec<usize> = self.slots().filter(|known| *known != slot).collect();
        let place = others.iter().rposition(ahead).map_or(0, |last| last + 1);
        let (front, back) = others.split_at(place);
        let order = front.iter().chain([&slot]).chain(back);
        let words = order.enumerate();
        Recent(words.fold(0, |word, (at, slot)| {
            word | (*slot as u64 + 1) << (at as u32 * Recent::WIDTH)
        }))
    }
}

/// A descriptor, as it stands in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    pub words: [u64; 3],
    pub path: [u64; PATH_WORDS],
}

/// How much of what several hold is in one's row of the driver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub certain: u64,
    /// Its maker has died, or who opened it later, and the driver is taking that apart.
    pub perhaps: u64,
}

impl Shown {
    /// With what is not certain.
    pub fn most(self) -> Bytes {
        Bytes(self.certain.saturating_add(self.perhaps))
    }
}

/// Slots, as rows name their holders.
#[derive(Default)]
pub struct SlotSet([u64; HOLDERS]);

impl SlotSet {
    fn contains(&self, slot: usize) -> bool {
        self.0
            .get(slot / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }
}

impl FromIterator<usize> for SlotSet {
    fn from_iter<Slots: IntoIterator<Item = usize>>(slots: Slots) -> SlotSet {
        let mut set = SlotSet::default();
        for slot in slots {
            if let Some(word) = set.0.get_mut(slot / 64) {
                *word |= 1 << (slot % 64);
            }
        }
        set
    }
}

/// What a row is, whose, and the number of its changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    /// Being written by a slot.
    Making,
    /// Charged in a slot's word.
    Paid,
    /// Charged here.
    Charged,
}

const SLOT_SHIFT: u32 = 2;
const CHANGE_SHIFT: u32 = 16;
const SLOT_MASK: u64 = (1 << 12) - 1;
/// A descriptor may hold it too.
const DESCRIBED: u64 = 1 << (CHANGE_SHIFT - 1);
/// Nobody who opened it has it in a row of the driver's.
const UNLISTED: u64 = 1 << (CHANGE_SHIFT - 2);

impl State {
    fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Free,
            1 => Phase::Making,
            2 => Phase::Paid,
            _ => Phase::Charged,
        }
    }

    fn slot(self) -> usize {
        (self.0 >> SLOT_SHIFT & SLOT_MASK) as usize
    }

    fn is_by(self, slot: usize) -> bool {
        self.slot() == slot
    }

    /// The next state.
    fn to(self, phase: Phase, slot: usize) -> State {
        let changes = (self.0 >> CHANGE_SHIFT).wrapping_add(1) << CHANGE_SHIFT;
        let kept = match phase {
            Phase::Free | Phase::Making => 0,
            Phase::Paid | Phase::Charged => self.0 & (DESCRIBED | UNLISTED),
        };
        State(changes | kept | (slot as u64 & SLOT_MASK) << SLOT_SHIFT | phase as u64)
    }

    fn is_unlisted(self) -> bool {
        self.0 & UNLISTED != 0
    }

    fn is_described(self) -> bool {
        self.0 & DESCRIBED != 0
    }
}

impl Objects {
    fn state(&self, row: usize) -> State {
        State(
            self.states
                .get(row)
                .map_or(0, |state| state.load(Ordering::SeqCst)),
        )
    }

    fn change(&self, row: usize, from: State, to: State) -> bool {
        self.states.get(row).is_some_and(|state| {
            state
                .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        })
    }

    fn rows(&self) -> usize {
        usize::try_from(self.high.load(Ordering::SeqCst))
            .unwrap_or(OBJECTS)
            .min(OBJECTS)
    }

    /// Names an object whose `bytes` are charged in the slot's word, on each of `devices`. `None` where there is no room.
    pub fn enter(
        &self,
        slot: usize,
        key: Key,
        devices: u64,
        bytes: u64,
        described: Option<Described>,
    ) -> Option<Object> {
        let (row, made) = (0..OBJECTS).find_map(|row| {
            let state = self.state(row);
            let made = state.to(Phase::Making, slot);
            if state.phase() != Phase::Free {
                return None;
            }
            // First: a reaper must see the row that it makes.
            self.high.fetch_max(row as u64 + 1, Ordering::SeqCst);
            self.change(row, state, made).then_some((row, made))
        })?;
        let entry = self.rows.get(row)?;
        for (word, part) in entry.key.iter().zip(key.0) {
            word.store(part, Ordering::SeqCst);
        }
        entry.bytes.store(bytes, Ordering::SeqCst);
        entry.devices.store(devices, Ordering::SeqCst);
        entry.recent.store(0, Ordering::SeqCst);
        let mut paid = made.to(Phase::Paid, slot);
        if let Some(described) = described {
            let words = entry.descriptor.iter().zip(described.words);
            words.for_each(|(word, part)| word.store(part, Ordering::SeqCst));
            let path = entry.path.iter().zip(described.path);
            path.for_each(|(word, part)| word.store(part, Ordering::SeqCst));
            paid = State(paid.0 | DESCRIBED);
        }
        // Fails where a reaper took us for dead.
        let object = Object {
            row: row as u32,
            opening: 0,
        };
        self.change(row, made, paid).then_some(object)
    }

    /// The slot, in whose word it is charged, has made it larger or smaller.
    pub fn resize(&self, slot: usize, object: Object, bytes: u64) {
        let state = self.state(object.row as usize);
        if state.phase() == Phase::Paid
            && state.is_by(slot)
            && let Some(entry) = self.rows.get(object.row as usize)
        {
            entry.bytes.store(bytes, Ordering::SeqCst);
        }
    }

    /// Whoever opens it has it in no row: an exported pool's memory is in its maker's alone (H200: `fixtures/oracle/shared-pools-580.txt`).
    pub fn unlist(&self, object: Object) {
        let row = object.row as usize;
        loop {
            let state = self.state(row);
            let known = matches!(state.phase(), Phase::Paid | Phase::Charged);
            let next = state.to(state.phase(), state.slot());
            if !known || self.change(row, state, State(next.0 | UNLISTED)) {
                return;
            }
        }
    }

    /// The object of a name, which the slot holds from now on, and who had opened it last before.
    pub fn join(&self, slot: usize, key: Key) -> Option<(Object, Recent)> {
        (0..self.rows()).find_map(|row| {
            let known = self.is_known_as(row, self.state(row), key);
            let before = known.then(|| self.join_row(slot, key, row))??;
            let object = Object {
                row: row as u32,
                opening: 0,
            };
            Some((object, before))
        })
    }

    fn is_known_as(&self, row: usize, state: State, key: Key) -> bool {
        matches!(state.phase(), Phase::Paid | Phase::Charged)
            && self.rows.get(row).is_some_and(|entry| {
                key.0 == [0, 1].map(|part: usize| entry.key[part].load(Ordering::SeqCst))
            })
    }

    /// The bit first: whoever gives the row up in a state that came after sees it.
    fn join_row(&self, slot: usize, key: Key, row: usize) -> Option<Recent> {
        self.hold(row, slot);
        loop {
            let state = self.state(row);
            if !self.is_known_as(row, state, key) {
                self.let_go(row, slot);
                return None;
            }
            if self.change(row, state, state.to(state.phase(), state.slot())) {
                return self.set_recent(row, |recent| recent.opened_by(slot));
            }
        }
    }

    /// Answers what there was.
    fn set_recent(&self, row: usize, change: impl Fn(Recent) -> Recent) -> Option<Recent> {
        let entry = self.rows.get(row)?;
        let to = |word| Some(change(Recent(word)).0);
        let before = entry
            .recent
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, to);
        before.ok().map(Recent)
    }

    /// The slot's last opening is over, which came after `before`; an older one is not.
    pub fn step_back(&self, slot: usize, object: Object, before: Recent) {
        let row = object.row as usize;
        self.set_recent(row, |recent| recent.stepped_back(slot, before));
    }

    /// The slot, which joined, holds it no longer.
    pub fn part(&self, slot: usize, object: Object) {
        self.let_go(object.row as usize, slot);
    }

    /// The slot, in whose word it is charged, is about to be relieved of it: others may hold it on.
    pub fn pass_on(&self, slot: usize, object: Object) {
        self.pass_on_row(slot, object.row as usize);
    }

    fn pass_on_row(&self, slot: usize, row: usize) {
        loop {
            let state = self.state(row);
            if state.phase() != Phase::Paid || !state.is_by(slot) {
                return;
            }
            if self.change(row, state, state.to(Phase::Charged, 0)) {
                return self.give_up_unheld(row);
            }
        }
    }

    /// A charged row that nobody holds is free.
    fn give_up_unheld(&self, row: usize) {
        loop {
            let state = self.state(row);
            let held = self.rows.get(row).is_some_and(|entry| {
                entry
                    .holders
                    .iter()
                    .any(|word| word.load(Ordering::SeqCst) != 0)
            });
            if state.phase() != Phase::Charged || state.is_described() || held {
                return;
            }
            if self.change(row, state, state.to(Phase::Free, 0)) {
                return;
            }
        }
    }

    /// Gives up what descriptors alone hold on a device, as far as these are closed. Whether there was any. Those that there is no time for are
    /// asked next time.
    pub fn give_up_closed(&self, device: usize, is_closed: impl Fn(&Described) -> bool) -> bool {
        let rows = self.rows();
        let first = NEXT_ASKED.load(Ordering::Relaxed);
        let (begun, mut freed) = (Moment::now(), false);
        let in_turn = (0..rows).map(|step| first.wrapping_add(step) % rows);
        for row in in_turn.filter(|row| self.is_on(*row, device)) {
            freed |= self.give_up_closed_row(row, &is_closed);
            if begun.elapsed() > ASKING {
                NEXT_ASKED.store(row + 1, Ordering::Relaxed);
                break;
            }
        }
        freed
    }

    /// The same of one object.
    pub fn give_up_if_closed(&self, object: Object, is_closed: impl Fn(&Described) -> bool) {
        self.give_up_closed_row(object.row as usize, &is_closed);
    }

    fn give_up_closed_row(&self, row: usize, is_closed: &dyn Fn(&Described) -> bool) -> bool {
        let state = self.state(row);
        let Some(entry) = self.rows.get(row) else {
            return false;
        };
        let read = |word: &AtomicU64| word.load(Ordering::SeqCst);
        let held = entry.holders.iter().any(|word| read(word) != 0);
        if state.phase() != Phase::Charged || !state.is_described() || held {
            return false;
        }
        let described = entry.described();
        // In the state that was found: whoever joined meanwhile, by a descriptor that was closed since, has changed it.
        is_closed(&described) && self.change(row, state, state.to(Phase::Free, 0))
    }

    fn hold(&self, row: usize, slot: usize) {
        if let Some(word) = self.word_of(row, slot) {
            word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        }
    }

    fn let_go(&self, row: usize, slot: usize) {
        if let Some(word) = self.word_of(row, slot) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::SeqCst);
        }
        self.set_recent(row, |recent| recent.without(slot));
        self.give_up_unheld(row);
    }

    fn word_of(&self, row: usize, slot: usize) -> Option<&AtomicU64> {
        self.rows.get(row)?.holders.get(slot / 64)
    }

    /// What is charged here on a device.
    pub fn charged(&self, device: usize) -> u64 {
        (0..self.rows())
            .filter(|row| self.state(*row).phase() == Phase::Charged && self.is_on(*row, device))
            .filter_map(|row| Some(self.rows.get(row)?.bytes.load(Ordering::SeqCst)))
            .fold(0, u64::saturating_add)
    }

    fn is_on(&self, row: usize, device: usize) -> bool {
        self.rows.get(row).is_some_and(|entry| {
            entry
                .devices
                .load(Ordering::SeqCst)
                .checked_shr(device as u32)
                .unwrap_or(0)
                & 1
                != 0
        })
    }

    /// What is charged here on a device for a slot alone.
    pub fn kept_by(&self, slot: usize, device: usize) -> u64 {
        let alone = |row: &usize| {
            let state = self.state(*row);
            let entry = self.rows.get(*row).filter(|_| {
                state.phase() == Phase::Charged
                    && self.concerns(*row, slot)
                    && self.is_on(*row, device)
            })?;
            let holders = entry.holders.iter();
            let count: u32 = holders
                .map(|word| word.load(Ordering::SeqCst).count_ones())
                .sum();
            (count == 1).then(|| entry.bytes.load(Ordering::SeqCst))
        };
        (0..self.rows())
            .filter_map(|row| alone(&row))
            .fold(0, u64::saturating_add)
    }

    /// What slots opened on a device that is not charged in the word of one of them.
    pub fn shared_with(&self, slots: &SlotSet, device: usize) -> u64 {
        let shared = |row: &usize| {
            let state = self.state(*row);
            let entry = self.rows.get(*row).filter(|_| self.is_on(*row, device))?;
            let elsewhere = match state.phase() {
                Phase::Free | Phase::Making => false,
                Phase::Paid => !slots.contains(state.slot()),
                Phase::Charged => true,
            };
            (entry.is_opened_by(slots) && elsewhere).then(|| entry.bytes.load(Ordering::SeqCst))
        };
        (0..self.rows())
            .filter_map(|row| shared(&row))
            .fold(0, u64::saturating_add)
    }

    /// How much of that the driver's rows show as held by `slots`. Memory of several holders is in its maker's row while that one holds it; then in
    /// nobody's while a descriptor of it is open, and after that in the row of the one, of those who have it still, who opened it last (H200, 580.159.04:
    /// `fixtures/oracle/shared-memory-580.txt`, `held-580.txt`). Of more than four holders those who opened it before the last four did
    /// are taken for the last only where one of them is left. A pool's is in no opener's. `has_ended` tells whether a slot that had it holds it no more, `None` where that is not known yet, `is_closed` whether no descriptor does.
    pub fn shown_with(
        &self,
        slots: &SlotSet,
        device: usize,
        has_ended: impl Fn(usize) -> Option<bool>,
        is_closed: impl Fn(&Described) -> bool,
    ) -> Shown {
        let mut shown = Shown::default();
        for row in (0..self.rows()).filter(|row| self.is_on(*row, device)) {
            let state = self.state(row);
            let entry = self.rows.get(row);
            let Some(entry) = entry.filter(|entry| entry.is_opened_by(slots)) else {
                continue;
            };
            let let_go = match state.phase() {
                Phase::Free | Phase::Making => continue,
                _ if state.is_unlisted() => continue,
                Phase::Paid if slots.contains(state.slot()) => continue,
                Phase::Paid => has_ended(state.slot()),
                Phase::Charged => Some(true),
            };
            let to = match (let_go, entry.is_last(slots, &has_ended)) {
                (Some(false), _) | (_, Some(false)) => continue,
                (Some(true), Some(true)) => &mut shown.certain,
                _ => &mut shown.perhaps,
            };
            if !state.is_described() || is_closed(&entry.described()) {
                *to = to.saturating_add(entry.bytes.load(Ordering::SeqCst));
            }
        }
        shown
    }

    /// Whether a slot has to do with any object.
    pub fn concern(&self, slot: usize) -> bool {
        (0..self.rows()).any(|row| self.concerns(row, slot))
    }

    /// Whether a slot has to do with any object on a device.
    pub fn concern_on(&self, slot: usize, device: usize) -> bool {
        (0..self.rows()).any(|row| self.concerns(row, slot) && self.is_on(row, device))
    }

    fn concerns(&self, row: usize, slot: usize) -> bool {
        let state = self.state(row);
        let paid = matches!(state.phase(), Phase::Making | Phase::Paid) && state.is_by(slot);
        let holds = self
            .word_of(row, slot)
            .is_some_and(|word| word.load(Ordering::SeqCst) >> (slot % 64) & 1 != 0);
        paid || holds
    }

    /// A dead slot lets go of what it had on a device, or anywhere. Before its words are emptied, and only by who may do that.
    pub fn bury(&self, slot: usize, device: Option<usize>) {
        for row in 0..self.rows() {
            let state = self.state(row);
            if state.phase() == Phase::Making && state.is_by(slot) {
                let _ = self.change(row, state, state.to(Phase::Free, 0));
            }
            if self.concerns(row, slot) && device.is_none_or(|device| self.is_on(row, device)) {
                self.pass_on_row(slot, row);
                self.let_go(row, slot);
            }
        }
    }
}
