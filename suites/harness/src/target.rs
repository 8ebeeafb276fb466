//! The system under test: what is put before the drivers, and how it is told a budget. Rows of `fixtures/targets`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::artifacts::{self, ArtifactError, Library};
use mock_device::Bytes;

/// One target, as its TOML file gives it.
///
/// In values, `{vgpu}`, `{vgpu_vk}`, `{vgpu_cuda}` and `{vgpu_nvml}` are our built libraries, `{vgpu_seeded}` and `{vgpu_vk_seeded}` those with a defect, `{root}` the case's directory, `{ledger}` its ledger;
/// `{library}` the one that the user named with the target (`--target NAME=LIBRARY`); in a budget's row `{device}`, `{bytes}` and `{mib}` are what they say.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: String,
    /// Of an enforcer that is not ours: what its expectation files were recorded with, `<name>-<version>-fails.txt` and so on.
    #[serde(default)]
    pub version: Option<String>,
    /// Where `{library}` is to be had, for a user who names none.
    #[serde(default)]
    pub obtain: String,
    /// Sets budgets and is expected to keep them. Where it does not, a Budget case must fail.
    pub enforces: bool,
    /// Grants what fits. Where it does not, a Budget case must fail, but for those of `<name>-passes.txt`, and no other case is run.
    #[serde(default = "yes")]
    pub grants: bool,
    /// Is made of our own libraries, so that Own cases can run.
    #[serde(default)]
    pub own: bool,
    /// Keeps our ledger at `{ledger}`, which the checkers then read.
    #[serde(default)]
    pub declares_ledger: bool,
    /// For LD_PRELOAD.
    #[serde(default)]
    pub preload: Vec<String>,
    /// A driver's name → the library put in its place, for cases that ask for proxies; for all where nothing is preloaded.
    #[serde(default)]
    pub proxies: BTreeMap<String, String>,
    #[serde(default)]
    pub layer: Option<LayerSpec>,
    /// Variable → value, once per budgeted device.
    #[serde(default)]
    pub budget: BTreeMap<String, String>,
    /// Further variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A Vulkan layer that a target installs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// The manifest, a path; without it the one that we ship. Its library_path is rewritten, and its api_version if one is given here, nothing else.
    #[serde(default)]
    pub manifest: Option<PathBuf>,
    #[serde(default)]
    pub api_version: Option<String>,
    pub library: String,
    /// What enables it.
    pub enable: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

/// Why a target cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("\"{text}\" is neither a target ({known}) nor a file: give a .toml or a .so by path", known = known().join(", "))]
    Unknown { text: String },
    #[error("target {}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("target {name}: {source}")]
    Syntax {
        name: String,
        source: Box<toml::de::Error>,
    },
    #[error("target {name}: {source}")]
    Library { name: String, source: ArtifactError },
    #[error("target {name} needs a library that is not ours: --target {name}=LIBRARY; {obtain}")]
    NoLibrary { name: String, obtain: String },
    #[error("target {name} has no place for a library ({{library}})")]
    NoPlace { name: String },
    #[error("target {name}: {}: {source}; {obtain}", path.display())]
    UserLibrary {
        name: String,
        path: PathBuf,
        source: std::io::Error,
        obtain: String,
    },
    #[error("target {name} cannot be told a budget of {budget}: {value} counts whole MiB")]
    NotWholeMib {
        name: String,
        budget: Bytes,
        value: String,
    },
}

include!(concat!(env!("OUT_DIR"), "/targets.rs"));

/// The names of the targets that come with the harness.
pub fn known() -> Vec<&'static str> {
    TARGETS
        .iter()
        .map(|(file, _)| file.trim_end_matches(".toml"))
        .collect()
}

impl Target {
    /// `ours`, another name that comes with the harness, a TOML file, either with `=LIBRARY` if it is about one that is not ours, or just a library
    /// to preload.
    pub fn named(text: &str) -> Result<Self, TargetError> {
        let (name, library) = match text.split_once('=') {
            Some((name, library)) if !Path::new(text).is_file() => (name, Some(library)),
            _ => (text, None),
        };
        Self::found(name)?.with_library(library)
    }

