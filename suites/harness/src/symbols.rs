//! Takes exported symbols out of a copy of a shared library, so that a driver "without `cuMemAlloc_v2`" is one for every
//! way to ask: direct linking, dlsym, and the library's own answers (which read the same list from the world).

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use build_support::oracle;
use mock_device::Api;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, elf};

use crate::environment::EnvironmentError;
use crate::plan::Plan;
use crate::recording;

/// Why the copy could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: not a 64-bit ELF library: {source}", path.display())]
    NotElf {
        path: PathBuf,
        source: object::Error,
    },
    #[error("{} does not export {symbol}", path.display())]
    NoSuchExport { path: PathBuf, symbol: String },
}

/// What each driver generation exports.
const TABLES: [(Api, &str); 2] = [
    (
        Api::Cuda,
        include_str!("../../../fixtures/oracle/libcuda.txt"),
    ),
    (Api::Nvml, include_str!("../../../fixtures/oracle/nvml.txt")),
];

/// The exports of a driver generation; none of Vulkan, whose commands are asked for by name.
pub fn of_generation(api: Api, generation: u16) -> Vec<&'static str> {
    exporting(api, |span| span.contains(generation))
}

/// What the mock library exports and a driver of this generation does not.
pub fn not_of_generation(api: Api, generation: u16) -> Vec<&'static str> {
    exporting(api, |span| !span.contains(generation))
}

/// The exports of every generation.
pub fn of_any_generation(api: Api) -> Vec<&'static str> {
    exporting(api, |_| true)
}

/// The table's rows: every export of any generation, with what drivers answered.
pub fn rows(api: Api) -> Vec<oracle::Export<'static>> {
    TABLES
        .iter()
        .filter(|(of, _)| *of == api)
        .flat_map(|(_, table)| oracle::exports(table))
        .collect()
}

fn exporting(api: Api, wanted: impl Fn(oracle::Span) -> bool) -> Vec<&'static str> {
    rows(api)
        .into_iter()
        .filter(|row| wanted(row.span))
        .map(|row| row.name)
        .collect()
}

/// The exports of the driver libraries under a case, as their files say: a mock's copy or the machine's own. A library that is not there has
/// none.
pub fn of_drivers(plan: &Plan) -> Result<BTreeSet<String>, EnvironmentError> {
    let mut names = BTreeSet::new();
    for soname in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let Some(path) = recording::driver_of(plan, soname)? else {
            continue;
        };
        let bytes = std::fs::read(&path).map_err(|source| SymbolError::File {
            path: path.clone(),
            source,
        })?;
        let found = exports(&bytes).map_err(|source| SymbolError::NotElf { path, source })?;
        names.extend(found.into_iter().map(|(name, _)| name));
    }
    Ok(names)
}

/// `library` without those exports, made once and kept beside it, because a mock with its debugging information is some 50 MB. What
/// a former build left there goes.
pub fn kept_without(library: &Path, missing: &[impl AsRef<str>]) -> Result<PathBuf, SymbolError> {
    let failed = |source| SymbolError::File {
        path: library.to_owned(),
        source,
    };
    let about = std::fs::metadata(library).map_err(failed)?;
    let stem = library.file_stem().unwrap_or_default().to_string_lossy();
    let mut names: Vec<&str> = missing.iter().map(AsRef::as_ref).collect();
    names.sort_unstable();
    let build = digest(&(about.len(), about.modified().map_err(failed)?));
    let ours = format!("{stem}-{build:016x}");
    let directory = library.with_file_name(TWINS);
    let own = directory.join(format!("{ours}-{:016x}", digest(&names)));
    // The file's name is what /proc shows of it.
    let kept = own.join(library.file_name().unwrap_or_default());
    if kept.is_file() {
        return Ok(kept);
    }
    std::fs::create_dir_all(&own).map_err(failed)?;
    let unfinished = tempfile::NamedTempFile::new_in(&own).map_err(failed)?;
    copy_without(library, unfinished.path(), missing)?;
    unfinished
        .persist(&kept)
        .map_err(|error| failed(error.error))?;
    let others = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten();
    for other in others {
        let name = other.file_name().to_string_lossy().into_owned();
        let made = other.metadata().and_then(|about| about.modified());
        let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LONGEST_RUN));
        if old && name.starts_with(&format!("{stem}-")) && !name.starts_with(&ours) {
            let _ = std::fs::remove_dir_all(other.path());
        }
    }
    Ok(kept)
}

