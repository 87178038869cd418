/* Records what a process writes to the files whose names begin with LOCKWELL_RECORD, in order, into the file that
 * LOCKWELL_RECORD_TO names: for the test of what a power cut leaves. To be preloaded. Shared memory (-shm) is left out.
 *
 * A record: kind, which file, offset, length (8 bytes each), and the data that was written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE = 1, CUT = 2, SYNC = 3, UNLINK = 4 };

#define FILES 4096
static unsigned char file_of[FILES]; /* 0: not recorded, 1: the database, 2: its log, 3: the marks of the test */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static unsigned char which(const char *path) {
    const char *base = getenv("LOCKWELL_RECORD");
    size_t len = base ? strlen(base) : 0;
    if (!len || strncmp(path, base, len)) return 0;
    if (!path[len]) return 1;
    if (!strcmp(path + len, "-wal")) return 2;
    return strcmp(path + len, "-marks") ? 0 : 3;
}

static unsigned char known(int fd) { return fd >= 0 && fd < FILES ? file_of[fd] : 0; }

static void opened(int fd, const char *path) {
    if (fd >= 0 && fd < FILES) file_of[fd] = which(path);
}

static void record(enum kind kind, uint64_t file, uint64_t offset, uint64_t length, const void *data) {
    if (out < 0) {
        const char *to = getenv("LOCKWELL_RECORD_TO");
        if (!to) return;
        out = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (out < 0) abort();
    }
    uint64_t head[4] = {kind, file, offset, length};
    struct iovec parts[2] = {{head, sizeof head}, {(void *)data, data ? length : 0}};
    size_t whole = sizeof head + parts[1].iov_len;
    if (syscall(SYS_writev, out, parts, 2) != (long)whole) abort();
}

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        va_list rest;                                             \
        va_start(rest, flags);                                    \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest);                                             \
        int fd = REAL(name)(path, flags, mode);                   \
        opened(fd, path);                                         \
        return fd;                                                \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (known(fd)) file_of[fd] = 0;
    return REAL(close)(fd);
}

/* The lock makes the order of the records that of the calls. */
static ssize_t written(int fd, const void *data, ssize_t done, off64_t offset) {
    if (done > 0) record(WRITE, known(fd), (uint64_t)offset, (uint64_t)done, data);
    return done;
}

ssize_t write(int fd, const void *data, size_t length) {
    if (!known(fd)) return REAL(write)(fd, data, length);
    pthread_mutex_lock(&order);
    off64_t offset = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = written(fd, data, REAL(write)(fd, data, length), offset);
    pthread_mutex_unlock(&order);
    return done;
}

#define PWRITE(name)                                                                       \
    ssize_t name(int fd, const void *data, size_t length, off64_t offset) {                \
        if (!known(fd)) return REAL(name)(fd, data, length, offset);                       \
        pthread_mutex_lock(&order);                                                        \
        ssize_t done = written(fd, data, REAL(name)(fd, data, length, offset), offset);    \
        pthread_mutex_unlock(&order);                                                      \
        return done;                                                                       \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name)                                         \
    int name(int fd, off64_t length) {                         \
        if (!known(fd)) return REAL(name)(fd, length);         \
        pthread_mutex_lock(&order);                            \
        int done = REAL(name)(fd, length);                     \
        if (!done) record(CUT, known(fd), (uint64_t)length, 0, NULL); \
        pthread_mutex_unlock(&order);                          \
        return done;                                           \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

/* Nothing is written meanwhile, so all that was recorded before is synced. */
#define FSYNC(name)                                           \
    int name(int fd) {                                        \
        if (!known(fd)) return REAL(name)(fd);                \
        pthread_mutex_lock(&order);                           \
        int done = REAL(name)(fd);                            \
        if (!done) record(SYNC, known(fd), 0, 0, NULL);       \
        pthread_mutex_unlock(&order);                         \
        return done;                                          \
    }
FSYNC(fsync)
FSYNC(fdatasync)

int unlink(const char *path) {
    pthread_mutex_lock(&order);
    int done = REAL(unlink)(path);
    if (!done && which(path)) record(UNLINK, which(path), 0, 0, NULL);
    pthread_mutex_unlock(&order);
    return done;
}
