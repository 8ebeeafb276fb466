//! What a case is: a promise with the circumstances it is kept under, and a body that tries to break it.

use crate::failure::Failure;
use crate::peer::Parent;
use crate::session::Session;

/// What a case's result must be where nothing enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Kind {
    /// Promises a budget: fails under `none` and `passthrough`, or the case proves nothing.
    Budget,
    /// Promises that nothing changes: passes everywhere.
    Neutral,
    /// Is about our own libraries: skipped where they are not.
    Own,
}

/// Which of the target's libraries the case's processes meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Libraries {
    /// Preload, and layer installed and enabled.
    Both,
    /// Preload, no layer installed.
    PreloadOnly,
    /// Layer installed and enabled, no preload.
    LayerOnly,
    /// Preload, and the layer installed without its enabling variable.
    PreloadWithIdleLayer,
    /// The layer installed without its enabling variable, no preload.
    IdleLayer,
    /// The target's proxies in the drivers' place, no preload, no layer.
    Proxies,
    /// Preload and proxies, layer installed and enabled.
    BothAndProxies,
    /// Neither.
    Neither,
}

impl Libraries {
    pub fn preloads(self) -> bool {
        matches!(
            self,
            Self::Both | Self::PreloadOnly | Self::PreloadWithIdleLayer | Self::BothAndProxies
        )
    }

    /// Whether the case asks for proxies by itself.
    pub fn proxies(self) -> bool {
        matches!(self, Self::Proxies | Self::BothAndProxies)
    }

    pub fn installs_layer(self) -> bool {
        !matches!(self, Self::PreloadOnly | Self::Proxies | Self::Neither)
    }

    pub fn enables_layer(self) -> bool {
        matches!(self, Self::Both | Self::LayerOnly | Self::BothAndProxies)
    }
}

/// A driver library that the case's environment lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Absent {
    /// No libcuda.so.1.
    Cuda,
    /// No libnvidia-ml.so.1.
    Nvml,
    /// No Vulkan driver manifest.
    Icd,
}

/// Whether the case can run over the machine's own driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum RealDriver {
    Yes,
    /// Beside no other case, and why.
    Alone(&'static str),
    /// The reason, shown with the Skip.
    No(&'static str),
}

/// One conformance case. Written as a row of [`cases!`](crate::cases), never by hand.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// The module that declares it: `cases::cuda::memory`.
    pub module: &'static str,
    /// The doc comment.
    pub promise: &'static str,
    pub kind: Kind,
    /// Rows of the defect list that it can catch.
    pub defects: &'static [&'static str],
    /// C entry points that it exercises.
    pub entry_points: &'static [&'static str],
    /// Entry points without which there is nothing to show: skipped over a driver that does not export them all.
    pub needs: &'static [&'static str],
    /// Mock profile, `rtx6000-ada` or `rtx6000-ada*4`; a real driver takes what is there, a mock of more GPUs too if the case has no faults.
    pub machine: &'static str,
    /// Skipped on a real machine with fewer.
    pub needs_gpus: u32,
    /// `0=23552MiB,1=4GiB`; `share` gives every device half of its size; empty sets none.
    pub budget: &'static str,
    /// Fault plan, TOML rows; such a case never runs on a real driver.
    pub faults: &'static str,
    pub libraries: Libraries,
    pub absent: &'static [Absent],
    /// Further variables for the case and its roles.
    pub env: &'static [(&'static str, &'static str)],
    /// Validation messages that the case provokes on purpose.
    pub invalid_use: &'static [&'static str],
    pub on_real: RealDriver,
    /// Why two runs of the case may differ in their traces; empty where they must not.
    pub unordered: &'static str,
    /// Why the target does not account for all that the case does (a Vulkan program without the layer, say): only the
    /// drivers are then checked after it. Empty where it must.
    pub unaccounted: &'static str,
    /// Most seconds that it may take.
    pub seconds: u32,
    pub body: fn(&mut Session) -> Result<(), Failure>,
}

impl Case {
    /// What a row leaves out.
    pub const BLANK: Case = Case {
        name: "",
        module: "",
        promise: "",
        kind: Kind::Neutral,
        defects: &[],
        entry_points: &[],
        needs: &[],
        machine: "rtx6000-ada",
        needs_gpus: 1,
        budget: "",
        faults: "",
        libraries: Libraries::Both,
        absent: &[],
        env: &[],
        invalid_use: &[],
        on_real: RealDriver::Yes,
        unordered: "",
        unaccounted: "",
        seconds: 240,
        body: |_| Ok(()),
    };

    /// The promise on one line, as `list` prints it.
    pub fn promise_line(&self) -> String {
        self.promise
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Where it stands: `cuda::memory` of `cases::cuda::memory`.
    pub fn place(&self) -> &'static str {
        self.module
            .split_once("::")
            .map_or(self.module, |(_, place)| place)
    }

    /// Whether a filter of a command line means it: a part of its name or of where it stands.
    pub fn is_meant_by(&self, filter: &str) -> bool {
        self.name.contains(filter) || self.place().contains(filter)
    }

    /// The area it belongs to: `cuda` of `cases::cuda::memory`.
    pub fn area(&self) -> &'static str {
        self.module.split("::").nth(1).unwrap_or(self.module)
    }
}

/// What another process of a case does. Written as a row of [`roles!`](crate::roles).
#[derive(Clone, Copy)]
pub struct Role {
    pub name: &'static str,
    pub body: fn(&mut Session, &mut Parent) -> Result<(), Failure>,
}

/// All cases and roles of a program: what `child_main` and the runner are given.
#[derive(Clone, Copy)]
pub struct Suite {
    pub cases: &'static [&'static [Case]],
    pub roles: &'static [&'static [Role]],
    /// Expectation files, name and text.
    pub expectations: &'static [(&'static str, &'static str)],
    /// Judges each process of a case once its body has passed: what the body itself cannot see, as validation messages.
    pub afterwards: fn(&Case) -> Result<(), Failure>,
    /// Takes all that is left of each device until a request is refused, so that an enforcer has had every occasion to put its books right. The
    /// answer is false where the process cannot tell: it has no such driver, or is refused for another reason.
    pub exhaust: fn(&Session) -> bool,
}

impl Suite {
    pub fn cases(&self) -> impl Iterator<Item = &'static Case> + use<> {
        self.cases.iter().flat_map(|file| file.iter())
    }

    pub fn case(&self, name: &str) -> Option<&'static Case> {
        self.cases().find(|case| case.name == name)
    }

    pub fn role(&self, name: &str) -> Option<&'static Role> {
        self.roles
            .iter()
            .flat_map(|file| file.iter())
            .find(|role| role.name == name)
    }
}
