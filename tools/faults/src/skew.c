/* Preloaded, it moves the wall clock of one process by what a file says: eight bytes, nanoseconds, in the order of the
 * machine. The clocks that measure spans stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int looked;

static void look(void) {
    const char *path = getenv("LOCKWELL_CLOCK");
    if (looked) return;
    looked = 1;
    if (!path) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    if (file < 0) return;
    void *mapped = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped != MAP_FAILED) offset = mapped;
}

static void move(struct timespec *time) {
    look();
    if (!offset) return;
    int64_t by = *offset, nanos = time->tv_nsec + by % 1000000000;
    time->tv_sec += by / 1000000000;
    if (nanos < 0) { nanos += 1000000000; time->tv_sec--; }
    if (nanos >= 1000000000) { nanos -= 1000000000; time->tv_sec++; }
    time->tv_nsec = nanos;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long answer = syscall(SYS_clock_gettime, clock, time);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) move(time);
    return (int)answer;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    if (time) { time->tv_sec = now.tv_sec; time->tv_usec = now.tv_nsec / 1000; }
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
