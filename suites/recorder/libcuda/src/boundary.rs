//! The table, expanded. What is looked up through cuGetProcAddress is exchanged on its way out.

use abi::cuda::enumerations::*;
use abi::cuda::*;
use recorder::boundary::Driver;

macro_rules! table {
    ($($rows:tt)*) => {
        recorder::stand_in! {
            (
                Driver {
                    api: trace::cuda::API,
                    variable: "RINGFENCE_RECORDED_LIBCUDA",
                    ends: trace::cuda::ends,
                    names: NAMES,
                    next: &NEXT,
                    exports: &EXPORTS,
                    by_address: std::sync::OnceLock::new(),
                },
                // What the generations export beside the public headers.
                [
                    cuEGLApiInit cuMemGetAttribute cuMemGetAttribute_v2 cudbgApiAttach cudbgApiDetach cudbgApiInit
                    cudbgGetAPI cudbgGetAPIVersion cudbgMain cudbgReportDriverApiError
                    cudbgReportDriverInternalError
                ]
            )
            $($rows)*
        }
    };
}
abi::cuda_signatures!(table);
