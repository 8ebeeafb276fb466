//! What each command of Vulkan does to a tenant's memory: `fixtures/commands-vulkan.txt`, against the installed registry.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

/// The classes: command, word, reason.
const CLASSES: &str = include_str!("../../../fixtures/commands-vulkan.txt");
/// The registry that `suites/setup` installs (Debian: libvulkan-dev).
const REGISTRY: &str = "/usr/share/vulkan/registry/vk.xml";

/// What the word says a hook does.
const HOOKED: [&str; 4] = ["charged", "looked", "told", "chain"];
const UNHOOKED: [&str; 3] = ["recorded", "nothing", "open"];

/// What the table lacks, or says without a reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Commands {
    pub all: usize,
    pub open: usize,
    /// No row, or one that says too little.
    pub unclassified: Vec<String>,
    /// Hooked, and the table says otherwise; or the other way round; or no command.
    pub untrue: Vec<String>,
}

/// The table against the registry and these hooks.
pub fn commands(hooks: &BTreeSet<&str>) -> Result<Commands, Box<dyn Error>> {
    let registry = std::fs::read_to_string(REGISTRY)
        .map_err(|error| format!("{REGISTRY}: {error} (suites/setup installs it)"))?;
    judge(CLASSES, &registered(&registry)?, hooks)
}

/// The commands of Vulkan in a registry, which is of other APIs too.
fn registered(registry: &str) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let registry = roxmltree::Document::parse_with_options(registry, options)?;
    let ours = |node: &roxmltree::Node<'_, '_>| {
        let apis = node.attribute("api").unwrap_or("vulkan");
        apis.split(',').any(|api| api == "vulkan")
    };
    let lists = registry.root_element().children();
    let commands = lists
        .filter(|node| node.has_tag_name("commands"))
        .flat_map(|list| list.children());
    let name = |node: roxmltree::Node<'_, '_>| {
        let alias = node.attribute("name").map(str::to_owned);
        let own = || {
            let prototype = node.children().find(|child| child.has_tag_name("proto"))?;
            let name = prototype
                .children()
                .find(|child| child.has_tag_name("name"))?;
            name.text().map(str::to_owned)
        };
        alias.or_else(own)
    };
    let commands = commands.filter(|node| node.has_tag_name("command") && ours(node));
    Ok(commands.filter_map(name).collect())
}

fn judge(
    classes: &str,
    registered: &BTreeSet<String>,
    hooks: &BTreeSet<&str>,
) -> Result<Commands, Box<dyn Error>> {
    let rows = classes
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut classes: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for row in rows {
        let mut words = row.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, class) = (word(), (word(), word()));
        if classes.insert(name, class).is_some() {
            return Err(format!("fixtures/commands-vulkan.txt: two rows of {name}").into());
        }
    }
    let mut found = Commands {
        all: registered.len(),
        ..Commands::default()
    };
    for name in registered {
        let (class, reason) = classes.remove(name.as_str()).unwrap_or_default();
        let known = if hooks.contains(name.as_str()) {
            &HOOKED[..]
        } else {
            &UNHOOKED[..]
        };
        match class {
            "" => found.unclassified.push(name.clone()),
            _ if !known.contains(&class) => found.untrue.push(format!("{name} {class}")),
            "recorded" if !name.starts_with("vkCmd") => {
                found.untrue.push(format!("{name} {class}"));
            }
            "open" if reason.is_empty() => found.unclassified.push(name.clone()),
            // Who makes something says why the device has no part in it.
            "nothing" if reason.is_empty() && makes(name) => found.unclassified.push(name.clone()),
            "open" => found.open += 1,
            _ => {}
        }
    }
    found.untrue.extend(
        classes
            .iter()
            .map(|(name, (class, _))| format!("{name} {class}")),
    );
    Ok(found)
}

fn makes(name: &str) -> bool {
    ["vkCreate", "vkAllocate"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(classes: &str) -> Commands {
        let registry = r#"<registry><commands><command><proto><type>void</type> <name>vkCreateA</name></proto></command>
            <command name="vkCreateAKHR" alias="vkCreateA"/><command api="vulkansc"><proto><name>vkOther</name></proto></command>
            <command><proto><name>vkCmdB</name></proto></command><command><proto><name>vkGetC</name></proto></command></commands></registry>"#;
        let registered = registered(registry).unwrap();
        judge(classes, &registered, &BTreeSet::from(["vkGetC"])).unwrap()
    }

    #[test]
    fn each_command_needs_a_word_and_what_makes_something_a_reason() {
        let rest = "vkCmdB recorded\nvkGetC told\n";
        let good = judged(&format!(
            "vkCreateA open so\nvkCreateAKHR nothing so\n{rest}"
        ));
        let expected = Commands {
            all: 4,
            open: 1,
            ..Commands::default()
        };
        assert_eq!(good, expected);
        let bare = judged(&format!("vkCreateA open\nvkCreateAKHR nothing\n{rest}"));
        assert_eq!(bare.unclassified, ["vkCreateA", "vkCreateAKHR"]);
        assert_eq!(judged(rest).unclassified, ["vkCreateA", "vkCreateAKHR"]);
    }

    #[test]
    fn what_the_table_says_of_hooks_is_so() {
        let untrue = judged(
            "vkCreateA recorded\nvkCreateAKHR looked\nvkCmdB recorded\nvkGetC nothing\nvkOther nothing\n",
        );
        let expected = [
            "vkCreateA recorded",
            "vkCreateAKHR looked",
            "vkGetC nothing",
            "vkOther nothing",
        ];
        assert_eq!(untrue.untrue, expected);
    }
}
