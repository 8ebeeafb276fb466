//! The table against vk.xml: every command of the advertised versions and extensions has a row, at the right level, with
//! the argument list of the registry. Skipped, aloud, where the registry is not installed.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node, ParsingOptions};

use super::{Core, Level, Origin, all};
use crate::extension;

#[path = "../../../suites/missing.rs"]
mod missing;

fn of_vulkan(node: &Node<'_, '_>) -> bool {
    node.attribute("api")
        .is_none_or(|api| api.split(',').any(|api| api == "vulkan"))
}

fn children<'a, 'b>(node: Node<'a, 'b>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    node.children().filter(move |child| child.has_tag_name(tag))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter(Node::is_text)
        .filter_map(|node| node.text())
        .collect()
}

/// Rust's name of a C type: wrapped structures keep their name, bits go by their mask's.
fn rust_name(c: &str) -> String {
    let primitive = match c {
        "uint32_t" | "VkBool32" | "VkSampleMask" => "u32",
        "int" | "int32_t" => "i32",
        "uint16_t" => "u16",
        "uint64_t" | "VkDeviceSize" | "VkDeviceAddress" => "u64",
        "float" => "f32",
        "size_t" => "usize",
        _ => return c.replacen("Vk", "vk::", 1).replace("FlagBits", "Flags"),
    };
    primitive.to_owned()
}

/// Whether an argument of the table can stand for a parameter of the registry.
fn fits(argument: &str, parameter: Node<'_, '_>) -> bool {
    let kind = children(parameter, "type")
        .next()
        .map(text)
        .unwrap_or_default();
    let whole = text(parameter);
    let (wrapper, inner) = argument
        .trim_end_matches('>')
        .split_once('<')
        .unwrap_or((argument, ""));
    let inner = inner.trim_end_matches("<'_");
    // Promoted since, and known to us by the newer name.
    let newer = |name: String| {
        name.replace("CalibratedTimestampInfoEXT", "CalibratedTimestampInfoKHR")
            .replace("TimeDomainEXT", "TimeDomainKHR")
            .replace("LineRasterizationModeEXT", "LineRasterizationModeKHR")
    };
    let named = newer(rust_name(&kind)) == inner;
    match (
        whole.matches('*').count() + usize::from(whole.contains('[')),
        whole.starts_with("const"),
    ) {
        (0, _) => argument == newer(rust_name(&kind)),
        (1, true) => match &*kind {
            "char" => argument == "Text",
            "void" => argument == "List<u8>",
            "VkAllocationCallbacks" => argument == "Allocator",
            _ => named && matches!(wrapper, "In" | "List"),
        },
        (1, false) if kind == "void" => argument == "OutList<u8>",
        (1, false) => named && matches!(wrapper, "Out" | "OutList" | "New"),
        _ => argument == "Out<Raw>",
    }
}

fn arguments(signature: &str) -> Vec<String> {
    let inside = signature
        .trim_start_matches('(')
        .trim_end_matches(')')
        .replace('\n', " ");
    let parts = inside.split(", ").filter_map(|part| part.split_once(':'));
    parts
        .map(|(_, kind)| kind.replace(' ', "").trim_end_matches(',').to_owned())
        .collect()
}

fn level(name: &str, first: &str) -> Level {
    match first {
        _ if name == "vkGetInstanceProcAddr" => Level::Global,
        "vk::Instance" => Level::Instance,
        "vk::PhysicalDevice" => Level::PhysicalDevice,
        "vk::Device" | "vk::Queue" | "vk::CommandBuffer" => Level::Device,
        _ => Level::Global,
    }
}

#[test]
fn the_table_is_the_registry() {
    let Ok(registry) = std::fs::read_to_string("/usr/share/vulkan/registry/vk.xml") else {
        return missing::skip("no registry (Debian: libvulkan-dev)");
    };
    let options = ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = Document::parse_with_options(&registry, options).expect("vk.xml");
    let nodes = || document.descendants().filter(of_vulkan);
    let definitions: BTreeMap<String, Node<'_, '_>> = nodes()
        .filter(|node| {
            node.has_tag_name("command")
                && node
                    .parent()
                    .is_some_and(|parent| parent.has_tag_name("commands"))
        })
        .filter_map(|node| {
            let proto = children(node, "proto")
                .next()
                .and_then(|proto| children(proto, "name").next());
            Some((
                proto
                    .map(text)
                    .or_else(|| node.attribute("name").map(str::to_owned))?,
                node,
            ))
        })
        .collect();

    let advertised = |name: &str| {
        name.is_empty() || extension::is_of_device(name) || extension::is_of_instance(name)
    };
    let mut wanted = BTreeSet::new();
    for block in
        nodes().filter(|node| node.has_tag_name("feature") || node.has_tag_name("extension"))
    {
        let name = block.attribute("name").unwrap_or_default();
        let core = block.has_tag_name("feature")
            && block
                .attribute("number")
                .is_some_and(|number| number <= "1.3");
        // What an extension adds only beside another one is wanted if that one is advertised too.
        let alone = |node: &Node<'_, '_>| {
            let beside = node.attribute("extension").or(node.attribute("depends"));
            beside.is_none_or(|names| names.split([',', '+', '(', ')']).all(&advertised))
        };
        for require in children(block, "require")
            .filter(alone)
            .filter(|_| core || advertised(name))
        {
            wanted.extend(children(require, "command").filter_map(|node| node.attribute("name")));
        }
    }
    let extensions: BTreeSet<&str> = nodes()
        .filter(|node| node.has_tag_name("extension"))
        .filter_map(|node| node.attribute("name"))
        .collect();
    // A command of a version or extension newer than the registry cannot be compared with it.
    let known = |row: &&super::Command| {
        definitions.contains_key(row.name)
            && match row.origin {
                Origin::Core(core) => core <= Core::V1_3,
                Origin::Extension(name) => extensions.contains(name),
            }
    };
    let rows: BTreeSet<&str> = all().filter(known).map(|row| row.name).collect();
    println!(
        "{} rows, {} of them in the registry",
        all().count(),
        rows.len()
    );
    assert_eq!(
        rows.iter()
            .filter(|name| !wanted.contains(*name))
            .collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "not advertised"
    );
    assert_eq!(
        wanted
            .iter()
            .filter(|name| !rows.contains(*name))
            .collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "not answered"
    );

    for row in all().filter(known) {
        let mut definition = definitions[row.name];
        while let Some(alias) = definition.attribute("alias") {
            definition = definitions[alias];
        }
        let parameters: Vec<_> = children(definition, "param").filter(of_vulkan).collect();
        let arguments = arguments(row.signature);
        assert_eq!(
            arguments.len(),
            parameters.len(),
            "{}: {arguments:?}",
            row.name
        );
        for (argument, parameter) in arguments.iter().zip(&parameters) {
            assert!(
                fits(argument, *parameter),
                "{}: {argument} for {}",
                row.name,
                text(*parameter)
            );
        }
        assert_eq!(row.level, level(row.name, &arguments[0]), "{}", row.name);
    }
}

#[test]
fn no_two_names_share_an_address() {
    let addresses: BTreeSet<usize> = all().map(|row| row.function.0.addr()).collect();
    assert_eq!(addresses.len(), all().count());
    assert!(all().any(|row| matches!(row.origin, Origin::Extension("VK_KHR_synchronization2"))));
}
