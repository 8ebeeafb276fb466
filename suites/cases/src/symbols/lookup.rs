//! dlsym and dlvsym, by handle, RTLD_DEFAULT and RTLD_NEXT.

use std::collections::BTreeSet;
use std::ffi::CStr;

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library as Built, Session, cases, ensure, ensure_eq, roles};

use crate::ffi::cuda::Cuda;
use crate::ffi::library::{
    Address, Library, Scope, Visibility, look_up, look_up_version, take_error,
};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};

/// libcuda, its names visible to RTLD_DEFAULT and RTLD_NEXT, ready for use.
fn visible_cuda() -> Result<Cuda, Failure> {
    let cuda = Cuda::open_as("libcuda.so.1", Visibility::Global)?;
    ensure_eq!(cuda.init(), CUresult::SUCCESS, "cuInit");
    crate::clients::context(&cuda, 0)?;
    Ok(cuda)
}

/// cuMemAlloc_v2 at this address keeps the budget.
fn keeps_the_budget(session: &Session, cuda: &Cuda, found: Option<Address>) -> Result<(), Failure> {
    let Some(address) = found else {
        harness::fail!("cuMemAlloc_v2 was not found")
    };
    let taken = until_refused(&STEPS, |bytes| cuda.allocate_by(address, bytes.0).granted());
    taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
    fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
}

roles! {
    /// A program whose own library was loaded behind the enforcer and before libcuda: what that library finds by RTLD_NEXT.
    wrapped(session, _parent) {
        let core = Library::open(&session.library(Built::Plugin)?.display().to_string(), Visibility::Local)?;
        let cuda = visible_cuda()?;
        ensure_eq!(core.next("core_next"), None, "the library's own name behind itself");
        ensure!(core.next("malloc").is_some(), "malloc was not found behind the library");
        keeps_the_budget(session, &cuda, core.next("cuMemAlloc_v2"))
    }

    /// A program with a library that is linked against libcuda, which somebody has preloaded before all else.
    linked(session, _parent) {
        // Opened before the first look-up, by which the enforcer would see it come.
        let core = Library::open(&session.library(Built::Plugin)?.display().to_string(), Visibility::Local)?;
        let cuda = visible_cuda()?;
        let taken = until_refused(&STEPS, |bytes| {
            let code = core.take_linked(bytes.0).unwrap_or(CUresult::ERROR_NOT_FOUND);
            if code == CUresult::SUCCESS { Ok(()) } else { Err(code) }
        });
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        for name in ["cuMemAlloc_v2", "cuMemGetInfo_v2"] {
            let by_handle = cuda.library.address(name);
            ensure!(by_handle.is_some(), "{name} was not found by handle");
            ensure!(look_up(Scope::Default, name) == by_handle, "{name} by RTLD_DEFAULT is another address");
        }
        let more = cuda.allocate(STEPS[0].0).code;
        ensure_eq!(more, CUresult::ERROR_OUT_OF_MEMORY, "what is looked up, when what is linked has taken the budget");
        Ok(())
    }
}

/// glibc's versions of dlsym, on x86-64 and aarch64, before and since 2.34.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// The budget is kept by all look-ups that some look-up of dlsym and dlvsym itself finds, together.
fn no_look_up_is_a_way_past(
    session: &Session,
    cuda: &Cuda,
    next: impl Fn(&str) -> Option<Address>,
) -> Result<(), Failure> {
    let mut found = Vec::new();
    for scope in [Scope::Default, Scope::Next] {
        found.push(look_up(scope, "dlsym"));
        found.extend(VERSIONS.map(|version| look_up_version(scope, "dlsym", version)));
    }
    found.push(next("dlsym"));
    let found: BTreeSet<_> = found.into_iter().flatten().collect();
    ensure!(!found.is_empty(), "dlsym was not found");
    ensure_eq!(
        look_up_version(Scope::Next, "dlsym", c"GLIBC_9.9"),
        None,
        "dlsym of a version that there is not"
    );
    ensure!(
        take_error(),
        "dlerror says nothing about dlsym of a version that there is not"
    );
    let mut taken = 0;
    for dlsym in found {
        let address = cuda.library.address_by(dlsym, "cuMemAlloc_v2");
        let Some(address) = address else {
            harness::fail!("cuMemAlloc_v2 was not found by a look-up that was looked up")
        };
        let by_it = until_refused(&STEPS, |bytes| cuda.allocate_by(address, bytes.0).granted());
        by_it.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        taken += by_it.bytes.0;
    }
    fills(Bytes(taken), budget(session, 0)?, CONTEXT_ROOM)
}

