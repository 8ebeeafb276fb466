//! Known defects that the enforcer can be built to have, so that the suite can be shown to notice each.
//!
//! In what is shipped [`planted`] and [`unhooked`] are constantly false, and the compiler leaves nothing of what stands behind them. `suites/seeded`
//! compiles the enforcer's source once more with `cfg(seeded)`: there the variable [`VARIABLE`] names the defects that the process has, with commas between them. A seed is a row
//! here and, unless it is an entry point that is left unhooked, one condition at the place where a sound enforcer does the right thing. `unhook:NAME` is no
//! row: it leaves out the hook of any one entry point, as if nobody had thought of it.
#![forbid(unsafe_code)]

/// Names the seeds, in a build that can have some.
pub const VARIABLE: &str = "RINGFENCE_SEED";
/// Before the name of an entry point whose hook is to do nothing, instead of a seed.
pub const UNHOOK: &str = "unhook:";

macro_rules! seeds {
    ($($name:ident = $id:literal, $what:literal $(, unhooks: [$($hook:literal),*])?;)*) => {
        /// A seed, by the row of `fixtures/defects.txt` that it makes true.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Seed { $($name,)* }

        impl Seed {
            pub const ALL: &'static [Seed] = &[$(Seed::$name,)*];

            /// The row's id; several seeds of one row have letters behind it.
            pub const fn name(self) -> &'static str {
                match self { $(Seed::$name => $id,)* }
            }

            /// What goes wrong.
            pub const fn what(self) -> &'static str {
                match self { $(Seed::$name => $what,)* }
            }

            /// Names of entry points, or their beginnings or ends (`cuArray*`, `*_ptsz`), whose hooks do nothing.
            pub const fn unhooks(self) -> &'static [&'static str] {
                match self { $(Seed::$name => &[$($($hook),*)?],)* }
            }
        }
    };
}

