/* Lets writes and syncs of the database fail, as a broken or full disk would. Loaded in front of the C library; the file
   named by DISK_FAULT says what fails: "fsync" or "write", and with which error number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd, const char *what) {
    const char *control = getenv("DISK_FAULT");
    char link[64], path[4096], word[16] = "";
    int number = 0;
    FILE *file;
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (control == NULL || length <= 0) return 0;
    path[length] = 0;
    if (strstr(path, "torc.db") == NULL || strstr(path, ".lock") != NULL) return 0;
    file = fopen(control, "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%15s %d", word, &number) != 2) number = 0;
    fclose(file);
    if (number == 0 || strcmp(word, what) != 0) return 0;
    errno = number;
    return 1;
}

#define NEXT(name) ((name##_t)dlsym(RTLD_NEXT, #name))
typedef int (*fsync_t)(int);
typedef int (*fdatasync_t)(int);
typedef ssize_t (*write_t)(int, const void *, size_t);
typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);
typedef ssize_t (*pwrite64_t)(int, const void *, size_t, off64_t);

int fsync(int fd) { return fails(fd, "fsync") ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails(fd, "fsync") ? -1 : NEXT(fdatasync)(fd); }
ssize_t write(int fd, const void *data, size_t size) { return fails(fd, "write") ? -1 : NEXT(write)(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return fails(fd, "write") ? -1 : NEXT(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return fails(fd, "write") ? -1 : NEXT(pwrite64)(fd, data, size, at);
}
