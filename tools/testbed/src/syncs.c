/* Changes what fsync and fdatasync do in one process and its children, on what is no socket or terminal. To be preloaded.
 *
 * LOCKWELL_SYNC_DELAY: each call takes at least this many microseconds, as on a slow disk.
 * LOCKWELL_SYNC_FAILS: as long as this file exists, each call fails with EIO and syncs nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int changed(int (*real)(int), int fd) {
    const char *fails = getenv("LOCKWELL_SYNC_FAILS");
    if (fails && !access(fails, F_OK)) {
        errno = EIO;
        return -1;
    }
    const char *delay = getenv("LOCKWELL_SYNC_DELAY");
    long micros = delay ? atol(delay) : 0;
    struct timespec began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    int done = real(fd);
    int error = errno;
    if (micros > 0) {
        long nanos = began.tv_nsec + micros % 1000000 * 1000;
        struct timespec until = {began.tv_sec + micros / 1000000 + nanos / 1000000000, nanos % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
    }
    errno = error;
    return done;
}

#define SYNC(name)                                                          \
    int name(int fd) {                                                      \
        return changed((__typeof__(&name))dlsym(RTLD_NEXT, #name), fd);     \
    }
SYNC(fsync)
SYNC(fdatasync)
