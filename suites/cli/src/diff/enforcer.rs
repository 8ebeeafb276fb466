//! What the gate guards: our hooks, what they ask the drivers, the cases and the known defects. A difference is mapped to these.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Api, Case, symbols};

use crate::probe::nulls::base;

/// The libraries' own tables, compiled once more for their names.
#[path = "../../../../enforcement/interposer/src/hooks.rs"]
mod hooks;
#[path = "../../../../enforcement/layer/src/boundary/rows.rs"]
mod rows;

macro_rules! names {
    (
        cuda { $($cuda:ident => $cuda_when:ident $cuda_body:path;)* }
        nvml { $($nvml:ident => $nvml_when:ident $nvml_body:path;)* }
        per_thread { $($thread:ident;)* }
        per_thread called { $($called_thread:ident;)* }
        called cuda { $($called_cuda:ident;)* }
        called nvml { $($called_nvml:ident;)* }
    ) => {
        const HOOKS: &[&str] =
            &[$(stringify!($cuda),)* $(stringify!($nvml),)* $(stringify!($thread),)* $(stringify!($called_thread),)*];
        /// Those that only are followed by a look.
        const FOLLOWED: &[&str] = &[$(stringify!($thread),)* $(stringify!($called_thread),)*];
        const CALLED: &[&str] = &[$(stringify!($called_thread),)* $(stringify!($called_cuda),)* $(stringify!($called_nvml),)*];
    };
}
hooks::table!(names);

macro_rules! commands {
    ($($name:ident: $signature:path => $body:path, $scope:ident, $purpose:ident;)*) => {
        /// The layer's hooks.
        pub const COMMANDS: &[&str] = &[$(stringify!($name),)*];
    };
}
rows::table!(commands);

/// What `libvgpu_vk.so` asks NVML by itself (`layer/src/boundary/nvml.rs`).
const LAYER_CALLS: [&str; 7] = [
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMigDeviceHandleByIndex",
];

macro_rules! signatures {
    ($($name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty;)*) => {
        &[$((stringify!($name), stringify!(($($ty),*) -> $ret)),)*]
    };
}
const CUDA_ABI: &[(&str, &str)] = abi::cuda_signatures!(signatures);
const NVML_ABI: &[(&str, &str)] = abi::nvml_signatures!(signatures);

/// Everything that a difference can touch.
pub struct Enforcer {
    hooks: BTreeSet<&'static str>,
    called: BTreeSet<&'static str>,
    abi: BTreeMap<&'static str, &'static str>,
    asked: BTreeSet<&'static str>,
    cases: Vec<&'static Case>,
}

/// What a difference touches.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Touch {
    pub hooks: BTreeSet<String>,
    /// What our libraries ask the drivers by themselves.
    pub calls: BTreeSet<String>,
    /// Rows of fixtures/defects.txt that the change is about.
    pub defects: Vec<&'static str>,
    pub cases: BTreeSet<&'static str>,
    /// Further rows that these cases catch.
    pub further_defects: BTreeSet<&'static str>,
}

impl Touch {
    pub fn is_nothing(&self) -> bool {
        self.hooks.is_empty() && self.calls.is_empty() && self.cases.is_empty()
    }
}

impl Enforcer {
    pub fn ours() -> Self {
        Self {
            hooks: HOOKS.iter().chain(COMMANDS).copied().collect(),
            called: CALLED.iter().copied().chain(LAYER_CALLS).collect(),
            abi: CUDA_ABI.iter().chain(NVML_ABI).copied().collect(),
            asked: [Api::Cuda, Api::Nvml]
                .into_iter()
                .flat_map(symbols::of_any_generation)
                .collect(),
            cases: cases::SUITE.cases().collect(),
        }
    }

    pub fn hooks(&self, name: &str) -> bool {
        self.hooks.contains(name)
    }

    pub fn calls(&self, name: &str) -> bool {
        self.called.contains(name)
    }

    /// Other versions of the same function that our libraries ask by: whichever is there serves.
    pub fn called_siblings(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let per_thread = |name: &str| name.ends_with("_ptsz");
        let called = self.called.iter().copied();
        called.filter(move |other| {
            *other != name && base(other) == base(name) && per_thread(other) == per_thread(name)
        })
    }

    /// Whether a driver that was asked exports it: whoever made the hooks went through these.
    pub fn knows(&self, name: &str) -> bool {
        self.asked.contains(name) || self.abi.contains_key(name)
    }

    /// Whether `abi` gives both names the same arguments and answer.
    pub fn same_abi(&self, one: &str, other: &str) -> bool {
        let one = self.abi.get(one);
        one.is_some() && one == self.abi.get(other)
    }

    /// Whether a hook of ours has a body for it: not only a look after what the driver answers.
    pub fn answers(&self, name: &str) -> bool {
        self.hooks(name) && !FOLLOWED.contains(&name)
    }

