//! Every hook is fuzzed.

use super::*;

#[test]
fn every_hook_belongs_to_a_family() {
    let fuzzed: Vec<&str> = all()
        .filter(|family| !matches!(family.calls, Calls::All))
        .flat_map(Family::names)
        .collect();
    let left: Vec<_> = hooks().filter(|hook| !fuzzed.contains(hook)).collect();
    assert!(left.is_empty(), "hooks without a family: {left:?}");
}
