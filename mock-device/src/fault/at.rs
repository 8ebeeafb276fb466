//! Where a fault stands: entry points by name, by pattern, by group; or a view of one API.

use crate::units::Api;

/// Groups of entry points that a row can name, each with its patterns.
pub const GROUPS: &[(&str, &[&str])] = &[
    (
        "cuda.alloc",
        &[
            "cuMemAlloc",
            "cuMemAlloc_v2",
            "cuMemAllocPitch*",
            "cuMemAllocManaged",
            "cuMemAllocAsync*",
            "cuMemAllocFromPoolAsync*",
            "cuMemCreate",
            "cuArrayCreate*",
            "cuArray3DCreate*",
            "cuMipmappedArrayCreate",
        ],
    ),
    (
        "cuda.free",
        &[
            "cuMemFree",
            "cuMemFree_v2",
            "cuMemFreeAsync*",
            "cuMemRelease",
            "cuArrayDestroy",
            "cuMipmappedArrayDestroy",
        ],
    ),
    (
        "cuda.context",
        &["cuCtxCreate*", "cuDevicePrimaryCtxRetain"],
    ),
    ("cuda.copy", &["cuMemcpy*"]),
    ("cuda.fill", &["cuMemset*"]),
    ("cuda.info", &["cuMemGetInfo*", "cuDeviceTotalMem*"]),
    ("cuda.launch", &["cuLaunch*", "cuGraphLaunch*"]),
    ("cuda.look-up", &["cuGetProcAddress*"]),
    ("cuda.module", &["cuModuleLoad*", "cuLibraryLoad*"]),
    (
        "cuda.wait",
        &[
            "cuCtxSynchronize*",
            "cuStreamSynchronize*",
            "cuEventSynchronize",
        ],
    ),
    (
        "nvml.init",
        &["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"],
    ),
    ("nvml.handle", &["nvmlDeviceGetHandleBy*"]),
    ("nvml.memory", &["nvmlDeviceGetMemoryInfo*"]),
    ("nvml.processes", &["nvmlDeviceGet*RunningProcesses*"]),
    (
        "nvml.utilization",
        &[
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetProcess*Utilization*",
            "nvmlDeviceGetSamples",
        ],
    ),
    ("vulkan.alloc", &["vkAllocateMemory"]),
    ("vulkan.free", &["vkFreeMemory"]),
    ("vulkan.look-up", &["vk_icdGet*ProcAddr", "vkGet*ProcAddr"]),
    ("vulkan.memory", &["vkGetPhysicalDeviceMemoryProperties*"]),
    ("vulkan.submit", &["vkQueueSubmit*", "vkQueueBindSparse"]),
    (
        "vulkan.wait",
        &[
            "vkWaitForFences",
            "vkWaitSemaphores*",
            "vkQueueWaitIdle",
            "vkDeviceWaitIdle",
        ],
    ),
];

/// What `at` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Entry points: names, or patterns in which `*` stands for any letters.
    Calls(Vec<String>),
    /// What an API says of who a device is: `vulkan.identity`.
    Identity(Api),
    /// Which devices an API shows: `cuda.devices`; `*.devices` means all of them.
    Devices(Vec<Api>),
    /// A driver's library as a whole: `nvml.library`.
    Library(Api),
}

impl At {
    /// # Errors
    /// Text that names neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, patterns)) = GROUPS.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Calls(
                patterns.iter().map(|&one| one.into()).collect(),
            ));
        }
        if text == "*" {
            return Ok(Self::Calls(vec!["*".into()]));
        }
        if let Some((api, rest)) = text.split_once('.') {
            let apis: Vec<Api> = Api::ALL
                .into_iter()
                .filter(|known| api == "*" || known.name() == api)
                .collect();
            match (rest, &apis[..]) {
                ("identity", [api]) => return Ok(Self::Identity(*api)),
                ("library", [api]) => return Ok(Self::Library(*api)),
                ("devices", [_, ..]) => return Ok(Self::Devices(apis)),
                ("*", [api]) => {
                    let prefix = match api {
                        Api::Cuda => "cu*",
                        Api::Nvml => "nvml*",
                        Api::Vulkan => "vk*",
                    };
                    return Ok(Self::Calls(vec![prefix.into()]));
                }
                _ => {}
            }
            let groups: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "`{text}` is no group: there are {}, and of each API `*`, `identity`, `devices` and `library`",
                groups.join(", ")
            ));
        }
        let stem = text.split('*').next().unwrap_or_default();
        if text.starts_with('*') || Api::of_symbol(stem).is_some() {
            return Ok(Self::Calls(vec![text.into()]));
        }
        Err(format!("no API has a symbol called `{text}`"))
    }

    /// The patterns that may be an entry point of `api`.
    pub(crate) fn patterns(&self, api: Api) -> Vec<String> {
        let Self::Calls(patterns) = self else {
            return Vec::new();
        };
        let fits = |pattern: &&String| {
            let stem = pattern.split('*').next().unwrap_or_default();
            stem.is_empty() || Api::of_symbol(stem) == Some(api)
        };
        patterns.iter().filter(fits).cloned().collect()
    }

    /// A single entry point's name, if that is what it is.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Calls(patterns) => match &patterns[..] {
                [one] if !one.contains('*') => Some(one),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whether a name fits a pattern.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let Some((stem, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(tail) = name.strip_prefix(stem) else {
        return false;
    };
    tail.char_indices()
        .map(|(at, _)| at)
        .chain([tail.len()])
        .any(|at| fits(rest, &tail[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        assert!(fits("cuMem*", "cuMemAlloc_v2") && fits("*", "") && fits("a*", "a"));
        assert!(fits(
            "nvmlDeviceGet*Processes*",
            "nvmlDeviceGetComputeRunningProcesses_v3"
        ));
        assert!(!fits("cuMem*_v3", "cuMemAlloc_v2") && !fits("cuMem", "cuMemAlloc"));
    }

    #[test]
    fn every_group_is_of_its_api() {
        for (name, patterns) in GROUPS {
            let api = name.split('.').next().unwrap();
            for pattern in *patterns {
                let stem = pattern.split('*').next().unwrap();
                assert_eq!(Api::of_symbol(stem).map(Api::name), Some(api), "{pattern}");
            }
        }
    }

    #[test]
    fn a_wrong_name_is_told_what_there_is() {
        for text in ["cuda.allocs", "opencl.*", "malloc", "", "*.identity"] {
            let said = At::parse(text).unwrap_err();
            assert!(said.contains(text), "{said}");
        }
    }
}
