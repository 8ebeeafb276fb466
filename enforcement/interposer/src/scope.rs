//! What RTLD_NEXT and RTLD_DEFAULT mean to a caller, were we not there (FINDINGS 20).
//!
//! Pure: the objects are given as the loader lists them. An object is global if it was there when the program started, or was opened RTLD_GLOBAL; one that
//! was opened RTLD_LOCAL is seen by those it was opened with.

/// A loaded object, as far as a look-up of one name is concerned.
#[derive(Clone, Debug, Default)]
pub struct Object {
    pub base: usize,
    pub path: Vec<u8>,
    pub soname: Vec<u8>,
    pub needed: Vec<Vec<u8>>,
    /// The address of the name that is looked up, if this object defines it.
    pub definition: Option<usize>,
    /// It was loaded with the program, or later with RTLD_GLOBAL.
    pub global: bool,
    /// The library that this code is part of: never an answer.
    pub ourselves: bool,
}

/// The objects in the loader's order. The first `started` of them were loaded with the program.
pub struct Scope<'a> {
    pub objects: &'a [Object],
    pub started: usize,
}

impl Scope<'_> {
    /// The object whose definition RTLD_DEFAULT means to `caller`, an index; `None` for code that belongs to no object, which looks from the program.
    pub fn default(&self, caller: Option<usize>) -> Option<&Object> {
        let global = (0..self.objects.len()).filter(|at| self.objects[*at].global);
        let local = caller
            .into_iter()
            .flat_map(|caller| self.roots_of(caller))
            .flat_map(|root| self.closure(root));
        self.first(global.chain(local))
    }

    /// The object whose definition RTLD_NEXT means to `caller`.
    pub fn next(&self, caller: usize) -> Option<&Object> {
        if caller < self.started {
            return self
                .first((caller + 1..self.objects.len()).filter(|at| self.objects[*at].global));
        }
        // What was opened later looks through what was opened with it.
        let root = self.roots_of(caller).next()?;
        self.first(
            self.closure(root)
                .into_iter()
                .skip_while(|at| *at != caller)
                .skip(1),
        )
    }

    fn first(&self, order: impl Iterator<Item = usize>) -> Option<&Object> {
        order
            .map(|at| &self.objects[at])
            .find(|object| object.definition.is_some() && !object.ourselves)
    }

    /// Objects opened after the start whose dependencies include `member`, itself among them.
    fn roots_of(&self, member: usize) -> impl Iterator<Item = usize> {
        (self.started..self.objects.len()).filter(move |root| self.closure(*root).contains(&member))
    }

    /// An object and its dependencies, breadth first, as the loader orders a scope.
    fn closure(&self, root: usize) -> Vec<usize> {
        let mut order = vec![root];
        let mut at = 0;
        while at < order.len() {
            for needed in &self.objects[order[at]].needed {
                if let Some(found) = self.named(needed)
                    && !order.contains(&found)
                {
                    order.push(found);
                }
            }
            at += 1;
        }
        order
    }

    fn named(&self, name: &[u8]) -> Option<usize> {
        self.objects.iter().position(|object| {
            let file = object
                .path
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or(&object.path);
            object.soname == name || object.path == name || (!file.is_empty() && file == name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(soname: &str, needed: &[&str], defines: bool, global: bool) -> Object {
        Object {
            soname: soname.into(),
            needed: needed.iter().map(|name| name.as_bytes().to_vec()).collect(),
            definition: defines.then_some(1),
            global,
            ourselves: soname == "libvgpu.so",
            ..Object::default()
        }
    }

    fn soname(object: Option<&Object>) -> Option<String> {
        object.map(|object| String::from_utf8_lossy(&object.soname).into_owned())
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
        let scope = Scope {
            objects: &objects,
            started: objects.len(),
        };
        assert_eq!(soname(scope.next(2)).as_deref(), Some("libcuda.so.1"));
        assert_eq!(soname(scope.next(0)).as_deref(), Some("libwrap.so"));
        assert_eq!(
            soname(scope.default(Some(2))).as_deref(),
            Some("libwrap.so")
        );
        assert_eq!(soname(scope.default(None)).as_deref(), Some("libwrap.so"));
        assert_eq!(soname(scope.next(4)), None);
    }

    #[test]
    fn without_a_driver_our_own_name_is_no_answer() {
        let objects = &linked()[..2];
        let scope = Scope {
            objects,
            started: 2,
        };
        assert!(
            scope.next(0).is_none()
                && scope.default(Some(0)).is_none()
                && scope.default(None).is_none()
        );
    }

    #[test]
    fn a_local_driver_is_seen_by_what_it_was_opened_with_alone() {
        let mut objects = linked();
        objects.remove(2);
        objects.truncate(3);
        objects.push(object("module.so", &["libcuda.so.1"], false, false));
        objects.push(object("libcuda.so.1", &["libc.so.6"], true, false));
        objects.push(object("other.so", &[], false, false));
        let scope = Scope {
            objects: &objects,
            started: 3,
        };
        assert_eq!(
            soname(scope.default(Some(3))).as_deref(),
            Some("libcuda.so.1")
        );
        assert_eq!(soname(scope.next(3)).as_deref(), Some("libcuda.so.1"));
        assert!(scope.default(Some(0)).is_none() && scope.next(0).is_none());
        assert!(scope.default(Some(5)).is_none() && scope.next(5).is_none());
        objects[4].global = true;
        let scope = Scope {
            objects: &objects,
            started: 3,
        };
        assert_eq!(
            soname(scope.default(Some(0))).as_deref(),
            Some("libcuda.so.1")
        );
        assert_eq!(soname(scope.next(0)).as_deref(), Some("libcuda.so.1"));
    }
}
