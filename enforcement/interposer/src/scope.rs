//! What RTLD_NEXT and RTLD_DEFAULT mean to a caller, were we not there (decision 20).
//!
//! Pure: the objects are given as the loader lists them. An object is global if it was there when the program started, or was opened RTLD_GLOBAL; one that
//! was opened RTLD_LOCAL is seen by those it was opened with.

/// The objects in the loader's order, as far as a look-up of one name is concerned.
pub trait Objects {
    fn count(&self) -> usize;
    /// The address of the name that is looked up, if this object defines it.
    fn definition(&self, at: usize) -> Option<usize>;
    /// It was loaded with the program, or later with RTLD_GLOBAL. Asked of objects that define the name.
    fn is_global(&self, at: usize) -> bool;
    /// The library that this code is part of: never an answer.
    fn is_ourselves(&self, at: usize) -> bool;
    /// Whether a dependency of this name is this object.
    fn is_called(&self, at: usize, name: &[u8]) -> bool;
    /// Visits the names of an object's dependencies.
    fn needed(&self, at: usize, visit: &mut dyn FnMut(&[u8]));
}

/// What a look-up sees.
pub struct Scope<'a> {
    pub objects: &'a dyn Objects,
    /// So many of the first objects were loaded with the program.
    pub started: usize,
    /// Room for a list of all objects.
    pub order: &'a mut [u16],
}

