//! Programs that are started without the environment that says their budget: the proxies find it elsewhere (decision 24).

use harness::{Bytes, Failure, Launch, Session, cases, ensure, ensure_eq, without_switch};

use crate::ffi::process::EnvironmentChange;
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};
use crate::tenant::Tenant;

/// What a tenant file says of this case.
fn tenant_file(session: &Session) -> Result<String, Failure> {
    Ok(format!(
        "# the case's\nCUDA_DEVICE_MEMORY_LIMIT_0 = \"{}\"\nRINGFENCE_LEDGER = \"{}\"\n",
        budget(session, 0)?.0,
        session.ledger_path().display()
    ))
}

/// Installs the target's layer as `ringfence install` does beside a tenant file: a copy with the file beside it, and a manifest without a variable that enables
/// it. Nothing where the target has no layer.
pub fn install_layer_beside(session: &Session, file: &str) -> Result<(), Failure> {
    let Ok(layer) = session.layer() else {
        return Ok(());
    };
    let directory = session.directory().join("layer");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("tenant.toml"), file)?;
    let copy = directory.join("libvgpu_vk.so");
    std::fs::copy(layer, &copy)?;
    let path = session
        .directory()
        .join("data/vulkan/implicit_layer.d/hami.json");
    let shipped = std::fs::read_to_string(&path)?;
    let text = without_switch(&shipped).map_err(|error| Failure::Broken(error.to_string()))?;
    let [old, new] = [layer, &copy].map(|path| path.display().to_string());
    ensure!(text.contains(&old), "{text} does not name {old}");
    std::fs::write(&path, text.replace(&old, &new))?;
    Ok(())
}

/// What a process that is started like this gets before it is refused.
fn is_held(session: &Session, launch: Launch<'_>) -> Result<(), Failure> {
    let mut tenant = Tenant::launch(launch)?;
    let granted = tenant.fill_cuda()?;
    ensure_eq!(tenant.peer.finish()?, (), "the end of the tenant");
    fills(granted, budget(session, 0)?, CONTEXT_ROOM)
}

/// Puts a machine's files into a mount namespace, with our libraries where the loader looks by itself, and starts a program
/// without any environment. `$1` is the case's directory.
const AT_SYSTEM_PATHS: &str = r#"
set -e
root=$1; shift
mount --make-rprivate /
mount -t tmpfs none /etc
[ ! -d /var/cache/ldconfig ] || mount -t tmpfs none /var/cache/ldconfig
mkdir /etc/ringfence
cp "$root/tenant.toml" /etc/ringfence/
echo "$root/proxies" > /etc/ld.so.conf
/sbin/ldconfig -X
exec env -i "$@"
"#;

/// Starts a program without any environment but the way to the libraries and the world, beneath a first process that has all of it.
const BENEATH_PID_1: &str = r#"
[ $$ = 1 ] || exit 9
env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" RINGFENCE_WORLD="$RINGFENCE_WORLD" "$@"
exit $?
"#;

/// Skip where this program may not be run like that.
pub fn may(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let allowed = std::process::Command::new(program)
        .args(arguments)
        .arg("true")
        .output()?;
    if allowed.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&allowed.stderr).trim().to_owned();
    Err(Failure::Skip(format!("no namespaces here: {reason}")))
}

/// What tenants get who change their environment before their first call, each in another way; `kept` says whether who writes over it is held too.
fn keeps_its_budget(
    session: &Session,
    kept: bool,
    fill: fn(&mut Tenant) -> Result<Bytes, Failure>,
    room: Bytes,
) -> Result<(), Failure> {
    let budget = budget(session, 0)?;
    let changes = EnvironmentChange::ALL.into_iter();
    for change in changes.filter(|change| kept || *change != EnvironmentChange::Overwritten) {
        let mut tenant = Tenant::start(session)?;
        tenant.ask(&format!("environment {change:?}"))?;
        let granted = fill(&mut tenant)?;
        tenant.peer.finish()?;
        fills(granted, budget, room)?;
    }
    Ok(())
}

