//! Every structure, union, enumeration constant and result code of `abi` against the public headers of CUDA 13.0, of 12.9 for
//! what 13.0 dropped, and of a later release for what 580 exports ahead of its header.
//!
//! The rows come from `abi`'s own tables. A header that lacks a name has no say in it; a row that no header knows fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;

use abi::layout::Layout;
use abi::{cuda, nvml};
use c_witness::Headers;

/// What we believe about one C expression.
struct Row {
    expression: String,
    ours: i64,
}

fn row(expression: impl Into<String>, ours: usize) -> Row {
    Row {
        expression: expression.into(),
        ours: ours as i64,
    }
}

/// Rust keywords have a `_` behind them in `abi`; C's own have it in the header too.
fn c_name(field: &str) -> &str {
    match field.strip_suffix('_') {
        Some("default") | None => field,
        Some(field) => field,
    }
}

/// Size, offsets, and the sizes of fields. What has no name in C is seen through its parent's fields.
fn layout_rows(layouts: &[Layout]) -> Vec<Row> {
    let mut rows = Vec::new();
    for layout in layouts.iter().filter(|layout| !layout.c.is_empty()) {
        rows.push(row(format!("sizeof({})", layout.c), layout.size));
        field_rows(layouts, layout.c, layout, 0, &mut rows);
    }
    rows
}

fn field_rows(layouts: &[Layout], c: &str, layout: &Layout, base: usize, rows: &mut Vec<Row>) {
    for ((field, offset), (kind, size)) in layout.fields.iter().zip(layout.types) {
        if *field == "anon" {
            let inner = layouts.iter().find(|inner| inner.rust == *kind);
            let inner = inner.unwrap_or_else(|| panic!("{kind} has no layout"));
            field_rows(layouts, c, inner, base + offset, rows);
            continue;
        }
        let field = c_name(field);
        rows.push(row(format!("offsetof({c}, {field})"), base + offset));
        rows.push(row(format!("sizeof((({c} *)0)->{field})"), *size));
    }
}

/// What a program defines, not the header.
const SWITCHES: [&str; 2] = [
    "CUDA_API_PER_THREAD_DEFAULT_STREAM",
    "NVML_NO_UNVERSIONED_FUNC_DEFS",
];

fn constant_rows(constants: &[(&str, i64)]) -> Vec<Row> {
    let constant = |(name, value): &(&str, i64)| Row {
        expression: (*name).to_owned(),
        ours: *value,
    };
    let ours = constants
        .iter()
        .filter(|(name, _)| !SWITCHES.contains(name));
    ours.map(constant).collect()
}

fn result_rows(prefix: &str, name: impl Fn(u32) -> Option<&'static str>) -> Vec<Row> {
    let code = |code| Some(row(format!("{prefix}_{}", name(code)?), code as usize));
    (0..=1000).filter_map(code).collect()
}

/// The structures that `types.rs` declares by hand.
macro_rules! structure {
    ($rows:ident, $ours:ty, $c:literal, $($field:ident = $c_field:literal),* $(,)?) => {
        $rows.push(row(format!("sizeof({})", $c), size_of::<$ours>()));
        $($rows.push(row(format!("offsetof({}, {})", $c, $c_field), offset_of!($ours, $field)));)*
    };
}

fn cuda_rows() -> Vec<Row> {
    let mut rows = layout_rows(cuda::structures::LAYOUTS);
    rows.extend(constant_rows(cuda::enumerations::CONSTANTS));
    rows.extend(result_rows("CUDA", |code| cuda::CUresult(code).name()));
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
    rows
}

fn nvml_rows() -> Vec<Row> {
    let mut rows = layout_rows(nvml::structures::LAYOUTS);
    rows.extend(constant_rows(nvml::enumerations::CONSTANTS));
    rows.extend(result_rows("NVML", |code| nvml::nvmlReturn_t(code).name()));
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
    rows
}

/// What the headers of EGL and GL would have to say for NVIDIA's to be read: opaque handles.
const STRANGERS: [(&str, &str); 3] = [
    (
        "EGL/egl.h",
        "typedef int EGLint; typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;",
    ),
    ("EGL/eglext.h", ""),
    (
        "GL/gl.h",
        "typedef unsigned GLuint; typedef unsigned GLenum;",
    ),
];