    /// Has the user's library in the places that are left for it.
    fn with_library(mut self, library: Option<&str>) -> Result<Self, TargetError> {
        let (name, obtain) = (self.name.clone(), self.obtain.clone());
        let mut places: Vec<_> = self
            .values()
            .filter(|value| value.contains(LIBRARY))
            .collect();
        let path = match library {
            None if places.is_empty() => return Ok(self),
            None => return Err(TargetError::NoLibrary { name, obtain }),
            Some(_) if places.is_empty() => return Err(TargetError::NoPlace { name }),
            Some(path) => PathBuf::from(path),
        };
        let path = std::fs::canonicalize(&path).map_err(|source| TargetError::UserLibrary {
            name,
            path,
            source,
            obtain,
        })?;
        for place in &mut places {
            **place = place.replace(LIBRARY, &path.display().to_string());
        }
        Ok(self)
    }

    /// Where paths may stand.
    fn values(&mut self) -> impl Iterator<Item = &mut String> {
        let values = self
            .preload
            .iter_mut()
            .chain(self.proxies.values_mut())
            .chain(self.environment.values_mut());
        values.chain(self.layer.iter_mut().map(|layer| &mut layer.library))
    }

    /// What its expectation files are called after.
    pub fn stem(&self) -> String {
        match &self.version {
            Some(version) => format!("{}-{version}", self.name),
            None => self.name.clone(),
        }
    }

    fn found(text: &str) -> Result<Self, TargetError> {
        if let Some((_, source)) = TARGETS
            .iter()
            .find(|(file, _)| file.strip_suffix(".toml") == Some(text))
        {
            return Self::parse(text, source);
        }
        let path = Path::new(text);
        if !path.is_file() {
            return Err(TargetError::Unknown {
                text: text.to_owned(),
            });
        }
        let path = path.canonicalize().map_err(|source| TargetError::File {
            path: path.to_owned(),
            source,
        })?;
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let source = std::fs::read_to_string(&path);
            return Self::parse(
                text,
                &source.map_err(|source| TargetError::File { path, source })?,
            );
        }
        let mut target = Self::parse("a path", PRELOADED_LIBRARY)?;
        target.name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        target.preload = vec![path.display().to_string()];
        Ok(target)
    }

    /// Nothing before the drivers.
    pub fn nothing() -> Self {
        Self {
            name: "nothing".to_owned(),
            version: None,
            obtain: String::new(),
            enforces: false,
            grants: true,
            own: false,
            declares_ledger: false,
            preload: Vec::new(),
            proxies: BTreeMap::new(),
            layer: None,
            budget: BTreeMap::new(),
            environment: BTreeMap::new(),
        }
    }

    fn parse(name: &str, source: &str) -> Result<Self, TargetError> {
        toml::from_str(source).map_err(|source| TargetError::Syntax {
            name: name.to_owned(),
            source: Box::new(source),
        })
    }

    /// The same target with our libraries' and the case's paths filled in.
    pub fn resolved(&self, root: &Path, ledger: &Path) -> Result<Self, TargetError> {
        let mut target = self.clone();
        for value in target.values() {
            for (word, library) in [
                ("{vgpu}", Library::Interposer),
                ("{vgpu_vk}", Library::Layer),
                ("{vgpu_cuda}", Library::ProxyLibcuda),
                ("{vgpu_nvml}", Library::ProxyLibnvml),
                ("{vgpu_seeded}", Library::SeededInterposer),
                ("{vgpu_vk_seeded}", Library::SeededLayer),
            ] {
                if value.contains(word) {
                    let path = artifacts::find(library).map_err(|source| TargetError::Library {
                        name: self.name.clone(),
                        source,
                    })?;
                    *value = value.replace(word, &path.display().to_string());
                }
            }
            *value = value
                .replace("{root}", &root.display().to_string())
                .replace("{ledger}", &ledger.display().to_string());
        }
        Ok(target)
    }

    /// The variables that set this budget for this device.
    pub fn budget_variables(
        &self,
        device: usize,
        budget: Bytes,
    ) -> Result<Vec<(String, String)>, TargetError> {
        let fill = |(name, value): (&String, &String)| {
            if value.contains("{mib}") && !budget.0.is_multiple_of(Bytes::mib(1).0) {
                return Err(TargetError::NotWholeMib {
                    name: self.name.clone(),
                    budget,
                    value: value.clone(),
                });
            }
            let value = value
                .replace("{bytes}", &budget.0.to_string())
                .replace("{mib}", &(budget.0 / Bytes::mib(1).0).to_string());
            Ok((name.replace("{device}", &device.to_string()), value))
        };
        self.budget.iter().map(fill).collect()
    }
}