seeds! {
    V1 = "V1", "a device is known by its UUID or not at all";
    V2 = "V2", "a device that stays ambiguous is taken for the first";
    V3 = "V3", "aliases of Vulkan commands are not hooked", unhooks: ["vk*KHR"];
    V4 = "V4", "heapBudget stays the driver's";
    V6 = "V6", "of the layer only the chain's own hooks are ever called";
    V9 = "V9", "what a destroyed VkDevice held stays charged";
    V10 = "V10", "heaps in system memory are charged";
    V11 = "V11", "the layer's own name is no layer's";
    V12 = "V12", "vkQueueSubmit2 and sparse binds are not held", unhooks: ["vkQueueSubmit2*", "vkQueueBindSparse"];
    V12a = "V12a", "sparse binds are not held", unhooks: ["vkQueueBindSparse"];
    V12b = "V12b", "a command that next lacks is answered all the same";
    V13 = "V13", "the record of a memory object is taken out after the driver has freed it";
    V24 = "V24", "the layer tells what the dead held as in use until memory is asked for";
    V28a = "V28a", "what a process has imported is charged once more with the VkInstance that gives it a row";
    R144 = "R144", "a primary context that the driver says nothing of is taken to have ended";
    R145 = "R145", "what managed memory takes with its first page is not charged where the driver says no device";
    R146 = "R146", "a list of processes that could not be read is taken for one without this process";
    R147 = "R147", "what is charged and not taken is said to exceed the budget";
    R143 = "R143", "what can be exported is taken for lent";
    R142 = "R142", "what destroyed pools hid is looked at with the next large request";
    R141 = "R141", "what destroyed pools were relieved of hides as much of what is taken beside them";
    V34 = "V34", "who is forked while another thread exports memory waits for that thread's lock";
    V33 = "V33", "a VkDevice's end looks at the driver's figures though others live";
    V32 = "V32", "of what a VkInstance takes no more is charged than a small budget's part for it";
    V31 = "V31", "a VkDevice is made to see whether it fits, though it is known what one takes";
    V30 = "V30", "what the process's other library is about to take or give back explains its row already";
    V29 = "V29", "every VkDevice and VkInstance that is made has an entry of its own for good";
    V28 = "V28", "what a process held in no row is charged once more with the VkInstance that gives it one";
    V27 = "V27", "a device group that names a GPU twice, or not its own, is made and charged as what it names";
    V26 = "V26", "VkInstances and VkDevices are made where there is no ledger to charge them to";
    V25 = "V25", "what other threads give back while a VkDevice is made is not charged to it";
    V23 = "V23", "GPUs beyond the thirty-second are charged to nobody by Vulkan";
    V15 = "V15", "what the driver says of us is never looked at";
    Floor = "F1", "the driver's figures of processes are never read";
    F1a = "F1a", "a look counts for nothing while other threads change the books";
    F1b = "F1b", "who was told of memory that nobody asked for is not told of an overdrawn budget";
    F1c = "F1c", "the layer never reads the driver's figure of its process";
    F1d = "F1d", "of Vulkan's commands only vkAllocateMemory is followed by a look", unhooks: ["vkCreate*Pipelines", "vkQueueSubmit*", "vkBeginCommandBuffer", "vkEndCommandBuffer"];
    F1e = "F1e", "a malloc heap that no launch has made the driver take passes for what the row shows";
    R16a = "R16a", "what is mapped or opened in a green context stays charged when its primary one ends";
    R16 = "R16", "green contexts and their streams are charged nothing";
    R17 = "R17", "executable graphs' own memory is charged nothing";
    R21 = "R21", "a new ledger knows nothing of who uses a deleted one";
    R36 = "R36", "a ledger that was moved away is not looked for";
    R22 = "R22", "a location of a newer type is taken for the host's";
    R23 = "R23", "versions and limits that nobody here knows are the driver's business";
    R18 = "R18", "a thread's own stream is no reason for a look", unhooks: ["cuMemcpy*_ptds", "cuMemcpy*Async*", "cuEventRecord*", "cuStreamQuery*", "cuStreamWaitEvent*"];
    R19 = "R19", "page tables of page-locked host memory are charged nothing", unhooks: ["cuMemAllocHost*", "cuMemHostAlloc", "cuMemHostRegister*"];
    R19a = "R19a", "page-locked host memory has page tables on the device that is current, and nowhere else";
    R19b = "R19b", "page-locked host memory and device memory of one address are one";
    R19d = "R19d", "a refused cuMemAllocHost of 32-bit days has the driver give 4 GiB that nobody frees";
    R19e = "R19e", "page-locked host memory and memory of a context of 32 bits of one address are each other's on record";
    R27 = "R27", "cuCtxDetach ends nothing that is charged";
    R17b = "R17b", "a process that shares memory by handles is never looked at";
    R25 = "R25", "plain memory that is freed in stream order comes back by a wait for the whole context alone";
    R26a = "R26a", "a pool waits for ever for a stream that another thread destroyed meanwhile";
    R26b = "R26b", "what was freed in a green context's streams is waited for after its end, and before it by nobody";
    R26 = "R26", "a destroyed pool's memory comes back by a wait for the whole context alone";
    C1 = "C1", "a refusal does not ask the driver what it objects to";
    C2 = "C2", "the free of an unknown pointer is no driver's business";
    C3 = "C3", "a refusal is -1";
    C4 = "C4", "free wraps below zero";
    C5 = "C5", "cuDeviceTotalMem answers for devices that are not there";
    C6 = "C6", "sizes wrap";
    C7 = "C7", "outputs are written after errors";
    C8 = "C8", "a thread without a context is told that it got memory";
    C8a = "C8a", "where the driver does not say which device is current, nothing is charged";
    C9 = "C9", "cuMemCreate is charged to the current device";
    C10 = "C10", "contexts are not charged", unhooks: ["cuInit", "cuDevicePrimaryCtx*", "cuCtxCreate*"];
    C11 = "C11", "beyond its first table the enforcer records no allocation";
    C12 = "C12", "a thread may be cancelled inside a hook";
    C30 = "C30", "the end of a guard lets a thread be cancelled again";
    C41 = "C41", "a full device refuses cuInit to processes that are not shown it";
    C42 = "C42", "a handler's request waits for that of its own thread which it interrupted";
    C43 = "C43", "a driver that allows no call is one that does not tell its device";
    C40 = "C40", "a request that can never fit waits for streams all the same";
    C31 = "C31", "one more hold on a primary context waits for contexts that others make";
    C13 = "C13", "a library's pointers that are named like CUDA's functions are our functions";
    C14 = "C14", "look-ups go by the program's dl_iterate_phdr, whose lock no forked child is freed of";
    D3 = "D3", "the driver is asked for a device that is not there";
    R1 = "R1", "pools are not hooked", unhooks: ["cuMemAllocFromPoolAsync*"];
    R2 = "R2", "arrays are not hooked", unhooks: ["cuArray*", "cuMipmappedArray*"];
    R3 = "R3", "graphs are not hooked", unhooks: ["cuGraph*", "cuStreamBeginCapture*"];
    R3a = "R3a", "a graph of which the driver does not tell allocates nothing";
    R4 = "R4", "per-thread streams' entry points are not hooked", unhooks: ["*_ptsz"];
    R5 = "R5", "physical memory's charge goes with its last handle";
    R6 = "R6", "limits are not hooked", unhooks: ["cuCtxSetLimit"];
    R7 = "R7", "unsuffixed exports are not hooked", unhooks: ["cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuArrayCreate", "cuArray3DCreate", "cuCtxCreate"];
    R8 = "R8", "RTLD_NEXT finds the driver behind the preload";
    R8a = "R8a", "what a process holds that asked no hook for anything is nobody's business";
    R8b = "R8b", "of what nobody was asked for NVML tells one device's figure at a time";
    R8c = "R8c", "a process that lets nobody look at it is no tenant's";
    R9 = "R9", "imported memory is charged again";
    R9b = "R9b", "what a pool lends and nobody uses passes for what the driver's row shows";
    R9a = "R9a", "what was exported before a device's first context is charged to that context too";
    R10 = "R10", "CUDA's ordinals are taken for NVML's";
    R11 = "R11", "a budget that does not parse is none";
    R12 = "R12", "functions are obtained unseen", unhooks: ["cuModuleGetFunction", "cuModuleEnumerateFunctions", "cuLibraryGetKernel", "cuLibraryEnumerateKernels", "cuKernelGetFunction"];
    R29 = "R29", "memory of a context that another thread destroys stays charged where its address is given out before the books know";
    R30 = "R30", "what cannot be looked at beside other threads is charged to its context for good";
    R30a = "R30a", "upper bounds of what cannot be looked at beside other threads add up to the budget, and are taken for seen";
    R31 = "R31", "a library is charged only for variables that have blocks of their own";
    R31a = "R31a", "below the most that was ever held nobody looks at the driver's figure";
    R31b = "R31b", "what the driver takes unasked is refused to nobody who is over the budget";
    R32 = "R32", "what no row shows is charged to its context again with each graph that is made executable";
    R32a = "R32a", "what a module takes is left to a look that no row answers";
    R32b = "R32b", "an executable graph needs what replaced it last, without a row, and nothing beside";
    R18a = "R18a", "threads have streams of their own made for them over the budget";
    P12c = "P12c", "what an image before execve held is waited for as long as if nobody had seen its row go";
    P24 = "P24", "that a process has no row any more is noted for one of its libraries alone";
    P24a = "P24a", "a row of imports alone is taken for one of all that a process holds";
    P23 = "P23", "what a dead process had is told as used for a while, though the driver no longer lists it";
    P3a = "P3a", "what a dead process held that never had a row is granted before the driver has taken it apart";
    R33a = "R33a", "a limit that is set while its context ends is charged for good";
    R33b = "R33b", "a limit that is refused is put back to what it was before another thread set it";
    R28e = "R28e", "an exchange of one of an executable graph's kernels is refused for the local memory of the others";
    R28f = "R28f", "a graph's kernels need local memory in the current context alone";
    F1f = "F1f", "local memory that the driver has taken passes for what it may yet take";
    R33c = "R33c", "a launch that is under way while the stack is set takes local memory that is charged no longer";
    R33e = "R33e", "what a smaller stack gave back is in the row again before it counts as listed";
    R91 = "R91", "a context that another thread ends just now is taken for one that somebody made past us";
    R92 = "R92", "what a graph took of a device without a context is charged once more with the context that comes";
    R93 = "R93", "an address that comes again for another kind of memory leaves managed memory's mark on it";
    R33d = "R33d", "what a refused launch was charged for goes, though another's launch has taken it meanwhile";
    R43c = "R43c", "a range descriptor that is made while its allocation is freed is nobody's charge";
    R95 = "R95", "a handle that two threads release at once stays charged";
    R96 = "R96", "an array of a packed or compressed format is charged as one of the largest texels";
    R97 = "R97", "a primary context ends under a thread that takes one more hold on it";
    R99 = "R99", "what comes from a pool at an address of a context that another thread ends just now is found by nobody who frees it";
    R100 = "R100", "a destroyed pool waits for ever for a stream of a context that another thread ended meanwhile";
    R101 = "R101", "destroyed pools that the driver has given back stay charged until somebody waits";
    R102 = "R102", "an array without memory of its own shares blocks with others, and is charged none";
    R103 = "R103", "a launch in a context that another thread is just making takes local memory that nobody charges";
    R105 = "R105", "a stack that is set takes for charged what a launch that is refused gives back meanwhile";
    R106 = "R106", "a limit that is set while its primary context is made anew is charged to neither";
    R114 = "R114", "who makes a context waits for the end of another as long as that takes";
    R18b = "R18b", "threads' own default streams are charged nothing where no row tells of them";
    R115 = "R115", "a destroyed pool of which anything is in use stays charged all that it ever had";
    R116 = "R116", "a stack that is set beside a launch leaves what that launch made of it charged";
    R117 = "R117", "an exported pool's memory counts as in the row of whoever imported it last";
    R118 = "R118", "memory that several hold is charged again with the context of one of them";
    R120 = "R120", "what no context owns is charged again with the context of a process whose row shows nothing but what it imported";
    R120a = "R120a", "the same with its VkInstance";
    R121 = "R121", "what the last of several had opened counts as in nobody's row while that one is dead and not buried";
    R122 = "R122", "who opens a handle once more counts as the last that opened it";
    R123 = "R123", "what the driver trimmed of pools before it was out of memory stays charged";
    R124 = "R124", "what the image before execve held stays charged until somebody needs it, though the next one has seen it gone";
    R125 = "R125", "a process whose later import of memory is over counts as its last opener still";
    R126 = "R126", "what another process's row was found to hold beyond its books is charged to it for as long as it has no row";
    R127 = "R127", "of two rows that a process has in one list the larger one is taken for all that it holds";
    R128 = "R128", "what a destroyed pool lends hides as much that is taken unasked";
    R129 = "R129", "a destroyed pool is charged no longer where the driver's row lists no pool";
    R130 = "R130", "what the image before execve held in no row is taken from the next one's";
    R131 = "R131", "external memory that is mapped where another thread's context had something is charged for good";
    R132 = "R132", "memory that is retained by its address while another thread maps it there is given back with that handle";
    R133 = "R133", "a heap that is set and not taken hides as much that Vulkan takes unasked";
    R134 = "R134", "small arrays that were destroyed stay charged until the last of their kind is";
    R135 = "R135", "beside anything that was freed of a pool and not waited for nothing of the drift is given back";
    R136 = "R136", "small arrays that fill what others left are not looked at";
    R137 = "R137", "what a pool lets go of while a context is made is taken for less that the context takes";
    R138 = "R138", "a context that is made beside a destroyed pool in use is charged the most that it may take, for good";
    R139 = "R139", "what was taken unseen and is gone stays charged up to the size of the libraries that are loaded";
    R140 = "R140", "modules that may fit are tried by each process of a tenant at once";
    D1 = "D1", "what was taken and given back again calls for a look at the driver's figures";
    D2 = "D2", "each look at the driver's figures begins NVML anew";
    C15 = "C15", "a limit that is set after a fault is out of memory";
    R112 = "R112", "what pools are charged for requests that overlap is given back in a moment of quiet alone";
    R111 = "R111", "any number of modules are loaded at once that no room was granted for";
    R110 = "R110", "a right that a call gives and takes again is charged for good";
    R109 = "R109", "functions of unloaded modules are remembered";
    R108 = "R108", "beside another library of ours what is charged by the driver's row is never given back";
    R107 = "R107", "a context that cannot be measured has all that it takes in its row";
    R105a = "R105a", "while a stack is about to be set nothing is charged for what launches made of it";
    R104 = "R104", "a module that is refused while a stream is captured stays, and nobody has charged it";
    P20 = "P20", "threads that wait for a look each take one of their own";
    R94 = "R94", "a device's right to a range that one call takes and gives ends its page tables";
    R94a = "R94a", "of two threads that set a device's right to a range the last to enter it in the books counts, not the last in the driver";
    R44a = "R44a", "a descriptor that is made while its memory is freed is nobody's charge";
    R90 = "R90", "a request that meets a change of the current pool is charged to the one that was";
    R17c = "R17c", "managed memory explains what is in the driver's row";
    R17d = "R17d", "the layer takes what is in no row for a part of its row";
    R17e = "R17e", "each importer takes what several hold for a part of its row";
    R43 = "R43", "descriptors of ranges are no holders of memory";
    R43a = "R43a", "a descriptor of a range that the driver tells nothing of in its context is no holder of memory";
    R43b = "R43b", "a descriptor of a part of a pool's memory holds all of the allocation";
    R44 = "R44", "what was imported and is exported again has no name";
    R51 = "R51", "what an argument points to is read once to be judged and once more by the driver";
    R81 = "R81", "what is charged and not taken yet pays for what a call took";
    R82 = "R82", "what the first module that calls malloc takes is found out by the next look";
    R31c = "R31c", "a load needs no more than its variables' bytes";
    R80 = "R80", "a graph has what it took though it was trimmed meanwhile";
    R78 = "R78", "a process whose first thread has ended is what the kernel shows of that";
    R50 = "R50", "the environment is read when the first hook is called";
    R49 = "R49", "dlsym itself by RTLD_NEXT or with a version is libc's";
    R61 = "R61", "a driver that stands before the preload in the search order is left as it is";
    R62 = "R62", "whatever NVML the loader finds is believed about which device is which";
    R71 = "R71", "texture and surface objects are looked at by nobody";
    R72 = "R72", "bodies of conditional nodes are looked into by nobody";
    R73 = "R73", "a kernel of an executable graph is exchanged as if it took nothing";
    R73a = "R73a", "what replaces an executable graph needs as much as a new one";
    R75 = "R75", "an executable graph needs what it was made with, whatever replaces its children";
    R76a = "R76a", "the first mapping in a range is gone when a driver says that the range was unmapped";
    R76 = "R76", "all that is mapped in a range is gone when a driver says that it was unmapped";
    R77 = "R77", "where a driver refuses some of what is to be bound to an array nothing is";
    R74 = "R74", "what other threads take while a context is made is charged to it";
    R70 = "R70", "parameters of an executable graph's kernels count no byte";
    R68 = "R68", "a variable's type of two halves counts a byte";
    R67 = "R67", "page directories of mappings of device memory are charged nothing";
    R66 = "R66", "what cuInit takes while there is no ledger is charged to none";
    R65 = "R65", "what a library takes beyond what its image says is looked at by nobody";
    R69 = "R69", "an image in what is no plain file is loaded as if it took nothing";
    R64 = "R64", "page tables of mappings of the host's memory are charged nothing";
    R48a = "R48a", "what is exported while no descriptor is left to name it with goes unseen";
    R48 = "R48", "what no row is left for is held by the number of its descriptor";
    R47 = "R47", "of graphs in one another the first sixteen are looked at";
    R46 = "R46", "a variable's size that is no decimal number is nothing";
    R45 = "R45", "a child of fork whose parent began is left alone";
    R42 = "R42", "32-bit contexts of two devices share what is known of an address";
    R41 = "R41", "what a device keeps for managed memory is charged to no variable";
    R40 = "R40", "of two drivers of one name the second is left alone";
    R34 = "R34", "what a stranger made is looked at only when it is mapped";
    R34d = "R34d", "what a stranger made is not looked at where its importer has no context";
    R34e = "R34e", "what another tenant exports does not say how large it is";
    R35 = "R35", "small arrays are charged twice their bytes though none was destroyed";
    R84 = "R84", "what is made in a context that another thread ends meanwhile stays charged";
    R84a = "R84a", "a library that is unloaded while a context is made stays charged in that";
    R85 = "R85", "limits of all contexts are set one after another";
    R89 = "R89", "what is freed in a stream's order while its context ends stays charged";
    R88 = "R88", "an executable graph that is made while its context ends is charged for good";
    R87a = "R87a", "a stream counts on the block that another's call has asked for and is refused";
    R87 = "R87", "a stream that is refused while its context ends is taken off another context's";
    R86 = "R86", "who makes a context waits for streams with all who make or end another";
    R16b = "R16b", "a green context's streams by cuStreamCreate are charged as its primary one's";
    R83 = "R83", "what a process was seen to hold beyond the books stays charged once the driver holds nothing for it";
    R28 = "R28", "local memory is charged as soon as a function is obtained";
    R28a = "R28a", "a graph is charged for the local memory of any function that was obtained";
    R28d = "R28d", "a launch that is captured is charged local memory";
    R28c = "R28c", "a kernel that an executable graph was set to is not known to need more local memory";
    R13 = "R13", "modules are loaded unseen", unhooks: ["cuModuleLoad*", "cuLibraryLoad*"];
    R15 = "R15", "managed memory is not charged", unhooks: ["cuMemAllocManaged"];
    S1 = "S1", "cuGetProcAddress ignores version and flags";
    S2 = "S2", "what the driver lacks is answered all the same";
    S3 = "S3", "every name that begins with cu is taken for CUDA's";
    S4 = "S4", "RTLD_NEXT is resolved from the preload's place";
    S5 = "S5", "without a driver no program starts";
    S6 = "S6", "nothing but cuInit may be called first";
    S8 = "S8", "NVML's memory is answered whatever the driver said";
    S9 = "S9", "a device whose index NVML does not tell is told of whole";
    P1 = "P1", "a request is checked, then added";
    P16 = "P16", "a ledger's path that is a link to nowhere is tried like any other";
    P19a = "P19a", "who gets a dead process's slot has its children too";
    P19 = "P19", "what a dead process held in no row is granted though its children keep it";
    P22 = "P22", "a call that page-locks memory counts on what another has asked for and is refused";
    P18 = "P18", "whether contexts count is each process's own";
    P17 = "P17", "the time is what the program's clock_gettime says";
    P3 = "P3", "what the dead held is never reclaimed";
    P6 = "P6", "where no slot is left the first is shared";
    P7 = "P7", "a fork child takes its parent's slot for its own";
    P8 = "P8", "budgets are those of the first look";
    P9 = "P9", "umask is set to 0";
    P10 = "P10", "a thread is started";
    P12a = "P12a", "what the driver still shows of a process's image before execve is charged to the new one";
    P12 = "P12", "the row of who has a dead process's pid is taken for the dead one's";
    P14 = "P14", "where the ledger's path leads nowhere the ledger is gone";
    P15 = "P15", "one process at a time may bury another";
    P11 = "P11", "who is required to have a budget and has none is let go";
    T1 = "T1", "only cuLaunchKernel is held", unhooks: ["cuLaunchCooperative*", "cuLaunchKernelEx*", "cuLaunchGrid*", "cuGraphLaunch*", "*_ptsz", "vkQueueSubmit*"];
    T1a = "T1a", "memsets are not held", unhooks: ["cuMemset*"];
    T2 = "T2", "work is paid for with half of its time";
    T2a = "T2a", "a tenth of the budget is granted";
    T5 = "T5", "a batch that waits for a semaphore is waited for and paid for as work";
    T10 = "T10", "a graph is paid for in the context that is current";
    T11 = "T11", "what a context took that has ended is found at the next launch";
    T14 = "T14", "a batch without command buffers waits for nothing that anybody notes";
    T15 = "T15", "the device is never asked what it did";
    T16 = "T16", "leases of streams that are at work together are laid one behind another";
    T18 = "T18", "all launches are taken for ones into the same stream";
    T13 = "T13", "what a batch waits for is measured as its work";
    T4 = "T4", "NVML tells of the whole device", unhooks: ["nvmlDeviceGetMemoryInfo*"];
    V17 = "V17", "memory that an image has to itself is taken for any other";
    V17a = "V17a", "an import of handle type 0 is taken for an import";
    V17b = "V17b", "of a chain the first three structures are read";
    V17c = "V17c", "a structure that nobody knows ends a chain";
    V17d = "V17d", "the last structure of a chain is not read";
    V17e = "V17e", "a device mask counts whatever its flag says";
    V17f = "V17f", "sizes are rounded down to whole blocks";
    V17g = "V17g", "imports are known by the opaque handle type alone";
    V17h = "V17h", "memory that is to be exported is no one resource's";
    V17i = "V17i", "an array of exactly one block is taken for one that shares it";
    V17j = "V17j", "a mipmapped array's last level is not charged";
    V17k = "V17k", "of a device mask the lowest bit counts";
    V17l = "V17l", "memory types that the host sees cost nothing";
    V17m = "V17m", "the memory budget's structure is found at the head of a chain alone";
    V17n = "V17n", "sizes are taken for 32 bits";
    V17o = "V17o", "a swapchain is charged for the fewest images that any has";
    V17p = "V17p", "a layered array's last layer is not charged";
    V17q = "V17q", "descriptor 0 is none";
    V17r = "V17r", "of a device group the first device alone is charged";
    V17s = "V17s", "of what is submitted together the first batch is held";
    V17t = "V17t", "of two imports that a chain names the first counts";
    V16 = "V16", "the layer's manifest is of version 1.3.0";
    V19 = "V19", "the inflated report counts this process's Vulkan alone";
    X1 = "X1", "whatever asks for memory is refused";
    X1a = "X1a", "a process's first VkDevice is refused where its upper bound does not fit";
    V18 = "V18", "the first device whose share differs ends the joining of the others'";
    V22 = "V22", "a VkInstance that does not fit is destroyed below the loader and refused";
    V21 = "V21", "the layer's refusals are said at no level";
    K4 = "K4", "a swapchain's images are charged nothing", unhooks: ["vkCreateSwapchainKHR"];
}