    /// Hooks of the same function: other versions, other streams. Not those that only are followed by a look, beside which any version may stand.
    pub fn siblings(&self, name: &str) -> Vec<&'static str> {
        let of = base(name);
        let mut siblings: Vec<&str> = self.hooks.iter().copied().collect();
        siblings.retain(|hook| base(hook) == of && !FOLLOWED.contains(hook));
        siblings
    }

    /// Hooks whose name this one goes on from, at the border of a word; those with the longest.
    pub fn relatives(&self, name: &str) -> Vec<&'static str> {
        let extends = |hook: &&str| {
            let rest = base(name).strip_prefix(base(hook));
            rest.is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_uppercase()))
        };
        let found: Vec<&str> = self.hooks.iter().copied().filter(extends).collect();
        let longest = found.iter().map(|hook| base(hook).len()).max();
        found
            .into_iter()
            .filter(|hook| Some(base(hook).len()) == longest)
            .collect()
    }

    /// By entry points: the hooks and calls among them, the cases that exercise or need one.
    pub fn touch(&self, names: &[&str], defects: &[&'static str]) -> Touch {
        let owned = |wanted: &dyn Fn(&str) -> bool| {
            let names = names.iter().filter(|name| wanted(name));
            names.map(|name| (*name).to_owned()).collect()
        };
        let meets = |case: &&Case| {
            let mut of = case.entry_points.iter().chain(case.needs);
            of.any(|name| names.contains(name))
        };
        self.touched(
            owned(&|name| self.hooks(name)),
            owned(&|name| self.calls(name)),
            defects,
            meets,
        )
    }

    /// By rows of the defect list: the cases that catch one, and the named hooks.
    pub fn touch_rows(&self, names: &[&str], defects: &[&'static str]) -> Touch {
        let hooks = names.iter().map(|name| (*name).to_owned()).collect();
        let catches = |case: &&Case| case.defects.iter().any(|row| defects.contains(row));
        self.touched(hooks, BTreeSet::new(), defects, catches)
    }

    fn touched(
        &self,
        hooks: BTreeSet<String>,
        calls: BTreeSet<String>,
        defects: &[&'static str],
        wanted: impl Fn(&&Case) -> bool,
    ) -> Touch {
        let cases: Vec<&Case> = self
            .cases
            .iter()
            .copied()
            .filter(|case| wanted(case))
            .collect();
        let further = cases.iter().flat_map(|case| case.defects).copied();
        Touch {
            hooks,
            calls,
            defects: defects.to_vec(),
            further_defects: further.filter(|row| !defects.contains(row)).collect(),
            cases: cases.iter().map(|case| case.name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::{Library, artifacts};

    use super::*;

    #[test]
    fn the_names_are_those_that_the_built_library_exports() {
        let library = artifacts::find(Library::Interposer).expect("libvgpu.so is built");
        let bytes = std::fs::read(library).expect("a library");
        let exported = symbols::exports(&bytes).expect("an ELF file");
        let exported: BTreeSet<&str> = exported.iter().map(|(name, _)| name.as_str()).collect();
        let mut hooks: BTreeSet<&str> = HOOKS.iter().copied().collect();
        hooks.extend(["dlclose", "dlsym", "dlvsym"]);
        assert_eq!(exported, hooks);
    }

    #[test]
    fn the_built_layer_asks_nvml_by_these_names() {
        let library = artifacts::find(Library::Layer).expect("libvgpu_vk.so is built");
        let bytes = std::fs::read(library).expect("a library");
        for name in LAYER_CALLS {
            let name = format!("{name}\0");
            let found = bytes.windows(name.len()).any(|at| at == name.as_bytes());
            assert!(found, "{name}");
        }
    }

    /// What the gate says of the next driver it must be able to say of this one: nothing of a hooked function is unhooked. What was invented to be
    /// unknown is.
    #[test]
    fn every_version_of_a_hooked_function_is_hooked() {
        let enforcer = Enforcer::ours();
        for api in [Api::Cuda, Api::Nvml] {
            let known = symbols::of_generation(api, 615);
            let mut invented = symbols::of_generation(api, 999);
            invented.retain(|name| !known.contains(name));
            let mut names = symbols::of_any_generation(api);
            names.retain(|name| !invented.contains(name));
            for name in names {
                let open = !enforcer.hooks.contains(name) && !enforcer.siblings(name).is_empty();
                assert!(!open, "{name}: {:?}", enforcer.siblings(name));
            }
        }
    }

    #[test]
    fn abi_tells_a_twin_from_another_function() {
        let enforcer = Enforcer::ours();
        assert!(enforcer.same_abi("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"));
        assert!(!enforcer.same_abi("cuMemAlloc", "cuMemAlloc_v2"));
        assert!(!enforcer.same_abi("cuNope", "cuNope"));
        assert_eq!(
            enforcer.relatives("cuMemAllocManagedTwice_v2"),
            ["cuMemAllocManaged"]
        );
        assert!(enforcer.relatives("cuMemAllocate").is_empty());
    }
}
