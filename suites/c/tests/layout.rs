//! Sizes, offsets and constants of every structure that we fill, against the public headers.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use abi::{cuda, nvml};

/// What we believe about one C expression.
struct Row {
    expression: String,
    ours: u64,
}

macro_rules! structure {
    ($rows:ident, $ours:ty, $c:literal, $($field:ident = $c_field:literal),* $(,)?) => {
        $rows.push(Row { expression: format!("sizeof({})", $c), ours: size_of::<$ours>() as u64 });
        $($rows.push(Row {
            expression: format!("offsetof({}, {})", $c, $c_field),
            ours: offset_of!($ours, $field) as u64,
        });)*
    };
}

macro_rules! constants {
    ($rows:ident, $($c:literal = $ours:expr),* $(,)?) => {
        $($rows.push(Row { expression: $c.to_owned(), ours: $ours as u64 });)*
    };
}

fn cuda_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    structure!(rows, cuda::CUresult, "CUresult",);
    structure!(rows, cuda::CUuuid, "CUuuid", bytes = "bytes");
    structure!(rows, cuda::CUdeviceptr, "CUdeviceptr",);
    structure!(
        rows,
        cuda::CUmemGenericAllocationHandle,
        "CUmemGenericAllocationHandle",
    );
    structure!(
        rows,
        cuda::CUdevprop,
        "CUdevprop",
        maxThreadsPerBlock = "maxThreadsPerBlock",
        maxThreadsDim = "maxThreadsDim",
        maxGridSize = "maxGridSize",
        sharedMemPerBlock = "sharedMemPerBlock",
        totalConstantMemory = "totalConstantMemory",
        SIMDWidth = "SIMDWidth",
        memPitch = "memPitch",
        regsPerBlock = "regsPerBlock",
        clockRate = "clockRate",
        textureAlign = "textureAlign"
    );
    structure!(
        rows,
        cuda::CUmemLocation,
        "CUmemLocation",
        type_ = "type",
        id = "id"
    );
    structure!(
        rows,
        cuda::CUmemPoolProps,
        "CUmemPoolProps",
        allocType = "allocType",
        handleTypes = "handleTypes",
        location = "location",
        win32SecurityAttributes = "win32SecurityAttributes",
        maxSize = "maxSize",
        usage = "usage",
        reserved = "reserved"
    );
    structure!(
        rows,
        cuda::CUmemAllocationProp,
        "CUmemAllocationProp",
        type_ = "type",
        requestedHandleTypes = "requestedHandleTypes",
        location = "location",
        win32HandleMetaData = "win32HandleMetaData",
        compressionType = "allocFlags.compressionType",
        gpuDirectRDMACapable = "allocFlags.gpuDirectRDMACapable",
        usage = "allocFlags.usage",
        reserved = "allocFlags.reserved"
    );
    structure!(
        rows,
        cuda::CUDA_ARRAY_DESCRIPTOR,
        "CUDA_ARRAY_DESCRIPTOR",
        Width = "Width",
        Height = "Height",
        Format = "Format",
        NumChannels = "NumChannels"
    );
    constants!(
        rows,
        "CUDA_SUCCESS" = cuda::CUresult::SUCCESS.0,
        "CUDA_ERROR_INVALID_VALUE" = cuda::CUresult::ERROR_INVALID_VALUE.0,
        "CUDA_ERROR_OUT_OF_MEMORY" = cuda::CUresult::ERROR_OUT_OF_MEMORY.0,
        "CUDA_ERROR_NOT_INITIALIZED" = cuda::CUresult::ERROR_NOT_INITIALIZED.0,
        "CUDA_ERROR_DEINITIALIZED" = cuda::CUresult::ERROR_DEINITIALIZED.0,
        "CUDA_ERROR_NO_DEVICE" = cuda::CUresult::ERROR_NO_DEVICE.0,
        "CUDA_ERROR_INVALID_DEVICE" = cuda::CUresult::ERROR_INVALID_DEVICE.0,
        "CUDA_ERROR_INVALID_CONTEXT" = cuda::CUresult::ERROR_INVALID_CONTEXT.0,
        "CUDA_ERROR_INVALID_HANDLE" = cuda::CUresult::ERROR_INVALID_HANDLE.0,
        "CUDA_ERROR_ILLEGAL_STATE" = cuda::CUresult::ERROR_ILLEGAL_STATE.0,
        "CUDA_ERROR_NOT_FOUND" = cuda::CUresult::ERROR_NOT_FOUND.0,
        "CUDA_ERROR_NOT_READY" = cuda::CUresult::ERROR_NOT_READY.0,
        "CUDA_ERROR_CONTEXT_IS_DESTROYED" = cuda::CUresult::ERROR_CONTEXT_IS_DESTROYED.0,
        "CUDA_ERROR_NOT_SUPPORTED" = cuda::CUresult::ERROR_NOT_SUPPORTED.0,
        "CUDA_ERROR_UNKNOWN" = cuda::CUresult::ERROR_UNKNOWN.0,
        "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD" = cuda::pool_attribute::RELEASE_THRESHOLD,
        "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT" = cuda::pool_attribute::RESERVED_MEM_CURRENT,
        "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH" = cuda::pool_attribute::RESERVED_MEM_HIGH,
        "CU_MEMPOOL_ATTR_USED_MEM_CURRENT" = cuda::pool_attribute::USED_MEM_CURRENT,
        "CU_MEMPOOL_ATTR_USED_MEM_HIGH" = cuda::pool_attribute::USED_MEM_HIGH,
    );
    rows
}

