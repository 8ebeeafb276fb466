/* Opens the libraries of its arguments one after another, and lets each use the driver. "later", "all" and "deep" before one say how:
   RTLD_LAZY, RTLD_GLOBAL, RTLD_DEEPBIND; RTLD_NOW where nothing is said. "closed" closes the library after its use, "alone" all that came
   before it, before its use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    int flags = RTLD_NOW, closes = 0, alone = 0, others = 0, code = 0;
    void *opened[64];
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int at = 1; at < count; at++) {
        const char *word = arguments[at];
        if (!strcmp(word, "later"))
            flags = RTLD_LAZY;
        else if (!strcmp(word, "all"))
            flags |= RTLD_GLOBAL;
        else if (!strcmp(word, "deep"))
            flags |= RTLD_DEEPBIND;
        else if (!strcmp(word, "closed"))
            closes = 1;
        else if (!strcmp(word, "alone"))
            alone = 1;
        else {
            void *library = dlopen(word, flags);
            if (!library)
                return printf("%s\n", dlerror());
            int (*use)(void) = (int (*)(void))dlsym(library, "use");
            while (alone && others)
                dlclose(opened[--others]);
            code |= use();
            if (closes)
                dlclose(library);
            else
                opened[others++] = library;
            flags = RTLD_NOW, closes = alone = 0;
        }
    }
    return code;
}
