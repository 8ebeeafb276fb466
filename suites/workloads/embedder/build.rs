//! Compiles each kernel of `kernels/` to SPIR-V: `AFFINE`, `REVERSE`, … are words of `kernels.rs` in OUT_DIR.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// What Vulkan 1.1 takes at most: storage buffers need no extension there.
const SPIRV: (u8, u8) = (1, 3);

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=kernels");
    let mut sources: Vec<_> = fs::read_dir("kernels")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    sources.sort();
    let mut constants = String::new();
    for source in sources {
        let words = compiled(&source)?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(
            constants,
            "/// `{}`, compiled.\npub const {}: &[u32] = &{words:?};",
            source.display(),
            name.to_uppercase()
        )?;
    }
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&out).join("kernels.rs"), constants)?;
    Ok(())
}

fn compiled(source: &Path) -> Result<Vec<u32>, Box<dyn Error>> {
    let text = fs::read_to_string(source)?;
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|error| error.emit_to_string_with_path(&text, &source.display().to_string()))?;
    let facts = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(&module)
        .map_err(|error| error.emit_to_string_with_path(&text, &source.display().to_string()))?;
    let options = spv::Options {
        lang_version: SPIRV,
        flags: spv::WriterFlags::empty(),
        ..spv::Options::default()
    };
    Ok(spv::write_vec(&module, &facts, &options, None)?)
}
