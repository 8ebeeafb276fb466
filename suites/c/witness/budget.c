/* A tenant written in C against the public headers, linked directly with libcuda and NVML.
 *
 * It asks the GPU for memory until it is refused and prints what it was told, a fact a line, for the test
 * that runs it. It knows nothing of the enforcer: the entry points are the linker's.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <nvml.h>

static void cuda(const char *what, CUresult code) {
    if (code != CUDA_SUCCESS) {
        printf("failed %s %d\n", what, (int)code);
        exit(1);
    }
}

static void nvml(const char *what, nvmlReturn_t code) {
    if (code != NVML_SUCCESS) {
        printf("failed %s %d\n", what, (int)code);
        exit(1);
    }
}

int main(void) {
    CUdevice device;
    CUcontext context;
    size_t total = 0, free_bytes = 0, context_total = 0;
    cuda("cuInit", cuInit(0));
    cuda("cuDeviceGet", cuDeviceGet(&device, 0));
    cuda("cuDeviceTotalMem", cuDeviceTotalMem(&total, device));
    cuda("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
    cuda("cuCtxSetCurrent", cuCtxSetCurrent(context));
    cuda("cuMemGetInfo", cuMemGetInfo(&free_bytes, &context_total));
    printf("device-total %zu\ncontext-total %zu\n", total, context_total);

    nvmlDevice_t handle;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory2 = {.version = nvmlMemory_v2};
    nvml("nvmlInit", nvmlInit());
    nvml("nvmlDeviceGetHandleByIndex", nvmlDeviceGetHandleByIndex(0, &handle));
    nvml("nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(handle, &memory));
    nvml("nvmlDeviceGetMemoryInfo_v2", nvmlDeviceGetMemoryInfo_v2(handle, &memory2));
    printf("nvml-total %llu\nnvml2-total %llu\n", memory.total, memory2.total);

    /* A graph that allocates more than the budget, and gives back what it took if it was let. */
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec executable;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = (size_t)24 << 30,
    };
    cuda("cuGraphCreate", cuGraphCreate(&graph, 0));
    cuda("cuGraphAddMemAllocNode", cuGraphAddMemAllocNode(&node, graph, NULL, 0, &allocation));
    cuda("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(&executable, graph, 0));
    CUresult launched = cuGraphLaunch(executable, NULL);
    printf("graph %d\n", (int)launched);
    cuda("cuCtxSynchronize", cuCtxSynchronize());
    if (launched == CUDA_SUCCESS) cuda("cuMemFree", cuMemFree(allocation.dptr));
    cuda("cuGraphExecDestroy", cuGraphExecDestroy(executable));
    cuda("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(device));

    const size_t step = (size_t)256 << 20;
    size_t granted = 0;
    CUresult code;
    CUdeviceptr pointer;
    while ((code = cuMemAlloc(&pointer, step)) == CUDA_SUCCESS) granted += step;
    printf("granted %zu\nrefusal %d\npointer-after-refusal %llu\n", granted, (int)code,
           (unsigned long long)pointer);
    cuda("cuMemGetInfo", cuMemGetInfo(&free_bytes, &context_total));
    printf("free-at-the-end %zu\n", free_bytes);
    return 0;
}
