//! The oracle's odd calls, row by row: each is made again and answered in the recorder's own words (JSON).

use crate::boundary::{Ended, in_child, set_environment};
use crate::score::Score;
use crate::told::told;
use crate::{CUDA, must, out, start};

pub const MIB: u64 = 1 << 20;

/// Rows that nothing here makes again, each with why.
const LEFT_OUT: &[(&str, &str)] = &[];

pub fn free_memory() -> u64 {
    let mut free = 0u64;
    must("cuMemGetInfo_v2", &[out(&mut free), 0]);
    free
}

fn alloc(size: u64) -> (u32, u64) {
    let mut pointer = 7u64;
    (
        CUDA.call("cuMemAlloc_v2", &[out(&mut pointer), size]),
        pointer,
    )
}

/// An allocation that succeeds.
fn some(size: u64) -> u64 {
    let (code, pointer) = alloc(size);
    assert_eq!(code, 0, "{size} bytes");
    pointer
}

fn failed(size: u64) -> String {
    let (code, pointer) = alloc(size);
    format!("[{code},\"{pointer:#x}\"]")
}

/// `cuMemAlloc_v2(SIZE) free-memory delta`.
fn delta(size: u64) -> String {
    let before = free_memory();
    let (code, pointer) = alloc(size);
    let taken = before - free_memory();
    must("cuMemFree_v2", &[pointer]);
    format!("[{code},{taken}]")
}

fn code(entry: &str, words: &[u64]) -> String {
    CUDA.call(entry, words).to_string()
}

/// A code, and a word that began as 7.
fn with_word(entry: &str, words: impl Fn(u64) -> Vec<u64>) -> (u32, u64) {
    let mut word = 7u64;
    (CUDA.call(entry, &words(out(&mut word))), word)
}

fn look_up(name: &std::ffi::CStr) -> (u32, u64, i32) {
    let (mut pointer, mut status) = (7u64, -1i32);
    let words = [
        name.as_ptr() as u64,
        out(&mut pointer),
        12000,
        0,
        out(&mut status),
    ];
    (CUDA.call("cuGetProcAddress_v2", &words), pointer, status)
}

