//! Which call of one trace is which of the other: the same entry points in the same order, with the fewest left over.

use super::Call;

/// How far a call is looked for after something that only one side has.
const WINDOW: usize = 400;
/// How many calls in a row must agree for the sides to be together again.
const AGREE: usize = 3;

/// Pairs of places; a call without a counterpart stands alone.
pub fn align(left: &[Call], right: &[Call]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut pairs = Vec::with_capacity(left.len().max(right.len()));
    let (mut at, mut to) = (0, 0);
    while at < left.len() && to < right.len() {
        if left[at].entry == right[to].entry
            && (left[at].answer == right[to].answer || agree(left, right, at + 1, to + 1))
        {
            pairs.push((Some(at), Some(to)));
            (at, to) = (at + 1, to + 1);
            continue;
        }
        let Some((skip_left, skip_right)) = together(left, right, at, to) else {
            break;
        };
        if (skip_left, skip_right) == (0, 0) {
            pairs.push((Some(at), Some(to)));
            (at, to) = (at + 1, to + 1);
            continue;
        }
        pairs.extend((at..at + skip_left).map(|at| (Some(at), None)));
        pairs.extend((to..to + skip_right).map(|to| (None, Some(to))));
        (at, to) = (at + skip_left, to + skip_right);
    }
    pairs.extend((at..left.len()).map(|at| (Some(at), None)));
    pairs.extend((to..right.len()).map(|to| (None, Some(to))));
    pairs
}

/// Whether the next few calls are of the same entry points.
fn agree(left: &[Call], right: &[Call], at: usize, to: usize) -> bool {
    let ahead = AGREE
        .min(left.len().saturating_sub(at))
        .min(right.len().saturating_sub(to));
    (0..ahead).all(|step| left[at + step].entry == right[to + step].entry)
        // At an end, both must be there.
        && (ahead == AGREE || left.len().saturating_sub(at) == right.len().saturating_sub(to))
}

/// The fewest calls to leave out on either side until both are together again.
fn together(left: &[Call], right: &[Call], at: usize, to: usize) -> Option<(usize, usize)> {
    let (left_far, right_far) = (
        WINDOW.min(left.len() - at - 1),
        WINDOW.min(right.len() - to - 1),
    );
    let meets = |skip_left: usize, skip_right: usize| {
        left[at + skip_left].entry == right[to + skip_right].entry
            && agree(left, right, at + skip_left + 1, to + skip_right + 1)
    };
    (0..=left_far + right_far).find_map(|skipped| {
        let from = skipped.saturating_sub(right_far);
        (from..=skipped.min(left_far))
            .map(|skip_left| (skip_left, skipped - skip_left))
            .find(|&(skip_left, skip_right)| meets(skip_left, skip_right))
    })
}
