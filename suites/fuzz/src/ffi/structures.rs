//! Structures that hooks take by pointer, field by field.
#![allow(non_snake_case, reason = "C names stay exact")]

use abi::cuda::enumerations::*;
use abi::cuda::*;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::frame;
use crate::maker::{Habit, Kind, Maker};

fn small(maker: &mut Maker<'_>) -> u64 {
    match maker.byte() {
        0..=207 => u64::from(maker.byte()),
        208..=239 => u64::from(maker.byte()) << 8,
        _ => maker.word(),
    }
}

fn format(maker: &mut Maker<'_>) -> i32 {
    match maker.byte() {
        0..=239 => maker.one_of(&[1, 2, 3, 8, 9, 10, 16, 32]),
        _ => maker.word() as i32,
    }
}

fn channels(maker: &mut Maker<'_>) -> u32 {
    match maker.byte() {
        0..=239 => maker.one_of(&[1, 2, 4]),
        _ => maker.word() as u32,
    }
}

pub fn array(maker: &mut Maker<'_>) -> CUDA_ARRAY_DESCRIPTOR {
    CUDA_ARRAY_DESCRIPTOR {
        Width: small(maker) as usize,
        Height: small(maker) as usize,
        Format: format(maker),
        NumChannels: channels(maker),
    }
}

pub fn array_v1(maker: &mut Maker<'_>) -> CUDA_ARRAY_DESCRIPTOR_v1 {
    let wide = array(maker);
    CUDA_ARRAY_DESCRIPTOR_v1 {
        Width: wide.Width as u32,
        Height: wide.Height as u32,
        Format: wide.Format,
        NumChannels: wide.NumChannels,
    }
}

pub fn array_3d(maker: &mut Maker<'_>) -> CUDA_ARRAY3D_DESCRIPTOR {
    let flat = array(maker);
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: flat.Width,
        Height: flat.Height,
        Depth: maker.number(8) as usize,
        Format: flat.Format,
        NumChannels: flat.NumChannels,
        // Layered, surface, cubemap, gather, depth, colour, sparse, deferred.
        Flags: match maker.byte() {
            0..=207 if maker.habit == Habit::Sparse => SPARSE,
            0..=127 => 0,
            128..=247 => 1 << (maker.byte() % 8),
            _ => maker.word() as u32,
        },
    }
}

/// CUDA_ARRAY3D_SPARSE.
const SPARSE: u32 = 0x40;
/// CU_MEM_CREATE_USAGE_TILE_POOL.
const TILE_POOL: u16 = 1;

pub fn array_3d_v1(maker: &mut Maker<'_>) -> CUDA_ARRAY3D_DESCRIPTOR_v1 {
    let wide = array_3d(maker);
    CUDA_ARRAY3D_DESCRIPTOR_v1 {
        Width: wide.Width as u32,
        Height: wide.Height as u32,
        Depth: wide.Depth as u32,
        Format: wide.Format,
        NumChannels: wide.NumChannels,
        Flags: wide.Flags,
    }
}

pub fn location(maker: &mut Maker<'_>) -> CUmemLocation {
    CUmemLocation {
        type_: match maker.byte() {
            0..=215 => 1,
            _ => maker.number(6) as i32,
        },
        id: maker.number(2) as i32,
    }
}

pub fn allocation(maker: &mut Maker<'_>) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: if maker.byte() < 240 {
            1
        } else {
            maker.number(4) as i32
        },
        requestedHandleTypes: if maker.byte() < 224 {
            i32::from(maker.byte() % 2)
        } else {
            maker.flags() as i32
        },
        location: location(maker),
        win32HandleMetaData: std::ptr::null_mut(),
        compressionType: if maker.byte() < 240 { 0 } else { maker.byte() },
        gpuDirectRDMACapable: if maker.byte() < 240 { 0 } else { maker.byte() },
        usage: match maker.byte() {
            0..208 if maker.habit == Habit::Sparse => TILE_POOL,
            0..208 => 0,
            _ => u16::from(maker.byte() % 4),
        },
        reserved: [if maker.byte() < 250 { 0 } else { 1 }; 4],
    }
}