macro_rules! marks {
    ($($name:ident = $what:literal;)*) => {
        /// A state that a long test must have reached some time, or it has not tested what it says (*sometimes assertions*).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark { $($name,)* }

        impl Mark {
            pub const ALL: &'static [Mark] = &[$(Mark::$name,)*];

            /// What happened when it is reached.
            pub const fn what(self) -> &'static str {
                match self { $(Mark::$name => $what,)* }
            }

            /// Its bit of [`reached`].
            pub const fn bit(self) -> u64 {
                1 << self as u32
            }
        }
    };
}

marks! {
    Adopted = "a context that no hook saw made was adopted";
    DriftCharged = "what the driver's row says beyond the books was charged";
    DriftReturned = "drift that the row no longer shows was given back";
    OverBudget = "a process was over its budget by what nobody asked for";
    LookedBeforeRefusal = "a look came before a refusal, and the request was granted after all";
    Refused = "a request was refused";
    Trimmed = "a pool was trimmed before a refusal";
    FreesAwaited = "frees in a stream's order were waited for before a refusal";
    DeadReaped = "what a dead process held was given back";
    ContextBuried = "a device's last context went, and its drift with it";
    ImportHeld = "imported memory was charged by its object's row, once";
}

impl Seed {
    /// By name.
    pub fn named(name: &str) -> Option<Seed> {
        Seed::ALL.iter().copied().find(|seed| seed.name() == name)
    }

