/* Records what a process does to the files below one directory, in the order in which it happens, so that a power cut can
 * be played at any moment of it (see src/power). Preloaded into server, runners and their jobs.
 *
 *   CHAOS_RECORD_ROOT      the directory, without links and without a slash at its end
 *   CHAOS_RECORD_JOURNAL   where the records go (outside of it)
 *   CHAOS_RECORD_LOCK      a file that is locked during each operation, so that all processes have one order
 *   CHAOS_RECORD_FULL      N or N:M: from the N-th operation that needs room on, M of them (all, unless given) fail with ENOSPC
 *
 * A record is the header below and the two texts that it counts. Everything here is done with system calls of its own:
 * no allocation, no lock of the process, so that it works between fork and exec, in threads and under SIGKILL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct header { uint32_t magic, kind; uint64_t number; uint32_t path_length, data_length; };
enum { MAGIC = 0x43455254 };

static const char *root, *journal, *lock_file;
static size_t root_length;
static long full_from = -1, full_for = LONG_MAX;
static long needs_room; /* counted with __sync: threads */
/* A child that shares its parent's memory runs while the parent's thread stands still: one buffer per thread is enough. */
static __thread char first[PATH_MAX], second[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
    root = getenv("CHAOS_RECORD_ROOT");
    journal = getenv("CHAOS_RECORD_JOURNAL");
    lock_file = getenv("CHAOS_RECORD_LOCK");
    root_length = root ? strlen(root) : 0;
    const char *full = getenv("CHAOS_RECORD_FULL");
    if (full) {
        char *end;
        full_from = strtol(full, &end, 10);
        if (*end == ':') full_for = strtol(end + 1, NULL, 10);
    }
}

static int is_ours(const char *path) {
    return root && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* Where a descriptor leads, or an empty text. */
static const char *of_fd(int fd, char *buffer) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
    buffer[n < 0 ? 0 : n] = 0;
    return buffer;
}

/* A path as it was given, made absolute. */
static const char *absolute(int dir, const char *path, char *buffer) {
    if (path[0] == '/') {
        snprintf(buffer, PATH_MAX, "%s", path);
    } else {
        if (dir == AT_FDCWD) {
            if (syscall(SYS_getcwd, buffer, PATH_MAX) < 0) buffer[0] = 0;
        } else {
            of_fd(dir, buffer);
        }
        size_t n = strlen(buffer);
        if (!strncmp(path, "./", 2)) path += 2;
        snprintf(buffer + n, PATH_MAX - n, "/%s", path);
    }
    size_t n = strlen(buffer);
    while (n > 1 && buffer[n - 1] == '/') buffer[--n] = 0;
    return buffer;
}

static int take(void) {
    if (!lock_file) return -1;
    int fd = syscall(SYS_openat, AT_FDCWD, lock_file, O_RDWR | O_CLOEXEC, 0);
    while (fd >= 0 && syscall(SYS_flock, fd, LOCK_EX) < 0 && errno == EINTR) {}
    return fd;
}

static void give(int fd) {
    int kept = errno;
    if (fd >= 0) syscall(SYS_close, fd);
    errno = kept;
}

static void note(char kind, uint64_t number, const char *path, const void *data, size_t length) {
    int kept = errno;
    int fd = journal ? syscall(SYS_openat, AT_FDCWD, journal, O_WRONLY | O_APPEND | O_CLOEXEC, 0) : -1;
    if (fd >= 0) {
        struct header header = {MAGIC, (uint32_t)kind, number, strlen(path), length};
        struct iovec parts[] = {{&header, sizeof header}, {(void *)path, strlen(path)}, {(void *)data, length}};
        /* A record that is cut off would make all that follow unreadable: better no process than half a truth. */
        if (syscall(SYS_writev, fd, parts, 3) != (long)(sizeof header + strlen(path) + length)) _exit(70);
        syscall(SYS_close, fd);
    }
    errno = kept;
}

