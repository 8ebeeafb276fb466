//! The table of commands, and the look-ups in it. A row is: level, core version, C signature, what answers it, and the
//! names under which extensions have the same command. Each name, extensions' included, is a function of its own.

mod device;
mod instance;
mod later;
mod later_recorded;
mod presentation;
mod recorded;

use std::collections::HashMap;
use std::sync::OnceLock;

use ash::vk::{self, Handle};

use crate::boundary::{self, Function, Text, world};
use crate::extension;
use crate::instance::api_version;
use crate::state::STATE;

/// The first argument's kind decides through whom a command is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Global,
    Instance,
    PhysicalDevice,
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Core {
    V1_0,
    V1_1,
    V1_2,
    V1_3,
    V1_4,
}

/// Where a name comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    Core(Core),
    Extension(&'static str),
}

pub struct Command {
    pub name: &'static str,
    pub level: Level,
    pub origin: Origin,
    pub function: Function,
    /// The argument list as the row has it, for the comparison with the registry.
    #[cfg(test)]
    signature: &'static str,
}

macro_rules! commands {
    ($(
        $level:ident $from:tt $name:ident $signature:tt -> $ret:ty = $answer:expr $(, $alias:ident in $extension:literal)*;
    )+) => {
        $(
            $crate::commands::command! { $name $signature $ret, $answer }
            $($crate::commands::command! { $alias $signature $ret, $answer })*
        )+
        pub static ROWS: &[$crate::commands::Command] = &[$(
            $crate::commands::row!($name $signature, $level, $crate::commands::origin!($from)),
            $($crate::commands::row!($alias $signature, $level, $crate::commands::origin!($extension)),)*
        )+];
    };
}
use commands;

macro_rules! command {
    ($name:ident($($argument:ident: $kind:ty),*) $ret:ty, $answer:expr) => {
        #[expect(non_snake_case, reason = "the names of C")]
        extern "system" fn $name($($argument: $kind),*) -> $ret {
            $crate::boundary::enter(
                stringify!($name),
                || $crate::boundary::Becomes::<$ret>::answer($answer),
                &|| $crate::boundary::arguments::parameters!($($argument),*),
                &|_list| {
                    $(
                        let $argument = $crate::boundary::arguments::in_c!($argument);
                        ::trace::shape_vulkan!(_list, $argument);
                    )*
                },
            )
        }
    };
}
use command;

/// A core version, or the name of the extension.
macro_rules! origin {
    ($extension:literal) => {
        $crate::commands::Origin::Extension($extension)
    };
    ($core:ident) => {
        $crate::commands::Origin::Core($crate::commands::Core::$core)
    };
}
use origin;

macro_rules! row {
    ($name:ident $signature:tt, $level:ident, $origin:expr) => {
        $crate::commands::Command {
            name: stringify!($name),
            level: $crate::commands::Level::$level,
            origin: $origin,
            function: $crate::boundary::Function($name as *const ()),
            #[cfg(test)]
            signature: stringify!($signature),
        }
    };
}
use row;

/// The two commands that look up others, and the loader's own three. They leave no trace, so they are not rows above.
static LOOK_UPS: &[Command] = &[
    row!(vkGetInstanceProcAddr (instance: vk::Instance, name: Text), Global, origin!(V1_0)),
    row!(vkGetDeviceProcAddr (device: vk::Device, name: Text), Device, origin!(V1_0)),
];

#[expect(non_snake_case, reason = "the names of C")]
extern "system" fn vkGetInstanceProcAddr(instance: vk::Instance, name: Text) -> Function {
    boundary::look_up("vkGetInstanceProcAddr", || for_instance(instance, name))
}

#[expect(non_snake_case, reason = "the names of C")]
extern "system" fn vkGetDeviceProcAddr(device: vk::Device, name: Text) -> Function {
    boundary::look_up("vkGetDeviceProcAddr", || for_device(device, name))
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Command> {
    [
        LOOK_UPS,
        instance::ROWS,
        device::ROWS,
        recorded::ROWS,
        later::ROWS,
        later_recorded::ROWS,
        presentation::ROWS,
    ]
    .into_iter()
    .flatten()
}

fn find(name: Text) -> Option<&'static Command> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Command>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| all().map(|command| (command.name, command)).collect());
    let command = by_name.get(name.get()?)?;
    (!extension::missing(command.name)).then_some(*command)
}

/// The loader's own entry points, had by name from interface version 7 on.
fn of_loader(name: Text) -> Option<Function> {
    Some(Function(match name.get()? {
        "vk_icdNegotiateLoaderICDInterfaceVersion" => {
            boundary::vk_icdNegotiateLoaderICDInterfaceVersion as *const ()
        }
        "vk_icdGetInstanceProcAddr" => boundary::vk_icdGetInstanceProcAddr as *const (),
        "vk_icdGetPhysicalDeviceProcAddr" => boundary::vk_icdGetPhysicalDeviceProcAddr as *const (),
        _ => return None,
    }))
}

/// Without an instance only global commands; with one everything that the instance or any device behind it can answer, and the
/// global ones again, as the card does.
pub fn for_instance(instance: vk::Instance, name: Text) -> Function {
    let answer = || {
        if let Some(function) = of_loader(name) {
            return Some(function);
        }
        let command = find(name)?;
        if instance.is_null() {
            return (command.level == Level::Global).then_some(command.function);
        }
        let instance = STATE.instances.find(instance).ok()?;
        let available = match command.origin {
            Origin::Core(core) => in_core(core),
            Origin::Extension(name) => {
                instance.extensions.iter().any(|enabled| enabled == name)
                    || extension::is_of_device(name)
            }
        };
        available.then_some(command.function)
    };
    answer().unwrap_or(Function::NULL)
}

/// Only commands of devices, their queues and command buffers, and of extensions only those enabled.
pub fn for_device(device: vk::Device, name: Text) -> Function {
    let answer = || {
        let command = find(name).filter(|command| command.level == Level::Device)?;
        let device = STATE.devices.find(device).ok()?;
        let available = match command.origin {
            Origin::Core(core) => in_core(core),
            Origin::Extension(name) => device.extensions.iter().any(|enabled| enabled == name),
        };
        available.then_some(command.function)
    };
    answer().unwrap_or(Function::NULL)
}

/// The loader's question about commands that it may not know: is the first argument a physical device? Of Vulkan 1.0 and
/// by the names of extensions that a version took over, the card answers NULL: no loader asks.
pub fn for_physical_device(instance: vk::Instance, name: Text) -> Function {
    let asked = |command: &&Command| {
        command.level == Level::PhysicalDevice
            && match command.origin {
                Origin::Core(core) => core != Core::V1_0,
                // Nor is it asked for where a group's pictures go.
                Origin::Extension("VK_KHR_swapchain") => false,
                Origin::Extension(name) => {
                    extension::is_of_device(name) && command.name.ends_with("KHR")
                }
            }
    };
    match find(name).filter(asked) {
        Some(_) => for_instance(instance, name),
        None => Function::NULL,
    }
}

fn in_core(core: Core) -> bool {
    world().is_some_and(|world| core as u32 <= vk::api_version_minor(api_version(world)))
}

#[cfg(test)]
#[path = "commands/registry_test.rs"]
mod registry_test;
