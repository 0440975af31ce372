/* Sets the clocks of one program while it runs, and the name of the boot that it sees (see src/clocks.rs).
 *
 *   CHAOS_CLOCK_EXE       the program; others that inherit this keep their clocks
 *   CHAOS_CLOCK_FILE      two numbers of 64 bits: seconds to add to the wall clock, and to the time since the machine started
 *   CHAOS_CLOCK_BOOT_ID   read in place of the kernel's boot id
 *
 * The clock that only measures (CLOCK_MONOTONIC) stays: it stands still while a machine sleeps, and cannot be set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;
static const char *boot_id;

__attribute__((constructor)) static void begin(void) {
    char exe[PATH_MAX];
    const char *wanted = getenv("CHAOS_CLOCK_EXE"), *file = getenv("CHAOS_CLOCK_FILE");
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof exe - 1);
    if (!wanted || !file || n < 0) return;
    exe[n] = 0;
    if (strcmp(exe, wanted)) return;
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *page = mmap(NULL, 16, PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (page != MAP_FAILED) shift = page;
    boot_id = getenv("CHAOS_CLOCK_BOOT_ID");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && shift) {
        if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift[0];
        if (clock == CLOCK_BOOTTIME) now->tv_sec += shift[1];
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    if (boot_id && !strcmp(path, "/proc/sys/kernel/random/boot_id")) path = boot_id;
    return syscall(SYS_openat, dir, path, flags, mode);
}

#define MODE(last)                                 \
    mode_t mode = 0;                               \
    if (last & (O_CREAT | __O_TMPFILE)) {          \
        va_list more; va_start(more, last);        \
        mode = va_arg(more, mode_t); va_end(more); \
    }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE(flags) return opened(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) return opened(dir, path, flags, mode); }