    #[cfg(any(seeded, test))]
    fn leaves_unhooked(self, entry: &str) -> bool {
        self.unhooks()
            .iter()
            .any(|pattern| match pattern.split_once('*') {
                None => *pattern == entry,
                Some((begin, end)) => entry.starts_with(begin) && entry.ends_with(end),
            })
    }
}

/// Whether this process has the defect.
#[cfg(not(seeded))]
#[inline(always)]
pub const fn planted(_: Seed) -> bool {
    false
}

/// Whether this entry point's hook is to do nothing.
#[cfg(not(seeded))]
#[inline(always)]
pub const fn unhooked(_: &str) -> bool {
    false
}

/// The state was reached: nothing, in what is shipped.
#[cfg(not(seeded))]
#[inline(always)]
pub const fn mark(_: Mark) {}

#[cfg(seeded)]
static REACHED: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// The state was reached.
#[cfg(seeded)]
pub fn mark(mark: Mark) {
    REACHED.fetch_or(mark.bit(), core::sync::atomic::Ordering::Relaxed);
}

/// The states that this process has reached, a bit each.
#[cfg(seeded)]
pub fn reached() -> u64 {
    REACHED.load(core::sync::atomic::Ordering::Relaxed)
}

/// Whether this process has the defect.
#[cfg(seeded)]
pub fn planted(seed: Seed) -> bool {
    wanted().seeds.contains(&seed)
}