pub fn pool(maker: &mut Maker<'_>) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: if maker.byte() < 240 {
            1
        } else {
            maker.number(4) as i32
        },
        handleTypes: if maker.byte() < 224 {
            // None, or descriptors.
            let chosen = if maker.surface { maker.byte() } else { 255 };
            i32::from(chosen < 128 || maker.habit == Habit::Sharing)
        } else {
            maker.flags() as i32
        },
        location: location(maker),
        win32SecurityAttributes: std::ptr::null_mut(),
        maxSize: if maker.byte() < 200 {
            0
        } else {
            maker.size() as usize
        },
        usage: if maker.byte() < 240 {
            0
        } else {
            u16::from(maker.byte())
        },
        reserved: [if maker.byte() < 250 { 0 } else { 1 }; 54],
    }
}

fn access(maker: &mut Maker<'_>) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location(maker),
        flags: maker.one_of(&[0, 1, 3, 3, 3]),
    }
}

/// A list of four, and how many of them count.
fn accesses(maker: &mut Maker<'_>) -> (*const CUmemAccessDesc, usize) {
    if maker.byte() < 160 {
        return (std::ptr::null(), 0);
    }
    let list: [CUmemAccessDesc; 4] = std::array::from_fn(|_| access(maker));
    (frame::put(list).cast(), usize::from(maker.byte() % 5))
}

pub fn access_list(maker: &mut Maker<'_>) -> [CUmemAccessDesc; 4] {
    std::array::from_fn(|_| access(maker))
}

pub fn allocation_node(maker: &mut Maker<'_>) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let (accessDescs, accessDescCount) = accesses(maker);
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: pool(maker),
        accessDescs,
        accessDescCount,
        bytesize: maker.size() as usize,
        dptr: 0,
    }
}

/// Nodes that name nothing of the host's: memory, events, nothing, and types that there are none of.
pub fn node(maker: &mut Maker<'_>) -> CUgraphNodeParams {
    let mut anon = CUgraphNodeParams_anon { reserved1: [0; 29] };
    let type_ = match maker.byte() {
        0..=127 => {
            let wide = allocation_node(maker);
            anon.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
                poolProps: wide.poolProps,
                accessDescs: wide.accessDescs,
                accessDescCount: wide.accessDescCount,
                bytesize: wide.bytesize,
                dptr: 0,
            };
            CU_GRAPH_NODE_TYPE_MEM_ALLOC
        }
        128..=175 => {
            anon.free = CUDA_MEM_FREE_NODE_PARAMS {
                dptr: maker.address(Kind::Address),
            };
            CU_GRAPH_NODE_TYPE_MEM_FREE
        }
        176..=223 => CU_GRAPH_NODE_TYPE_EMPTY,
        224..=239 => {
            let event = CUevent(maker.handle(Kind::Event) as *mut _);
            if event.is_null() {
                CU_GRAPH_NODE_TYPE_EMPTY
            } else {
                anon.eventRecord = CUDA_EVENT_RECORD_NODE_PARAMS { event };
                CU_GRAPH_NODE_TYPE_EVENT_RECORD
            }
        }
        _ => 64 + maker.word() as i32 % 64,
    };
    CUgraphNodeParams {
        type_,
        reserved0: [if maker.byte() < 250 { 0 } else { 1 }; 3],
        anon,
        reserved2: 0,
    }
}

pub fn edges(maker: &mut Maker<'_>) -> [CUgraphEdgeData; 4] {
    std::array::from_fn(|_| CUgraphEdgeData {
        from_port: if maker.byte() < 240 { 0 } else { maker.byte() },
        to_port: 0,
        type_: if maker.byte() < 240 { 0 } else { maker.byte() },
        reserved: [0; 5],
    })
}