/// In a target's values: the library that the user names.
const LIBRARY: &str = "{library}";

/// What a target given as a bare library is taken for: an enforcer that reads HAMi-core's variables.
const PRELOADED_LIBRARY: &str = r#"
name = ""
enforces = true
[budget]
"CUDA_DEVICE_MEMORY_LIMIT_{device}" = "{mib}m"
[environment]
CUDA_DEVICE_MEMORY_SHARED_CACHE = "{root}/vgpu.cache"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_that_comes_with_the_harness_reads_and_is_named_as_its_file() {
        for name in known() {
            assert_eq!(Target::found(name).expect("it reads").name, name);
        }
        assert_eq!(
            known(),
            [
                "hami-core",
                "none",
                "ours",
                "passthrough",
                "proxy",
                "refusing",
                "seeded"
            ]
        );
    }

    #[test]
    fn a_library_by_path_is_preloaded_and_told_budgets_in_mib() {
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory.path().join("libother.so");
        std::fs::write(&library, "").expect("writable");
        let target = Target::named(&library.display().to_string()).expect("a file");
        assert_eq!(
            (target.name.as_str(), target.preload.len()),
            ("libother", 1)
        );
        let set = target
            .budget_variables(1, Bytes::gib(4))
            .expect("whole MiB");
        assert_eq!(
            set,
            [("CUDA_DEVICE_MEMORY_LIMIT_1".to_owned(), "4096m".to_owned())]
        );
        assert!(matches!(
            target.budget_variables(0, Bytes(5)),
            Err(TargetError::NotWholeMib { .. })
        ));
    }

    #[test]
    fn an_enforcer_that_is_not_ours_has_its_library_from_the_user_and_its_expectations_by_its_version()
     {
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory
            .path()
            .canonicalize()
            .expect("there")
            .join("a=b.so");
        std::fs::write(&library, "").expect("writable");
        let library = library.display().to_string();
        // Of a path with the sign in it the target's name is what comes before the first.
        let target = Target::named(&format!("hami-core={library}")).expect("a library");
        assert_eq!(target.preload, [library]);
        assert_eq!(target.stem(), "hami-core-8f3a89c");
        assert_eq!(Target::nothing().stem(), "nothing");
    }

    #[test]
    fn a_library_that_is_not_there_is_an_error_that_says_where_to_get_it() {
        for text in ["hami-core", "hami-core=", "hami-core=/nowhere/libvgpu.so"] {
            let error = Target::named(text).expect_err("no library").to_string();
            let says = |words: &str| assert!(error.contains(words), "{text}: {error}");
            says("target hami-core");
            says("https://github.com/Project-HAMi/HAMi-core");
            says("TARGETS.md");
        }
        assert!(matches!(
            Target::named("ours=/nowhere/libvgpu.so"),
            Err(TargetError::NoPlace { name }) if name == "ours"
        ));
    }

    #[test]
    fn an_unknown_target_is_named() {
        assert!(
            matches!(Target::named("our"), Err(TargetError::Unknown { text }) if text == "our")
        );
    }
}
