//! Our libraries in the drivers' place: a directory in which programs find them by the drivers' names, and they the drivers.
//!
//! | file | what |
//! |---|---|
//! | `libcuda.so.1`, `libnvidia-ml.so.1` | the proxy, a copy without the hooks of what this driver lacks |
//! | `libcuda.so`, `libnvidia-ml.so` | links to them |
//! | `driver/libcuda.driver.so`, `driver/libnvidia-ml.driver.so` | links to the drivers, under the names that the proxies need (decision 23) |

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::symbols::{self, SymbolError};

/// Why a proxy is not in a driver's place.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    #[error("\"{0}\" is no driver's name: it does not end with .so.1")]
    NoDriver(String),
    #[error("{} is one of our own proxies: name the driver that it stands for", .0.display())]
    OwnProxy(PathBuf),
}

/// Puts `proxy` into `directory` in the place of `driver`, which programs call `soname`. Over an older one, each file is exchanged whole.
///
/// # Errors
/// What the system answered, or where one of the two is no ELF library.
pub fn put(directory: &Path, soname: &str, proxy: &Path, driver: &Path) -> Result<(), ProxyError> {
    let stem = soname
        .strip_suffix(".so.1")
        .ok_or_else(|| ProxyError::NoDriver(soname.to_owned()))?;
    if symbols::has_section(driver, ".note.ringfence")? {
        return Err(ProxyError::OwnProxy(driver.to_owned()));
    }
    let behind = directory.join("driver");
    std::fs::create_dir_all(&behind).map_err(failed(&behind))?;
    // First what the proxy needs: no program finds one that cannot be loaded.
    exchange(&behind.join(format!("{stem}.driver.so")), |path| {
        symlink(driver, path).map_err(failed(path))
    })?;
    exchange(&directory.join(soname), |path| {
        if symbols::twin(proxy, driver, path)? == proxy {
            std::fs::copy(proxy, path).map_err(failed(path))?;
        }
        Ok(())
    })?;
    exchange(&directory.join(format!("{stem}.so")), |path| {
        symlink(soname, path).map_err(failed(path))
    })
}

/// Makes a file beside its place and renames it into it.
fn exchange(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), ProxyError>,
) -> Result<(), ProxyError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside);
    make(&beside).and_then(|()| std::fs::rename(&beside, path).map_err(failed(path)))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ProxyError {
    let path = path.to_owned();
    move |source| ProxyError::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::{self, Library};

    fn built(library: Library) -> PathBuf {
        artifacts::find(library).expect("built beside this test")
    }

    #[test]
    fn a_proxy_is_put_over_an_older_one_with_links_to_the_driver() {
        let place = tempfile::tempdir().expect("a directory");
        let (proxy, driver) = (built(Library::ProxyLibcuda), built(Library::MockLibcuda));
        for _ in 0..2 {
            put(place.path(), "libcuda.so.1", &proxy, &driver).expect("put");
            let link = place.path().join("driver/libcuda.driver.so");
            assert_eq!(std::fs::read_link(link).expect("a link"), driver);
            let name = place.path().join("libcuda.so");
            assert_eq!(
                std::fs::read_link(name).expect("a link"),
                Path::new("libcuda.so.1")
            );
        }
        let files = std::fs::read_dir(place.path()).expect("there").count();
        assert_eq!(files, 3, "nothing is left beside them");
    }

    #[test]
    fn a_proxy_lacks_what_its_driver_lacks() {
        let place = tempfile::tempdir().expect("a directory");
        let (proxy, driver) = (built(Library::ProxyLibcuda), place.path().join("old.so"));
        symbols::copy_without(&built(Library::MockLibcuda), &driver, &["cuMemCreate"])
            .expect("a copy");
        put(place.path(), "libcuda.so.1", &proxy, &driver).expect("put");
        let names = |path: &Path| -> Vec<String> {
            let found = symbols::exports(&std::fs::read(path).expect("there")).expect("ELF");
            found.into_iter().map(|(name, _)| name).collect()
        };
        let (before, after) = (names(&proxy), names(&place.path().join("libcuda.so.1")));
        assert!(before.iter().any(|name| name == "cuMemCreate"));
        assert_eq!(before.len(), after.len() + 1);
        assert!(!after.iter().any(|name| name == "cuMemCreate"));
    }

    #[test]
    fn a_proxy_is_no_driver() {
        let place = tempfile::tempdir().expect("a directory");
        let proxy = built(Library::ProxyLibcuda);
        let answer = put(place.path(), "libcuda.so.1", &proxy, &proxy);
        assert!(matches!(answer, Err(ProxyError::OwnProxy(path)) if path == proxy));
        let answer = put(
            place.path(),
            "libcuda.so",
            &proxy,
            &built(Library::MockLibcuda),
        );
        assert!(matches!(answer, Err(ProxyError::NoDriver(name)) if name == "libcuda.so"));
    }
}
