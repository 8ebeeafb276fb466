//! Structures and unions of NVML, as its public headers lay them out (13.0, with what only 12.9 has).
//!
//! Each row also yields a [`Layout`](crate::layout::Layout), which `suites/c` compares with a C compiler's. A field `anon`
//! stands for a C11 member without a name; a structure that C gives no name is called after its parent and field.

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "C names stay exact"
)]

use super::enumerations::*;
use super::types::*;
use crate::layout::structures;

structures! {
    struct nvmlPciInfoExt_v1_t "nvmlPciInfoExt_v1_t" {
        version: c_uint,
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        pciDeviceId: c_uint,
        pciSubSystemId: c_uint,
        baseClass: c_uint,
        subClass: c_uint,
        busId: [c_char; 32],
    }
    struct nvmlEccErrorCounts_t "nvmlEccErrorCounts_t" {
        l1Cache: c_ulonglong,
        l2Cache: c_ulonglong,
        deviceMemory: c_ulonglong,
        registerFile: c_ulonglong,
    }
    struct nvmlBAR1Memory_t "nvmlBAR1Memory_t" {
        bar1Total: c_ulonglong,
        bar1Free: c_ulonglong,
        bar1Used: c_ulonglong,
    }
    struct nvmlProcessInfo_v2_t "struct nvmlProcessInfo_v2_st" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
    struct nvmlProcessDetail_v1_t "nvmlProcessDetail_v1_t" {
        pid: c_uint,
        usedGpuMemory: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
        usedGpuCcProtectedMemory: c_ulonglong,
    }
    struct nvmlProcessDetailList_v1_t "nvmlProcessDetailList_v1_t" {
        version: c_uint,
        mode: c_uint,
        numProcArrayEntries: c_uint,
        procArray: *mut nvmlProcessDetail_v1_t,
    }
    struct nvmlDeviceAttributes_t "nvmlDeviceAttributes_t" {
        multiprocessorCount: c_uint,
        sharedCopyEngineCount: c_uint,
        sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint,
        sharedJpegCount: c_uint,
        sharedOfaCount: c_uint,
        gpuInstanceSliceCount: c_uint,
        computeInstanceSliceCount: c_uint,
        memorySizeMB: c_ulonglong,
    }
    struct nvmlC2cModeInfo_v1_t "nvmlC2cModeInfo_v1_t" {
        isC2cEnabled: c_uint,
    }
    struct nvmlDeviceAddressingMode_v1_t "nvmlDeviceAddressingMode_v1_t" {
        version: c_uint,
        value: c_uint,
    }
    struct nvmlRepairStatus_v1_t "nvmlRepairStatus_v1_t" {
        version: c_uint,
        bChannelRepairPending: c_uint,
        bTpcRepairPending: c_uint,
    }
    struct nvmlRowRemapperHistogramValues_t "nvmlRowRemapperHistogramValues_t" {
        max: c_uint,
        high: c_uint,
        partial: c_uint,
        low: c_uint,
        none: c_uint,
    }
    struct nvmlNvLinkUtilizationControl_t "nvmlNvLinkUtilizationControl_t" {
        units: nvmlNvLinkUtilizationCountUnits_t,
        pktfilter: nvmlNvLinkUtilizationCountPktTypes_t,
    }
    struct nvmlBridgeChipInfo_t "nvmlBridgeChipInfo_t" {
        type_: nvmlBridgeChipType_t,
        fwVersion: c_uint,
    }
    struct nvmlBridgeChipHierarchy_t "nvmlBridgeChipHierarchy_t" {
        bridgeCount: u8,
        bridgeChipInfo: [nvmlBridgeChipInfo_t; 128],
    }
    union nvmlValue_t "nvmlValue_t" {
        dVal: f64,
        siVal: c_int,
        uiVal: c_uint,
        ulVal: u64,
        ullVal: c_ulonglong,
        sllVal: c_longlong,
        usVal: u16,
    }
    struct nvmlSample_t "nvmlSample_t" {
        timeStamp: c_ulonglong,
        sampleValue: nvmlValue_t,
    }
    struct nvmlViolationTime_t "nvmlViolationTime_t" {
        referenceTime: c_ulonglong,
        violationTime: c_ulonglong,
    }
    struct nvmlGpuThermalSettings_t "nvmlGpuThermalSettings_t" {
        count: c_uint,
        sensor: [nvmlGpuThermalSettings_t_sensor; 3],
    }
    struct nvmlGpuThermalSettings_t_sensor "__typeof__(((nvmlGpuThermalSettings_t *)0)->sensor[0])" {
        controller: nvmlThermalController_t,
        defaultMinTemp: c_int,
        defaultMaxTemp: c_int,
        currentTemp: c_int,
        target: nvmlThermalTarget_t,
    }
    struct nvmlCoolerInfo_v1_t "nvmlCoolerInfo_v1_t" {
        version: c_uint,
        index: c_uint,
        signalType: nvmlCoolerControl_t,
        target: nvmlCoolerTarget_t,
    }
    union nvmlUUIDValue_t "nvmlUUIDValue_t" {
        str: [c_char; 41],
        bytes: [u8; 16],
    }
    struct nvmlUUID_v1_t "nvmlUUID_v1_t" {
        version: c_uint,
        type_: c_uint,
        value: nvmlUUIDValue_t,
    }
    struct nvmlPdi_v1_t "nvmlPdi_v1_t" {
        version: c_uint,
        value: c_ulonglong,
    }
    struct nvmlDramEncryptionInfo_v1_t "nvmlDramEncryptionInfo_v1_t" {
        version: c_uint,
        encryptionState: nvmlEnableState_t,
    }
    struct nvmlMarginTemperature_v1_t "nvmlMarginTemperature_v1_t" {
        version: c_uint,
        marginTemperature: c_int,
    }
    struct nvmlClkMonFaultInfo_t "nvmlClkMonFaultInfo_t" {
        clkApiDomain: c_uint,
        clkDomainFaultMask: c_uint,
    }
    struct nvmlClkMonStatus_t "nvmlClkMonStatus_t" {
        bGlobalStatus: c_uint,
        clkMonListSize: c_uint,
        clkMonList: [nvmlClkMonFaultInfo_t; 32],
    }
    struct nvmlClockOffset_v1_t "nvmlClockOffset_v1_t" {
        version: c_uint,
        type_: nvmlClockType_t,
        pstate: nvmlPstates_t,
        clockOffsetMHz: c_int,
        minClockOffsetMHz: c_int,
        maxClockOffsetMHz: c_int,
    }
    struct nvmlFanSpeedInfo_v1_t "nvmlFanSpeedInfo_v1_t" {
        version: c_uint,
        fan: c_uint,
        speed: c_uint,
    }
    struct nvmlDevicePerfModes_v1_t "nvmlDevicePerfModes_v1_t" {
        version: c_uint,
        str: [c_char; 2048],
    }
    struct nvmlDeviceCurrentClockFreqs_v1_t "nvmlDeviceCurrentClockFreqs_v1_t" {
        version: c_uint,
        str: [c_char; 2048],
    }
    struct nvmlDevicePowerMizerModes_v1_t "nvmlDevicePowerMizerModes_v1_t" {
        currentMode: c_uint,
        mode: c_uint,
        supportedPowerMizerModes: c_uint,
    }
    struct nvmlProcessUtilizationSample_t "nvmlProcessUtilizationSample_t" {
        pid: c_uint,
        timeStamp: c_ulonglong,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
    }
    struct nvmlProcessUtilizationInfo_v1_t "nvmlProcessUtilizationInfo_v1_t" {
        timeStamp: c_ulonglong,
        pid: c_uint,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
        jpgUtil: c_uint,
        ofaUtil: c_uint,
    }
    struct nvmlProcessesUtilizationInfo_v1_t "nvmlProcessesUtilizationInfo_v1_t" {
        version: c_uint,
        processSamplesCount: c_uint,
        lastSeenTimeStamp: c_ulonglong,
        procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
    }
    struct nvmlEccSramErrorStatus_v1_t "nvmlEccSramErrorStatus_v1_t" {
        version: c_uint,
        aggregateUncParity: c_ulonglong,
        aggregateUncSecDed: c_ulonglong,
        aggregateCor: c_ulonglong,
        volatileUncParity: c_ulonglong,
        volatileUncSecDed: c_ulonglong,
        volatileCor: c_ulonglong,
        aggregateUncBucketL2: c_ulonglong,
        aggregateUncBucketSm: c_ulonglong,
        aggregateUncBucketPcie: c_ulonglong,
        aggregateUncBucketMcu: c_ulonglong,
        aggregateUncBucketOther: c_ulonglong,
        bThresholdExceeded: c_uint,
    }
    struct nvmlPlatformInfo_v1_t "nvmlPlatformInfo_v1_t" {
        version: c_uint,
        ibGuid: [u8; 16],
        rackGuid: [u8; 16],
        chassisPhysicalSlotNumber: u8,
        computeSlotIndex: u8,
        nodeIndex: u8,
        peerType: u8,
        moduleId: u8,
    }
    struct nvmlPlatformInfo_v2_t "nvmlPlatformInfo_v2_t" {
        version: c_uint,
        ibGuid: [u8; 16],
        chassisSerialNumber: [u8; 16],
        slotNumber: u8,
        trayIndex: u8,
        hostId: u8,
        peerType: u8,
        moduleId: u8,
    }
    struct nvmlHostname_v1_t "nvmlHostname_v1_t" {
        value: [c_char; 64],
    }
    struct nvmlEccSramUniqueUncorrectedErrorEntry_v1_t "nvmlEccSramUniqueUncorrectedErrorEntry_v1_t" {
        unit: c_uint,
        location: c_uint,
        sublocation: c_uint,
        extlocation: c_uint,
        address: c_uint,
        isParity: c_uint,
        count: c_uint,
    }
    struct nvmlEccSramUniqueUncorrectedErrorCounts_v1_t "nvmlEccSramUniqueUncorrectedErrorCounts_v1_t" {
        version: c_uint,
        entryCount: c_uint,
        entries: *mut nvmlEccSramUniqueUncorrectedErrorEntry_v1_t,
    }
    struct nvmlGpuDynamicPstatesInfo_t "nvmlGpuDynamicPstatesInfo_t" {
        flags: c_uint,
        utilization: [nvmlGpuDynamicPstatesInfo_t_utilization; 8],
    }
    struct nvmlGpuDynamicPstatesInfo_t_utilization "__typeof__(((nvmlGpuDynamicPstatesInfo_t *)0)->utilization[0])" {
        bIsPresent: c_uint,
        percentage: c_uint,
        incThreshold: c_uint,
        decThreshold: c_uint,
    }
    struct nvmlPowerValue_v2_t "nvmlPowerValue_v2_t" {
        version: c_uint,
        powerScope: nvmlPowerScopeType_t,
        powerValueMw: c_uint,
    }
    struct nvmlVgpuHeterogeneousMode_v1_t "nvmlVgpuHeterogeneousMode_v1_t" {
        version: c_uint,
        mode: c_uint,
    }
    struct nvmlVgpuPlacementId_v1_t "nvmlVgpuPlacementId_v1_t" {
        version: c_uint,
        placementId: c_uint,
    }
    struct nvmlVgpuPlacementList_v1_t "nvmlVgpuPlacementList_v1_t" {
        version: c_uint,
        placementSize: c_uint,
        count: c_uint,
        placementIds: *mut c_uint,
    }
    struct nvmlVgpuPlacementList_v2_t "nvmlVgpuPlacementList_v2_t" {
        version: c_uint,
        placementSize: c_uint,
        count: c_uint,
        placementIds: *mut c_uint,
        mode: c_uint,
    }
    struct nvmlVgpuTypeBar1Info_v1_t "nvmlVgpuTypeBar1Info_v1_t" {
        version: c_uint,
        bar1Size: c_ulonglong,
    }
    struct nvmlVgpuInstanceUtilizationSample_t "nvmlVgpuInstanceUtilizationSample_t" {
        vgpuInstance: nvmlVgpuInstance_t,
        timeStamp: c_ulonglong,
        smUtil: nvmlValue_t,
        memUtil: nvmlValue_t,
        encUtil: nvmlValue_t,
        decUtil: nvmlValue_t,
    }
    struct nvmlVgpuInstanceUtilizationInfo_v1_t "nvmlVgpuInstanceUtilizationInfo_v1_t" {
        timeStamp: c_ulonglong,
        vgpuInstance: nvmlVgpuInstance_t,
        smUtil: nvmlValue_t,
        memUtil: nvmlValue_t,
        encUtil: nvmlValue_t,
        decUtil: nvmlValue_t,
        jpgUtil: nvmlValue_t,
        ofaUtil: nvmlValue_t,
    }
    struct nvmlVgpuInstancesUtilizationInfo_v1_t "nvmlVgpuInstancesUtilizationInfo_v1_t" {
        version: c_uint,
        sampleValType: nvmlValueType_t,
        vgpuInstanceCount: c_uint,
        lastSeenTimeStamp: c_ulonglong,
        vgpuUtilArray: *mut nvmlVgpuInstanceUtilizationInfo_v1_t,
    }
    struct nvmlVgpuProcessUtilizationSample_t "nvmlVgpuProcessUtilizationSample_t" {
        vgpuInstance: nvmlVgpuInstance_t,
        pid: c_uint,
        processName: [c_char; 64],
        timeStamp: c_ulonglong,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
    }
    struct nvmlVgpuProcessUtilizationInfo_v1_t "nvmlVgpuProcessUtilizationInfo_v1_t" {
        processName: [c_char; 64],
        timeStamp: c_ulonglong,
        vgpuInstance: nvmlVgpuInstance_t,
        pid: c_uint,
        smUtil: c_uint,
        memUtil: c_uint,
        encUtil: c_uint,
        decUtil: c_uint,
        jpgUtil: c_uint,
        ofaUtil: c_uint,
    }
    struct nvmlVgpuProcessesUtilizationInfo_v1_t "nvmlVgpuProcessesUtilizationInfo_v1_t" {
        version: c_uint,
        vgpuProcessCount: c_uint,
        lastSeenTimeStamp: c_ulonglong,
        vgpuProcUtilArray: *mut nvmlVgpuProcessUtilizationInfo_v1_t,
    }
    struct nvmlVgpuRuntimeState_v1_t "nvmlVgpuRuntimeState_v1_t" {
        version: c_uint,
        size: c_ulonglong,
    }
    union nvmlVgpuSchedulerParams_t "nvmlVgpuSchedulerParams_t" {
        vgpuSchedDataWithARR: nvmlVgpuSchedulerParams_t_vgpuSchedDataWithARR,
        vgpuSchedData: nvmlVgpuSchedulerParams_t_vgpuSchedData,
    }
    struct nvmlVgpuSchedulerParams_t_vgpuSchedDataWithARR "__typeof__(((nvmlVgpuSchedulerParams_t *)0)->vgpuSchedDataWithARR)" {
        avgFactor: c_uint,
        timeslice: c_uint,
    }
    struct nvmlVgpuSchedulerParams_t_vgpuSchedData "__typeof__(((nvmlVgpuSchedulerParams_t *)0)->vgpuSchedData)" {
        timeslice: c_uint,
    }
    struct nvmlVgpuSchedulerLogEntry_t "nvmlVgpuSchedulerLogEntry_t" {
        timestamp: c_ulonglong,
        timeRunTotal: c_ulonglong,
        timeRun: c_ulonglong,
        swRunlistId: c_uint,
        targetTimeSlice: c_ulonglong,
        cumulativePreemptionTime: c_ulonglong,
    }
    struct nvmlVgpuSchedulerLog_t "nvmlVgpuSchedulerLog_t" {
        engineId: c_uint,
        schedulerPolicy: c_uint,
        arrMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerParams_t,
        entriesCount: c_uint,
        logEntries: [nvmlVgpuSchedulerLogEntry_t; 200],
    }
    struct nvmlVgpuSchedulerGetState_t "nvmlVgpuSchedulerGetState_t" {
        schedulerPolicy: c_uint,
        arrMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerParams_t,
    }
    union nvmlVgpuSchedulerSetParams_t "nvmlVgpuSchedulerSetParams_t" {
        vgpuSchedDataWithARR: nvmlVgpuSchedulerSetParams_t_vgpuSchedDataWithARR,
        vgpuSchedData: nvmlVgpuSchedulerSetParams_t_vgpuSchedData,
    }
    struct nvmlVgpuSchedulerSetParams_t_vgpuSchedDataWithARR "__typeof__(((nvmlVgpuSchedulerSetParams_t *)0)->vgpuSchedDataWithARR)" {
        avgFactor: c_uint,
        frequency: c_uint,
    }
    struct nvmlVgpuSchedulerSetParams_t_vgpuSchedData "__typeof__(((nvmlVgpuSchedulerSetParams_t *)0)->vgpuSchedData)" {
        timeslice: c_uint,
    }
    struct nvmlVgpuSchedulerSetState_t "nvmlVgpuSchedulerSetState_t" {
        schedulerPolicy: c_uint,
        enableARRMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerSetParams_t,
    }
    struct nvmlVgpuSchedulerCapabilities_t "nvmlVgpuSchedulerCapabilities_t" {
        supportedSchedulers: [c_uint; 3],
        maxTimeslice: c_uint,
        minTimeslice: c_uint,
        isArrModeSupported: c_uint,
        maxFrequencyForARR: c_uint,
        minFrequencyForARR: c_uint,
        maxAvgFactorForARR: c_uint,
        minAvgFactorForARR: c_uint,
    }
    struct nvmlVgpuLicenseExpiry_t "nvmlVgpuLicenseExpiry_t" {
        year: c_uint,
        month: u16,
        day: u16,
        hour: u16,
        min: u16,
        sec: u16,
        status: u8,
    }
    struct nvmlVgpuLicenseInfo_t "nvmlVgpuLicenseInfo_t" {
        isLicensed: u8,
        licenseExpiry: nvmlVgpuLicenseExpiry_t,
        currentState: c_uint,
    }
    struct nvmlGridLicenseExpiry_t "nvmlGridLicenseExpiry_t" {
        year: c_uint,
        month: u16,
        day: u16,
        hour: u16,
        min: u16,
        sec: u16,
        status: u8,
    }
    struct nvmlGridLicensableFeature_t "nvmlGridLicensableFeature_t" {
        featureCode: nvmlGridLicenseFeatureCode_t,
        featureState: c_uint,
        licenseInfo: [c_char; 128],
        productName: [c_char; 128],
        featureEnabled: c_uint,
        licenseExpiry: nvmlGridLicenseExpiry_t,
    }
    struct nvmlGridLicensableFeatures_t "nvmlGridLicensableFeatures_t" {
        isGridLicenseSupported: c_int,
        licensableFeaturesCount: c_uint,
        gridLicensableFeatures: [nvmlGridLicensableFeature_t; 3],
    }
    struct nvmlVgpuTypeIdInfo_v1_t "nvmlVgpuTypeIdInfo_v1_t" {
        version: c_uint,
        vgpuCount: c_uint,
        vgpuTypeIds: *mut nvmlVgpuTypeId_t,
    }
    struct nvmlVgpuTypeMaxInstance_v1_t "nvmlVgpuTypeMaxInstance_v1_t" {
        version: c_uint,
        vgpuTypeId: nvmlVgpuTypeId_t,
        maxInstancePerGI: c_uint,
    }
    struct nvmlActiveVgpuInstanceInfo_v1_t "nvmlActiveVgpuInstanceInfo_v1_t" {
        version: c_uint,
        vgpuCount: c_uint,
        vgpuInstances: *mut nvmlVgpuInstance_t,
    }
    struct nvmlVgpuSchedulerState_v1_t "nvmlVgpuSchedulerState_v1_t" {
        version: c_uint,
        engineId: c_uint,
        schedulerPolicy: c_uint,
        enableARRMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerSetParams_t,
    }
    struct nvmlVgpuSchedulerStateInfo_v1_t "nvmlVgpuSchedulerStateInfo_v1_t" {
        version: c_uint,
        engineId: c_uint,
        schedulerPolicy: c_uint,
        arrMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerParams_t,
    }
    struct nvmlVgpuSchedulerLogInfo_v1_t "nvmlVgpuSchedulerLogInfo_v1_t" {
        version: c_uint,
        engineId: c_uint,
        schedulerPolicy: c_uint,
        arrMode: c_uint,
        schedulerParams: nvmlVgpuSchedulerParams_t,
        entriesCount: c_uint,
        logEntries: [nvmlVgpuSchedulerLogEntry_t; 200],
    }
    struct nvmlVgpuCreatablePlacementInfo_v1_t "nvmlVgpuCreatablePlacementInfo_v1_t" {
        version: c_uint,
        vgpuTypeId: nvmlVgpuTypeId_t,
        count: c_uint,
        placementIds: *mut c_uint,
        placementSize: c_uint,
    }
    struct nvmlNvLinkPowerThres_t "nvmlNvLinkPowerThres_t" {
        lowPwrThreshold: c_uint,
    }
    struct nvmlFieldValue_t "nvmlFieldValue_t" {
        fieldId: c_uint,
        scopeId: c_uint,
        timestamp: c_longlong,
        latencyUsec: c_longlong,
        valueType: nvmlValueType_t,
        nvmlReturn: nvmlReturn_t,
        value: nvmlValue_t,
    }
    struct nvmlHwbcEntry_t "nvmlHwbcEntry_t" {
        hwbcId: c_uint,
        firmwareVersion: [c_char; 32],
    }
    struct nvmlLedState_t "nvmlLedState_t" {
        cause: [c_char; 256],
        color: nvmlLedColor_t,
    }
    struct nvmlUnitInfo_t "nvmlUnitInfo_t" {
        name: [c_char; 96],
        id: [c_char; 96],
        serial: [c_char; 96],
        firmwareVersion: [c_char; 96],
    }
    struct nvmlPSUInfo_t "nvmlPSUInfo_t" {
        state: [c_char; 256],
        current: c_uint,
        voltage: c_uint,
        power: c_uint,
    }
    struct nvmlUnitFanInfo_t "nvmlUnitFanInfo_t" {
        speed: c_uint,
        state: nvmlFanState_t,
    }
    struct nvmlUnitFanSpeeds_t "nvmlUnitFanSpeeds_t" {
        fans: [nvmlUnitFanInfo_t; 24],
        count: c_uint,
    }
    struct nvmlEventData_t "nvmlEventData_t" {
        device: nvmlDevice_t,
        eventType: c_ulonglong,
        eventData: c_ulonglong,
        gpuInstanceId: c_uint,
        computeInstanceId: c_uint,
    }
    struct nvmlSystemEventSetCreateRequest_v1_t "nvmlSystemEventSetCreateRequest_v1_t" {
        version: c_uint,
        set: nvmlSystemEventSet_t,
    }
    struct nvmlSystemEventSetFreeRequest_v1_t "nvmlSystemEventSetFreeRequest_v1_t" {
        version: c_uint,
        set: nvmlSystemEventSet_t,
    }
    struct nvmlSystemRegisterEventRequest_v1_t "nvmlSystemRegisterEventRequest_v1_t" {
        version: c_uint,
        eventTypes: c_ulonglong,
        set: nvmlSystemEventSet_t,
    }
    struct nvmlSystemEventData_v1_t "nvmlSystemEventData_v1_t" {
        eventType: c_ulonglong,
        gpuId: c_uint,
    }
    struct nvmlSystemEventSetWaitRequest_v1_t "nvmlSystemEventSetWaitRequest_v1_t" {
        version: c_uint,
        timeoutms: c_uint,
        set: nvmlSystemEventSet_t,
        data: *mut nvmlSystemEventData_v1_t,
        dataSize: c_uint,
        numEvent: c_uint,
    }
    struct nvmlAccountingStats_t "nvmlAccountingStats_t" {
        gpuUtilization: c_uint,
        memoryUtilization: c_uint,
        maxMemoryUsage: c_ulonglong,
        time: c_ulonglong,
        startTime: c_ulonglong,
        isRunning: c_uint,
        reserved: [c_uint; 5],
    }
    struct nvmlEncoderSessionInfo_t "nvmlEncoderSessionInfo_t" {
        sessionId: c_uint,
        pid: c_uint,
        vgpuInstance: nvmlVgpuInstance_t,
        codecType: nvmlEncoderType_t,
        hResolution: c_uint,
        vResolution: c_uint,
        averageFps: c_uint,
        averageLatency: c_uint,
    }
    struct nvmlFBCStats_t "nvmlFBCStats_t" {
        sessionsCount: c_uint,
        averageFPS: c_uint,
        averageLatency: c_uint,
    }
    struct nvmlFBCSessionInfo_t "nvmlFBCSessionInfo_t" {
        sessionId: c_uint,
        pid: c_uint,
        vgpuInstance: nvmlVgpuInstance_t,
        displayOrdinal: c_uint,
        sessionType: nvmlFBCSessionType_t,
        sessionFlags: c_uint,
        hMaxResolution: c_uint,
        vMaxResolution: c_uint,
        hResolution: c_uint,
        vResolution: c_uint,
        averageFPS: c_uint,
        averageLatency: c_uint,
    }
    struct nvmlConfComputeSystemCaps_t "nvmlConfComputeSystemCaps_t" {
        cpuCaps: c_uint,
        gpusCaps: c_uint,
    }
    struct nvmlConfComputeSystemState_t "nvmlConfComputeSystemState_t" {
        environment: c_uint,
        ccFeature: c_uint,
        devToolsMode: c_uint,
    }
    struct nvmlSystemConfComputeSettings_v1_t "nvmlSystemConfComputeSettings_v1_t" {
        version: c_uint,
        environment: c_uint,
        ccFeature: c_uint,
        devToolsMode: c_uint,
        multiGpuMode: c_uint,
    }
    struct nvmlConfComputeMemSizeInfo_t "nvmlConfComputeMemSizeInfo_t" {
        protectedMemSizeKib: c_ulonglong,
        unprotectedMemSizeKib: c_ulonglong,
    }
    struct nvmlConfComputeGpuCertificate_t "nvmlConfComputeGpuCertificate_t" {
        certChainSize: c_uint,
        attestationCertChainSize: c_uint,
        certChain: [u8; 4096],
        attestationCertChain: [u8; 5120],
    }
    struct nvmlConfComputeGpuAttestationReport_t "nvmlConfComputeGpuAttestationReport_t" {
        isCecAttestationReportPresent: c_uint,
        attestationReportSize: c_uint,
        cecAttestationReportSize: c_uint,
        nonce: [u8; 32],
        attestationReport: [u8; 8192],
        cecAttestationReport: [u8; 4096],
    }
    struct nvmlConfComputeSetKeyRotationThresholdInfo_v1_t "nvmlConfComputeSetKeyRotationThresholdInfo_v1_t" {
        version: c_uint,
        maxAttackerAdvantage: c_ulonglong,
    }
    struct nvmlConfComputeGetKeyRotationThresholdInfo_v1_t "nvmlConfComputeGetKeyRotationThresholdInfo_v1_t" {
        version: c_uint,
        attackerAdvantage: c_ulonglong,
    }
    struct nvmlGpuFabricInfo_t "nvmlGpuFabricInfo_t" {
        clusterUuid: [u8; 16],
        status: nvmlReturn_t,
        cliqueId: c_uint,
        state: nvmlGpuFabricState_t,
    }
    struct nvmlGpuFabricInfo_v2_t "nvmlGpuFabricInfo_v2_t" {
        version: c_uint,
        clusterUuid: [u8; 16],
        status: nvmlReturn_t,
        cliqueId: c_uint,
        state: nvmlGpuFabricState_t,
        healthMask: c_uint,
    }
    struct nvmlGpuFabricInfo_v3_t "nvmlGpuFabricInfo_v3_t" {
        version: c_uint,
        clusterUuid: [u8; 16],
        status: nvmlReturn_t,
        cliqueId: c_uint,
        state: nvmlGpuFabricState_t,
        healthMask: c_uint,
        healthSummary: u8,
    }
    struct nvmlSystemDriverBranchInfo_v1_t "nvmlSystemDriverBranchInfo_v1_t" {
        version: c_uint,
        branch: [c_char; 80],
    }
    struct nvmlTemperature_v1_t "nvmlTemperature_v1_t" {
        version: c_uint,
        sensorType: nvmlTemperatureSensors_t,
        temperature: c_int,
    }
    struct nvmlNvlinkSupportedBwModes_v1_t "nvmlNvlinkSupportedBwModes_v1_t" {
        version: c_uint,
        bwModes: [u8; 23],
        totalBwModes: u8,
    }
    struct nvmlNvlinkGetBwMode_v1_t "nvmlNvlinkGetBwMode_v1_t" {
        version: c_uint,
        bIsBest: c_uint,
        bwMode: u8,
    }
    struct nvmlNvlinkSetBwMode_v1_t "nvmlNvlinkSetBwMode_v1_t" {
        version: c_uint,
        bSetBest: c_uint,
        bwMode: u8,
    }
    struct nvmlNvLinkInfo_v1_t "nvmlNvLinkInfo_v1_t" {
        version: c_uint,
        isNvleEnabled: c_uint,
    }
    struct nvmlNvlinkFirmwareVersion_t "nvmlNvlinkFirmwareVersion_t" {
        ucodeType: u8,
        major: c_uint,
        minor: c_uint,
        subMinor: c_uint,
    }
    struct nvmlNvlinkFirmwareInfo_t "nvmlNvlinkFirmwareInfo_t" {
        firmwareVersion: [nvmlNvlinkFirmwareVersion_t; 100],
        numValidEntries: c_uint,
    }
    struct nvmlNvLinkInfo_v2_t "nvmlNvLinkInfo_v2_t" {
        version: c_uint,
        isNvleEnabled: c_uint,
        firmwareInfo: nvmlNvlinkFirmwareInfo_t,
    }
    struct nvmlVgpuVersion_t "nvmlVgpuVersion_t" {
        minVersion: c_uint,
        maxVersion: c_uint,
    }
    struct nvmlVgpuMetadata_t "nvmlVgpuMetadata_t" {
        version: c_uint,
        revision: c_uint,
        guestInfoState: nvmlVgpuGuestInfoState_t,
        guestDriverVersion: [c_char; 80],
        hostDriverVersion: [c_char; 80],
        reserved: [c_uint; 6],
        vgpuVirtualizationCaps: c_uint,
        guestVgpuVersion: c_uint,
        opaqueDataSize: c_uint,
        opaqueData: [c_char; 4],
    }
    struct nvmlVgpuPgpuMetadata_t "nvmlVgpuPgpuMetadata_t" {
        version: c_uint,
        revision: c_uint,
        hostDriverVersion: [c_char; 80],
        pgpuVirtualizationCaps: c_uint,
        reserved: [c_uint; 5],
        hostSupportedVgpuRange: nvmlVgpuVersion_t,
        opaqueDataSize: c_uint,
        opaqueData: [c_char; 4],
    }
    struct nvmlVgpuPgpuCompatibility_t "nvmlVgpuPgpuCompatibility_t" {
        vgpuVmCompatibility: nvmlVgpuVmCompatibility_t,
        compatibilityLimitCode: nvmlVgpuPgpuCompatibilityLimitCode_t,
    }
    struct nvmlExcludedDeviceInfo_t "nvmlExcludedDeviceInfo_t" {
        pciInfo: nvmlPciInfo_t,
        uuid: [c_char; 80],
    }
    struct nvmlPRMTLV_v1_t "nvmlPRMTLV_v1_t" {
        dataSize: c_uint,
        status: c_uint,
        anon: nvmlPRMTLV_v1_t_anon,
    }
    union nvmlPRMTLV_v1_t_anon "" {
        inData: [u8; 496],
        outData: [u8; 496],
    }
    struct nvmlGpuInstancePlacement_t "nvmlGpuInstancePlacement_t" {
        start: c_uint,
        size: c_uint,
    }
    struct nvmlGpuInstanceProfileInfo_t "nvmlGpuInstanceProfileInfo_t" {
        id: c_uint,
        isP2pSupported: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        copyEngineCount: c_uint,
        decoderCount: c_uint,
        encoderCount: c_uint,
        jpegCount: c_uint,
        ofaCount: c_uint,
        memorySizeMB: c_ulonglong,
    }
    struct nvmlGpuInstanceProfileInfo_v2_t "nvmlGpuInstanceProfileInfo_v2_t" {
        version: c_uint,
        id: c_uint,
        isP2pSupported: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        copyEngineCount: c_uint,
        decoderCount: c_uint,
        encoderCount: c_uint,
        jpegCount: c_uint,
        ofaCount: c_uint,
        memorySizeMB: c_ulonglong,
        name: [c_char; 96],
    }
    struct nvmlGpuInstanceProfileInfo_v3_t "nvmlGpuInstanceProfileInfo_v3_t" {
        version: c_uint,
        id: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        copyEngineCount: c_uint,
        decoderCount: c_uint,
        encoderCount: c_uint,
        jpegCount: c_uint,
        ofaCount: c_uint,
        memorySizeMB: c_ulonglong,
        name: [c_char; 96],
        capabilities: c_uint,
    }
    struct nvmlGpuInstanceInfo_t "nvmlGpuInstanceInfo_t" {
        device: nvmlDevice_t,
        id: c_uint,
        profileId: c_uint,
        placement: nvmlGpuInstancePlacement_t,
    }
    struct nvmlComputeInstancePlacement_t "nvmlComputeInstancePlacement_t" {
        start: c_uint,
        size: c_uint,
    }
    struct nvmlComputeInstanceProfileInfo_t "nvmlComputeInstanceProfileInfo_t" {
        id: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        sharedCopyEngineCount: c_uint,
        sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint,
        sharedJpegCount: c_uint,
        sharedOfaCount: c_uint,
    }
    struct nvmlComputeInstanceProfileInfo_v2_t "nvmlComputeInstanceProfileInfo_v2_t" {
        version: c_uint,
        id: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        sharedCopyEngineCount: c_uint,
        sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint,
        sharedJpegCount: c_uint,
        sharedOfaCount: c_uint,
        name: [c_char; 96],
    }
    struct nvmlComputeInstanceProfileInfo_v3_t "nvmlComputeInstanceProfileInfo_v3_t" {
        version: c_uint,
        id: c_uint,
        sliceCount: c_uint,
        instanceCount: c_uint,
        multiprocessorCount: c_uint,
        sharedCopyEngineCount: c_uint,
        sharedDecoderCount: c_uint,
        sharedEncoderCount: c_uint,
        sharedJpegCount: c_uint,
        sharedOfaCount: c_uint,
        name: [c_char; 96],
        capabilities: c_uint,
    }
    struct nvmlComputeInstanceInfo_t "nvmlComputeInstanceInfo_t" {
        device: nvmlDevice_t,
        gpuInstance: nvmlGpuInstance_t,
        id: c_uint,
        profileId: c_uint,
        placement: nvmlComputeInstancePlacement_t,
    }
    struct nvmlGpmMetric_t "nvmlGpmMetric_t" {
        metricId: c_uint,
        nvmlReturn: nvmlReturn_t,
        value: f64,
        metricInfo: nvmlGpmMetric_t_metricInfo,
    }
    struct nvmlGpmMetric_t_metricInfo "__typeof__(((nvmlGpmMetric_t *)0)->metricInfo)" {
        shortName: *mut c_char,
        longName: *mut c_char,
        unit: *mut c_char,
    }
    struct nvmlGpmMetricsGet_t "nvmlGpmMetricsGet_t" {
        version: c_uint,
        numMetrics: c_uint,
        sample1: nvmlGpmSample_t,
        sample2: nvmlGpmSample_t,
        metrics: [nvmlGpmMetric_t; 210],
    }
    struct nvmlGpmSupport_t "nvmlGpmSupport_t" {
        version: c_uint,
        isSupportedDevice: c_uint,
    }
    struct nvmlDeviceCapabilities_v1_t "nvmlDeviceCapabilities_v1_t" {
        version: c_uint,
        capMask: c_uint,
    }
    struct nvmlMask255_t "nvmlMask255_t" {
        mask: [c_uint; 8],
    }
    struct nvmlWorkloadPowerProfileInfo_v1_t "nvmlWorkloadPowerProfileInfo_v1_t" {
        version: c_uint,
        profileId: c_uint,
        priority: c_uint,
        conflictingMask: nvmlMask255_t,
    }
    struct nvmlWorkloadPowerProfileProfilesInfo_v1_t "nvmlWorkloadPowerProfileProfilesInfo_v1_t" {
        version: c_uint,
        perfProfilesMask: nvmlMask255_t,
        perfProfile: [nvmlWorkloadPowerProfileInfo_v1_t; 255],
    }
    struct nvmlWorkloadPowerProfileCurrentProfiles_v1_t "nvmlWorkloadPowerProfileCurrentProfiles_v1_t" {
        version: c_uint,
        perfProfilesMask: nvmlMask255_t,
        requestedProfilesMask: nvmlMask255_t,
        enforcedProfilesMask: nvmlMask255_t,
    }
    struct nvmlWorkloadPowerProfileRequestedProfiles_v1_t "nvmlWorkloadPowerProfileRequestedProfiles_v1_t" {
        version: c_uint,
        requestedProfilesMask: nvmlMask255_t,
    }
    struct nvmlPowerSmoothingProfile_v1_t "nvmlPowerSmoothingProfile_v1_t" {
        version: c_uint,
        profileId: c_uint,
        paramId: c_uint,
        value: f64,
    }
    struct nvmlPowerSmoothingState_v1_t "nvmlPowerSmoothingState_v1_t" {
        version: c_uint,
        state: nvmlEnableState_t,
    }
    struct nvmlRemappedRowsInfo_v2_t "nvmlRemappedRowsInfo_v2_t" {
        corrActiveRemaps: c_uint,
        corrInactiveRemaps: c_uint,
        uncActiveRemaps: c_uint,
        uncInactiveRemaps: c_uint,
        bPending: c_uint,
        bFailureOccurred: c_uint,
    }
    struct nvmlUnrepairableMemoryStatus_v1_t "nvmlUnrepairableMemoryStatus_v1_t" {
        bUnrepairableMemory: c_uint,
    }
    struct nvmlPRMCounterInput_v1_t "nvmlPRMCounterInput_v1_t" {
        localPort: c_uint,
    }
    struct nvmlPRMCounterValue_v1_t "nvmlPRMCounterValue_v1_t" {
        status: nvmlReturn_t,
        outputType: nvmlValueType_t,
        outputValue: nvmlValue_t,
    }
    struct nvmlPRMCounter_v1_t "nvmlPRMCounter_v1_t" {
        counterId: c_uint,
        inData: nvmlPRMCounterInput_v1_t,
        counterValue: nvmlPRMCounterValue_v1_t,
    }
    struct nvmlPRMCounterList_v1_t "nvmlPRMCounterList_v1_t" {
        numCounters: c_uint,
        counters: *mut nvmlPRMCounter_v1_t,
    }
}
