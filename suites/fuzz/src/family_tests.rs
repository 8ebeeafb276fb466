//! Every hook is fuzzed.

use super::*;

/// What the layer only looks after: cases call what of it the mock ICD has, no family does yet.
const MAKERS: [&str; 20] = [
    "vkCreateGraphicsPipelines",
    "vkCreateComputePipelines",
    "vkCreateRayTracingPipelinesKHR",
    "vkCreateRayTracingPipelinesNV",
    "vkCreateShadersEXT",
    "vkCreateSwapchainKHR",
    "vkCreateSharedSwapchainsKHR",
    "vkCreateVideoSessionKHR",
    "vkCreateOpticalFlowSessionNV",
    "vkCreateCuModuleNVX",
    "vkCreateCudaModuleNV",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
    // Its first parameter is a place without a type, which the families' arguments are no place for: all exports' are.
    "cuMemGetHandleForAddressRange",
    // Their descriptions are words, as all exports' are.
    "cuTexObjectCreate",
    "cuSurfObjectCreate",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecNodeSetParams",
    "cuGraphExecChildGraphNodeSetParams",
];

#[test]
fn every_hook_belongs_to_a_family() {
    let fuzzed: Vec<&str> = all()
        .filter(|family| !matches!(family.calls, Calls::All { .. }))
        .flat_map(Family::names)
        .collect();
    let left: Vec<_> = hooks()
        .filter(|hook| !fuzzed.contains(hook) && !MAKERS.contains(hook))
        .collect();
    assert!(left.is_empty(), "hooks without a family: {left:?}");
}
