/* Opens the driver and initialises it, then opens the plug-in of the first argument, whose constructor calls back here. The constructor makes the
   process's first context: in a thread that it waits for ("waits"), or itself while another thread makes one too ("beside"). Says "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int (*retain)(void **, int);
static const char *way;
static pthread_barrier_t both;
static int answer;

static void *makes_a_context(void *unused)
{
    (void)unused;
    void *context = NULL;
    answer |= retain(&context, 0);
    return NULL;
}

static void *makes_one_beside(void *unused)
{
    pthread_barrier_wait(&both);
    return makes_a_context(unused);
}

void constructed(void)
{
    pthread_t thread;
    if (!strcmp(way, "waits")) {
        pthread_create(&thread, NULL, makes_a_context, NULL);
        pthread_join(thread, NULL);
    } else {
        makes_one_beside(NULL);
    }
}

int main(int count, char **arguments)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (count != 3 || !driver)
        return printf("usage: constructor PLUGIN waits|beside\n");
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    retain = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    answer = init(0);
    way = arguments[2];
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    if (!strcmp(way, "beside"))
        pthread_create(&thread, NULL, makes_one_beside, NULL);
    if (!dlopen(arguments[1], RTLD_NOW))
        return printf("%s\n", dlerror());
    if (!strcmp(way, "beside"))
        pthread_join(thread, NULL);
    if (answer)
        return printf("the driver answered %d\n", answer);
    return puts("done") < 0;
}