/// Whether this entry point's hook is to do nothing.
#[cfg(seeded)]
pub fn unhooked(entry: &str) -> bool {
    let wanted = wanted();
    let by_row = wanted.seeds.iter().any(|seed| seed.leaves_unhooked(entry));
    by_row || wanted.unhooked.iter().any(|name| name == entry)
}

/// What the variable names.
#[cfg(seeded)]
#[derive(Default)]
struct Wanted {
    seeds: Vec<Seed>,
    unhooked: Vec<String>,
}

#[cfg(seeded)]
fn wanted() -> &'static Wanted {
    static WANTED: std::sync::OnceLock<Wanted> = std::sync::OnceLock::new();
    WANTED.get_or_init(|| {
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        let mut wanted = Wanted::default();
        for word in text.to_string_lossy().split(',') {
            match word.strip_prefix(UNHOOK) {
                Some(entry) => wanted.unhooked.push(entry.to_owned()),
                None => wanted.seeds.extend(Seed::named(word)),
            }
        }
        wanted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_beginnings_and_ends() {
        assert!(Seed::R2.leaves_unhooked("cuArrayCreate_v2"));
        assert!(Seed::R4.leaves_unhooked("cuGraphLaunch_ptsz"));
        assert!(Seed::R7.leaves_unhooked("cuMemAlloc"));
        assert!(!Seed::R7.leaves_unhooked("cuMemAlloc_v2"));
        assert!(Seed::V3.leaves_unhooked("vkQueueSubmit2KHR"));
        assert!(!Seed::V3.leaves_unhooked("vkQueueSubmit2"));
    }

    #[test]
    fn what_is_shipped_has_none() {
        assert!(!Seed::ALL.iter().any(|seed| planted(*seed)));
    }
}
