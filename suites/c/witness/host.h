/* What every host program with habits of its own has: what it sees it tells by descriptor 9, where that is open, because stdout and stderr
 * belong to the test that watches them. It ends with status 37, so that nobody else's exit can be taken for its own.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS 37
#define MIB ((size_t)1 << 20)

extern char **environ;

static void tell(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length] = '\n';
    if (write(fcntl(9, F_GETFD) >= 0 ? 9 : 1, line, length + 1) < 0) _exit(99);
}

static void must(const char *what, int code) {
    if (code != 0) {
        tell("%s answered %d", what, code);
        _exit(98);
    }
}

/* What is the host's own, as text. */
struct manners {
    char *text;
    size_t length;
};

static void low_descriptors(FILE *out) {
    for (int fd = 0; fd < 200; fd++) {
        char link[64], target[256];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        /* The simulated driver's own. */
        if (strstr(target, "mock-device") || strstr(target, "/proc/")) continue;
        fprintf(out, "descriptor %d %s\n", fd, target);
    }
}

static struct manners manners(void) {
    struct manners seen = {0};
    FILE *out = open_memstream(&seen.text, &seen.length);
    mode_t mask = umask(0);
    umask(mask);
    fprintf(out, "umask %o\n", mask);
    char directory[4096];
    fprintf(out, "directory %s\n", getcwd(directory, sizeof directory));
    fprintf(out, "locale %s %s\n", setlocale(LC_ALL, NULL), localeconv()->decimal_point);
    for (int number = 1; number <= 64; number++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        if (syscall(SYS_rt_sigaction, number, NULL, &action, 8) == 0) {
            fprintf(out, "signal %d", number);
            for (size_t byte = 0; byte < 32; byte++) fprintf(out, " %02x", ((unsigned char *)&action)[byte]);
            fprintf(out, "\n");
        }
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int number = 1; number <= 64; number++)
        if (sigismember(&blocked, number) == 1) fprintf(out, "blocked %d\n", number);
    for (char **variable = environ; *variable; variable++) fprintf(out, "environment %s\n", *variable);
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) threads += entry->d_name[0] != '.';
    closedir(tasks);
    fprintf(out, "threads %d\n", threads);
    fprintf(out, "timer %u\n", alarm(0));
    low_descriptors(out);
    fclose(out);
    return seen;
}

static void compare(struct manners before, struct manners after) {
    char *rest = strdup(before.text), *line, *later = after.text;
    while ((line = strsep(&rest, "\n"))) {
        char *other = strsep(&later, "\n");
        if (!other || strcmp(line, other)) {
            tell("before: %s", line);
            tell("after:  %s", other ? other : "nothing");
            return;
        }
    }
    if (later && *later) tell("new: %s", later);
}

static void handler(int number) { (void)number; }

/* Habits of the host's own, which a guest must leave as they are. */
static void have_habits(void) {
    umask(027);
    must("chdir", chdir("/usr"));
    setlocale(LC_ALL, "C.UTF-8");
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGSEGV, handler);
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigaddset(&some, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &some, NULL);
    setenv("MY_OWN", "value", 1);
}

/* What a child program would inherit that the host did not. */
static void inheritable(char *seen, int tells) {
    DIR *descriptors = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(descriptors));) {
        int fd = atoi(entry->d_name), flags = entry->d_name[0] == '.' ? -1 : fcntl(fd, F_GETFD);
        if (flags < 0 || flags & FD_CLOEXEC) continue;
        if (tells && (fd >= 1024 || !seen[fd])) {
            char link[64], target[256] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (readlink(link, target, sizeof target - 1) > 0) tell("descriptor %d, %s, is not close-on-exec", fd, target);
        }
        if (fd < 1024) seen[fd] = 1;
    }
    closedir(descriptors);
}

static int waited(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What guests ask of libc and the kernel on the way of a call, told apart by who asks. */
#ifdef COUNTS
#include <link.h>
#include <time.h>
static struct { uintptr_t from, to; } guests[8];
static int guest_count, counting;
enum { GETENV, CLOCK, OPEN, WRITE, FCNTL, MALLOC, KINDS };
static const char *const kind_names[] = {"getenv", "clock_gettime", "open", "write", "fcntl", "malloc"};
static long asked[KINDS];

static int find_guest(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    /* The proxies reach the driver by a folder of their own. */
    int proxy = strstr(object->dlpi_name, "/proxies/") && !strstr(object->dlpi_name, "/proxies/driver/");
    if (!proxy && !strstr(object->dlpi_name, "vgpu")) return 0;
    for (int at = 0; at < object->dlpi_phnum && guest_count < 8; at++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[at];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        guests[guest_count].from = object->dlpi_addr + part->p_vaddr;
        guests[guest_count++].to = object->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

static void count(int kind, void *caller) {
    for (int at = 0; counting && at < guest_count; at++)
        if ((uintptr_t)caller >= guests[at].from && (uintptr_t)caller < guests[at].to) asked[kind]++;
}

#define COUNTED(kind, result, name, parameters, arguments) \
    result name parameters { \
        static result(*next) parameters; \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        count(kind, __builtin_return_address(0)); \
        return next arguments; \
    }
COUNTED(GETENV, char *, getenv, (const char *name), (name))
COUNTED(CLOCK, int, clock_gettime, (clockid_t clock, struct timespec *now), (clock, now))
COUNTED(WRITE, ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = dlsym(RTLD_NEXT, "open64");
    count(OPEN, __builtin_return_address(0));
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return next(path, flags, mode);
}

int fcntl(int fd, int command, ...) {
    static int (*next)(int, int, ...);
    if (!next) next = dlsym(RTLD_NEXT, "fcntl");
    count(FCNTL, __builtin_return_address(0));
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    return next(fd, command, argument);
}

void *__libc_malloc(size_t);
void *malloc(size_t size) {
    count(MALLOC, __builtin_return_address(0));
    return __libc_malloc(size);
}

static void tell_counts(void) {
    for (int kind = 0; kind < KINDS; kind++)
        if (asked[kind]) tell("%s was called %ld times", kind_names[kind], asked[kind]);
}
#endif