impl Scope<'_> {
    /// The object whose definition RTLD_DEFAULT means to `caller`, an index; `None` for code that belongs to no object, which looks from the program.
    pub fn default(&mut self, caller: Option<usize>) -> Option<usize> {
        let mut all = 0..self.objects.count();
        if let Some(global) = all.find(|at| self.answers(*at) && self.objects.is_global(*at)) {
            return Some(global);
        }
        // What came with the program sees what everybody sees.
        let caller = caller.filter(|caller| *caller >= self.started)?;
        if !(self.started..self.objects.count()).any(|at| self.answers(at)) {
            return None;
        }
        (self.started..self.objects.count()).find_map(|root| {
            let members = self.closure(root);
            let closure = &self.order[..members];
            let sees = closure.contains(&(caller as u16));
            sees.then(|| self.first(closure)).flatten()
        })
    }

    /// Of each object which one was opened and brought it with it, from `first` on: into `bringers`. An object that nobody needs was opened itself.
    pub fn bringers(&mut self, first: usize, bringers: &mut [u16]) {
        const NOBODY: u16 = u16::MAX;
        bringers[..self.objects.count()].fill(NOBODY);
        for root in first..self.objects.count() {
            if bringers[root] != NOBODY {
                continue;
            }
            let members = self.closure(root);
            for member in self.order[..members].iter().map(|at| usize::from(*at)) {
                if bringers[member] == NOBODY {
                    bringers[member] = root as u16;
                }
            }
        }
    }

    /// The object whose definition RTLD_NEXT means to `caller`.
    pub fn next(&mut self, caller: usize) -> Option<usize> {
        let behind = caller + 1..self.objects.count();
        if caller < self.started {
            return behind
                .into_iter()
                .find(|at| self.answers(*at) && self.objects.is_global(*at));
        }
        // What was opened later looks through what was opened with it.
        (self.started..self.objects.count()).find_map(|root| {
            let members = self.closure(root);
            let closure = &self.order[..members];
            let at = closure.iter().position(|at| usize::from(*at) == caller)?;
            Some(self.first(&closure[at + 1..]))
        })?
    }

    fn answers(&self, at: usize) -> bool {
        !self.objects.is_ourselves(at) && self.objects.definition(at).is_some()
    }

    fn first(&self, order: &[u16]) -> Option<usize> {
        order
            .iter()
            .map(|at| usize::from(*at))
            .find(|at| self.answers(*at))
    }

    /// An object and its dependencies, breadth first, as the loader orders a scope: into `order`, and how many.
    pub fn closure(&mut self, root: usize) -> usize {
        let (objects, order) = (self.objects, &mut *self.order);
        order[0] = root as u16;
        let (mut at, mut count) = (0, 1);
        while at < count {
            objects.needed(usize::from(order[at]), &mut |name| {
                let found = (0..objects.count()).find(|at| objects.is_called(*at, name));
                if let Some(found) = found
                    && !order[..count].contains(&(found as u16))
                {
                    order[count] = found as u16;
                    count += 1;
                }
            });
            at += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Object {
        soname: &'static str,
        needed: &'static [&'static str],
        defines: bool,
        global: bool,
    }

    impl Objects for Vec<Object> {
        fn count(&self) -> usize {
            self.len()
        }

        fn definition(&self, at: usize) -> Option<usize> {
            self[at].defines.then_some(1)
        }

        fn is_global(&self, at: usize) -> bool {
            self[at].global
        }

        fn is_ourselves(&self, at: usize) -> bool {
            self[at].soname == "libvgpu.so"
        }

        fn is_called(&self, at: usize, name: &[u8]) -> bool {
            self[at].soname.as_bytes() == name
        }

        fn needed(&self, at: usize, visit: &mut dyn FnMut(&[u8])) {
            self[at]
                .needed
                .iter()
                .for_each(|name| visit(name.as_bytes()));
        }
    }

    fn object(
        soname: &'static str,
        needed: &'static [&'static str],
        defines: bool,
        global: bool,
    ) -> Object {
        Object {
            soname,
            needed,
            defines,
            global,
        }
    }

    fn default(objects: &Vec<Object>, started: usize, caller: Option<usize>) -> Option<&str> {
        let order = &mut [0; 8];
        let mut scope = Scope {
            objects,
            started,
            order,
        };
        scope.default(caller).map(|at| objects[at].soname)
    }

    fn next(objects: &Vec<Object>, started: usize, caller: usize) -> Option<&str> {
        let order = &mut [0; 8];
        let mut scope = Scope {
            objects,
            started,
            order,
        };
        scope.next(caller).map(|at| objects[at].soname)
    }

    /// program, us, wrapper → driver, libc.
    fn linked() -> Vec<Object> {
        vec![
            object("", &["libwrap.so", "libc.so.6"], false, true),
            object("libvgpu.so", &["libc.so.6"], true, true),
            object("libwrap.so", &["libcuda.so.1"], true, true),
            object("libc.so.6", &[], false, true),
            object("libcuda.so.1", &["libc.so.6"], true, true),
        ]
    }

    #[test]
    fn a_wrapper_finds_the_driver_behind_it_and_the_program_finds_the_wrapper() {
        let objects = linked();
        let all = objects.len();
        assert_eq!(next(&objects, all, 2), Some("libcuda.so.1"));
        assert_eq!(next(&objects, all, 0), Some("libwrap.so"));
        assert_eq!(default(&objects, all, Some(2)), Some("libwrap.so"));
        assert_eq!(default(&objects, all, None), Some("libwrap.so"));
        assert_eq!(next(&objects, all, 4), None);
    }

    #[test]
    fn without_a_driver_our_own_name_is_no_answer() {
        let objects = linked()[..2].to_vec();
        assert_eq!(next(&objects, 2, 0), None);
        assert_eq!(default(&objects, 2, Some(0)), None);
        assert_eq!(default(&objects, 2, None), None);
    }

    #[test]
    fn a_local_driver_is_seen_by_what_it_was_opened_with_alone() {
        let mut objects = linked();
        objects.remove(2);
        objects.truncate(3);
        objects.push(object("module.so", &["libcuda.so.1"], false, false));
        objects.push(object("libcuda.so.1", &["libc.so.6"], true, false));
        objects.push(object("other.so", &[], false, false));
        assert_eq!(default(&objects, 3, Some(3)), Some("libcuda.so.1"));
        assert_eq!(next(&objects, 3, 3), Some("libcuda.so.1"));
        assert_eq!(default(&objects, 3, Some(0)), None);
        assert_eq!(next(&objects, 3, 0), None);
        assert_eq!(default(&objects, 3, Some(5)), None);
        assert_eq!(next(&objects, 3, 5), None);
        // libc was opened with the program, though the driver needs it.
        assert_eq!(default(&objects, 3, Some(2)), None);
        objects[4].global = true;
        assert_eq!(default(&objects, 3, Some(0)), Some("libcuda.so.1"));
        assert_eq!(next(&objects, 3, 0), Some("libcuda.so.1"));
    }
}
