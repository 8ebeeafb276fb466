//! Canonical names of handles.

use std::collections::HashMap;

/// Canonical names of one process's handles: `ctx#1`, `mem#3`. A handle keeps its name until it is forgotten; numbers are
/// never used twice, whatever addresses recur.
#[derive(Debug, Default)]
pub struct Names {
    names: HashMap<(&'static str, u64), String>,
    next: HashMap<&'static str, u64>,
}

impl Names {
    /// The name of `handle` among things of this `kind`; given now if it has none.
    pub fn of(&mut self, kind: &'static str, handle: u64) -> &str {
        let next = &mut self.next;
        self.names.entry((kind, handle)).or_insert_with(|| {
            let number = next.entry(kind).or_insert(0);
            *number += 1;
            format!("{kind}#{number}")
        })
    }

    /// The name that `handle` already has.
    #[must_use]
    pub fn known(&self, kind: &'static str, handle: u64) -> Option<&str> {
        self.names.get(&(kind, handle)).map(String::as_str)
    }

    /// The handle is gone; whatever recurs at its address is another thing. Answers the name that it had.
    pub fn forget(&mut self, kind: &'static str, handle: u64) -> Option<String> {
        self.names.remove(&(kind, handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_name_until_it_is_forgotten() {
        let mut names = Names::default();
        assert_eq!(names.of("mem", 0x7000), "mem#1");
        assert_eq!(names.of("ctx", 0x7000), "ctx#1");
        assert_eq!(names.of("mem", 0x8000), "mem#2");
        assert_eq!(names.of("mem", 0x7000), "mem#1");
        names.forget("mem", 0x7000);
        assert_eq!(names.known("mem", 0x7000), None);
        assert_eq!(names.of("mem", 0x7000), "mem#3");
    }
}