pub fn instantiation(maker: &mut Maker<'_>) -> CUDA_GRAPH_INSTANTIATE_PARAMS {
    CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: maker.flags(),
        hUploadStream: CUstream(maker.handle(Kind::Stream) as *mut _),
        hErrNode_out: CUgraphNode::NULL,
        result_out: 0,
    }
}

/// Grids stay small or impossible: a huge one would keep the simulated device for years.
pub fn grid(maker: &mut Maker<'_>) -> u32 {
    match maker.byte() {
        0..=7 => 0,
        8..=239 => u32::from(maker.byte() % 4) + 1,
        _ => 1 << 31 | maker.word() as u32,
    }
}

pub fn block(maker: &mut Maker<'_>) -> u32 {
    match maker.byte() {
        0..=7 => 0,
        8..=239 => u32::from(maker.byte() % 8) + 1,
        _ => maker.word() as u32,
    }
}

pub fn shared(maker: &mut Maker<'_>) -> u32 {
    match maker.byte() {
        0..=199 => 0,
        200..=239 => u32::from(maker.byte()) << 8,
        _ => maker.word() as u32,
    }
}

/// Pointers to sixteen arguments, each of them long enough for any of the images' kernels.
pub fn kernel_arguments(maker: &mut Maker<'_>) -> *mut *mut c_void {
    let value: *mut u8 = frame::room(frame::ROOM, maker.byte());
    frame::put([value; 16]).cast()
}

/// CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, ended.
pub fn packed_arguments(maker: &mut Maker<'_>) -> *mut *mut c_void {
    let buffer: *mut u8 = frame::room(frame::ROOM, maker.byte());
    let size = frame::put(match maker.byte() {
        0..=127 => u64::from(maker.byte()),
        _ => 64,
    });
    frame::put([1, buffer as u64, 2, size as u64, 0_u64]).cast()
}

pub fn configuration(maker: &mut Maker<'_>) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: grid(maker),
        gridDimY: grid(maker),
        gridDimZ: grid(maker),
        blockDimX: block(maker),
        blockDimY: block(maker),
        blockDimZ: block(maker),
        sharedMemBytes: shared(maker),
        hStream: CUstream(maker.handle(Kind::Stream) as *mut _),
        attrs: std::ptr::null_mut(),
        numAttrs: 0,
    }
}

pub fn launches(maker: &mut Maker<'_>) -> [CUDA_LAUNCH_PARAMS; 3] {
    std::array::from_fn(|_| CUDA_LAUNCH_PARAMS {
        function: CUfunction(maker.handle(Kind::Function) as *mut _),
        gridDimX: grid(maker),
        gridDimY: grid(maker),
        gridDimZ: grid(maker),
        blockDimX: block(maker),
        blockDimY: block(maker),
        blockDimZ: block(maker),
        sharedMemBytes: shared(maker),
        hStream: CUstream(maker.handle(Kind::Stream) as *mut _),
        kernelParams: kernel_arguments(maker),
    })
}

/// An import by a descriptor of our own, because a driver that grants it closes it.
pub fn external(maker: &mut Maker<'_>) -> CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    let exported = maker.handle(Kind::Descriptor) as i32;
    if exported != 0 {
        // SAFETY: asks for another descriptor of one that was given to us; where it is none the answer is negative.
        let own = unsafe { libc::fcntl(exported, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: made just now, for us.
        maker.lent = (own >= 0).then(|| unsafe { OwnedFd::from_raw_fd(own) });
    }
    // Else one that is open and that no driver grants: of one that is not open it leaves errno as it likes.
    let fd = maker.lent.as_ref().map_or(0, AsRawFd::as_raw_fd);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: match maker.byte() {
            0..=231 => 1,
            _ => maker.number(10) as _,
        },
        handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle { fd },
        size: maker.size(),
        flags: maker.flags() as u32,
        reserved: [0; 16],
    }
}

pub fn buffer(maker: &mut Maker<'_>) -> CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
        offset: u64::from(maker.byte() % 4) << 16,
        size: maker.size(),
        flags: maker.flags() as u32,
        reserved: [0; 16],
    }
}

