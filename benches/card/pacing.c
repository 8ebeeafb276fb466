/* What a card says of device time, as a controller of compute budgets sees it: costs of its questions, what marks (events) around launches measure,
   idle, full, and beside another process, and what NVML counts for the same. Needs a GPU and nothing else on it. Prints one line per figure.

   cc -O1 -o pacing pacing.c -I$CUDA/include -lcuda -lnvidia-ml -lpthread -lm; ./pacing [calls|marks|busy|beside|shares|nvml|both] … */
#include <cuda.h>
#include <math.h>
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Each of its blocks spins for so many nanoseconds of the card's own clock, and adds to what is counted. */
static const char *PTX =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns, .param .u64 out) {\n"
    " .reg .u64 %a,%b,%n,%o; .reg .pred %p;\n"
    " ld.param.u64 %n,[ns]; ld.param.u64 %o,[out];\n"
    " mov.u64 %a,%globaltimer; add.u64 %n,%n,%a;\n"
    "L: mov.u64 %b,%globaltimer; setp.lt.u64 %p,%b,%n; @%p bra L;\n"
    " st.global.u64 [%o],%a; st.global.u64 [%o+8],%b; ret; }\n"
    /* Counts, whatever the clock says: time in which others have the card is none of it. */
    ".visible .entry count(.param .u64 rounds, .param .u64 out) {\n"
    " .reg .u64 %n,%o,%x; .reg .pred %p;\n"
    " ld.param.u64 %n,[rounds]; ld.param.u64 %o,[out]; mov.u64 %x,1;\n"
    "L: mad.lo.u64 %x,%x,%x,%n; sub.u64 %n,%n,1; setp.ne.u64 %p,%n,0; @%p bra L;\n"
    " st.global.u64 [%o],%x; ret; }\n";

static CUdevice device;
static CUcontext context;
static CUfunction spin, counts;
static CUdeviceptr out;
static nvmlDevice_t handle;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#define MUST(call)                                                    \
    do {                                                              \
        int code = (int)(call);                                       \
        if (code) {                                                   \
            printf("%s: %d\n", #call, code);                          \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static void begin(void)
{
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&spin, module, "spin"));
    MUST(cuModuleGetFunction(&counts, module, "count"));
    MUST(cuMemAlloc(&out, 4096));
}

static void launch(CUstream stream, unsigned long long ns)
{
    void *arguments[] = {&ns, &out};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static CUevent event(void)
{
    CUevent made;
    MUST(cuEventCreate(&made, CU_EVENT_DEFAULT));
    return made;
}

/* Milliseconds between two events that were reached. */
static double between(CUevent a, CUevent b)
{
    float ms = 0;
    MUST(cuEventElapsedTime(&ms, a, b));
    return ms;
}

static int by_size(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void told(const char *what, double *each, int count, const char *unit)
{
    qsort(each, (size_t)count, sizeof *each, by_size);
    double sum = 0;
    for (int at = 0; at < count; at++)
        sum += each[at];
    printf("%-58s mean %9.3f  p1 %9.3f  median %9.3f  p99 %9.3f  most %9.3f %s\n", what, sum / count, each[count / 100], each[count / 2],
           each[count * 99 / 100], each[count - 1], unit);
    fflush(stdout);
}

#define MANY 2000
static double each[MANY];

#define TIMED(what, call)                                             \
    do {                                                              \
        for (int at = 0; at < MANY; at++) {                           \
            double begun = now();                                     \
            call;                                                     \
            each[at] = (now() - begun) * 1e6;                         \
        }                                                             \
        told(what, each, MANY, "us");                                 \
    } while (0)

static void calls(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUevent mark = event(), first = event();
    TIMED("cuEventRecord, idle", (cuEventRecord(mark, stream)));
    cuStreamSynchronize(stream);
    TIMED("cuEventQuery, reached", cuEventQuery(mark));
    MUST(cuEventRecord(first, stream));
    cuStreamSynchronize(stream);
    float ms;
    TIMED("cuEventElapsedTime", cuEventElapsedTime(&ms, first, mark));
    TIMED("cuLaunchKernel of 1 us", launch(stream, 1000));
    cuStreamSynchronize(stream);
    launch(stream, 200000000ull);
    MUST(cuEventRecord(mark, stream));
    TIMED("cuEventQuery, not reached", cuEventQuery(mark));
    cuStreamSynchronize(stream);
    TIMED("cuEventRecord behind each launch of 20 us", (launch(stream, 20000), cuEventRecord(mark, stream)));
    cuStreamSynchronize(stream);
}

/* What lies between marks before and behind some launches, and what these really took, by the card's clock. */
static void marks(void)
{
    static const unsigned long long lengths[] = {2000, 10000, 50000, 200000, 1000000};
    static const int counts[] = {1, 4, 16};
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUevent a = event(), b = event();
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int full = 0; full < 2; full++) {
                int rounds = 200;
                for (int at = 0; at < rounds; at++) {
                    if (full)
                        launch(stream, 300000);
                    MUST(cuEventRecord(a, stream));
                    for (int n = 0; n < counts[c]; n++)
                        launch(stream, lengths[l]);
                    MUST(cuEventRecord(b, stream));
                    MUST(cuStreamSynchronize(stream));
                    each[at] = between(a, b) * 1e3 - (double)lengths[l] * counts[c] / 1e3;
                }
                char what[96];
                snprintf(what, sizeof what, "marks around %d x %llu us, %s: beyond the kernels", counts[c], lengths[l] / 1000,
                         full ? "behind work" : "idle card");
                told(what, each, rounds, "us");
            }
    /* A mark on a stream that had nothing to do: when does the card reach it? */
    for (int at = 0; at < 200; at++) {
        MUST(cuEventRecord(a, stream));
        double begun = now();
        while (cuEventQuery(a) != CUDA_SUCCESS)
            ;
        each[at] = (now() - begun) * 1e6;
    }
    told("a mark on an idle stream is seen reached after", each, 200, "us");
}

/* So busy, by launches of one length with pauses between: what NVML says beside. */
static double util(void)
{
    nvmlUtilization_t rates = {0};
    nvmlDeviceGetUtilizationRates(handle, &rates);
    return rates.gpu;
}

static void busy(void)
{
    static const struct { unsigned long long ns; double duty; } ways[] = {{10000, 0.3}, {100000, 0.3}, {1000000, 0.3}, {10000000, 0.3}, {1000000, 0.8}, {1000000, 1}};
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
        double begun = now(), work = 0, sum = 0, next = begun + 1, most = 0, least = 200;
        int count = 0;
        while (now() - begun < 4) {
            launch(stream, ways[w].ns);
            MUST(cuStreamSynchronize(stream));
            work += (double)ways[w].ns * 1e-9;
            double due = begun + work / ways[w].duty;
            while (ways[w].duty < 1 && now() < due)
                ;
            if (now() > next) {
                double u = util();
                sum += u, count++, next = now() + 0.1;
                if (u > most) most = u;
                if (u < least) least = u;
            }
        }
        double seconds = now() - begun;
        static nvmlProcessUtilizationSample_t samples[8192];
        unsigned samples_count = sizeof samples / sizeof *samples;
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        unsigned long long since = (unsigned long long)wall.tv_sec * 1000000ull - 3000000ull;
        double asked = now();
        int code = nvmlDeviceGetProcessUtilization(handle, samples, &samples_count, since);
        asked = now() - asked;
        printf("kernels of %5llu us, %3.0f %% of the time: really %5.1f %%, utilization.gpu mean %5.1f (%.0f to %.0f); process samples: code %d, %u in 3 s, asked %.0f us:",
               ways[w].ns / 1000, ways[w].duty * 100, work / seconds * 100, sum / count, least, most, code, code ? 0 : samples_count, asked * 1e6);
        for (unsigned s = 0; !code && s < samples_count && s < 24; s++)
            printf(" %u%%@%+.0fms%s", samples[s].smUtil, ((double)samples[s].timeStamp - (double)since) / 1e3, samples[s].pid == (unsigned)getpid() ? "" : "(other)");
        printf("\n");
        fflush(stdout);
    }
}

/* Two processes, each with kernels of one length back to back: what marks around each see. */
static void beside(void)
{
    static const unsigned long long lengths[] = {20000, 200000, 1000000, 5000000};
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int processes = 1; processes <= 3; processes++) {
            int pipes[2];
            if (pipe(pipes))
                exit(1);
            for (int p = 0; p < processes; p++)
                if (!fork()) {
                    begin();
                    CUstream stream;
                    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                    CUevent ring[9];
                    for (int at = 0; at < 9; at++)
                        ring[at] = event();
                    double ready = now() + 1.0;
                    MUST(write(pipes[1], &ready, sizeof ready) != sizeof ready);
                    while (now() < ready)
                        ;
                    int count = 0;
                    double sum = 0, until = now() + 1.5;
                    /* Eight launches in flight, a mark behind each. */
                    MUST(cuEventRecord(ring[0], stream));
                    for (int n = 1; now() < until; n++) {
                        launch(stream, lengths[l]);
                        MUST(cuEventRecord(ring[n % 9], stream));
                        if (n >= 8) {
                            MUST(cuEventSynchronize(ring[(n - 7) % 9]));
                            double ms = between(ring[(n - 8) % 9], ring[(n - 7) % 9]);
                            if (count < MANY)
                                each[count++] = ms * 1e3;
                            sum += ms;
                        }
                    }
                    cuStreamSynchronize(stream);
                    char what[96];
                    snprintf(what, sizeof what, "%llu us back to back, %d of %d: between marks", lengths[l] / 1000, p + 1, processes);
                    told(what, each, count, "us");
                    _exit(0);
                }
            while (wait(NULL) > 0)
                ;
            close(pipes[0]), close(pipes[1]);
        }
}

/* Processes that are busy for a part of the time each: what NVML tells each of them of itself, second by second, and what that costs. */
static void shares(void)
{
    static const int duties[][3] = {{100}, {30}, {100, 100}, {100, 30}, {40, 40}, {60, 60}, {100, 100, 100}};
    for (unsigned d = 0; d < sizeof duties / sizeof *duties; d++) {
        for (int p = 0; p < 3 && duties[d][p]; p++)
            if (!fork()) {
                begin();
                MUST(nvmlInit_v2());
                MUST(nvmlDeviceGetHandleByIndex_v2(0, &handle));
                CUstream stream;
                MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                unsigned long long rounds = 100000;
                void *arguments[] = {&rounds, &out};
                CUevent a = event(), b = event();
                for (int n = 0; n < 2; n++) {
                    MUST(cuEventRecord(a, stream));
                    MUST(cuLaunchKernel(counts, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
                    MUST(cuEventRecord(b, stream));
                    MUST(cuEventSynchronize(b));
                }
                rounds = (unsigned long long)((double)rounds * 0.5 / between(a, b));
                sleep(1);
                unsigned long long last = 0;
                double begun = now(), done = 0, due = begun + 1;
                while (now() - begun < 5.1) {
                    for (int n = 0; n < 8; n++)
                        MUST(cuLaunchKernel(counts, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
                    MUST(cuStreamSynchronize(stream));
                    done += 8 * 0.5e-3;
                    double rest = begun + done / duties[d][p] * 100 - now();
                    if (duties[d][p] < 100 && rest > 0)
                        usleep((unsigned)(rest * 1e6));
                    if (now() < due)
                        continue;
                    due += 1;
                    nvmlProcessUtilizationSample_t samples[128];
                    unsigned count = 128;
                    double asked = now();
                    int code = nvmlDeviceGetProcessUtilization(handle, samples, &count, last);
                    asked = now() - asked;
                    char line[512];
                    int at = snprintf(line, sizeof line, "%d of {%d %d %d}, %.0f %% of a card's work so far: code %d, %u samples, %.0f us:", p, duties[d][0], duties[d][1],
                                      duties[d][2], done / (now() - begun) * 100, code, count, asked * 1e6);
                    for (unsigned s = 0; !code && s < count && at < 400; s++) {
                        at += snprintf(line + at, sizeof line - at, " %s%u%%@%.0f", samples[s].pid == (unsigned)getpid() ? "own " : "", samples[s].smUtil, (double)(samples[s].timeStamp / 1000 % 1000000));
                        if (samples[s].timeStamp > last)
                            last = samples[s].timeStamp;
                    }
                    printf("%s\n", line);
                    fflush(stdout);
                }
                _exit(0);
            }
        while (wait(NULL) > 0)
            ;
    }
}

static void nvml(void)
{
    for (int round = 0; round < 4; round++) {
        double t[8];
        t[0] = now();
        int code = round % 2 ? nvmlInitWithFlags(NVML_INIT_FLAG_NO_ATTACH) : nvmlInit_v2();
        t[1] = now();
        nvmlDeviceGetHandleByIndex_v2(0, &handle);
        t[2] = now();
        nvmlMemory_t memory;
        nvmlDeviceGetMemoryInfo(handle, &memory);
        t[3] = now();
        nvmlProcessInfo_t rows[64];
        unsigned count = 64;
        nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, rows);
        t[4] = now();
        util();
        t[5] = now();
        nvmlShutdown();
        t[6] = now();
        printf("%s: %d; init %.2f, handle %.2f, memory %.2f, processes %.2f, utilization %.2f, shutdown %.2f ms\n",
               round % 2 ? "nvmlInitWithFlags(NO_ATTACH)" : "nvmlInit_v2", code, (t[1] - t[0]) * 1e3, (t[2] - t[1]) * 1e3, (t[3] - t[2]) * 1e3,
               (t[4] - t[3]) * 1e3, (t[5] - t[4]) * 1e3, (t[6] - t[5]) * 1e3);
        fflush(stdout);
    }
}

/* What NVML costs in a process that uses CUDA: before its first context, and beside it. */
static void both(void)
{
    double t[10];
    t[0] = now();
    MUST(cuInit(0));
    t[1] = now();
    MUST(nvmlInit_v2());
    t[2] = now();
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &handle));
    t[3] = now();
    nvmlProcessInfo_t rows[64];
    unsigned count = 64;
    MUST(nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, rows));
    t[4] = now();
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    t[5] = now();
    count = 64;
    MUST(nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, rows));
    t[6] = now();
    MUST(nvmlShutdown());
    t[7] = now();
    MUST(nvmlInit_v2());
    t[8] = now();
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &handle));
    t[9] = now();
    printf("cuInit %.2f, nvmlInit_v2 %.2f, handle %.2f, processes %.2f, cuDevicePrimaryCtxRetain %.2f, processes %.2f, shutdown %.2f, init %.2f, handle %.2f ms\n",
           (t[1] - t[0]) * 1e3, (t[2] - t[1]) * 1e3, (t[3] - t[2]) * 1e3, (t[4] - t[3]) * 1e3, (t[5] - t[4]) * 1e3, (t[6] - t[5]) * 1e3,
           (t[7] - t[6]) * 1e3, (t[8] - t[7]) * 1e3, (t[9] - t[8]) * 1e3);
}

int main(int count, char **arguments)
{
    for (int at = 1; at < count; at++) {
        const char *mode = arguments[at];
        fflush(stdout);
        /* Each in a process of its own, begun afresh. */
        if (fork()) {
            wait(NULL);
            continue;
        }
        if (!strcmp(mode, "both"))
            both(), _exit((fflush(stdout), 0));
        if (!strcmp(mode, "nvml"))
            nvml(), _exit((fflush(stdout), 0));
        if (!strcmp(mode, "beside"))
            beside(), _exit((fflush(stdout), 0));
        if (!strcmp(mode, "shares"))
            shares(), _exit((fflush(stdout), 0));
        begin();
        nvmlInit_v2();
        nvmlDeviceGetHandleByIndex_v2(0, &handle);
        if (!strcmp(mode, "calls"))
            calls();
        else if (!strcmp(mode, "marks"))
            marks();
        else if (!strcmp(mode, "busy"))
            busy();
        else
            printf("%s: no mode\n", mode);
        fflush(stdout);
        _exit(0);
    }
    return 0;
}
