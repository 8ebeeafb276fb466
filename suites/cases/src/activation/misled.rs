//! Libraries of the program's own in a driver's name, which tell of another machine.

use harness::{Failure, Libraries, Session, cases, ensure, roles};
use mock_device::{PciAddress, World, WorldSpec};

use crate::clients::{cuda, fill, nvml, told};
use crate::greed::{CONTEXT_ROOM, budget, fills};

/// What the mocks are told their machine by, and what a copy of one is told it by instead.
const WORLD: (&str, &str) = ("RINGFENCE_WORLD", "ANOTHER_MACHINE");

/// An NVML in a folder of its own that lists a GPU that there is not before the one that there is: the folder, and the variable by which it knows that
/// machine, with its value.
fn another_nvml(session: &Session) -> Result<(String, [String; 2]), Failure> {
    let folder = session.directory().join("another");
    std::fs::create_dir_all(&folder)?;
    let mut library = std::fs::read(session.directory().join("lib/libnvidia-ml.so.1"))?;
    let (from, to) = (WORLD.0.as_bytes(), WORLD.1.as_bytes());
    let places: Vec<usize> = (0..library.len().saturating_sub(from.len()))
        .filter(|at| library[*at..].starts_with(from))
        .collect();
    ensure!(
        !places.is_empty(),
        "the mock of NVML does not read {}",
        WORLD.0
    );
    for at in places {
        library[at..at + to.len()].copy_from_slice(to);
    }
    std::fs::write(folder.join("libnvidia-ml.so.1"), library)?;
    let machine = mock_device::profile::of("rtx6000-ada*2");
    let mut machine = machine.map_err(|error| Failure::Broken(error.to_string()))?;
    // In the order of their places: the one that there is stands last.
    let place = machine.devices[0].pci;
    machine.devices.swap(0, 1);
    machine.devices[0].pci = PciAddress {
        bus: 0,
        device: 1,
        ..place
    };
    let world = session.directory().join("another-world");
    World::create(&world, &WorldSpec::new(machine))
        .map_err(|error| Failure::Broken(error.to_string()))?;
    let variable = [WORLD.1.to_owned(), world.display().to_string()];
    Ok((folder.display().to_string(), variable))
}

roles! {
    /// Fills the budget by CUDA, having asked NVML for its devices where that is wanted.
    misled(session, parent) {
        if parent.hear().as_deref() == Some("asks") {
            told("nvmlDeviceGetHandleByIndex_v2", nvml()?.device(1))?;
        }
        let taken = fill(&cuda()?);
        taken.refused_with(abi::cuda::CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}

cases! {
    /// An NVML of the program's own, by which the only GPU is the second and has no budget, is not believed: neither where nothing but the enforcer would ask it,
    /// nor where the program has used it before.
    an_nvml_that_lists_other_gpus_moves_no_budget {
        kind: Budget, defects: ["R62"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the other NVML is a mock's"),
    } (session) {
        let (folder, [name, value]) = another_nvml(session)?;
        let program = session.program("true", Libraries::Both)?;
        let mut set = program.get_envs().filter(|(name, _)| *name == "LD_LIBRARY_PATH");
        let search = set.find_map(|(_, search)| search?.to_str()).unwrap_or_default();
        for first in ["asks", "does not"] {
            let launch = session.launch("misled").env(&name, &value);
            let mut peer = launch.env("LD_LIBRARY_PATH", &format!("{folder}:{search}")).start()?;
            peer.say(first)?;
            peer.finish()?;
        }
        Ok(())
    }
}
