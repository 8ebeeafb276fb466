/* What a program waits for before its first kernel, call by call: not linked to NVML, as most are. Prints milliseconds.

   cc -O1 -o primary primary.c -I$CUDA/include -lcuda; bare and under the preload, in turns */
#include <cuda.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

int main(void)
{
    CUdevice device;
    CUcontext context, second;
    CUdeviceptr pointer;
    double t[8];
    t[0] = now();
    int code = cuInit(0);
    t[1] = now();
    code |= cuDeviceGet(&device, 0);
    t[2] = now();
    code |= cuDevicePrimaryCtxRetain(&context, device);
    t[3] = now();
    code |= cuCtxSetCurrent(context);
    code |= cuMemAlloc(&pointer, 4096);
    t[4] = now();
    code |= cuMemAlloc(&pointer, 600u << 20);
    t[5] = now();
    code |= cuCtxCreate(&second, NULL, 0, device);
    t[6] = now();
    code |= cuCtxDestroy(second);
    t[7] = now();
    printf("%d: cuInit %.2f, cuDevicePrimaryCtxRetain %.2f, first cuMemAlloc %.2f, one of 600 MiB %.2f, cuCtxCreate %.2f, cuCtxDestroy %.2f\n", code, t[1] - t[0],
           t[3] - t[2], t[4] - t[3], t[5] - t[4], t[6] - t[5], t[7] - t[6]);
    return code;
}
