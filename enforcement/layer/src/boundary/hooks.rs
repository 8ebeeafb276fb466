//! What a row of the table ([`rows`]) yields: a command that is hooked, what it belongs to, and when.

use ash::vk;

use super::{commands, makers, negotiate, rows, submissions};

/// What a command is called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: answered without asking next, who has no handle to be asked by.
    Global,
    /// An instance or a physical device.
    Instance,
    Device,
}

/// Why a command is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To know the chain. Always.
    Chain,
    /// To keep a budget. Only where there is one.
    Budget,
    /// To keep a compute budget. Only where there is one.
    Pace,
    /// To keep either of them. Only where there is one.
    Work,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    pub name: &'static str,
    pub scope: Scope,
    pub purpose: Purpose,
    address: unsafe extern "system" fn(),
}

impl Hook {
    pub fn named(name: &[u8]) -> Option<&'static Hook> {
        name.starts_with(b"vk")
            .then(|| HOOKS.iter().find(|hook| hook.name.as_bytes() == name))?
    }

    pub const fn address(&self) -> vk::PFN_vkVoidFunction {
        Some(self.address)
    }
}

macro_rules! hooks {
    ($($name:ident: $signature:path => $body:path, $scope:ident, $purpose:ident;)*) => {
        pub static HOOKS: &[Hook] = &[$(Hook {
            name: stringify!($name),
            scope: Scope::$scope,
            purpose: Purpose::$purpose,
            // SAFETY: a command's address is handed out as PFN_vkVoidFunction and called as what its name says.
            address: unsafe { std::mem::transmute::<$signature, unsafe extern "system" fn()>($body) },
        },)*];
    };
}

rows::table!(hooks);

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
