//! What the launch boundary adds to `cuLaunchKernel`: a launch that was validated, against the same call made by hand, as a program finds it.

use std::ffi::c_void;
use std::ptr::null_mut;

use abi::cuda::{CUresult, fns};
use launch::{Buffer, Device, LaunchPlan, Modules, Staging, Stream, kernels};

use crate::turns::Turns;

const ELEMENTS: u32 = 256;
/// A stream holds 1,024 launches: so many are never waited for.
const CALLS: u32 = 400;

/// Prints both comparisons with `cuLaunchKernel` as it is given, each with its null test. `asked` tells how often this program has asked for memory, where it counts that.
pub fn compare(launch: fns::cuLaunchKernel, asked: fn() -> Option<u64>) {
    let device = Device::open(0).expect("a device");
    let stream = Stream::create(&device).expect("a stream");
    let module = Modules::new(&device)
        .load(kernels::VECTOR_ADD)
        .expect("a module");
    // SAFETY: the kernel has these parameters, and its buffers so many elements.
    let kernel =
        unsafe { module.kernel("vector_add", kernels::VECTOR_ADD_PARAMETERS) }.expect("a kernel");
    let plan = LaunchPlan::over(ELEMENTS.into(), 256).expect("a plan");
    let valid = kernel.validate(&plan).expect("valid");
    let buffer = || Buffer::holding(&device, &[1; ELEMENTS as usize]).expect("memory");
    let buffers = [buffer(), buffer(), buffer()];
    let [first, second, sum] = buffers.each_ref().map(Buffer::address);
    let by_hand = |slots: *mut *mut c_void| {
        let ([x, y, z], [width, height, depth]) = (plan.grid.0, plan.workgroup.0);
        // SAFETY: a live function and stream, and an address for each of the kernel's parameters.
        let code = unsafe {
            launch(
                kernel.handle(),
                x,
                y,
                z,
                width,
                height,
                depth,
                plan.shared,
                stream.handle(),
                slots,
                null_mut(),
            )
        };
        assert_eq!(code, CUresult::SUCCESS);
    };
    let filled = |values: &mut (u64, u64, u64, u32)| {
        [
            (&raw mut values.0).cast(),
            (&raw mut values.1).cast(),
            (&raw mut values.2).cast(),
            (&raw mut values.3).cast::<c_void>(),
        ]
    };
    let settle = || stream.synchronize().expect("done");
    let turns = Turns {
        batches: 301,
        calls: CALLS,
        between: &settle,
        row: 0,
        ..Turns::default()
    };

    let mut staging = Staging::default();
    let staged = |staging: &mut Staging| {
        let filling = staging.begin(&kernel).expect("room").put(first);
        let filling = filling.put(second).put(sum).put(ELEMENTS);
        valid
            .enqueue(&stream, &filling.finish().expect("all of them"))
            .expect("launched");
    };
    staged(&mut staging);
    let filling = staging.begin(&kernel).expect("room").put(first);
    let filling = filling.put(second).put(sum).put(ELEMENTS);
    let arguments = filling.finish().expect("all of them");
    let values = std::cell::Cell::new((first, second, sum, ELEMENTS));
    let mut constant = values.get();
    let slots = std::cell::Cell::new(filled(&mut constant));
    turns.compare(
        "cuLaunchKernel, by a validated launch",
        || by_hand(slots.as_ptr().cast()),
        || valid.enqueue(&stream, &arguments).expect("launched"),
    );
    let again = std::cell::RefCell::new(Staging::default());
    staged(&mut again.borrow_mut());
    turns.compare(
        "four arguments staged besides",
        || by_hand(filled(&mut values.get()).as_mut_ptr()),
        || staged(&mut again.borrow_mut()),
    );
    settle();
    let before = asked();
    (0..CALLS).for_each(|_| staged(&mut again.borrow_mut()));
    if let (Some(before), Some(after)) = (before, asked()) {
        println!(
            "calls of the allocator in {CALLS} launches: {}",
            after - before
        );
    }
    settle();
}