/// What a C compiler says of each row, by the row's place; without those that these headers do not know.
fn answers(headers: &Headers, includes: &[&str], rows: &[Row]) -> BTreeMap<usize, i64> {
    let mut known: Vec<usize> = (0..rows.len()).collect();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| scratch.path().join(name);
    for (name, text) in STRANGERS {
        std::fs::create_dir_all(path(name).parent().expect("a folder")).expect("a folder");
        std::fs::write(path(name), text).expect("writing a header");
    }
    let strangers = format!("-I{}", scratch.path().display());
    // The first generation's structures are declared for the library's own build.
    let flags = [
        "-fmax-errors=0",
        "-D__CUDA_API_VERSION_INTERNAL",
        &strangers,
    ];
    let (file, program) = (path("layout.c"), path("layout"));
    loop {
        let (text, first) = source(includes, rows, &known);
        std::fs::write(&file, text).expect("writing the witness");
        let message = match c_witness::compile(headers, &file, &program, &flags) {
            Ok(()) => break,
            Err(c_witness::WitnessError::Compiler { message, .. }) => message,
            Err(error) => panic!("{error}"),
        };
        let refused = refused_lines(&message);
        let lines = first..first + known.len();
        assert!(
            refused.iter().any(|line| lines.contains(line)),
            "the witness is refused for another reason than its rows: {message}"
        );
        let mut line = first - 1;
        known.retain(|_| {
            line += 1;
            !refused.contains(&line)
        });
    }
    let output = std::process::Command::new(&program)
        .output()
        .expect("running the witness");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = said
        .lines()
        .map(|line| line.parse::<i64>().expect("the witness prints numbers"));
    let answers: BTreeMap<usize, i64> = known.iter().copied().zip(said).collect();
    assert_eq!(answers.len(), known.len(), "the witness answers every row");
    answers
}

/// The program, and the line that its first row stands in.
fn source(includes: &[&str], rows: &[Row], known: &[usize]) -> (String, usize) {
    let mut text = String::new();
    for file in ["stddef.h", "stdio.h"].iter().chain(includes) {
        writeln!(text, "#include <{file}>").expect("a String takes it");
    }
    text.push_str("int main(void) {\n");
    let first = text.lines().count() + 1;
    for at in known {
        let expression = &rows[*at].expression;
        writeln!(text, "printf(\"%lld\\n\", (long long)({expression}));")
            .expect("a String takes it");
    }
    text.push_str("return 0; }\n");
    (text, first)
}

/// The lines of `layout.c` that the compiler found an error in.
fn refused_lines(message: &str) -> Vec<usize> {
    let line = |text: &str| {
        let (_, rest) = text.split_once("layout.c:")?;
        let (line, what) = rest.split_once(':')?;
        what.contains("error:").then(|| line.parse().ok())?
    };
    message.lines().filter_map(line).collect()
}

/// A 32-bit constant may be written with or without its sign.
fn same(one: i64, other: i64) -> bool {
    one == other || (one.min(other) < 0 && one as u32 == other as u32)
}

/// Compares with every release, the first that knows a row deciding, and says where another has something else.
fn witness(includes: &[&str], rows: &[Row]) {
    let headers = Headers::all().unwrap_or_else(|error| panic!("{error}"));
    let said = headers
        .each_ref()
        .map(|headers| answers(headers, includes, rows));
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for (at, row) in rows.iter().enumerate() {
        match said.iter().find_map(|said| said.get(&at)) {
            None => unknown.push(row.expression.as_str()),
            Some(theirs) if same(*theirs, row.ours) => {}
            Some(theirs) => wrong.push(format!(
                "{}: ours {}, the header's {theirs}",
                row.expression, row.ours
            )),
        }
    }
    for (headers, said) in headers.iter().zip(&said) {
        let others: Vec<_> = said
            .iter()
            .filter(|(at, theirs)| !same(rows[**at].ours, **theirs))
            .collect();
        let (version, known, rest) = (headers.version, said.len(), others.len());
        println!(
            "{} of {version}: {known} of {} rows known, {rest} of them otherwise",
            includes[0],
            rows.len()
        );
        for (at, theirs) in others {
            println!(
                "  {} is {theirs}, {} here",
                rows[*at].expression, rows[*at].ours
            );
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(unknown, Vec::<&str>::new(), "no header knows these");
}

#[test]
fn every_type_and_constant_of_cuda_is_the_headers() {
    let includes = ["cuda.h", "cudaEGL.h", "cudaGL.h"];
    witness(&includes, &cuda_rows());
}

#[test]
fn every_type_and_constant_of_nvml_is_the_headers() {
    witness(&["nvml.h"], &nvml_rows());
}

#[test]
#[should_panic(expected = "ours 17, the header's 16")]
fn a_wrong_row_is_noticed() {
    witness(&["cuda.h"], &[row("sizeof(CUuuid)", 17)]);
}

#[test]
#[should_panic(expected = "no header knows these")]
fn a_row_of_nobodys_is_noticed() {
    witness(
        &["cuda.h"],
        &[row("sizeof(CUnobody)", 4), row("sizeof(CUuuid)", 16)],
    );
}

/// `nvmlDeviceGetPciInfo` before `_v3` fills a structure that today's header no longer declares.
#[test]
fn the_older_pci_structure_is_fifty_two_bytes() {
    assert_eq!(size_of::<nvml::nvmlPciInfo_v2_t>(), 52);
}