static int is_full(void) {
    if (full_from < 0) return 0;
    long n = __sync_add_and_fetch(&needs_room, 1);
    if (n < full_from || n - full_from >= full_for) return 0;
    errno = ENOSPC;
    return 1;
}

/* --- content --- */

static ssize_t written(int fd, const struct iovec *parts, int count, off_t at) {
    const char *path = root ? of_fd(fd, first) : "";
    int ours = is_ours(path) && !strstr(path, " (deleted)");
    if (!ours)
        return at < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, at, 0L);
    if (is_full()) return -1;
    int lock = take();
    ssize_t n = at < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, at, 0L);
    if (n > 0) {
        uint64_t place = at < 0 ? (uint64_t)syscall(SYS_lseek, fd, 0L, SEEK_CUR) - n : (uint64_t)at;
        size_t left = n;
        for (int i = 0; i < count && left; i++) {
            size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
            if (part) note('W', place, path, parts[i].iov_base, part);
            place += part, left -= part;
        }
    }
    give(lock);
    return n;
}

ssize_t write(int fd, const void *data, size_t n) {
    struct iovec part = {(void *)data, n};
    return written(fd, &part, 1, -1);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    struct iovec part = {(void *)data, n};
    return written(fd, &part, 1, at);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return pwrite64(fd, data, n, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return written(fd, parts, count, -1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return written(fd, parts, count, at); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return written(fd, parts, count, at); }

int ftruncate64(int fd, off64_t size) {
    int lock = take();
    int result = syscall(SYS_ftruncate, fd, size);
    if (!result && is_ours(of_fd(fd, first))) note('T', size, first, "", 0);
    give(lock);
    return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int flushed(int fd, long call) {
    int lock = take();
    int result = syscall(call, fd);
    if (!result && is_ours(of_fd(fd, first))) note('S', 0, first, "", 0);
    give(lock);
    return result;
}
int fsync(int fd) { return flushed(fd, SYS_fsync); }
int fdatasync(int fd) { return flushed(fd, SYS_fdatasync); }

/* --- names --- */

static int opened(int dir, const char *path, int flags, mode_t mode) {
    int makes = flags & (O_CREAT | O_TRUNC);
    if (!makes || !root || !is_ours(absolute(dir, path, first))) return syscall(SYS_openat, dir, path, flags, mode);
    int lock = take();
    struct stat seen;
    int is_new = syscall(SYS_newfstatat, dir, path, &seen, 0) < 0;
    int fd = is_new && is_full() ? -1 : syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0) {
        of_fd(fd, first);
        if (is_new) note('C', 0, first, "", 0);
        else if (flags & O_TRUNC) note('T', 0, first, "", 0);
    }
    give(lock);
    return fd;
}

#define MODE(last)                                            \
    mode_t mode = 0;                                          \
    if (last & (O_CREAT | __O_TMPFILE)) {                     \
        va_list more; va_start(more, last);                   \
        mode = va_arg(more, mode_t); va_end(more);            \
    }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE(flags) return opened(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) return opened(dir, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    int lock = take();
    int result = syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (!result && root && is_ours(absolute(to_dir, to, second)))
        note('R', 0, absolute(from_dir, from, first), second, strlen(second));
    give(lock);
    return result;
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return renameat2(from_dir, from, to_dir, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int dir, const char *path, int flags) {
    int lock = take();
    int result = syscall(SYS_unlinkat, dir, path, flags);
    if (!result && root && is_ours(absolute(dir, path, first))) note('U', 0, first, "", 0);
    give(lock);
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dir, const char *path, mode_t mode) {
    if (root && is_ours(absolute(dir, path, first)) && is_full()) return -1;
    int lock = take();
    int result = syscall(SYS_mkdirat, dir, path, mode);
    if (!result && root && is_ours(absolute(dir, path, first))) note('D', 0, first, "", 0);
    give(lock);
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    int lock = take();
    int result = syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    if (!result && root && is_ours(absolute(to_dir, to, second)))
        note('L', 0, absolute(from_dir, from, first), second, strlen(second));
    give(lock);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