fn nvml_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    structure!(rows, nvml::nvmlReturn_t, "nvmlReturn_t",);
    structure!(rows, nvml::nvmlDevice_t, "nvmlDevice_t",);
    structure!(
        rows,
        nvml::nvmlMemory_t,
        "nvmlMemory_t",
        total = "total",
        free = "free",
        used = "used"
    );
    structure!(
        rows,
        nvml::nvmlMemory_v2_t,
        "nvmlMemory_v2_t",
        version = "version",
        total = "total",
        reserved = "reserved",
        free = "free",
        used = "used"
    );
    structure!(
        rows,
        nvml::nvmlUtilization_t,
        "nvmlUtilization_t",
        gpu = "gpu",
        memory = "memory"
    );
    structure!(
        rows,
        nvml::nvmlPciInfo_t,
        "nvmlPciInfo_t",
        busIdLegacy = "busIdLegacy",
        domain = "domain",
        bus = "bus",
        device = "device",
        pciDeviceId = "pciDeviceId",
        pciSubSystemId = "pciSubSystemId",
        busId = "busId"
    );
    structure!(
        rows,
        nvml::nvmlProcessInfo_v1_t,
        "nvmlProcessInfo_v1_t",
        pid = "pid",
        usedGpuMemory = "usedGpuMemory"
    );
    structure!(
        rows,
        nvml::nvmlProcessInfo_t,
        "nvmlProcessInfo_v2_t",
        pid = "pid",
        usedGpuMemory = "usedGpuMemory",
        gpuInstanceId = "gpuInstanceId",
        computeInstanceId = "computeInstanceId"
    );
    constants!(
        rows,
        "nvmlMemory_v2" = nvml::nvmlMemory_v2_t::VERSION,
        "NVML_SUCCESS" = nvml::nvmlReturn_t::SUCCESS.0,
        "NVML_ERROR_UNINITIALIZED" = nvml::nvmlReturn_t::ERROR_UNINITIALIZED.0,
        "NVML_ERROR_INVALID_ARGUMENT" = nvml::nvmlReturn_t::ERROR_INVALID_ARGUMENT.0,
        "NVML_ERROR_NOT_SUPPORTED" = nvml::nvmlReturn_t::ERROR_NOT_SUPPORTED.0,
        "NVML_ERROR_NO_PERMISSION" = nvml::nvmlReturn_t::ERROR_NO_PERMISSION.0,
        "NVML_ERROR_NOT_FOUND" = nvml::nvmlReturn_t::ERROR_NOT_FOUND.0,
        "NVML_ERROR_INSUFFICIENT_SIZE" = nvml::nvmlReturn_t::ERROR_INSUFFICIENT_SIZE.0,
        "NVML_ERROR_DRIVER_NOT_LOADED" = nvml::nvmlReturn_t::ERROR_DRIVER_NOT_LOADED.0,
        "NVML_ERROR_LIBRARY_NOT_FOUND" = nvml::nvmlReturn_t::ERROR_LIBRARY_NOT_FOUND.0,
        "NVML_ERROR_FUNCTION_NOT_FOUND" = nvml::nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND.0,
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH" =
            nvml::nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH.0,
        "NVML_ERROR_UNKNOWN" = nvml::nvmlReturn_t::ERROR_UNKNOWN.0,
    );
    rows
}

/// Compiles a program that prints every expression and returns the rows where it disagrees with us.
fn disagreements(header: &str, rows: &[Row]) -> Vec<String> {
    let mut source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{\n"
    );
    for row in rows {
        writeln!(
            source,
            "    printf(\"%llu\\n\", (unsigned long long)({}));",
            row.expression
        )
        .expect("writing to a String cannot fail");
    }
    source.push_str("    return 0;\n}\n");

    let scratch = tempfile::tempdir().expect("a temporary directory");
    let file = scratch.path().join("layout.c");
    let program = scratch.path().join("layout");
    std::fs::write(&file, source).expect("writing the witness");
    c_witness::compile(&file, &program, &[]).unwrap_or_else(|error| panic!("{error}"));
    let output = Command::new(&program)
        .output()
        .expect("running the witness");
    let theirs: Vec<u64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.parse().expect("the witness prints numbers"))
        .collect();

    assert_eq!(theirs.len(), rows.len(), "the witness answers every row");
    rows.iter()
        .zip(theirs)
        .filter(|(row, theirs)| row.ours != *theirs)
        .map(|(row, theirs)| {
            format!(
                "{}: ours {}, the header's {theirs}",
                row.expression, row.ours
            )
        })
        .collect()
}

#[test]
fn cuda_types_agree_with_the_public_header() {
    assert_eq!(disagreements("cuda.h", &cuda_rows()), Vec::<String>::new());
}

#[test]
fn nvml_types_agree_with_the_public_header() {
    assert_eq!(disagreements("nvml.h", &nvml_rows()), Vec::<String>::new());
}

/// `nvmlDeviceGetPciInfo` before `_v3` fills a structure that today's header no longer declares.
#[test]
fn the_older_pci_structure_is_fifty_two_bytes() {
    assert_eq!(size_of::<nvml::nvmlPciInfo_v2_t>(), 52);
}