/// What the card was asked, asked of the mock; `None` for a row that nothing here makes again.
fn answer(row: &str) -> Option<String> {
    let (mut word, mut other) = (7u64, 7u64);
    let at = out(&mut word);
    if let Some(launch) = row.strip_prefix("launch: ") {
        return launch_answer(launch);
    }
    let sized = row
        .strip_prefix("cuMemAlloc_v2(")
        .and_then(|rest| rest.strip_suffix(") free-memory delta"));
    if let Some(size) = sized {
        return Some(delta(size.parse().ok()?));
    }
    let answer = match row {
        "cuMemAlloc_v2(NULL,1MiB)" => code("cuMemAlloc_v2", &[0, MIB]),
        "cuMemAlloc_v2(p,0)" => failed(0),
        "cuMemAlloc_v2(p,SIZE_MAX)" => failed(u64::MAX),
        "cuMemAlloc_v2(p,1PiB)" => failed(1 << 50),
        "cuMemAlloc_v2 failed leaves out-param" => {
            let (code, pointer) = alloc(1 << 50);
            format!("[{code},{}]", pointer == 7)
        }
        "cuMemAlloc_v2 1 byte granularity: two allocs distance" => {
            let ((first, one), (second, two)) = (alloc(1), alloc(1));
            format!("[{first},{second},{}]", two - one)
        }
        "cuMemFree_v2(0)" => code("cuMemFree_v2", &[0]),
        "cuMemFree_v2(untracked 0x1000)" => code("cuMemFree_v2", &[0x1000]),
        "cuMemFree_v2 twice" => {
            let pointer = some(MIB);
            let codes = [(); 2].map(|()| CUDA.call("cuMemFree_v2", &[pointer]));
            format!("[{},{}]", codes[0], codes[1])
        }
        "cuMemFree_v2 interior pointer" => code("cuMemFree_v2", &[some(MIB) + 512]),
        "cuMemFreeAsync(0,NULL)" => code("cuMemFreeAsync", &[0, 0]),
        "cuMemFreeAsync(ptr from cuMemAlloc)" => {
            let (code, pointer) = alloc(MIB);
            format!("[{code},{}]", CUDA.call("cuMemFreeAsync", &[pointer, 0]))
        }
        "cuMemFree_v2(ptr from cuMemAllocAsync)" => {
            let (code, pointer) = with_word("cuMemAllocAsync", |at| vec![at, MIB, 0]);
            format!("[{code},{}]", CUDA.call("cuMemFree_v2", &[pointer]))
        }
        "cuMemGetInfo_v2(NULL,NULL)" => code("cuMemGetInfo_v2", &[0, 0]),
        "cuMemGetInfo_v2(free,NULL)" => {
            let (code, free) = with_word("cuMemGetInfo_v2", |at| vec![at, 0]);
            format!("[{code},{}]", free > 7)
        }
        "cuMemGetInfo_v2(NULL,total)" => {
            let (code, total) = with_word("cuMemGetInfo_v2", |at| vec![0, at]);
            format!("[{code},{}]", total > 7)
        }
        "cuDeviceTotalMem_v2(NULL,0)" => code("cuDeviceTotalMem_v2", &[0, 0]),
        "cuDeviceTotalMem_v2(p,99)" => {
            let (code, total) = with_word("cuDeviceTotalMem_v2", |at| vec![at, 99]);
            format!("[{code},{total}]")
        }
        "cuDeviceGet(p,99)" => {
            let (code, device) = with_word("cuDeviceGet", |at| vec![at, 99]);
            format!("[{code},{device}]")
        }
        "cuMemAllocPitch_v2(NULL pitch)" => code("cuMemAllocPitch_v2", &[at, 0, 1000, 10, 4]),
        "cuMemAllocPitch_v2(NULL dptr)" => code("cuMemAllocPitch_v2", &[0, at, 1000, 10, 4]),
        "cuMemAllocPitch_v2(1000x10x4) pitch" => {
            let code = CUDA.call("cuMemAllocPitch_v2", &[at, out(&mut other), 1000, 10, 4]);
            format!("[{code},{other}]")
        }
        "cuMemAllocPitch_v2(elem 3)" => {
            code("cuMemAllocPitch_v2", &[at, out(&mut other), 1000, 10, 3])
        }
        "cuMemAllocManaged(NULL)" => code("cuMemAllocManaged", &[0, 4096, 1]),
        "cuMemAllocManaged(p,4096,flags 0)" => code("cuMemAllocManaged", &[at, 4096, 0]),
        "cuMemAllocManaged(p,0,1)" => code("cuMemAllocManaged", &[at, 0, 1]),
        "cuMemAllocHost_v2(NULL)" => code("cuMemAllocHost_v2", &[0, 64]),
        "cuMemHostAlloc(NULL)" => code("cuMemHostAlloc", &[0, 64]),
        "cuMemHostRegister_v2(NULL)" => code("cuMemHostRegister_v2", &[0, 64]),
        "cuCtxGetDevice(NULL)" => code("cuCtxGetDevice", &[0]),
        "cuLaunchKernel(NULL func)" => code("cuLaunchKernel", &[0]),
        "cuLaunchCooperativeKernel(NULL func)" => code("cuLaunchCooperativeKernel", &[0]),
        "cuMemCreate(NULL handle)" => code("cuMemCreate", &[0, 2 * MIB, out(&mut [1u64, 1, 0, 0])]),
        "cuGetProcAddress_v2(NULL name)" => {
            let ended = in_child(|| CUDA.call("cuGetProcAddress_v2", &[0, at, 12000]).into());
            let died = ended == Ended::Died(libc::SIGSEGV);
            if died {
                "\"SIGSEGV\"".to_owned()
            } else {
                format!("{ended:?}")
            }
        }
        "cuGetProcAddress_v2(unknown)" => nulled(look_up(c"cuNoSuchThing")),
        "cuGetProcAddress_v2('')" => nulled(look_up(c"")),
        "cuGetProcAddress_v2('cuMemAlloc_v2')" => {
            let (code, pointer, status) = look_up(c"cuMemAlloc_v2");
            format!("[{code},{},{status}]", pointer != 0)
        }
        "pitch/array memory delta: 2D array 1024x1024 f32" => {
            let before = free_memory();
            let descriptor = [1024u64, 1024, 1 << 32 | 32];
            let code = CUDA.call("cuArrayCreate_v2", &[at, descriptor.as_ptr() as u64]);
            format!("[{code},{}]", before - free_memory())
        }
        "async pool 64MiB: delta on alloc, after free+sync, after trim" => pool_deltas(),
        "VMM granularity, create 2MiB, delta; create 1 byte" => physical_deltas(),
        "second context free-memory delta" => {
            let before = free_memory();
            let code = CUDA.call("cuCtxCreate_v2", &[at, 0, 0]);
            format!("[{code},{}]", before - free_memory())
        }
        "fork after cuInit: child cuMemAlloc" => {
            let ended = in_child(|| alloc(1).0.into());
            let Ended::Answered(code) = ended else {
                return Some(format!("{ended:?}"));
            };
            code.to_string()
        }
        "bad PTX" => code("cuModuleLoadData", &[at, c"this is no PTX".as_ptr() as u64]),
        "kernel param slot NULL" => {
            let slots = [0u64];
            code(
                "cuLaunchKernel",
                &[
                    kernel(c"with_a_parameter"),
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    0,
                    slots.as_ptr() as u64,
                ],
            )
        }
        _ => return None,
    };
    Some(answer)
}

fn nulled((code, pointer, status): (u32, u64, i32)) -> String {
    let pointer = if pointer == 0 {
        "null".to_owned()
    } else {
        pointer.to_string()
    };
    format!("[{code},{pointer},{status}]")
}

fn pool_deltas() -> String {
    let before = free_memory();
    let held = || before - free_memory();
    let (code, pointer) = with_word("cuMemAllocAsync", |at| vec![at, 64 * MIB, 0]);
    must("cuStreamSynchronize", &[0]);
    let taken = held();
    must("cuMemFreeAsync", &[pointer, 0]);
    must("cuStreamSynchronize", &[0]);
    let freed = held();
    let (_, pool) = with_word("cuDeviceGetDefaultMemPool", |at| vec![at, 0]);
    must("cuMemPoolTrimTo", &[pool, 0]);
    format!("[{code},{taken},{freed},{}]", held())
}