cases! {
    /// What a program makes of its environment before its first call changes nothing: variables unset, budgets raised, `environ` led elsewhere, its bytes
    /// written over where a preload has kept them.
    a_program_that_changes_its_environment_keeps_its_budget {
        kind: Budget, defects: ["R50"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: PreloadOnly,
    } (session) {
        let kept = !session.preloads().is_empty();
        keeps_its_budget(session, kept, Tenant::fill_cuda, CONTEXT_ROOM)
    }

    /// The same of Vulkan alone, but for who writes over its environment: the layer is opened too late to have kept it.
    a_vulkan_program_that_changes_its_environment_keeps_its_budget {
        kind: Budget, defects: ["R50"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
    } (session) {
        keeps_its_budget(session, false, Tenant::fill_vulkan, VULKAN_ROOM)
    }

    /// A process without one variable of ours is held by the tenant file beside the proxy.
    without_an_environment_the_file_beside_the_library_holds {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let proxies = session.directory().join("proxies");
        std::fs::create_dir_all(&proxies)?;
        std::fs::write(proxies.join("tenant.toml"), tenant_file(session)?)?;
        is_held(session, session.launch("tenant").scrubbed(&["LD_LIBRARY_PATH", "RINGFENCE_WORLD"]))
    }

    /// The same of Vulkan alone: beside a tenant file the layer is installed without a variable that enables it.
    without_an_environment_the_layer_beside_the_file_holds {
        kind: Budget, defects: ["R20", "R11"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB", libraries: IdleLayer,
        on_real: No("the layer is installed into the session's directory"), unordered: "the tenant's settings are a file's",
    } (session) {
        install_layer_beside(session, &tenant_file(session)?)?;
        let kept = ["LD_LIBRARY_PATH", "RINGFENCE_WORLD", "RINGFENCE_SEED", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"];
        let mut tenant = Tenant::launch(session.launch("tenant").scrubbed(&kept))?;
        let granted = tenant.fill_vulkan()?;
        tenant.peer.finish()?;
        fills(granted, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A tenant file is not outbid by the environment.
    a_tenant_file_wins_over_the_environment {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let proxies = session.directory().join("proxies");
        std::fs::create_dir_all(&proxies)?;
        std::fs::write(proxies.join("tenant.toml"), tenant_file(session)?)?;
        let launch = session.launch("tenant").env("RINGFENCE_MEMORY_0", "40g").env("CUDA_DEVICE_MEMORY_LIMIT_0", "40g");
        is_held(session, launch.env("RINGFENCE_CONTEXT_CHARGE", "free"))
    }

    /// A tenant file that cannot be read as one refuses everything, and one line names it with its line.
    a_tenant_file_of_nonsense_fails_closed {
        kind: Own, defects: ["R11", "P9"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        unaccounted: "cuInit is not refused, and nothing is charged where nothing can be granted",
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let text = tenant_file(session)? + "CUDA_DEVICE_MEMORY_LIMT_0 = \"40g\"\n";
        std::fs::write(session.directory().join("proxies/tenant.toml"), text)?;
        crate::process::settings::cuda_fails_closed("tenant.toml, line 4: ")
    }

    /// At the system's own paths, with /etc/ringfence/tenant.toml and no environment at all, a process is held: nothing tells it of us.
    at_system_paths_no_environment_is_needed {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let mounts = ["--mount"];
        may("unshare", &mounts)?;
        let root = session.directory();
        std::fs::write(root.join("tenant.toml"), tenant_file(session)?)?;
        std::fs::create_dir_all(root.join("proxies"))?;
        let root = root.display().to_string();
        let script = ["--mount", "sh", "-c", AT_SYSTEM_PATHS, "sh", &root];
        is_held(session, session.launch("tenant").through("unshare", &script))
    }

    /// In a container a process whose environment was scrubbed is held by that of the container's first process.
    a_containers_first_process_says_the_budget {
        kind: Budget, defects: ["R11"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", libraries: Proxies,
        on_real: No("the proxies are put before a mock"),
    } (session) {
        let own = ["--pid", "--fork", "--kill-child", "--mount-proc"];
        may("unshare", &own)?;
        let script = [&own[..], &["sh", "-c", BENEATH_PID_1, "sh"]].concat();
        let launch = session.launch("tenant").through("unshare", &script);
        is_held(session, launch)
    }
}
