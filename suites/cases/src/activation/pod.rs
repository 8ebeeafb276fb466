//! A pod that a cluster made for HAMi-core, with our library in place of HAMi-core's: its specification stays as it is.

use harness::{Bytes, Failure, Session, cases, ensure_eq};

use super::scrubbed::may;
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::Tenant;

/// What HAMi's device plug-in puts into a container: the library at its place, /etc/ld.so.preload, the variables, and a directory
/// for the shared file. `$1` is the case's directory, `$2` MiB. Where the target preloads nothing neither does the pod.
const AS_THE_PLUGIN_DOES: &str = r#"
set -e
root=$1; mebibytes=$2; shift 2
mkdir -p "$root/vgpu"
mount --make-rprivate /
mount -t tmpfs none /etc
mount -t tmpfs none /usr/local
mkdir /usr/local/vgpu
mount --bind "$root/vgpu" /usr/local/vgpu
if [ -n "$LD_PRELOAD" ]; then
    library=$LD_PRELOAD; unset LD_PRELOAD
    # The directory is the pod's: what another of its processes has mapped is replaced, never written to.
    cp "$library" "/usr/local/vgpu/$$" && mv -f "/usr/local/vgpu/$$" /usr/local/vgpu/libvgpu.so
    echo /usr/local/vgpu/libvgpu.so > /etc/ld.so.preload
fi
exec env -i \
    PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" RINGFENCE_WORLD="$RINGFENCE_WORLD" \
    NVIDIA_VISIBLE_DEVICES=all \
    CUDA_DEVICE_MEMORY_LIMIT_0="${mebibytes}m" \
    CUDA_DEVICE_SM_LIMIT=100 \
    CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/5b1f1f0e-5d0b-4b6e-9b57-0d7c5a3f2b11.cache \
    CUDA_OVERSUBSCRIBE=true \
    CUDA_TASK_PRIORITY=1 \
    GPU_CORE_UTILIZATION_POLICY=default \
    ACTIVE_OOM_KILLER=true \
    LIBCUDA_LOG_LEVEL=1 \
    "$@"
"#;

fn in_a_pod(session: &Session) -> Result<Tenant, Failure> {
    may("unshare", &["--mount"])?;
    let root = session.directory().display().to_string();
    let mebibytes = (budget(session, 0)?.0 >> 20).to_string();
    let script = [
        "--mount",
        "sh",
        "-c",
        AS_THE_PLUGIN_DOES,
        "sh",
        &root,
        &mebibytes,
    ];
    Tenant::launch(session.launch("tenant").through("unshare", &script))
}

cases! {
    /// Under the variables, the mounts and the /etc/ld.so.preload that HAMi's device plug-in gives a container, two of its processes share the budget.
    a_pod_made_for_hami_core_is_held {
        kind: Budget, defects: ["R11", "P8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        unordered: "the pod's variables are a budget of its own", unaccounted: "the pod's ledger lies beside HAMi-core's file", on_real: No("the vendor's libraries are found by what is under /etc"),
    } (session) {
        let (mut one, mut other) = (in_a_pod(session)?, in_a_pod(session)?);
        other.ask("ready-cuda")?;
        let granted = one.fill_cuda()?;
        fills(granted, budget(session, 0)?, Bytes(2 * CONTEXT_ROOM.0))?;
        ensure_eq!(other.fill_cuda()?, Bytes(0), "what is left for the pod's second process");
        for tenant in [one, other] {
            tenant.peer.finish()?;
        }
        Ok(())
    }
}
