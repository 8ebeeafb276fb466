/* Images that end where their mapping does, and headers that say more than there is. Prints what the driver answers. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A copy that ends at a page that may not be read, or at one that is not there. */
static void *at_the_end(const void *bytes, size_t length, int is_there) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_there)
        mprotect(pages + 4096, 4096, PROT_NONE);
    else
        munmap(pages + 4096, 4096);
    return memcpy(pages + 4096 - length, bytes, length);
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = dlsym(cuda, "cuCtxSetCurrent");
    int (*load)(void **, const void *) = dlsym(cuda, "cuModuleLoadData");
    void *context, *module;
    if (init(0) || retain(&context, 0) || set_current(context))
        return 1;
    /* A fat binary without images. */
    const unsigned char fat[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16};
    /* One that says that 4 GiB follow. */
    const unsigned char long_fat[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 1};
    /* An ELF file for CUDA whose section headers lie 1 GiB away, and one with 65,520 of them. */
    unsigned char far[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7}, many[64];
    far[16] = 2, far[18] = 190, far[20] = 1, far[52] = 64, far[58] = 64;
    memcpy(many, far, sizeof far);
    far[43] = 0x40, far[60] = 1;
    many[40] = 64, many[60] = 0xf0, many[61] = 0xff;
    for (int is_there = 0; is_there < 2; is_there++) {
        void *image = at_the_end(fat, sizeof fat, is_there);
        /* What points to a fat binary: a magic number, a version, the address, and something else. */
        const unsigned long long wrapper[3] = {0x1466243b1, (unsigned long long)image, 0};
        printf("%d", load(&module, image));
        printf(" %d", load(&module, at_the_end(wrapper, sizeof wrapper, is_there)));
        printf(" %d", load(&module, at_the_end(long_fat, sizeof long_fat, is_there)));
        printf(" %d", load(&module, at_the_end(far, sizeof far, is_there)));
        printf(" %d\n", load(&module, at_the_end(many, sizeof many, is_there)));
    }
    return 0;
}
