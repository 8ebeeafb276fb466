//! The two-call idiom: a count first, then as many elements as there is room for.

use ash::vk;

use crate::boundary::{Out, OutList, Outcome};

/// # Errors
/// VK_INCOMPLETE if there was not room for all.
pub fn enumerate<T>(
    count: Out<u32>,
    list: OutList<T>,
    items: impl ExactSizeIterator<Item = T>,
) -> Outcome {
    let (room, outcome) = room(count, list.is_null(), items.len());
    if let Some(room) = room {
        list.put(items.take(room));
    }
    outcome
}

/// As [`enumerate`] for elements that the caller has begun.
///
/// # Errors
/// VK_INCOMPLETE if there was not room for all.
pub fn enumerate_begun<T>(
    count: Out<u32>,
    list: OutList<T>,
    items: usize,
    edit: impl FnMut(usize, &mut T),
) -> Outcome {
    let (room, outcome) = room(count, list.is_null(), items);
    if let Some(room) = room {
        list.edit(room, edit);
    }
    outcome
}

/// How many to write (`None`: only the count was asked for), with the count put.
fn room(count: Out<u32>, only_count: bool, items: usize) -> (Option<usize>, Outcome) {
    let all = u32::try_from(items).unwrap_or(u32::MAX);
    if only_count {
        count.put(all);
        return (None, Ok(()));
    }
    let asked = count.read().unwrap_or(0);
    count.put(asked.min(all));
    let outcome = if asked < all {
        Err(vk::Result::INCOMPLETE)
    } else {
        Ok(())
    };
    (Some(asked.min(all) as usize), outcome)
}
