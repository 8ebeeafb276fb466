//! Modules by their content: one text is one module, on the device as well.

use std::sync::Arc;

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq};

use super::{Bench, IDLE};
use crate::cuda::modules::program;
use crate::ffi::launch::kernel;

cases! {
    /// A text that is asked for again is not loaded again: its variables are charged once, and another text's do not fit beside them. When nobody holds it any
    /// more there is room.
    one_text_is_loaded_and_charged_once {
        kind: Budget, defects: ["R13"], budget: "0=3GiB", entry_points: ["cuModuleLoadData", "cuModuleUnload"],
    } (_session) {
        let mut bench = Bench::open()?;
        let (text, other) = (program(Bytes::gib(1)), program(Bytes::gib(2)));
        let module = bench.module(&text)?;
        for _ in 0..4 {
            ensure!(Arc::ptr_eq(&module, &bench.module(&text)?), "the same text is another module");
        }
        ensure_eq!(bench.device.counts().modules, 1, "modules that the driver loaded");
        let refused = bench.modules.load(&other).err().and_then(|error| error.code());
        ensure_eq!(refused, Some(CUresult::ERROR_OUT_OF_MEMORY), "2 GiB of variables beside 1 of 3");
        let launchable = kernel(&module, "empty", &[])?;
        drop(module);
        bench.modules.trim();
        ensure_eq!(bench.modules.kept(), 1, "modules kept for a kernel");
        drop(launchable);
        bench.modules.trim();
        ensure_eq!(bench.modules.kept(), 0, "modules kept for nobody");
        bench.module(&other)?;
        Ok(())
    }

    /// Texts that differ in one letter are two modules; what does not compile is an error with the driver's code, and is not kept.
    texts_that_differ_are_modules_that_differ {
        entry_points: ["cuModuleLoadData", "cuModuleGetFunction"], budget: "0=4GiB",
    } (_session) {
        let mut bench = Bench::open()?;
        let first = bench.module(IDLE)?;
        let second = bench.module(&IDLE.replace("idle", "idly"))?;
        ensure!(!Arc::ptr_eq(&first, &second), "two texts are one module");
        kernel(&second, "idly", &[8])?;
        let absent = crate::ffi::launch::declared(&second, "idle", &[8]).err();
        ensure_eq!(absent.and_then(|error| error.code()), Some(CUresult::ERROR_NOT_FOUND), "a kernel of the other text");
        let broken = bench.modules.load("no text of a kernel").err().and_then(|error| error.code());
        ensure!(broken.is_some_and(|code| code != CUresult::ERROR_OUT_OF_MEMORY), "what does not compile: {broken:?}");
        ensure_eq!(bench.modules.kept(), 2, "modules kept");
        Ok(())
    }
}
