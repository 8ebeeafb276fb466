//! Arrays of 32-bit words, by every call that makes one.

use std::ptr::null;

use abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_res_array,
    CUDA_RESOURCE_DESC_res_linear, CUDA_TEXTURE_DESC, CUarray, CUdeviceptr, CUmipmappedArray,
    CUresult, CUsurfObject, CUtexObject,
};

use super::{Answer, Array, Cuda, MISSING, Mipmap};

/// CU_AD_FORMAT_UNSIGNED_INT32.
const WORDS: i32 = 3;

/// CUDA_ARRAY3D_LAYERED.
const LAYERED: u32 = 0x01;
/// CUDA_ARRAY3D_SURFACE_LDST.
const SURFACE: u32 = 0x02;
/// CUDA_ARRAY3D_SPARSE.
const SPARSE: u32 = 0x40;

impl Cuda {
    pub fn create_array(&self, width: u64, height: u64) -> Answer<Array> {
        self.create_array_of(WORDS, 1, width, height)
    }

    /// Of a CUarray_format, with the channels that it has.
    pub fn create_array_of(
        &self,
        format: i32,
        channels: u32,
        width: u64,
        height: u64,
    ) -> Answer<Array> {
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: width as usize,
            Height: height as usize,
            Format: format as _,
            NumChannels: channels,
        };
        let mut array = CUarray::NULL;
        let code = call!(self.cuArrayCreate_v2(&mut array, &descriptor));
        answer(code, array)
    }

    /// By the unsuffixed call of 32-bit days.
    pub fn create_array_v1(&self, width: u32, height: u32) -> Answer<Array> {
        let descriptor = CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: width,
            Height: height,
            Format: WORDS as _,
            NumChannels: 1,
        };
        let mut array = CUarray::NULL;
        let code = call!(self.cuArrayCreate(&mut array, &descriptor));
        answer(code, array)
    }

    pub fn create_array_3d(&self, width: u64, height: u64, depth: u64) -> Answer<Array> {
        self.create_array_with(0, width, height, depth)
    }

    /// Layers of a plain array's size each.
    pub fn create_layered_array(&self, width: u64, height: u64, layers: u64) -> Answer<Array> {
        self.create_array_with(LAYERED, width, height, layers)
    }

    /// Addresses alone, to whose tiles memory is bound.
    pub fn create_sparse_array(&self, width: u64, height: u64) -> Answer<Array> {
        self.create_array_with(SPARSE, width, height, 0)
    }

    fn create_array_with(&self, flags: u32, width: u64, height: u64, depth: u64) -> Answer<Array> {
        let descriptor = deep(flags, width, height, depth);
        let mut array = CUarray::NULL;
        let code = call!(self.cuArray3DCreate_v2(&mut array, &descriptor));
        answer(code, array)
    }

    pub fn create_array_3d_v1(&self, width: u32, height: u32, depth: u32) -> Answer<Array> {
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: width,
            Height: height,
            Depth: depth,
            Format: WORDS as _,
            NumChannels: 1,
            Flags: 0,
        };
        let mut array = CUarray::NULL;
        let code = call!(self.cuArray3DCreate(&mut array, &descriptor));
        answer(code, array)
    }

    /// An array that surfaces may be of.
    pub fn create_surface_array(&self, width: u64, height: u64) -> Answer<Array> {
        self.create_array_with(SURFACE, width, height, 0)
    }

    /// A texture object of words in linear memory.
    pub fn create_texture(&self, address: CUdeviceptr, bytes: u64) -> Answer<CUtexObject> {
        /// CU_RESOURCE_TYPE_LINEAR.
        const LINEAR: i32 = 2;
        let mut resource = CUDA_RESOURCE_DESC::zeroed();
        resource.resType = LINEAR as _;
        resource.res.linear = CUDA_RESOURCE_DESC_res_linear {
            devPtr: address,
            format: WORDS as _,
            numChannels: 1,
            sizeInBytes: bytes as usize,
        };
        let (texture, mut object) = (CUDA_TEXTURE_DESC::zeroed(), 0);
        let code = call!(self.cuTexObjectCreate(&mut object, &resource, &texture, null()));
        Answer { code, out: object }
    }

    pub fn destroy_texture(&self, object: CUtexObject) -> CUresult {
        call!(self.cuTexObjectDestroy(object))
    }

    /// A surface object of an array.
    pub fn create_surface(&self, array: Array) -> Answer<CUsurfObject> {
        let mut resource = CUDA_RESOURCE_DESC::zeroed();
        resource.res.array = CUDA_RESOURCE_DESC_res_array { hArray: array.0 };
        let mut object = 0;
        let code = call!(self.cuSurfObjectCreate(&mut object, &resource));
        Answer { code, out: object }
    }

    pub fn destroy_array(&self, array: Array) -> CUresult {
        call!(self.cuArrayDestroy(array.0))
    }

    /// With as many levels as asked for.
    pub fn create_mipmap(&self, width: u64, height: u64, levels: u32) -> Answer<Mipmap> {
        let descriptor = deep(0, width, height, 0);
        let mut mipmap = CUmipmappedArray::NULL;
        let code = call!(self.cuMipmappedArrayCreate(&mut mipmap, &descriptor, levels));
        Answer {
            code,
            out: Mipmap(mipmap),
        }
    }

    pub fn destroy_mipmap(&self, mipmap: Mipmap) -> CUresult {
        call!(self.cuMipmappedArrayDestroy(mipmap.0))
    }
}

fn answer(code: CUresult, array: CUarray) -> Answer<Array> {
    Answer {
        code,
        out: Array(array),
    }
}

fn deep(flags: u32, width: u64, height: u64, depth: u64) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width as usize,
        Height: height as usize,
        Depth: depth as usize,
        Format: WORDS as _,
        NumChannels: 1,
        Flags: flags,
    }
}
