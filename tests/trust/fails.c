/* Writes below FAIL_UNDER fail with FAIL_ERRNO once FAIL_AFTER bytes are written there: a full disk,
 * a quota, a broken device, without a file system of that kind. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long written;

static int refused(int fd, size_t count) {
    const char *under = getenv("FAIL_UNDER"), *after = getenv("FAIL_AFTER"), *number = getenv("FAIL_ERRNO");
    char link[64], path[4096];
    if (!under || !after || !number) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    if (strncmp(path, under, strlen(under)) != 0) return 0;
    if (atomic_fetch_add(&written, (long)count) + (long)count <= atol(after)) return 0;
    errno = atoi(number);
    return 1;
}

ssize_t write(int fd, const void *data, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return refused(fd, count) ? -1 : real(fd, data, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    size_t bytes = 0;
    for (int part = 0; part < count; part++) bytes += parts[part].iov_len;
    return refused(fd, bytes) ? -1 : real(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return refused(fd, count) ? -1 : real(fd, data, count, at);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) { return pwrite64(fd, data, count, at); }
