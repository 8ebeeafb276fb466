//! The table against the registry: what is computed there is not maintained here.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[path = "../../../../suites/missing.rs"]
mod missing;

const REGISTRY: &str = "/usr/share/vulkan/registry/vk.xml";

/// Every command's alias for another: (alias, command). `None`, said loudly, where the registry is not installed.
fn aliases() -> Option<Vec<(String, String)>> {
    let Ok(text) = std::fs::read_to_string(REGISTRY) else {
        missing::skip(format_args!(
            "{REGISTRY} is not there (Debian: libvulkan-dev)"
        ));
        return None;
    };
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let registry =
        roxmltree::Document::parse_with_options(&text, options).expect("the registry is XML");
    let commands = registry
        .descendants()
        .filter(|node| node.has_tag_name("command"));
    Some(
        commands
            .filter_map(|node| {
                Some((
                    node.attribute("name")?.to_owned(),
                    node.attribute("alias")?.to_owned(),
                ))
            })
            .collect(),
    )
}

#[test]
fn every_alias_of_a_hooked_command_is_hooked() {
    let Some(aliases) = aliases() else { return };
    assert!(
        aliases.len() > 50,
        "the registry has many aliases, not {}",
        aliases.len()
    );
    let hooked: BTreeSet<&str> = HOOKS.iter().map(|hook| hook.name).collect();
    let missing: BTreeMap<&str, &str> = aliases
        .iter()
        .map(|(alias, command)| (alias.as_str(), command.as_str()))
        .flat_map(|(alias, command)| [(alias, command), (command, alias)])
        .filter(|(one, other)| !hooked.contains(one) && hooked.contains(other))
        .collect();
    assert!(
        missing.is_empty(),
        "not hooked though their aliases are: {missing:?}"
    );
    assert!(
        aliases
            .iter()
            .any(|(alias, _)| hooked.contains(alias.as_str()))
    );
}

#[test]
fn a_name_is_found_exactly() {
    for hook in HOOKS {
        assert_eq!(
            Hook::named(hook.name.as_bytes()).map(|found| found.name),
            Some(hook.name)
        );
    }
    for other in [
        "",
        "vk",
        "vkAllocateMemor",
        "vkAllocateMemoryKHR",
        "vkQueueWaitIdle",
        "cuMemAlloc",
    ] {
        assert!(Hook::named(other.as_bytes()).is_none(), "{other}");
    }
}

#[test]
fn every_hook_has_its_own_address() {
    let addresses: BTreeSet<usize> = HOOKS.iter().filter_map(Hook::address_word).collect();
    assert_eq!(addresses.len(), HOOKS.len());
}

#[test]
fn negotiation_refuses_null() {
    // SAFETY: null is a case of the contract.
    let refused =
        unsafe { negotiate::vkNegotiateLoaderLayerInterfaceVersion(std::ptr::null_mut()) };
    assert_eq!(refused, vk::Result::ERROR_INITIALIZATION_FAILED);
}

impl Hook {
    fn address_word(&self) -> Option<usize> {
        self.address().map(|function| function as usize)
    }
}
