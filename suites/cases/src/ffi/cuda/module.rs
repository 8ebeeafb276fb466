//! Modules, libraries, and the functions and kernels in them. Images are PTX, alone or wrapped.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use abi::cuda::{
    CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUlinkState, CUmodule, CUresult, CUstream,
};

use super::graph::{Begin, Graph, threads_stream};
use super::{Answer, Cuda, MISSING};

/// A loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Module(CUmodule);

/// A loaded library.
#[derive(Clone, Copy, Debug)]
pub struct Library(CUlibrary);

// SAFETY: a handle, which a driver takes from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A kernel's function in a context.
#[derive(Clone, Copy, Debug)]
pub struct Function(pub(super) CUfunction);

/// A kernel of a library.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(CUkernel);

/// An image in memory, as a module is loaded from.
pub struct Image(Vec<u8>);

impl Image {
    pub fn ptx(text: &str) -> Image {
        Image([text.as_bytes(), b"\0"].concat())
    }

    /// A fat binary of one PTX entry, as nvcc's fatbinary writes it.
    pub fn fat(text: &str) -> Image {
        let payload = [text.as_bytes(), b"\0"].concat();
        Image::fat_of(payload, 0, 0, 0)
    }

    /// The same, packed, as nvcc writes it unless it is told not to: LZ4, though of literals alone (LZ4 Block Format Description).
    pub fn packed(text: &str) -> Image {
        const LZ4: u64 = 0x2000;
        const FEW: usize = 15;
        let text = [text.as_bytes(), b"\0"].concat();
        let more = text.len().saturating_sub(FEW);
        let mut payload = vec![(text.len().min(FEW) as u8) << 4];
        payload.extend(std::iter::repeat_n(u8::MAX, more / 255));
        payload.extend((text.len() >= FEW).then_some((more % 255) as u8));
        payload.extend(&text);
        let packed = payload.len() as u32;
        Image::fat_of(payload, LZ4, packed, text.len() as u64)
    }

    /// A fat binary of one entry of PTX: how it is packed, its bytes as it is and as it will be, where it is packed.
    fn fat_of(mut payload: Vec<u8>, how: u64, packed: u32, unpacked: u64) -> Image {
        const ENTRY: u32 = 96;
        payload.resize(payload.len().next_multiple_of(8), 0);
        let mut entry = Vec::new();
        // Kind, version; its own bytes; those of the payload; packed, where options lie; the PTX's version, its architecture.
        entry.extend([1, 0, 1, 1]);
        entry.extend(ENTRY.to_le_bytes());
        entry.extend((payload.len() as u64).to_le_bytes());
        entry.extend(
            [packed, 80, 0x7_0000, 70, 64, 10]
                .map(u32::to_le_bytes)
                .concat(),
        );
        entry.extend((0x11 | how).to_le_bytes());
        entry.extend(0_u64.to_le_bytes());
        entry.extend(unpacked.to_le_bytes());
        entry.extend(b"module.ptx");
        entry.resize(ENTRY as usize, 0);
        entry.extend(payload);
        let mut bytes = 0xba55_ed50_u32.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((entry.len() as u64).to_le_bytes());
        bytes.extend(entry);
        Image(bytes)
    }

