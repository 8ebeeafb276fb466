/* Opens the library of the first argument, which nobody else sees, and lets it use the driver. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return printf("%s\n", dlerror());
    return ((int (*)(void))dlsym(library, "use"))();
}
