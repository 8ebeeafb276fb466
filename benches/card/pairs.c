/* What memory costs to take and give back, and to be refused: not linked to NVML, as most programs are not. Prints, by the middle of many, microseconds:
   pairs of cuMemAlloc and cuMemFree of 2, 64 and 600 MiB, of cuMemAllocAsync and cuMemFreeAsync of 1 MiB, a refusal of what no card has, and one of what
   is more than is left beside FULL MiB that it keeps (7400 of a budget of 8 GiB; none for 0).

   cc -O1 -o pairs pairs.c -I$CUDA/include -lcuda; ./pairs FULL, bare and under the preload, in turns */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double took[4096];

static double middle(int count)
{
    qsort(took, (size_t)count, sizeof *took, by_size);
    return took[count / 2];
}

static double pairs(size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        CUdeviceptr pointer;
        double begun = now();
        if (cuMemAlloc(&pointer, bytes) || cuMemFree(pointer))
            exit(2);
        took[i] = now() - begun;
    }
    return middle(count);
}

static double refusals(size_t bytes, int count)
{
    for (int i = 0; i < count; i++) {
        CUdeviceptr pointer;
        double begun = now();
        if (cuMemAlloc(&pointer, bytes) != CUDA_ERROR_OUT_OF_MEMORY)
            exit(3);
        took[i] = now() - begun;
    }
    return middle(count);
}

int main(int count, char **words)
{
    const size_t mib = 1 << 20, full = (count > 1 ? strtoul(words[1], 0, 10) : 7000) * mib;
    CUdevice device;
    CUcontext context;
    CUdeviceptr pointer;
    CUstream stream;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return 1;
    double two = pairs(2 * mib, 1000), some = pairs(64 * mib, 300), many = pairs(600 * mib, 100);
    for (int i = 0; i < 2000; i++) {
        double begun = now();
        if (cuMemAllocAsync(&pointer, mib, stream) || cuMemFreeAsync(pointer, stream))
            return 4;
        took[i] = now() - begun;
    }
    double async = middle(2000);
    double never = refusals((size_t)1 << 40, 300);
    double beside = 0;
    if (full) {
        if (cuMemAlloc(&pointer, full))
            return 5;
        beside = refusals(600 * mib, 300);
    }
    printf("2 MiB %.2f, 64 MiB %.2f, 600 MiB %.2f, async %.2f, refused %.2f, refused beside %zu MiB %.2f\n", two, some, many, async, never, full / mib, beside);
    return 0;
}