pub fn mapped_array(maker: &mut Maker<'_>) -> CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        offset: u64::from(maker.byte() % 4) << 16,
        arrayDesc: array_3d(maker),
        numLevels: maker.number(8) as u32,
        reserved: [0; 16],
    }
}

/// Of what is mapped of a sparse array: a tile of elements of 1, 2, 4, 8 or 16 bytes, or anything.
fn extent(maker: &mut Maker<'_>) -> (u32, u32) {
    const TILES: [(u32, u32); 5] = [(256, 256), (256, 128), (128, 128), (128, 64), (64, 64)];
    match maker.surface && maker.byte() < 224 {
        true => maker.one_of(&TILES),
        false => (small(maker) as u32, small(maker) as u32),
    }
}

pub fn tiles(maker: &mut Maker<'_>) -> [CUarrayMapInfo; 4] {
    // All alike, or each another: one that is refused lets none be mapped.
    let first = tile(maker);
    let alike = maker.surface && maker.byte() < 192;
    std::array::from_fn(|_| if alike { first } else { tile(maker) })
}

fn tile(maker: &mut Maker<'_>) -> CUarrayMapInfo {
    let which = match maker.surface {
        true => u8::from(maker.byte() >= 224),
        false => maker.byte() % 2,
    };
    let resource = match which {
        0 => CUarrayMapInfo_resource {
            array: CUarray(maker.handle(Kind::Array) as *mut _),
        },
        _ => CUarrayMapInfo_resource {
            mipmap: CUmipmappedArray(maker.handle(Kind::Mipmap) as *mut _),
        },
    };
    let (extentWidth, extentHeight) = extent(maker);
    CUarrayMapInfo {
        // The driver follows what the type says it is.
        resourceType: i32::from(which),
        resource,
        subresourceType: match maker.surface {
            true => i32::from(maker.byte() >= 224),
            false => maker.number(2) as i32,
        },
        subresource: CUarrayMapInfo_subresource {
            sparseLevel: CUarrayMapInfo_subresource_sparseLevel {
                level: 0,
                layer: 0,
                offsetX: 0,
                offsetY: 0,
                offsetZ: 0,
                extentWidth,
                extentHeight,
                extentDepth: 1,
            },
        },
        memOperationType: match maker.surface {
            true => maker.one_of(&[1, 1, 2]),
            false => maker.one_of(&[1, 2]),
        },
        memHandleType: 0,
        memHandle: CUarrayMapInfo_memHandle {
            memHandle: maker.handle(Kind::Physical),
        },
        offset: u64::from(maker.byte() % 4) << 16,
        deviceBitMask: 1,
        flags: 0,
        reserved: [0; 2],
    }
}

/// One affinity, of SMs.
fn affinity(maker: &mut Maker<'_>) -> *mut CUexecAffinityParam {
    frame::put(CUexecAffinityParam {
        type_: maker.number(2) as i32,
        param: CUexecAffinityParam_param {
            smCount: CUexecAffinitySmCount {
                val: maker.number(64) as u32,
            },
        },
    })
}

/// What cuCtxCreate_v3 takes, of which there may be one; and what _v4 takes.
pub fn context_parameters(maker: &mut Maker<'_>) -> *mut c_void {
    match maker.name {
        "cuCtxCreate_v4" => {
            let (execAffinityParams, numExecAffinityParams) = match maker.byte() {
                0..=159 => (std::ptr::null_mut(), 0),
                _ => (affinity(maker), 1),
            };
            frame::put(CUctxCreateParams {
                execAffinityParams,
                numExecAffinityParams,
                cigParams: std::ptr::null_mut(),
            })
            .cast()
        }
        _ => affinity(maker).cast(),
    }
}