    fn address(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

impl Cuda {
    pub fn load_module(&self, image: &Image) -> Answer<Module> {
        let mut out = CUmodule::NULL;
        let code = call!(self.cuModuleLoadData(&mut out, image.address()));
        Answer {
            code,
            out: Module(out),
        }
    }

    /// cuModuleLoadDataEx, without options.
    pub fn load_module_ex(&self, image: &Image) -> Answer<Module> {
        let mut out = CUmodule::NULL;
        let code =
            call!(self.cuModuleLoadDataEx(&mut out, image.address(), 0, null_mut(), null_mut()));
        Answer {
            code,
            out: Module(out),
        }
    }

    pub fn load_fat_binary(&self, image: &Image) -> Answer<Module> {
        let mut out = CUmodule::NULL;
        let code = call!(self.cuModuleLoadFatBinary(&mut out, image.address()));
        Answer {
            code,
            out: Module(out),
        }
    }

    pub fn load_module_file(&self, path: &Path) -> Answer<Module> {
        let (mut out, path) = (CUmodule::NULL, c_path(path));
        let code = call!(self.cuModuleLoad(&mut out, path.as_ptr()));
        Answer {
            code,
            out: Module(out),
        }
    }

    /// Links PTX and loads what the linker wrote.
    pub fn load_linked(&self, text: &str) -> Answer<Module> {
        /// CU_JIT_INPUT_PTX.
        const PTX: i32 = 1;
        let mut out = CUmodule::NULL;
        let (mut link, mut cubin, mut size) = (CUlinkState::NULL, null_mut(), 0);
        let image = Image::ptx(text);
        let (data, none) = (image.address().cast_mut(), null_mut::<c_void>());
        let mut code = call!(self.cuLinkCreate_v2(0, none.cast(), none.cast(), &mut link));
        if code == CUresult::SUCCESS {
            let name = c_name("case");
            let length = image.0.len();
            code = call!(self.cuLinkAddData_v2(
                link,
                PTX,
                data,
                length,
                name.as_ptr(),
                0,
                none.cast(),
                none.cast()
            ));
        }
        if code == CUresult::SUCCESS {
            code = call!(self.cuLinkComplete(link, &mut cubin, &mut size));
        }
        if code == CUresult::SUCCESS {
            code = call!(self.cuModuleLoadData(&mut out, cubin));
        }
        let _ = call!(self.cuLinkDestroy(link));
        Answer {
            code,
            out: Module(out),
        }
    }

    pub fn unload_module(&self, module: Module) -> CUresult {
        call!(self.cuModuleUnload(module.0))
    }

    pub fn load_library(&self, image: &Image) -> Answer<Library> {
        let (mut out, none) = (CUlibrary::NULL, null_mut::<c_void>());
        let code = call!(self.cuLibraryLoadData(
            &mut out,
            image.address(),
            none.cast(),
            none.cast(),
            0,
            none.cast(),
            none.cast(),
            0
        ));
        Answer {
            code,
            out: Library(out),
        }
    }

    pub fn load_library_file(&self, path: &Path) -> Answer<Library> {
        let (mut out, none, path) = (CUlibrary::NULL, null_mut::<c_void>(), c_path(path));
        let code = call!(self.cuLibraryLoadFromFile(
            &mut out,
            path.as_ptr(),
            none.cast(),
            none.cast(),
            0,
            none.cast(),
            none.cast(),
            0
        ));
        Answer {
            code,
            out: Library(out),
        }
    }

    pub fn unload_library(&self, library: Library) -> CUresult {
        call!(self.cuLibraryUnload(library.0))
    }

    /// The address of a library's variable in the current context, where it is loaded now if it was not.
    pub fn module_variable(&self, module: Module, name: &str) -> Answer<CUdeviceptr> {
        let (mut out, mut bytes, name) = (0, 0, c_name(name));
        let code = call!(self.cuModuleGetGlobal_v2(&mut out, &mut bytes, module.0, name.as_ptr()));
        Answer { code, out }
    }

    pub fn managed_variable(&self, library: Library, name: &str) -> Answer<CUdeviceptr> {
        let (mut out, mut bytes, name) = (0, 0, c_name(name));
        let code = call!(self.cuLibraryGetManaged(&mut out, &mut bytes, library.0, name.as_ptr()));
        Answer { code, out }
    }

    pub fn library_variable(&self, library: Library, name: &str) -> Answer<CUdeviceptr> {
        let (mut out, mut bytes, name) = (0, 0, c_name(name));
        let code = call!(self.cuLibraryGetGlobal(&mut out, &mut bytes, library.0, name.as_ptr()));
        Answer { code, out }
    }

    pub fn function(&self, module: Module, name: &str) -> Answer<Function> {
        let (mut out, name) = (CUfunction::NULL, c_name(name));
        let code = call!(self.cuModuleGetFunction(&mut out, module.0, name.as_ptr()));
        Answer {
            code,
            out: Function(out),
        }
    }

    /// The functions of a module, at most two.
    pub fn functions(&self, module: Module) -> Answer<[Option<Function>; 2]> {
        let mut out = [CUfunction::NULL; 2];
        let code = call!(self.cuModuleEnumerateFunctions(out.as_mut_ptr(), 2, module.0));
        let out = out.map(|function| (!function.is_null()).then_some(Function(function)));
        Answer { code, out }
    }

    pub fn kernel(&self, library: Library, name: &str) -> Answer<Kernel> {
        let (mut out, name) = (CUkernel::NULL, c_name(name));
        let code = call!(self.cuLibraryGetKernel(&mut out, library.0, name.as_ptr()));
        Answer {
            code,
            out: Kernel(out),
        }
    }

    /// A kernel's function in the current context.
    pub fn function_of_kernel(&self, kernel: Kernel) -> Answer<Function> {
        let mut out = CUfunction::NULL;
        let code = call!(self.cuKernelGetFunction(&mut out, kernel.0));
        Answer {
            code,
            out: Function(out),
        }
    }

    /// The kernels of a library, at most two.
    pub fn kernels(&self, library: Library) -> Answer<[Option<Kernel>; 2]> {
        let mut out = [CUkernel::NULL; 2];
        let code = call!(self.cuLibraryEnumerateKernels(out.as_mut_ptr(), 2, library.0));
        let out = out.map(|kernel| (!kernel.is_null()).then_some(Kernel(kernel)));
        Answer { code, out }
    }

    /// One thread of a function with a pointer as its parameter, on the default stream.
    pub fn launch_function(&self, function: Function, pointer: CUdeviceptr) -> CUresult {
        self.launch_on(CUstream::NULL, function, &mut pointer.to_ne_bytes())
    }

    /// Captures one launch.
    pub fn captured_launch(&self, function: Function, pointer: CUdeviceptr) -> Answer<Graph> {
        self.captured_launches(function, &mut pointer.to_ne_bytes(), 1)
    }

    /// Captures so many, one after another, of a function whose one parameter is these bytes.
    pub fn captured_launches(
        &self,
        function: Function,
        parameter: &mut [u8],
        times: usize,
    ) -> Answer<Graph> {
        let mut codes = vec![self.begin_capture(Begin::Second, Graph::NONE)];
        codes.extend((0..times).map(|_| self.launch_on(threads_stream(), function, parameter)));
        let mut graph = self.end_capture();
        codes.push(graph.code);
        let failed = codes.into_iter().find(|code| *code != CUresult::SUCCESS);
        graph.code = failed.unwrap_or(graph.code);
        graph
    }

    /// So many blocks of so many threads.
    pub fn launch_shaped(
        &self,
        function: Function,
        pointer: CUdeviceptr,
        blocks: u32,
        threads: u32,
    ) -> CUresult {
        let (stream, mut pointer) = (CUstream::NULL, pointer.to_ne_bytes());
        self.launch_as(stream, function, &mut pointer, (blocks, threads))
    }

    fn launch_on(&self, stream: CUstream, function: Function, parameter: &mut [u8]) -> CUresult {
        self.launch_as(stream, function, parameter, (1, 1))
    }

    fn launch_as(
        &self,
        stream: CUstream,
        function: Function,
        parameter: &mut [u8],
        (blocks, threads): (u32, u32),
    ) -> CUresult {
        let mut parameters = [parameter.as_mut_ptr().cast::<c_void>()];
        let (parameters, none) = (parameters.as_mut_ptr(), null_mut());
        call!(self.cuLaunchKernel(
            function.0, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, none
        ))
    }

    /// The same of a kernel, whose handle cuLaunchKernel takes as a function's.
    pub fn launch_kernel(&self, kernel: Kernel, pointer: CUdeviceptr) -> CUresult {
        self.launch_function(Function(CUfunction(kernel.0.0.cast())), pointer)
    }
}