fn physical_deltas() -> String {
    // CUmemAllocationProp: pinned, on device 0.
    let prop = [1u64, 1, 0, 0];
    let prop = prop.as_ptr() as u64;
    let granularity =
        |option| with_word("cuMemGetAllocationGranularity", |at| vec![at, prop, option]);
    let ((minimum, least), (recommended, best)) = (granularity(0), granularity(1));
    let before = free_memory();
    let (created, _) = with_word("cuMemCreate", |at| vec![at, 2 * MIB, prop]);
    let taken = before - free_memory();
    let (refused, _) = with_word("cuMemCreate", |at| vec![at, 1, prop]);
    format!("[{minimum},{least},{recommended},{best},{created},{taken},{refused}]")
}

const PTX: &std::ffi::CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
.visible .entry with_a_parameter(.param .u64 p) { ret; }
";

fn kernel(name: &std::ffi::CStr) -> u64 {
    let (_, module) = with_word("cuModuleLoadData", |at| vec![at, PTX.as_ptr() as u64]);
    with_word("cuModuleGetFunction", |at| {
        vec![at, module, name.as_ptr() as u64]
    })
    .1
}

fn launch_answer(row: &str) -> Option<String> {
    let (loaded, module) = with_word("cuModuleLoadData", |at| vec![at, PTX.as_ptr() as u64]);
    let get = |name: u64| with_word("cuModuleGetFunction", |at| vec![at, module, name]);
    let (got, function) = get(c"empty".as_ptr() as u64);
    let launch = |grid: [u64; 3], block: [u64; 3], shared: u64| {
        let words = [
            function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, 0, 0,
        ];
        code("cuLaunchKernel", &words)
    };
    let cooperative = |blocks| {
        code(
            "cuLaunchCooperativeKernel",
            &[function, blocks, 1, 1, 128, 1, 1],
        )
    };
    let occupancy = |threads| {
        let mut blocks = 2i32;
        let words = [out(&mut blocks), function, threads, 0];
        let code = CUDA.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &words);
        format!("[{code},{blocks}]")
    };
    const LONGEST: u64 = (1 << 31) - 1;
    Some(match row {
        "module loaded, function found" => format!("[{loaded},{got}]"),
        "1x1" => launch([1; 3], [1; 3], 0),
        "grid0" => launch([0, 1, 1], [1; 3], 0),
        "block0" => launch([1; 3], [0, 1, 1], 0),
        "block1025" => launch([1; 3], [1025, 1, 1], 0),
        "gridY65536" => launch([1, 65536, 1], [1; 3], 0),
        "gridX2^31-1" => launch([LONGEST, 1, 1], [1; 3], 0),
        "gridX2^31" => launch([LONGEST + 1, 1, 1], [1; 3], 0),
        "gridmax^3" => launch([u32::MAX.into(); 3], [1; 3], 0),
        "blockz65" => launch([1; 3], [1, 1, 65], 0),
        "shared 1MiB" => launch([1; 3], [1; 3], MIB),
        "kernelParams NULL" => code(
            "cuLaunchKernel",
            &[kernel(c"with_a_parameter"), 1, 1, 1, 1, 1, 1],
        ),
        "coop 1M blocks" => cooperative(1 << 20),
        "coop 100 blocks" => cooperative(100),
        "sync" => code("cuCtxSynchronize", &[]),
        "getfunction missing" => get(c"missing".as_ptr() as u64).0.to_string(),
        "getfunction NULL name" => get(0).0.to_string(),
        "occupancy 1024" => occupancy(1024),
        "occupancy 0" => occupancy(0),
        _ => return None,
    })
}

/// Free memory before there is any context, with the primary one, and what NVML says that it took.
fn context_figures() -> String {
    // The recorder read NVML before cuInit: here the world says the same without it.
    let total = 150_109_880_320u64;
    start();
    let free = free_memory();
    format!("[{total},{free},{}]", total - free)
}

pub fn compare() -> Score {
    let mut score = Score::default();
    let table = include_str!("../../../fixtures/oracle/edges.txt");
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let (row, wanted) = line.split_once('\t').expect("a row and an answer");
        if let Some((_, why)) = LEFT_OUT.iter().find(|(name, _)| *name == row) {
            score.left_out.push(format!("{row}: {why}"));
            continue;
        }
        let lines = told(|| {
            set_environment("RINGFENCE_MACHINE", b"h200");
            if row.starts_with("context memory") {
                return vec![context_figures()];
            }
            start();
            vec![answer(row).unwrap_or_else(|| "not made again".to_owned())]
        });
        let got = lines.join(" ");
        score.checked += 1;
        if got != wanted {
            score.wrong.push(format!("{row}: {got}, recorded {wanted}"));
        }
    }
    score
}

#[test]
fn every_odd_call_is_answered_as_recorded() {
    compare().all("edges");
}
