// What is simulated: one row per entry point, naming the safe function that answers it. `build.rs` includes this file
// too: every other export of driver 580 becomes a stub.

entry_points! {
    system {
        nvmlInit => system::init;
        nvmlInit_v2 => system::init;
        nvmlInitWithFlags => system::init_with_flags;
        nvmlShutdown => system::shutdown;
        nvmlErrorString => error::string;
        nvmlSystemGetDriverVersion => system::driver_version;
        nvmlSystemGetNVMLVersion => system::nvml_version;
        nvmlSystemGetCudaDriverVersion => system::cuda_version;
        nvmlSystemGetCudaDriverVersion_v2 => system::cuda_version;
        nvmlUnitGetCount => system::unit_count;
        nvmlInternalGetExportTable => private::table;
    }
    device {
        nvmlDeviceGetCount => device::count;
        nvmlDeviceGetCount_v2 => device::count;
        nvmlDeviceGetHandleByIndex => device::by_index;
        nvmlDeviceGetHandleByIndex_v2 => device::by_index;
        nvmlDeviceGetHandleByUUID => device::by_uuid;
        nvmlDeviceGetHandleByPciBusId => device::by_pci_bus_id;
        nvmlDeviceGetHandleByPciBusId_v2 => device::by_pci_bus_id;
        nvmlDeviceGetName => device::name;
        nvmlDeviceGetUUID => device::uuid;
        nvmlDeviceGetIndex => device::index;
        nvmlDeviceGetMinorNumber => device::minor_number;
        nvmlDeviceGetPciInfo => device::pci_info_v1;
        nvmlDeviceGetPciInfo_v2 => device::pci_info_v2;
        nvmlDeviceGetPciInfo_v3 => device::pci_info;
        nvmlDeviceGetCudaComputeCapability => device::compute_capability;
        nvmlDeviceGetSerial => device::serial;
        nvmlDeviceGetHandleBySerial => device::by_serial;
        nvmlDeviceGetHandleByUUIDV => device::by_uuid_v;
        nvmlDeviceGetPciInfoExt => device::pci_info_ext;
        nvmlDeviceGetBoardId => device::board_id;
        nvmlDeviceGetPdi => device::pdi;
        nvmlDeviceGetGspFirmwareVersion => device::gsp_version;
        nvmlDeviceGetSupportedPerformanceStates => device::performance_states;
        nvmlDeviceGetSupportedGraphicsClocks => device::graphics_clocks;
        nvmlDeviceGetLastBBXFlushTime => device::flush_time;
        nvmlSystemGetDriverBranch => device::driver_branch;
    }
    memory {
        nvmlDeviceGetMemoryInfo => memory::info;
        nvmlDeviceGetMemoryInfo_v2 => memory::info_v2;
        nvmlDeviceGetBAR1MemoryInfo => memory::bar1;
    }
    process {
        nvmlDeviceGetComputeRunningProcesses => process::compute_v1;
        nvmlDeviceGetComputeRunningProcesses_v2 => process::compute;
        nvmlDeviceGetComputeRunningProcesses_v3 => process::compute;
        nvmlDeviceGetGraphicsRunningProcesses => process::graphics_v1;
        nvmlDeviceGetGraphicsRunningProcesses_v2 => process::graphics;
        nvmlDeviceGetGraphicsRunningProcesses_v3 => process::graphics;
        nvmlDeviceGetMPSComputeRunningProcesses => process::mps_v1;
        nvmlDeviceGetMPSComputeRunningProcesses_v2 => process::mps;
        nvmlDeviceGetMPSComputeRunningProcesses_v3 => process::mps;
        nvmlDeviceGetRunningProcessDetailList => process::detail_list;
        nvmlSystemGetProcessName => process::name;
    }
    event {
        nvmlEventSetCreate => event::create;
        nvmlEventSetFree => event::free;
        nvmlEventSetWait => event::wait;
        nvmlEventSetWait_v2 => event::wait;
        nvmlDeviceRegisterEvents => event::register;
        nvmlSystemEventSetCreate => event::create_system;
        nvmlSystemEventSetFree => event::free_system;
        nvmlSystemRegisterEvents => event::register_system;
        nvmlSystemEventSetWait => event::wait_system;
    }
    mig {
        nvmlDeviceIsMigDeviceHandle => mig::is_mig_device;
        nvmlDeviceGetMigMode => mig::mode;
        nvmlDeviceGetMaxMigDeviceCount => mig::most;
        nvmlDeviceGetMigDeviceHandleByIndex => mig::handle_by_index;
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle => mig::parent;
        nvmlDeviceGetGpuInstanceId => mig::gpu_instance_id;
        nvmlDeviceGetComputeInstanceId => mig::compute_instance_id;
        nvmlDeviceGetAttributes => mig::attributes;
        nvmlDeviceGetAttributes_v2 => mig::attributes;
        nvmlDeviceGetGpuInstances => mig::gpu_instances;
        nvmlDeviceGetGpuInstanceRemainingCapacity => mig::remaining;
        nvmlGpuInstanceGetComputeInstanceRemainingCapacity => mig::remaining_compute;
        nvmlDeviceGetGpuInstanceById => mig::gpu_instance_by_id;
        nvmlGpuInstanceGetInfo => mig::gpu_instance_info;
        nvmlGpuInstanceGetComputeInstances => mig::compute_instances;
        nvmlGpuInstanceGetComputeInstanceById => mig::compute_instance_by_id;
        nvmlComputeInstanceGetInfo => mig::compute_instance_info;
        nvmlComputeInstanceGetInfo_v2 => mig::compute_instance_info;
    }
    topology {
        nvmlDeviceGetTopologyCommonAncestor => topology::common_ancestor;
        nvmlDeviceGetTopologyNearestGpus => topology::nearest;
        nvmlSystemGetTopologyGpuSet => topology::gpu_set;
        nvmlDeviceGetP2PStatus => topology::p2p_status;
        nvmlDeviceGetNvLinkState => topology::link_state;
        nvmlDeviceGetNvLinkVersion => topology::link_version;
        nvmlDeviceGetNvLinkRemoteDeviceType => topology::link_remote_type;
        nvmlDeviceGetNvLinkCapability => topology::link_capability;
        nvmlDeviceGetNvLinkRemotePciInfo => topology::link_remote_pci;
        nvmlDeviceGetNvLinkRemotePciInfo_v2 => topology::link_remote_pci;
        nvmlDeviceGetNvLinkErrorCounter => topology::link_errors;
        nvmlDeviceOnSameBoard => topology::same_board;
        nvmlDeviceGetCpuAffinity => topology::cpu_affinity;
        nvmlDeviceGetCpuAffinityWithinScope => topology::cpu_affinity_within;
        nvmlDeviceGetMemoryAffinity => topology::memory_affinity;
    }
    utilization {
        nvmlDeviceGetUtilizationRates => utilization::rates;
        nvmlDeviceGetProcessUtilization => utilization::processes;
        nvmlDeviceGetProcessesUtilizationInfo => utilization::processes_info;
        nvmlDeviceGetSamples => utilization::samples;
        nvmlDeviceGetPowerUsage => utilization::power;
        nvmlDeviceGetTotalEnergyConsumption => utilization::energy;
        nvmlDeviceGetViolationStatus => utilization::violation;
        nvmlDeviceGetDynamicPstatesInfo => utilization::dynamic_pstates;
    }
    field {
        nvmlDeviceGetFieldValues => field::values;
        nvmlDeviceClearFieldValues => field::clear;
    }
    gpm {
        nvmlGpmSampleAlloc => gpm::alloc;
        nvmlGpmSampleFree => gpm::free;
        nvmlGpmSampleGet => gpm::get;
        nvmlGpmMetricsGet => gpm::metrics;
    }
    vgpu {
        nvmlGetVgpuCompatibility => vgpu::compatibility;
        nvmlVgpuInstanceGetVmID => vgpu::vm_id;
    }
}
