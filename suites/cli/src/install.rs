//! Puts both libraries and the layer's manifest where a container runtime mounts them from: `ringfence install --prefix DIR`.
//!
//! | | libraries | manifest |
//! |---|---|---|
//! | prefix `/` | `/usr/local/vgpu` | `/etc/vulkan/implicit_layer.d/hami.json`, as shipped |
//! | any other | the prefix itself | `PREFIX/share/vulkan/implicit_layer.d/hami.json`, its `library_path` rewritten |
//!
//! Where a tenant file is there already, `/etc/ringfence/tenant.toml` or `tenant.toml` beside the libraries, the manifest names no variable that enables the
//! layer: it is in every program's chain, as what is in the file is enforced whatever the environment says.
//!
//! Every file appears whole or not at all: it is written beside its place and renamed, so that a program that starts meanwhile, or has the old library mapped, keeps a
//! whole one.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf, absolute};

use harness::{Library, artifacts, proxies, without_switch};

/// The manifest as shipped.
const MANIFEST: &str = include_str!("../../../enforcement/layer/hami.json");
/// Where an operator mounts a tenant's budgets.
const TENANT_FILE: &str = "/etc/ringfence/tenant.toml";
/// The library it names.
const SHIPPED: &str = "/usr/local/vgpu/libvgpu_vk.so";

/// What was put where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    pub libvgpu: PathBuf,
    pub libvgpu_vk: PathBuf,
    pub manifest: PathBuf,
}

/// Puts our proxies before the drivers that lie in `drivers`, into the directory `proxies` beside the installed libraries. A driver that is not
/// there has no proxy; where there is none of them at all nothing was meant.
///
/// # Errors
/// What the system answered, or `drivers` where no driver lies in it.
pub fn install_proxies(
    installed: &Installed,
    drivers: &Path,
) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let directory = installed.libvgpu.with_file_name("proxies");
    // The links must lead there from wherever they are mounted.
    let drivers = absolute(drivers).map_err(|error| about(drivers, &error))?;
    let mut put = Vec::new();
    for (soname, library) in [
        ("libcuda.so.1", Library::ProxyLibcuda),
        ("libnvidia-ml.so.1", Library::ProxyLibnvml),
    ] {
        let driver = drivers.join(soname);
        if driver.exists() {
            proxies::put(&directory, soname, &artifacts::find(library)?, &driver)?;
            put.push(directory.join(soname));
        }
    }
    if put.is_empty() {
        return Err(format!(
            "{}: neither libcuda.so.1 nor libnvidia-ml.so.1 is there",
            drivers.display()
        )
        .into());
    }
    Ok(put)
}

/// Installs `libvgpu` and `libvgpu_vk` (as built) and the manifest under `prefix`.
///
/// # Errors
/// What the system answered, with the path it was about in front.
pub fn install(prefix: &Path, libvgpu: &Path, libvgpu_vk: &Path) -> io::Result<Installed> {
    let prefix = absolute(prefix).map_err(|error| about(prefix, &error))?;
    let (libraries, manifests) = if prefix == Path::new("/") {
        (
            PathBuf::from("/usr/local/vgpu"),
            PathBuf::from("/etc/vulkan/implicit_layer.d"),
        )
    } else {
        (prefix.clone(), prefix.join("share/vulkan/implicit_layer.d"))
    };
    let installed = Installed {
        libvgpu: libraries.join("libvgpu.so"),
        libvgpu_vk: libraries.join("libvgpu_vk.so"),
        manifest: manifests.join("hami.json"),
    };
    let mut manifest = manifest(&installed.libvgpu_vk)?;
    let beside = libraries.join("tenant.toml");
    if Path::new(TENANT_FILE).exists() || beside.exists() {
        manifest = without_switch(&manifest)?;
    }
    // Read before anything is written: a missing build leaves an old installation as it was.
    let (preload, layer) = (read(libvgpu)?, read(libvgpu_vk)?);
    put(&installed.libvgpu, &preload, 0o755)?;
    put(&installed.libvgpu_vk, &layer, 0o755)?;
    // Last, so that no loader finds a manifest without its library.
    put(&installed.manifest, manifest.as_bytes(), 0o644)?;
    Ok(installed)
}

