/* A library that stands before dlclose, as compute-sanitizer's does, and goes on to what it looks up: behind itself, or in libc (-DBY_HANDLE). Says, at the end,
   how often it was asked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int asked;

int dlclose(void *library)
{
#ifdef BY_HANDLE
    void *from = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *found = from ? dlsym(from, "dlclose") : NULL;
    /* Before glibc 2.34 it is another library's. */
    if (!found)
        found = dlsym(dlopen("libdl.so.2", RTLD_NOW), "dlclose");
#else
    void *found = dlsym(RTLD_NEXT, "dlclose");
#endif
    asked++;
    return ((int (*)(void *))found)(library);
}

__attribute__((destructor)) static void end(void)
{
    printf("asked %s\n", asked >= 4 ? "each time" : "less");
}