cases! {
    /// dlsym itself by RTLD_NEXT or RTLD_DEFAULT with a version, as other interposers find it, answers a look-up that knows the hooks.
    a_look_up_of_the_look_up_is_no_way_round {
        kind: Budget, defects: ["R49", "R8"], entry_points: ["dlsym", "dlvsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = visible_cuda()?;
        no_look_up_is_a_way_past(session, &cuda, |_| None)
    }

    /// The same from a library of the program's, for which RTLD_NEXT means libc's.
    a_librarys_look_up_of_the_look_up_is_no_way_round {
        kind: Budget, defects: ["R49", "R8"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = visible_cuda()?;
        let core = Library::open(&session.library(Built::Plugin)?.display().to_string(), Visibility::Local)?;
        no_look_up_is_a_way_past(session, &cuda, |name| core.next(name))
    }

    /// A version of an allocation that nobody knows, on a driver that no header describes yet, is not to be had by dlsym and dlvsym, or keeps the budget.
    by_dlsym_an_unknown_version_is_no_way_past_the_budget {
        kind: Budget, defects: ["R23"], entry_points: ["dlsym", "dlvsym"], machine: "rtx6000-ada+999", needs: ["cuMemAlloc_v3"],
        budget: "0=4GiB",
    } (session) {
        let cuda = visible_cuda()?;
        let none = c"VERS_1";
        for name in ["cuMemAlloc_v3", "cuMemAllocAsync_v2", "cuMemAllocAsync_v2_ptsz"] {
            let found = [
                cuda.library.address(name), look_up(Scope::Default, name), look_up(Scope::Next, name),
                cuda.library.versioned_address(name, none), look_up_version(Scope::Default, name, none),
            ];
            for address in found.into_iter().flatten() {
                let taken = until_refused(&STEPS, |bytes| match name {
                    "cuMemAlloc_v3" => cuda.allocate_by(address, bytes.0).granted(),
                    _ => cuda.allocate_async_by(address, bytes.0).granted(),
                });
                let budget = budget(session, 0)?;
                ensure!(taken.bytes <= budget, "{} by {name} under {budget}", taken.bytes);
            }
        }
        ensure!(cuda.library.address("cuNoSuchThing_v3").is_none(), "cuNoSuchThing_v3 was found");
        keeps_the_budget(session, &cuda, cuda.library.address("cuMemAlloc_v2"))
    }

    /// A library between the enforcer and the driver finds by RTLD_NEXT what lies behind itself, and of the driver's names the hooks.
    a_wrapper_finds_the_hook_behind_itself {
        kind: Budget, defects: ["R8", "S4"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let wrapper = session.library(Built::Plugin)?.display().to_string();
        let order = [session.preloads(), &[wrapper, "libcuda.so.1".to_owned()]].concat();
        session.launch("wrapped").env("LD_PRELOAD", &order.join(":")).start()?.finish()
    }

    /// A driver that is preloaded before the enforcer is found first by all that is linked against it: by libraries that are opened later, and by those that
    /// came with the program. They are held all the same.
    a_driver_preloaded_before_the_enforcer_is_no_way_past_the_budget {
        kind: Budget, defects: ["R61"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let drivers = ["libcuda.so.1".to_owned(), "libnvidia-ml.so.1".to_owned()];
        let linked = session.library(Built::Plugin)?.display().to_string();
        for before in [drivers.to_vec(), [&drivers[..], &[linked]].concat()] {
            let order = [&before[..], session.preloads()].concat();
            session.launch("linked").env("LD_PRELOAD", &order.join(":")).start()?.finish()?;
        }
        Ok(())
    }

    /// cuMemAlloc_v2 found by dlsym on the library's handle keeps the budget.
    found_by_handle_it_keeps_the_budget {
        kind: Budget, defects: ["R8"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = crate::clients::cuda()?;
        keeps_the_budget(session, &cuda, cuda.library.address("cuMemAlloc_v2"))
    }

    /// Found by RTLD_DEFAULT it does too, libcuda being globally visible.
    found_by_default_it_keeps_the_budget {
        kind: Budget, defects: ["R8", "S4"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = visible_cuda()?;
        keeps_the_budget(session, &cuda, look_up(Scope::Default, "cuMemAlloc_v2"))
    }

    /// Found by RTLD_NEXT it does too.
    found_by_next_it_keeps_the_budget {
        kind: Budget, defects: ["R8", "S4"], entry_points: ["dlsym", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = visible_cuda()?;
        keeps_the_budget(session, &cuda, look_up(Scope::Next, "cuMemAlloc_v2"))
    }

    /// dlvsym finds what dlsym finds, or nothing: the driver's names have no versions. It is no way round the hook.
    a_versioned_look_up_is_no_way_round {
        defects: ["R8"], entry_points: ["dlvsym", "cuMemAlloc_v2", "cuMemGetInfo_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = visible_cuda()?;
        for name in ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuInit"] {
            let by_handle = cuda.library.address(name);
            for version in [c"VERS_1", c"GLIBC_2.2.5", c"libcuda.so.1"] {
                let found = [
                    cuda.library.versioned_address(name, version),
                    look_up_version(Scope::Default, name, version),
                    look_up_version(Scope::Next, name, version),
                ];
                for address in found.into_iter().flatten() {
                    ensure!(Some(address) == by_handle, "{name} of version {version:?} is another address");
                }
            }
        }
        let libc = crate::ffi::library::Library::open("libc.so.6", Visibility::Local)?;
        ensure!(libc.versioned_address("memcpy", c"GLIBC_2.14").is_some(), "memcpy@GLIBC_2.14 was not found in libc");
        ensure!(
            libc.versioned_address("memcpy", c"GLIBC_2.2.5") != libc.versioned_address("memcpy", c"GLIBC_2.14"),
            "both versions of memcpy are one address"
        );
        Ok(())
    }

    /// The same name looked up in any way, any number of times, is one address.
    one_name_is_one_address {
        defects: ["S4", "S1"], entry_points: ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuInit"], budget: "0=4GiB",
    } (_session) {
        let cuda = visible_cuda()?;
        for name in ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuInit", "cuCtxGetDevice"] {
            let first = cuda.library.address(name);
            ensure!(first.is_some(), "{name} was not found by handle");
            for round in 0..3 {
                ensure!(cuda.library.address(name) == first, "{name} by handle, round {round}, is another address");
                ensure!(look_up(Scope::Default, name) == first, "{name} by RTLD_DEFAULT, round {round}, is another address");
                ensure!(look_up(Scope::Next, name) == first, "{name} by RTLD_NEXT, round {round}, is another address");
            }
        }
        Ok(())
    }

    /// While libcuda is not globally visible, RTLD_NEXT from the program finds none of its names, and dlerror says so.
    next_finds_nothing_where_nothing_is_visible {
        defects: ["S4"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
    } (_session) {
        let _cuda = crate::clients::cuda()?;
        for name in ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuInit", "nvmlDeviceGetMemoryInfo"] {
            take_error();
            ensure_eq!(look_up(Scope::Next, name), None, "{name} by RTLD_NEXT");
            ensure!(take_error(), "dlerror says nothing about {name} by RTLD_NEXT");
            ensure_eq!(look_up(Scope::Default, name), None, "{name} by RTLD_DEFAULT");
            ensure!(take_error(), "dlerror says nothing about {name} by RTLD_DEFAULT");
        }
        Ok(())
    }

    /// Names that are none of ours are found, or not, as ever: libc's by RTLD_NEXT twice over, look-alikes of ours not.
    other_names_mean_what_they_mean {
        defects: ["S3", "S4"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = crate::clients::cuda()?;
        for name in ["malloc", "pthread_create", "dlopen"] {
            let found = look_up(Scope::Next, name);
            ensure!(found.is_some(), "{name} was not found by RTLD_NEXT");
            ensure!(look_up(Scope::Next, name) == found, "{name} by RTLD_NEXT is another address the second time");
            ensure!(look_up(Scope::Default, name) == found, "{name} by RTLD_DEFAULT is another address");
        }
        for name in ["cuMemAlloc_v99", "curl_easy_init", "cudnnCreate", "cu", "cuMemAlloc_v2 ", ""] {
            take_error();
            ensure_eq!(cuda.library.address(name), None, "\"{name}\" by handle");
            ensure!(take_error(), "dlerror says nothing about \"{name}\"");
        }
        Ok(())
    }

    /// A look-up on another library's handle stays in that library.
    a_name_is_not_found_in_a_library_that_lacks_it {
        defects: ["S3"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
    } (_session) {
        let _cuda = crate::clients::cuda()?;
        let libc = crate::ffi::library::Library::open("libc.so.6", Visibility::Local)?;
        ensure!(libc.address("malloc").is_some(), "libc lacks malloc");
        ensure_eq!(libc.address("cuMemAlloc_v2"), None, "cuMemAlloc_v2 in libc");
        let nvml = crate::ffi::library::Library::open("libnvidia-ml.so.1", Visibility::Local)?;
        ensure_eq!(nvml.address("cuMemAlloc_v2"), None, "cuMemAlloc_v2 in NVML");
        ensure!(nvml.address("nvmlDeviceGetMemoryInfo").is_some(), "NVML lacks nvmlDeviceGetMemoryInfo");
        Ok(())
    }

    /// Any entry point may be the first to be looked up and called, before cuInit, from a fresh thread.
    any_entry_point_may_be_the_first {
        defects: ["S6"], entry_points: ["cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"], budget: "0=4GiB",
    } (_session) {
        let answer = std::thread::spawn(|| {
            let cuda = Cuda::open().map_err(|absent| absent.to_string())?;
            Ok::<_, String>(cuda.allocate(Bytes::mib(1).0).code)
        });
        let answer = answer.join().map_err(|_| Failure::Broken("the thread panicked".to_owned()))?;
        ensure_eq!(answer, Ok(CUresult::ERROR_NOT_INITIALIZED), "cuMemAlloc_v2 as the very first call");
        Ok(())
    }
}