fn manifest(library: &Path) -> io::Result<String> {
    let path = library.to_str().ok_or_else(|| {
        let text = format!(
            "{}: a manifest is JSON and can only name a UTF-8 path",
            library.display()
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let mut quoted = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)))
            }
            plain => quoted.push(plain),
        }
    }
    Ok(MANIFEST.replace(SHIPPED, &quoted))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| about(path, &error))
}

fn put(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(|error| about(directory, &error))?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = directory.join(name);
    let written = fs::write(&beside, contents)
        .and_then(|()| fs::set_permissions(&beside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::File::open(&beside)?.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        about(path, &error)
    })
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(place: &Path) -> (PathBuf, PathBuf) {
        let (preload, layer) = (place.join("a.so"), place.join("b.so"));
        fs::write(&preload, "preload").expect("a file");
        fs::write(&layer, "layer").expect("a file");
        (preload, layer)
    }

    #[test]
    fn a_prefix_gets_both_libraries_and_a_manifest_that_names_its_own() {
        let place = tempfile::tempdir().expect("a directory");
        let (preload, layer) = built(place.path());
        let prefix = place.path().join("odd \"name\"");
        for _ in 0..2 {
            let installed =
                install(&prefix, &preload, &layer).expect("installed, also over itself");
            assert_eq!(fs::read(&installed.libvgpu).expect("there"), b"preload");
            assert_eq!(fs::read(&installed.libvgpu_vk).expect("there"), b"layer");
            let text = fs::read_to_string(&installed.manifest).expect("there");
            let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(
                manifest["layer"]["library_path"].as_str(),
                installed.libvgpu_vk.to_str()
            );
            assert_eq!(
                manifest["layer"]["enable_environment"]["HAMI_VULKAN_ENABLE"],
                "1"
            );
            let mode = fs::metadata(&installed.libvgpu)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o755);
        }
        assert_eq!(
            fs::read_dir(&prefix).expect("there").count(),
            3,
            "nothing is left beside them"
        );
    }

    #[test]
    fn beside_a_tenant_file_no_variable_enables_the_layer() {
        let place = tempfile::tempdir().expect("a directory");
        let (preload, layer) = built(place.path());
        let prefix = place.path().join("prefix");
        fs::create_dir(&prefix).expect("a directory");
        fs::write(prefix.join("tenant.toml"), "RINGFENCE_MEMORY = \"4g\"\n").expect("a file");
        let installed = install(&prefix, &preload, &layer).expect("installed");
        let text = fs::read_to_string(&installed.manifest).expect("there");
        let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let layer = manifest["layer"].as_object().expect("a layer");
        assert!(!layer.contains_key("enable_environment"), "{text}");
        assert_eq!(
            layer["disable_environment"]["HAMI_VULKAN_DISABLE"], "1",
            "no loader takes an implicit layer without it"
        );
    }

    #[test]
    fn a_missing_library_is_named_and_nothing_is_touched() {
        let place = tempfile::tempdir().expect("a directory");
        let (preload, _) = built(place.path());
        let missing = place.path().join("missing.so");
        let prefix = place.path().join("prefix");
        let error = install(&prefix, &preload, &missing).expect_err("nothing to install");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(missing.to_str().expect("UTF-8")));
        assert!(!prefix.exists());
    }

    #[test]
    fn a_place_that_is_no_directory_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let (preload, layer) = built(place.path());
        let error = install(&preload, &preload, &layer).expect_err("a file is in the way");
        assert!(error.to_string().contains(preload.to_str().expect("UTF-8")));
        assert_eq!(fs::read(&preload).expect("there"), b"preload");
    }

    #[test]
    fn the_shipped_manifest_names_the_shipped_place() {
        let text = manifest(Path::new(SHIPPED)).expect("UTF-8");
        assert_eq!(text, MANIFEST);
        assert!(text.contains(SHIPPED));
    }
}
