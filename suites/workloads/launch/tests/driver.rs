//! What only an odd driver answers: the errors that no mock and no card shows.

use abi::cuda::CUresult;
use abi::cuda::enumerations::*;
use launch::residency::capacity;
use launch::{
    ArgumentError, Device, LaunchError, LaunchPlan, Launcher, Modules, PlanError, Sides, Staging,
    Stream,
};

#[path = "fake/libcuda.rs"]
mod libcuda;

fn plan_error(answer: Result<launch::Launch, LaunchError>) -> PlanError {
    match answer {
        Err(LaunchError::Plan { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_negative_number_of_active_blocks_is_no_capacity() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    libcuda::ACTIVE.set(-3);
    let plan = LaunchPlan::over(32, 32).expect("a plan").cooperative();
    let active = PlanError::NegativeActiveBlocks { active: -3 };
    assert_eq!(plan_error(kernel.validate(&plan)), active);
}

#[test]
fn a_capacity_is_counted_in_64_bits_or_refused() {
    assert_eq!(capacity(32, 132), Ok(4224));
    assert_eq!(capacity(0, 132), Ok(0));
    assert_eq!(
        capacity(-1, 0),
        Err(PlanError::NegativeActiveBlocks { active: -1 })
    );
    let multiprocessors = u64::MAX / 2;
    let overflow = PlanError::ResidencyOverflow {
        active: 3,
        multiprocessors,
    };
    assert_eq!(capacity(3, multiprocessors), Err(overflow));
    assert_eq!(capacity(2, multiprocessors), Ok(u64::MAX - 1));
}

#[test]
fn a_residency_refusal_keeps_its_words() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let of = |blocks| {
        LaunchPlan::new(Sides([blocks, 1, 1]), Sides([64, 2, 1]))
            .sharing(1024)
            .cooperative()
    };
    assert_eq!(
        plan_error(kernel.validate(&of(265))).to_string(),
        "launch-residency-v1|check=occupancy|target=sm_90|multiprocessors=132|multiprocessor_threads=2048|active_blocks=2|holds=264|grid=265x1x1|workgroup=64x2x1|blocks=265|threads=33920|shared=1024"
    );
    assert_eq!(
        plan_error(kernel.validate(&of(2113))).to_string(),
        "launch-residency-v1|check=threads|target=sm_90|multiprocessors=132|multiprocessor_threads=2048|active_blocks=unasked|holds=270336|grid=2113x1x1|workgroup=64x2x1|blocks=2113|threads=270464|shared=1024"
    );
    kernel
        .validate(&of(264))
        .expect("as many as the device holds");
}

#[test]
fn a_device_without_cooperative_launches_has_none() {
    libcuda::ODD.set((CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let plan = LaunchPlan::over(1, 1).expect("a plan");
    let target = device.limits().target;
    let unsupported = PlanError::CooperationUnsupported { target };
    assert_eq!(
        plan_error(kernel.validate(&plan.cooperative())),
        unsupported
    );
    kernel.validate(&plan).expect("without cooperation");
}

#[test]
fn a_negative_limit_is_no_limit() {
    libcuda::ODD.set((CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, -1));
    let error = libcuda::device().err();
    let attribute = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
    assert_eq!(
        error,
        Some(LaunchError::Attribute {
            attribute,
            value: -1
        })
    );
}

#[test]
fn a_kernel_takes_no_more_than_its_own() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let of = |threads| LaunchPlan::new(Sides::ONE, Sides([threads, 1, 1]));
    let beyond = PlanError::WorkgroupBeyondKernel {
        threads: 769,
        most: 768,
    };
    assert_eq!(plan_error(kernel.validate(&of(769))), beyond);
    let beyond = PlanError::WorkgroupBeyondDevice {
        threads: 1056,
        most: 1024,
    };
    let plan = LaunchPlan::new(Sides::ONE, Sides([33, 32, 1]));
    assert_eq!(plan_error(kernel.validate(&plan)), beyond);
    kernel
        .validate(&of(768))
        .expect("as many as the kernel takes");
}

#[test]
fn a_driver_without_a_function_is_named_by_it() {
    let missing = libcuda::without("cuLaunchCooperativeKernel").err();
    let name = "cuLaunchCooperativeKernel";
    assert_eq!(missing, Some(LaunchError::Missing { name }));
}

#[test]
fn what_another_device_made_is_refused() {
    let (device, other) = (
        libcuda::device().expect("one"),
        libcuda::device().expect("two"),
    );
    let kernel = libcuda::kernel(&device);
    let stream = Stream::create(&other).expect("a stream");
    let launch = kernel
        .validate(&LaunchPlan::over(1, 1).expect("a plan"))
        .expect("valid");
    let mut staging = Staging::default();
    let filling = staging.begin(&kernel).expect("room");
    let arguments = filling.put(1_u64).put(2_u32).finish().expect("both");
    assert_eq!(
        launch.enqueue(&stream, &arguments),
        Err(LaunchError::ForeignStream)
    );
    assert_eq!(libcuda::CALLS.get(), (0, 0), "launches that the driver saw");
}

#[test]
fn a_failed_launch_is_told_and_not_counted() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let stream = Stream::create(&device).expect("a stream");
    let plan = LaunchPlan::over(1_000, 256).expect("a plan");
    let launch = kernel.validate(&plan.cooperative()).expect("valid");
    let mut staging = Staging::default();
    let filling = staging.begin(&kernel).expect("room");
    let arguments = filling.put(1_u64).put(2_u32).finish().expect("both");
    let code = CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES;
    libcuda::LAUNCH.set(code);
    let failure = LaunchError::Driver {
        kernel: kernel.name().into(),
        launcher: Launcher::Cooperative,
        code,
        grid: Sides([4, 1, 1]),
        workgroup: Sides([256, 1, 1]),
        element_count: 1_000,
        target: device.limits().target,
    };
    assert_eq!(launch.enqueue(&stream, &arguments), Err(failure));
    libcuda::LAUNCH.set(CUresult::SUCCESS);
    launch.enqueue(&stream, &arguments).expect("launched");
    assert_eq!(
        (device.counts().launches, libcuda::CALLS.get()),
        (1, (0, 2))
    );
}

#[test]
fn staging_serves_one_kernel_after_another() {
    let device = libcuda::device().expect("a device");
    let kernel = libcuda::kernel(&device);
    let mut staging = Staging::default();
    let of = |parameters: &[usize]| {
        // SAFETY: none of them is launched.
        unsafe { launch::Kernel::adopt(&device, kernel.handle(), parameters) }.expect("a kernel")
    };
    let (three, odd) = (of(&[4, 4, 8]), of(&[8, 12]));
    let unstageable = ArgumentError::Unstageable {
        index: 1,
        bytes: 12,
    };
    assert_eq!(staging.begin(&odd).err(), Some(unstageable));
    for _ in 0..2 {
        let filling = staging.begin(&three).expect("room");
        let filling = filling.put(1_i32).put(2.0_f32).put(3.0_f64);
        filling.finish().expect("all three");
        let refused = |filling: launch::staging::Filling<'_>| filling.finish().err();
        let short = staging.begin(&kernel).expect("room").put(-1_i64);
        let count = |given| Some(ArgumentError::Count { given, declared: 2 });
        assert_eq!(refused(short), count(1));
        let long = staging
            .begin(&kernel)
            .expect("room")
            .put(1_u64)
            .put(2_u32)
            .put(3_u32);
        assert_eq!(refused(long), count(3));
        // The first that does not fit is told, whatever follows.
        let odd = staging
            .begin(&kernel)
            .expect("room")
            .put(1_u64)
            .put(2_u64)
            .put(3_u32);
        let size = ArgumentError::Size {
            index: 1,
            given: 8,
            declared: 4,
        };
        assert_eq!(refused(odd), Some(size));
    }
}

#[test]
fn modules_are_unloaded_when_nobody_holds_them() {
    let device: std::sync::Arc<Device> = libcuda::device().expect("a device");
    let mut modules = Modules::new(&device);
    let first = modules.load("one").expect("loaded");
    drop(modules.load("two").expect("loaded"));
    assert!(std::sync::Arc::ptr_eq(
        &first,
        &modules.load("one").expect("kept")
    ));
    assert_eq!((libcuda::MODULES.get(), modules.kept()), (2, 2));
    modules.trim();
    assert_eq!((libcuda::MODULES.get(), modules.kept()), (1, 1));
    drop(modules);
    assert_eq!(libcuda::MODULES.get(), 1, "held by the program");
    drop(first);
    assert_eq!(libcuda::MODULES.get(), 0);
}

#[test]
fn each_devices_calls_are_made_in_its_own_context() {
    let devices = [0, 1].map(|ordinal| libcuda::device_of(ordinal).expect("a device"));
    let plan = LaunchPlan::over(1, 1).expect("a plan");
    let launches = devices.each_ref().map(|device| {
        let (kernel, stream) = (libcuda::kernel(device), Stream::create(device));
        let launch = kernel.validate(&plan).expect("valid");
        (kernel, stream.expect("a stream"), launch)
    });
    let mut staging = Staging::default();
    // In either order, whatever came between.
    for at in [0, 1, 1, 0] {
        let (kernel, stream, launch) = &launches[at];
        let filling = staging.begin(kernel).expect("room");
        let arguments = filling.put(1_u64).put(2_u32).finish().expect("both");
        launch.enqueue(stream, &arguments).expect("launched");
        assert_eq!(libcuda::CURRENT.get(), 0x10 + at);
    }
}

#[test]
fn what_is_of_a_device_is_used_from_any_thread() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<(Device, Modules, launch::Module, launch::Kernel)>();
    shared::<(launch::Launch, Stream, launch::Buffer, launch::Graph)>();
    sent::<(Staging, LaunchError)>();
    let device = libcuda::device_of(1).expect("a device");
    let kernel = libcuda::kernel(&device);
    let stream = Stream::create(&device).expect("a stream");
    let launch = kernel
        .validate(&LaunchPlan::over(1, 1).expect("a plan"))
        .expect("valid");
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (kernel, stream, launch) = (&kernel, &stream, &launch);
            scope.spawn(move || {
                // No context is current here.
                assert_eq!(libcuda::CURRENT.get(), 0);
                let mut staging = Staging::default();
                let filling = staging.begin(kernel).expect("room");
                let arguments = filling.put(worker).put(7_u32).finish().expect("both");
                launch.enqueue(stream, &arguments).expect("launched");
                assert_eq!(libcuda::LAST.get(), (0x140, worker, 7));
            });
        }
    });
    assert_eq!(device.counts().launches, 4);
}

#[test]
fn errors_name_kernel_and_launch() {
    let device = libcuda::device().expect("a device");
    let mut modules = Modules::new(&device);
    let module = modules.load("one").expect("loaded");
    // SAFETY: what the driver's functions do is lawful with any arguments.
    let kernel = unsafe { module.kernel("blur", libcuda::PARAMETERS) }.expect("a kernel");
    let wide = LaunchPlan::new(Sides::ONE, Sides([769, 1, 1]));
    let refused = kernel.validate(&wide).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "blur: a workgroup of 769 threads, the kernel takes 768"
    );
    let launch = kernel
        .validate(&LaunchPlan::over(1_000, 256).expect("a plan"))
        .expect("valid");
    let stream = Stream::create(&device).expect("a stream");
    let mut staging = Staging::default();
    let filling = staging.begin(&kernel).expect("room");
    let arguments = filling.put(1_u64).put(2_u32).finish().expect("both");
    libcuda::LAUNCH.set(CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES);
    let refused = launch.enqueue(&stream, &arguments).expect_err("refused");
    let said = refused.to_string();
    for word in ["cuLaunchKernel", "blur", "4x1x1", "256x1x1", "1000"] {
        assert!(said.contains(word), "{word} is not in \"{said}\"");
    }
}
