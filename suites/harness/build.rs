//! Embeds the data files of `fixtures/targets` and `fixtures/expectations`, so that a carried executable has them:
//! adding one is adding a file.

use std::fmt::Write;
use std::path::Path;

fn main() -> std::io::Result<()> {
    embed("targets", "toml")?;
    embed("expectations", "txt")
}

/// `const TARGETS: &[(file name, text)]`, sorted by name.
fn embed(folder: &str, extension: &str) -> std::io::Result<()> {
    // Asked when it runs: compiled in, it would be the folder of whichever clone shares this target directory.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let directory = Path::new(&manifest).join("../../fixtures").join(folder);
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path.canonicalize()?);
        }
    }
    files.sort();
    let mut table = format!("const {}: &[(&str, &str)] = &[", folder.to_uppercase());
    for path in files {
        let name = path.file_name().unwrap_or_default();
        write!(table, "({name:?}, include_str!({path:?})),").map_err(std::io::Error::other)?;
    }
    table.push_str("];");
    let generated =
        Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join(format!("{folder}.rs"));
    std::fs::write(generated, table)
}