/// Where copies without some exports are kept, beside what they are copies of.
const TWINS: &str = "twins";
/// What is older than this, no run uses any more.
const LONGEST_RUN: Duration = Duration::from_secs(3600);

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Writes `copy`, which is `library` without those exports.
pub fn copy_without(
    library: &Path,
    copy: &Path,
    missing: &[impl AsRef<str>],
) -> Result<PathBuf, SymbolError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| SymbolError::File { path, source }
    };
    let mut bytes = std::fs::read(library).map_err(file(library))?;
    let places = exports(&bytes).map_err(|source| SymbolError::NotElf {
        path: library.to_owned(),
        source,
    })?;
    for symbol in missing.iter().map(AsRef::as_ref) {
        let no_such_export = || SymbolError::NoSuchExport {
            path: library.to_owned(),
            symbol: symbol.to_owned(),
        };
        let (_, offset) = places
            .iter()
            .find(|(name, _)| name == symbol)
            .ok_or_else(no_such_export)?;
        // The hash chain still leads here, but the entry now names nothing.
        bytes[*offset..offset + size_of::<elf::Sym64<Endianness>>()].fill(0);
    }
    std::fs::write(copy, bytes).map_err(file(copy))?;
    Ok(copy.to_owned())
}

/// `library` as this driver's twin: `copy`, made without what the driver does not export, or `library` itself where the driver exports all of it.
pub fn twin(library: &Path, driver: &Path, copy: &Path) -> Result<PathBuf, SymbolError> {
    let names = |path: &Path| {
        let file = |source| SymbolError::File {
            path: path.to_owned(),
            source,
        };
        let not_elf = |source| SymbolError::NotElf {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::read(path).map_err(file)?;
        let found = exports(&bytes).map_err(not_elf)?;
        Ok(found.into_iter().map(|(name, _)| name).collect())
    };
    let (own, has): (BTreeSet<String>, BTreeSet<String>) = (names(library)?, names(driver)?);
    let missing: Vec<&String> = own.difference(&has).collect();
    if missing.is_empty() {
        return Ok(library.to_owned());
    }
    copy_without(library, copy, &missing)
}

/// Whether an ELF library has a section of that name.
pub fn has_section(library: &Path, name: &str) -> Result<bool, SymbolError> {
    let bytes = std::fs::read(library).map_err(|source| SymbolError::File {
        path: library.to_owned(),
        source,
    })?;
    let found = || -> Result<bool, object::Error> {
        let header = elf::FileHeader64::<Endianness>::parse(&*bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &*bytes)?;
        Ok(sections.section_by_name(endian, name.as_bytes()).is_some())
    };
    found().map_err(|source| SymbolError::NotElf {
        path: library.to_owned(),
        source,
    })
}

/// Every exported symbol, with the file offset of its entry in `.dynsym`. Names with a dot are left out: no C program has or calls one, and they take
/// nobody's place.
pub fn exports(bytes: &[u8]) -> Result<Vec<(String, usize)>, object::Error> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
    let start = sections.section(symbols.section())?.sh_offset(endian) as usize;
    let mut found = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_bind() != elf::STB_LOCAL {
            let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
            if !name.contains('.') {
                found.push((name, start + index.0 * size_of::<elf::Sym64<Endianness>>()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared library that every machine running the tests has.
    fn some_library() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let path = maps
            .split_whitespace()
            .find(|word| word.contains("/libc.so"))
            .expect("a dynamically linked test");
        PathBuf::from(path)
    }

    #[test]
    fn a_removed_export_is_gone_and_its_neighbours_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("copy.so");
        copy_without(&some_library(), &copy, &["strtok_r".to_owned()]).expect("libc exports it");
        let names =
            |path: &Path| exports(&std::fs::read(path).expect("readable")).expect("an ELF file");
        let (before, after) = (names(&some_library()), names(&copy));
        assert!(before.iter().any(|(name, _)| name == "strtok_r"));
        assert!(!after.iter().any(|(name, _)| name == "strtok_r"));
        assert_eq!(
            after.len() + before.iter().filter(|(name, _)| name == "strtok_r").count(),
            before.len()
        );
    }

    #[test]
    fn what_is_kept_is_made_once_for_each_build_and_list() {
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory.path().join("libsome.so");
        std::fs::copy(some_library(), &library).expect("room");
        let kept = |names: &[&str]| kept_without(&library, names).expect("libc exports it");
        let (one, same, other) = (
            kept(&["strtok_r", "strtok"]),
            kept(&["strtok", "strtok_r"]),
            kept(&["strtok"]),
        );
        assert!(one == same && one != other);
        let made = std::fs::metadata(&one)
            .expect("it is there")
            .modified()
            .expect("a time");
        assert_eq!(
            std::fs::metadata(kept(&["strtok", "strtok_r"]))
                .expect("it")
                .modified()
                .expect("a time"),
            made
        );
        let file = std::fs::File::options()
            .append(true)
            .open(&library)
            .expect("ours");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .expect("ours");
        assert_ne!(kept(&["strtok"]), other, "another build");
    }

    #[test]
    fn a_symbol_that_was_never_there_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let answer = copy_without(
            &some_library(),
            &directory.path().join("copy.so"),
            &["cuInit".to_owned()],
        );
        assert!(
            matches!(answer, Err(SymbolError::NoSuchExport { symbol, .. }) if symbol == "cuInit")
        );
    }
}
