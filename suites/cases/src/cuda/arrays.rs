//! Arrays: device memory without an address. Each promises 0 bytes over the budget by one call that makes an array, and that
//! an array that is gone is charged no longer.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq, fail};

use super::routes::{OUT_OF_MEMORY, closed, narrow};
use crate::clients::{cuda, fill};
use crate::ffi::cuda::{Answer, Array, Cuda, Mipmap};
use crate::greed::{CONTEXT_ROOM, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;
const STEP: [Bytes; 1] = [Bytes::mib(64)];

/// 32-bit words in a row, so that 64 MiB are 1,024 rows.
const WIDE: u64 = 16384;

/// Rows of so many bytes.
fn rows(bytes: u64) -> u64 {
    bytes / 4 / WIDE
}

/// What ends an array.
enum End {
    Array(Array),
    Mipmap(Mipmap),
}

/// What can be had of the budget now, given back at once.
fn left(cuda: &Cuda) -> Result<Bytes, Failure> {
    let taken = fill(cuda);
    for &address in &taken.held {
        cuda.free(address);
    }
    taken.refused_with(OUT_OF_MEMORY).map(|()| taken.bytes)
}

cases! {
    /// Arrays are device memory: they are charged.
    arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2"], entry_points: ["cuArrayCreate_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        // 32-bit texels, 16,384 a row: 64 MiB are 1,024 rows.
        closed(session, &[Bytes::mib(64)], |bytes| cuda.create_array(16384, bytes / 4 / 16384).code)
    }

    /// Small ones that were destroyed leave their blocks to whoever comes, though one of their kind lives on.
    small_arrays_that_were_destroyed_leave_their_blocks {
        kind: Budget, defects: ["R134"], entry_points: ["cuArrayCreate_v2", "cuArrayDestroy", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let small = || cuda.create_array(WIDE, rows(Bytes::mib(1).0));
        let last = small();
        ensure_eq!(last.code, OK, "an array of a MiB");
        let others = (0..1_024).map(|_| small());
        for other in others.collect::<Vec<_>>() {
            let destroyed = (other.code, cuda.destroy_array(other.out));
            ensure_eq!(destroyed, (OK, OK), "another, and its end");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(16))
    }

    /// Nor are deep ones.
    deep_arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2"], entry_points: ["cuArray3DCreate_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEP, |bytes| cuda.create_array_3d(1024, 512, bytes / 4 / 1024 / 512).code)
    }

    /// Nor are arrays with levels.
    mipmapped_arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2"], entry_points: ["cuMipmappedArrayCreate"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEP, |bytes| cuda.create_mipmap(4096, bytes / 4 / 4096, 8).code)
    }

    /// Texture and surface objects are 64 bytes each of a block that their context keeps: as many are made as fit.
    texture_and_surface_objects_are_no_way_past_the_budget {
        kind: Budget, defects: ["R71"], entry_points: ["cuTexObjectCreate", "cuSurfObjectCreate"], budget: "0=1GiB",
    } (session) {
        const MANY: usize = 500_000;
        let cuda = cuda()?;
        let (words, array) = (cuda.allocate(Bytes::mib(2).0), cuda.create_surface_array(64, 64));
        ensure_eq!((words.code, array.code), (OK, OK), "what is to be seen");
        let some = [cuda.create_texture(words.out, 4096), cuda.create_surface(array.out)];
        ensure_eq!(some.map(|object| object.code), [OK; 2], "one of each");
        let room = cuda.allocate(Bytes::mib(8).0);
        ensure_eq!(room.code, OK, "8 MiB");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(cuda.free(room.out), OK, "cuMemFree");
        let mut made = (0..MANY).map(|at| match at % 2 {
            0 => cuda.create_texture(words.out, 4096).code,
            _ => cuda.create_surface(array.out).code,
        });
        let first = made.position(|code| code != OK).unwrap_or(MANY);
        ensure!((90_000..MANY).contains(&first), "{first} of {MANY} objects, 30 MiB, where 8 MiB are left");
        super::green::within(session)?;
        ensure_eq!(cuda.destroy_texture(some[0].out), OK, "cuTexObjectDestroy");
        Ok(())
    }

    /// Arrays of less than a block share blocks; a budget holds for many of them.
    small_arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2", "C10"], entry_points: ["cuArrayCreate_v2"], budget: "0=1GiB",
    } (session) {
        let cuda = cuda()?;
        let (small, budget) = (Bytes::kib(256), budget(session, 0)?);
        let mut taken = Bytes::ZERO;
        loop {
            match cuda.create_array(128, small.0 / 4 / 128).code {
                CUresult::SUCCESS => taken += small,
                refused => break ensure_eq!(refused, OUT_OF_MEMORY, "an array beside {taken} in others"),
            }
            ensure!(taken <= budget, "{taken} were granted under {budget}");
        }
        ensure!(taken >= Bytes::mib(128), "only {taken} were granted under {budget}");
        Ok(())
    }

    /// And what fits is granted: arrays of a quarter of a block, of which none is destroyed, get what is left of the budget.
    small_arrays_get_what_is_left_of_the_budget {
        kind: Budget, defects: ["R35"], entry_points: ["cuArrayCreate_v2"], budget: "0=3GiB",
    } (session) {
        let cuda = cuda()?;
        let (small, budget) = (Bytes::kib(512), budget(session, 0)?);
        let mut taken = Bytes::ZERO;
        loop {
            match cuda.create_array(512, small.0 / 4 / 512).code {
                CUresult::SUCCESS => taken += small,
                refused => break ensure_eq!(refused, OUT_OF_MEMORY, "an array beside {taken} in others"),
            }
            ensure!(taken <= budget, "{taken} were granted under {budget}");
        }
        fills(taken, budget, CONTEXT_ROOM)
    }

    /// The unsuffixed calls of 32-bit days are charged as the others.
    unsuffixed_arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2", "R7"], entry_points: ["cuArrayCreate"], budget: "0=2GiB",
        on_real: No("nobody asked a card whether it makes arrays in a 32-bit context"),
    } (session) {
        let cuda = narrow()?;
        closed(session, &STEP, |bytes| cuda.create_array_v1(WIDE as u32, rows(bytes) as u32).code)
    }

    /// Deep ones too.
    unsuffixed_deep_arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2", "R7"], entry_points: ["cuArray3DCreate"], budget: "0=2GiB",
        on_real: No("nobody asked a card whether it makes arrays in a 32-bit context"),
    } (session) {
        let cuda = narrow()?;
        closed(session, &STEP, |bytes| cuda.create_array_3d_v1(1024, 512, (bytes / 4 / 1024 / 512) as u32).code)
    }

    /// What arrays of any kind held can be had again when they are destroyed, and no more.
    destroyed_arrays_are_charged_no_longer {
        kind: Budget, defects: ["R2"], budget: "0=4GiB",
        entry_points: ["cuArrayCreate_v2", "cuArrayDestroy", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy"],
    } (session) {
        let cuda = cuda()?;
        let arrays = until_refused(&STEP, |bytes| cuda.create_array(WIDE, rows(bytes.0)).granted());
        arrays.refused_with(OUT_OF_MEMORY)?;
        for array in &arrays.held {
            ensure_eq!(cuda.destroy_array(*array), CUresult::SUCCESS, "cuArrayDestroy");
        }
        let mipmaps = until_refused(&STEP, |bytes| cuda.create_mipmap(WIDE, rows(bytes.0), 1).granted());
        mipmaps.refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(mipmaps.bytes, arrays.bytes, "what mipmapped arrays were granted after arrays");
        for mipmap in &mipmaps.held {
            ensure_eq!(cuda.destroy_mipmap(*mipmap), CUresult::SUCCESS, "cuMipmappedArrayDestroy");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// An array of a packed or compressed format is charged what its texels take, not what the largest of any format would.
    arrays_of_packed_and_compressed_formats_are_charged_by_their_texels {
        kind: Budget, defects: ["R96"], entry_points: ["cuArrayCreate_v2", "cuArrayDestroy"], budget: "0=1GiB",
    } (session) {
        const SIDE: u64 = 4096;
        let cuda = cuda()?;
        let left = || left(&cuda);
        let before = left()?;
        fills(before, budget(session, 0)?, CONTEXT_ROOM)?;
        // BC1_UNORM, BC4_UNORM, BC7_UNORM, UNORM_INT8X1, UNORM_INT8X2, SNORM_INT16X2, UNORM_INT16X4, UNORM_INT_101010_2: channels, and bytes of a texel at most.
        let formats = [(0x91, 4, 1), (0x97, 1, 1), (0x9d, 4, 1), (0xc0, 1, 1), (0xc1, 2, 2), (0xca, 2, 4), (0xc5, 4, 8), (0x50, 4, 4)];
        for (format, channels, texel) in formats {
            let made = cuda.create_array_of(format, channels, SIDE, SIDE);
            if made.code == CUresult::ERROR_INVALID_VALUE {
                // A driver that is older than the format.
                continue;
            }
            ensure_eq!(made.code, OK, "an array of format {format:#x}");
            ensure_eq!(before - left()?, Bytes(SIDE * SIDE * texel), "of the budget for an array of format {format:#x}");
            ensure_eq!(cuda.destroy_array(made.out), OK, "cuArrayDestroy");
        }
        Ok(())
    }

    /// Sparse arrays have no memory of their own: beside small arrays, some of which have gone, they give none of it back when all are gone.
    sparse_arrays_beside_small_ones_give_nothing_back_twice {
        defects: ["R102"], entry_points: ["cuArrayCreate_v2", "cuArray3DCreate_v2", "cuArrayDestroy"], budget: "0=1GiB",
    } (session) {
        let cuda = cuda()?;
        let told = |cuda: &Cuda| cuda.memory_info().granted().or_else(|code| fail!("cuMemGetInfo answered {code:?}"));
        let before = told(&cuda)?;
        let made = |what: &str, answer: Answer<Array>| answer.granted().or_else(|code| fail!("{what} answered {code:?}"));
        let small = (0..64).map(|_| made("cuArrayCreate", cuda.create_array(512, 100))).collect::<Result<Vec<_>, _>>()?;
        let (gone, kept) = small.split_at(6);
        let end = |arrays: &[Array]| -> Result<(), Failure> {
            for array in arrays {
                ensure_eq!(cuda.destroy_array(*array), OK, "cuArrayDestroy");
            }
            Ok(())
        };
        end(gone)?;
        let sparse = (0..128).map(|_| made("a sparse array", cuda.create_sparse_array(1024, 1024))).collect::<Result<Vec<_>, _>>()?;
        end(&sparse)?;
        end(kept)?;
        // Told before anybody is refused, and so looks at what the device has.
        ensure_eq!(told(&cuda)?, before, "told as free when all arrays are gone");
        Ok(())
    }

    /// At the edges of blocks an array takes of the budget what a card takes for it, by its rows, its layers and all of its levels: one that is a block of 2 MiB
    /// takes one, and what a last level or a last layer has beyond takes another.
    arrays_take_whole_blocks_of_the_budget {
        kind: Budget, defects: ["R2", "V17"], budget: "0=1GiB",
        entry_points: ["cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuArrayDestroy", "cuMipmappedArrayDestroy"],
    } (session) {
        const MANY: u64 = 16;
        let cuda = cuda()?;
        let left = || left(&cuda);
        let before = left()?;
        fills(before, budget(session, 0)?, CONTEXT_ROOM)?;
        let block = Bytes::mib(2);
        let (width, height) = (WIDE, rows(block.0));
        let costs = |what: &str, blocks: u64, make: &dyn Fn() -> Result<End, CUresult>| -> Result<(), Failure> {
            let made = (0..MANY).map(|_| make()).collect::<Result<Vec<_>, _>>();
            let ends = made.or_else(|code| fail!("an array of {what}: {code:?}"))?;
            ensure_eq!(before - left()?, Bytes(block.0 * blocks * MANY), "of the budget for {MANY} arrays of {what}");
            for end in ends {
                let code = match end {
                    End::Array(array) => cuda.destroy_array(array),
                    End::Mipmap(mipmap) => cuda.destroy_mipmap(mipmap),
                };
                ensure_eq!(code, CUresult::SUCCESS, "the end of an array of {what}");
            }
            Ok(())
        };
        for (height, blocks) in [(height, 1), (height - 1, 1), (height + 1, 2)] {
            costs(&format!("{height} rows"), blocks, &|| cuda.create_array(width, height).granted().map(End::Array))?;
        }
        for layers in [1, 2, 3] {
            costs(&format!("{layers} layers"), layers, &|| cuda.create_layered_array(width, height, layers).granted().map(End::Array))?;
        }
        // Half a MiB in the second level, an eighth of one in the third.
        for (levels, blocks) in [(1, 1), (2, 2), (3, 2)] {
            costs(&format!("{levels} levels"), blocks, &|| cuda.create_mipmap(width, height, levels).granted().map(End::Mipmap))?;
        }
        // What has its block to itself gives it back, whatever is left of its kind.
        let made = (0..MANY).map(|_| cuda.create_array(width, height).granted()).collect::<Result<Vec<_>, _>>();
        let arrays = made.or_else(|code| fail!("an array of a block: {code:?}"))?;
        let destroy = |arrays: &[_]| arrays.iter().all(|&array| cuda.destroy_array(array) == CUresult::SUCCESS);
        let (last, others) = arrays.split_last().expect("some");
        ensure!(destroy(others), "an array of a block could not be destroyed");
        ensure_eq!(before - left()?, block, "of the budget for the last of {MANY} arrays of a block");
        ensure!(destroy(&[*last]), "the last array of a block could not be destroyed");
        ensure_eq!(left()?, before, "left when all are gone");
        // Small ones of its kind share another block.
        let small = (0..5).map(|_| cuda.create_array(1024, 64).granted()).collect::<Result<Vec<_>, _>>();
        let small = small.or_else(|code| fail!("a small array: {code:?}"))?;
        let alone = cuda.create_array(width, height).granted().or_else(|code| fail!("an array of a block: {code:?}"))?;
        ensure_eq!(before - left()?, block + block, "of the budget for small arrays and one of a block");
        ensure!(destroy(&[alone]), "the array of a block could not be destroyed");
        ensure_eq!(before - left()?, block, "of the budget for small arrays");
        ensure!(destroy(&small), "a small array could not be destroyed");
        ensure_eq!(left()?, before, "left when the small ones are gone, too");
        Ok(())
    }

    /// An array that a driver refuses whatever the budget is refused with the driver's own code when the budget is exhausted.
    a_bad_array_is_the_drivers_to_refuse {
        kind: Budget, defects: ["C1", "R2"], budget: "0=4GiB",
        entry_points: ["cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate"],
    } (session) {
        let cuda = cuda()?;
        let taken = until_refused(&STEP, |bytes| cuda.create_array(WIDE, rows(bytes.0)).granted());
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
        ensure_eq!(cuda.create_array(1 << 20, 1 << 10).code, INVALID, "a row of 2^20 words");
        ensure_eq!(cuda.create_array_3d(1 << 20, 1 << 10, 1).code, INVALID, "a deep one");
        ensure_eq!(cuda.create_mipmap(1 << 20, 1 << 10, 1).code, INVALID, "one with levels");
        Ok(())
    }
}
