//! Preload × layer × kind of program: each API is enforced exactly where its library is in place, and untouched elsewhere.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure_eq};

use crate::clients::{Gpu, cuda, fill};
use crate::ffi::vulkan::Code;
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};

/// Above the budget, below the card.
const TOO_MUCH: Bytes = Bytes::gib(8);

fn by_cuda(session: &Session, enforced: bool) -> Result<(), Failure> {
    let cuda = cuda()?;
    let answer = cuda.allocate(TOO_MUCH.0);
    if !enforced {
        ensure_eq!(answer.code, CUresult::SUCCESS, "8 GiB by CUDA, no preload");
        return Ok(());
    }
    ensure_eq!(
        answer.code,
        CUresult::ERROR_OUT_OF_MEMORY,
        "8 of 6 GiB by CUDA"
    );
    fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
}

fn by_vulkan(session: &Session, enforced: bool) -> Result<(), Failure> {
    let gpu = Gpu::first()?;
    let answer = gpu.allocate(TOO_MUCH).err();
    if !enforced {
        ensure_eq!(answer, None, "8 GiB by Vulkan, no layer");
        return Ok(());
    }
    ensure_eq!(
        answer,
        Some(Code::OUT_OF_DEVICE_MEMORY),
        "8 of 6 GiB by Vulkan"
    );
    fills(gpu.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
}

/// One program uses both; each in turn takes what it gets and gives it back.
fn by_both(session: &Session, cuda_enforced: bool, vulkan_enforced: bool) -> Result<(), Failure> {
    let gpu = Gpu::first()?;
    let memory = gpu.allocate(Bytes::gib(3))?;
    let cuda = cuda()?;
    let fits = cuda.allocate(Bytes::gib(1).0);
    ensure_eq!(fits.code, CUresult::SUCCESS, "1 GiB beside 3 by CUDA");
    ensure_eq!(cuda.free(fits.out), CUresult::SUCCESS, "cuMemFree_v2");
    let answer = cuda.allocate(TOO_MUCH.0);
    match cuda_enforced {
        true => ensure_eq!(
            answer.code,
            CUresult::ERROR_OUT_OF_MEMORY,
            "8 of 6 GiB by CUDA"
        ),
        false => ensure_eq!(answer.code, CUresult::SUCCESS, "8 GiB by CUDA, no preload"),
    }
    let more = gpu.allocate(TOO_MUCH).err();
    match vulkan_enforced {
        true => ensure_eq!(
            more,
            Some(Code::OUT_OF_DEVICE_MEMORY),
            "8 of 6 GiB by Vulkan"
        ),
        false => ensure_eq!(more, None, "8 GiB by Vulkan, no layer"),
    }
    gpu.device.free(memory);
    if cuda_enforced && vulkan_enforced {
        let taken = fill(&cuda);
        fills(
            taken.bytes,
            budget(session, 0)?,
            Bytes(CONTEXT_ROOM.0 + VULKAN_ROOM.0),
        )?;
    }
    Ok(())
}

macro_rules! matrix {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ident, $libraries:ident, $unaccounted:literal, $body:ident($($enforced:literal),+);
    )*) => {
        cases! { $(
            $(#[doc = $doc])+
            $name {
                kind: $kind, defects: ["V6", "V7", "V8"],
                entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=6GiB",
                libraries: $libraries, unaccounted: $unaccounted,
            } (session) { $body(session, $($enforced),+) }
        )* }
    };
}

matrix! {
    /// A CUDA program under both libraries keeps the budget.
    a_cuda_program_under_both: Budget, Both, "", by_cuda(true);
    /// A CUDA program under the preload alone keeps the budget.
    a_cuda_program_under_the_preload: Budget, PreloadOnly, "", by_cuda(true);
    /// A CUDA program beside a layer that is installed but not enabled keeps the budget by the preload.
    a_cuda_program_under_the_preload_and_an_idle_layer: Budget, PreloadWithIdleLayer, "", by_cuda(true);
    /// A CUDA program under the layer alone is not touched.
    a_cuda_program_under_the_layer: Neutral, LayerOnly, "nothing of ours sees CUDA", by_cuda(false);
    /// A CUDA program beside an idle layer is not touched.
    a_cuda_program_beside_an_idle_layer: Neutral, IdleLayer, "nothing of ours is there", by_cuda(false);
    /// A CUDA program with neither is not touched.
    a_cuda_program_with_neither: Neutral, Neither, "nothing of ours is there", by_cuda(false);

    /// A Vulkan program under both libraries keeps the budget.
    a_vulkan_program_under_both: Budget, Both, "", by_vulkan(true);
    /// A Vulkan program under the layer alone keeps the budget.
    a_vulkan_program_under_the_layer: Budget, LayerOnly, "", by_vulkan(true);
    /// A Vulkan program under the preload alone is not touched.
    a_vulkan_program_under_the_preload: Neutral, PreloadOnly, "nothing of ours sees Vulkan", by_vulkan(false);
    /// A Vulkan program beside a layer that is installed but not enabled is not touched.
    a_vulkan_program_under_the_preload_and_an_idle_layer:
        Neutral, PreloadWithIdleLayer, "nothing of ours sees Vulkan", by_vulkan(false);
    /// A Vulkan program beside an idle layer is not touched.
    a_vulkan_program_beside_an_idle_layer: Neutral, IdleLayer, "nothing of ours is there", by_vulkan(false);
    /// A Vulkan program with neither is not touched.
    a_vulkan_program_with_neither: Neutral, Neither, "nothing of ours is there", by_vulkan(false);

    /// A program of both APIs under both libraries keeps one budget.
    a_mixed_program_under_both: Budget, Both, "", by_both(true, true);
    /// A program of both APIs under the preload alone keeps the budget by CUDA only.
    a_mixed_program_under_the_preload: Budget, PreloadOnly, "nothing of ours sees Vulkan", by_both(true, false);
    /// A program of both APIs under the layer alone keeps the budget by Vulkan only.
    a_mixed_program_under_the_layer: Budget, LayerOnly, "nothing of ours sees CUDA", by_both(false, true);
    /// A program of both APIs beside an idle layer keeps the budget by CUDA only.
    a_mixed_program_under_the_preload_and_an_idle_layer:
        Budget, PreloadWithIdleLayer, "nothing of ours sees Vulkan", by_both(true, false);
    /// A program of both APIs with neither is not touched.
    a_mixed_program_with_neither: Neutral, Neither, "nothing of ours is there", by_both(false, false);
}
