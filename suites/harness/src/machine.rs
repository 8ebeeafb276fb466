//! The real machine, in a few words: what NVIDIA's kernel module says of itself and of its GPUs.

use std::collections::BTreeSet;
use std::path::Path;

const PLACE: &str = "/proc/driver/nvidia";

/// `NVIDIA H200, driver 580.159.04`; less where the machine does not tell.
pub fn of_this_host() -> String {
    of(Path::new(PLACE))
}

fn of(place: &Path) -> String {
    let version = std::fs::read_to_string(place.join("version")).unwrap_or_default();
    let version = version.lines().find_map(driver_version);
    let gpus = std::fs::read_dir(place.join("gpus")).into_iter().flatten();
    let informations = gpus.flatten().map(|gpu| gpu.path().join("information"));
    let models: BTreeSet<String> = informations
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            let mut lines = text.lines();
            let model = lines.find_map(|line| line.strip_prefix("Model:"))?;
            Some(model.trim().to_owned())
        })
        .collect();
    let words = models.into_iter();
    let words = words.chain(version.map(|version| format!("driver {version}")));
    words.collect::<Vec<_>>().join(", ")
}

/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …`
fn driver_version(line: &str) -> Option<String> {
    let words = line.strip_prefix("NVRM version:")?.split_whitespace();
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let number =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        word.contains('.') && parts.all(number)
    };
    words.into_iter().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_its_models_and_its_driver() {
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(of(place.path()), "");
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)\nGCC version:  gcc version 12.2.0\n";
        std::fs::write(place.path().join("version"), version).expect("it is written");
        assert_eq!(of(place.path()), "driver 580.159.04");
        for gpu in ["0000:18:00.0", "0000:2a:00.0"] {
            let folder = place.path().join("gpus").join(gpu);
            std::fs::create_dir_all(&folder).expect("a folder");
            let text = format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nBus Location: \t {gpu}\n");
            std::fs::write(folder.join("information"), text).expect("it is written");
        }
        assert_eq!(of(place.path()), "NVIDIA H200, driver 580.159.04");
    }
}
