//! Turns the oracle's tables into Rust and sets the library's link options.
//!
//! Every name that some driver generation exports becomes a variant of `Entry`; those that `src/table.rs` does not
//! simulate become stubs. The table is included here as Rust, so that no text is parsed twice.

use build_support::{link, rust};

macro_rules! entry_points {
    ($($noun:ident { $($name:ident => $handler:path;)* })*) => {
        const SIMULATED: &[&str] = &[$($(stringify!($name),)*)*];
    };
}
include!("src/table.rs");

/// `cudbg` symbols that are variables of a debugger's interface, not functions.
const DATA: &[&str] = &[
    "cudbgApiClientPid",
    "cudbgApiClientRevision",
    "cudbgAttachHandlerAvailable",
    "cudbgDebuggerCapabilities",
    "cudbgDebuggerInitialized",
    "cudbgDetachSuspendedDevicesMask",
    "cudbgEnableIntegratedMemcheck",
    "cudbgEnableLaunchBlocking",
    "cudbgEnablePreemptionDebugging",
    "cudbgInjectionPath",
    "cudbgIpcFlag",
    "cudbgReportDriverApiErrorFlags",
    "cudbgReportedDriverApiErrorCode",
    "cudbgReportedDriverApiErrorFuncNameAddr",
    "cudbgReportedDriverApiErrorFuncNameSize",
    "cudbgReportedDriverApiErrorNameAddr",
    "cudbgReportedDriverApiErrorNameSize",
    "cudbgReportedDriverApiErrorSource",
    "cudbgReportedDriverApiErrorStringAddr",
    "cudbgReportedDriverApiErrorStringSize",
    "cudbgReportedDriverInternalErrorCode",
    "cudbgResumeForAttachDetach",
    "cudbgRpcEnabled",
    "cudbgSessionId",
    "cudbgUseExternalDebugger",
];

/// Functions whose arguments no header declares.
const UNDECLARED: &[&str] = &[
    "cuEGLApiInit",
    "cuMemGetAttribute",
    "cuMemGetAttribute_v2",
    "cudbgApiAttach",
    "cudbgApiDetach",
    "cudbgApiInit",
    "cudbgGetAPI",
    "cudbgGetAPIVersion",
    "cudbgMain",
    "cudbgReportDriverApiError",
    "cudbgReportDriverInternalError",
];

fn main() {
    link::called("libcuda.so.1");
    link::bound_to_itself();
    link::old_glibc();
    let tables = rust::Tables::new("../fixtures/oracle");
    tables.write(
        "entries.rs",
        &rust::entries(&tables.read("libcuda.txt"), SIMULATED, UNDECLARED, DATA),
    );
    tables.write(
        "lookup.rs",
        &rust::look_ups(&tables.read("proc-address.txt")),
    );
    tables.write(
        "errors.rs",
        &rust::errors(&tables.read("cuda-errors.txt"), 2),
    );
}
