//! What a case's body and its roles hold: what was set for them, the simulated devices and the ledger as an onlooker sees
//! them, and the way to further processes.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ledger::View;
use mock_device::{Bytes, World};

use crate::artifacts::{self, Library};
use crate::case::Libraries;
use crate::failure::Failure;
use crate::maps::Maps;
use crate::peer::{Launch, Peer};
use crate::plan::Plan;
use crate::symbols;

/// How long anybody waits for what must come, before it counts as never coming: other processes, the machine's other
/// work and the simulated teardown are between.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One run of a case, seen from one of its processes.
pub struct Session {
    plan: Plan,
    world: OnceCell<World>,
    exports: OnceCell<BTreeSet<String>>,
    started: RefCell<BTreeMap<String, u32>>,
}

impl Session {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            world: OnceCell::new(),
            exports: OnceCell::new(),
            started: RefCell::default(),
        }
    }

    /// The budget that the case set for this device, whether or not the target enforces it.
    pub fn budget(&self, device: u32) -> Option<Bytes> {
        self.plan.budgets.get(device as usize)
    }

    /// How many GPUs the processes see.
    pub fn gpus(&self) -> u32 {
        self.plan.gpus
    }

    pub fn is_real(&self) -> bool {
        self.plan.driver.is_real()
    }

    /// Whether the driver itself exports this name, whatever stands before it: a case leaves out what its driver's generation lacks.
    pub fn exports(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.exported()?.contains(name))
    }

    /// All names that the driver libraries export.
    pub fn exported(&self) -> Result<&BTreeSet<String>, Failure> {
        if self.exports.get().is_none() {
            let read = symbols::of_drivers(&self.plan)?;
            return Ok(self.exports.get_or_init(|| read));
        }
        self.exports
            .get()
            .ok_or_else(|| Failure::Broken("the exports were not kept".to_owned()))
    }

    /// Whether the processes of the case have our own libraries before the drivers.
    pub fn has_our_libraries(&self) -> bool {
        self.plan.target.own
    }

    /// What the target puts before the drivers, by path.
    pub fn preloads(&self) -> &[String] {
        &self.plan.target.preload
    }

    /// A directory of this run's own.
    pub fn directory(&self) -> &Path {
        &self.plan.root
    }

    /// The target's ledger, where it keeps ours.
    pub fn ledger_path(&self) -> &Path {
        &self.plan.ledger
    }

    /// The ledger's public reader; Skip where the target does not keep one. Each call opens it anew.
    pub fn ledger(&self) -> Result<View, Failure> {
        if !self.plan.target.declares_ledger {
            return Err(Failure::Skip(format!(
                "target {} keeps no ledger of ours",
                self.plan.target.name
            )));
        }
        Ok(View::find(&self.plan.ledger)?)
    }

    /// The simulated devices; Skip over a real driver.
    pub fn world(&self) -> Result<&World, Failure> {
        let Some(path) = &self.plan.world else {
            return Err(Failure::Skip(
                "a real driver has no simulated devices to look at".to_owned(),
            ));
        };
        if self.world.get().is_none() {
            let opened = World::open(path)?;
            return Ok(self.world.get_or_init(|| opened));
        }
        self.world
            .get()
            .ok_or_else(|| Failure::Broken("the world was not kept".to_owned()))
    }

    /// Starts another process of this executable in that role.
    pub fn spawn(&self, role: &str, args: &[&str]) -> Result<Peer, Failure> {
        self.launch(role).args(args).start()
    }

    /// The same, with more to say before it starts.
    pub fn launch(&self, role: &str) -> Launch<'_> {
        Launch::new(self, role)
    }

    /// Any program in the case's environment, to be run as the caller likes.
    pub fn program(&self, program: &str, libraries: Libraries) -> Result<Command, Failure> {
        let mut command = Command::new(program);
        self.plan.apply(&mut command, libraries)?;
        Ok(command)
    }

    /// A library of the workspace as it was built.
    pub fn library(&self, library: Library) -> Result<PathBuf, Failure> {
        Ok(artifacts::find(library)?)
    }

    /// The target's Vulkan layer.
    pub fn layer(&self) -> Result<&Path, Failure> {
        let layer = self.plan.target.layer.as_ref();
        layer
            .map(|layer| Path::new(&layer.library))
            .ok_or_else(|| Failure::Skip(format!("target {} has no layer", self.plan.target.name)))
    }

    /// What this process has mapped.
    pub fn maps(&self) -> Result<Maps, Failure> {
        Ok(Maps::of_this_process()?)
    }

    /// Waits for something that another process or the driver's teardown must bring about. When it comes is not judged:
    /// on a busy machine anything may come late.
    pub fn eventually(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() > deadline {
                return Err(Failure::Broken(format!("not within {PATIENCE:?}: {what}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The n-th process of a role is told apart in traces: `child`, `child#2`, …
    pub(crate) fn next_name(&self, role: &str) -> String {
        let mut started = self.started.borrow_mut();
        let count = started.entry(role.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 {
            role.to_owned()
        } else {
            format!("{role}#{count}")
        }
    }
}
