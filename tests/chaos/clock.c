/* A wall clock that jumps by a day with every look, there and back; the monotonic one is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static long jump(void) {
    static unsigned looks;
    return looks++ % 2 ? -86400 : 86400;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(which, now);
    if (!done && which == CLOCK_REALTIME) now->tv_sec += jump();
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (kept) *kept = fine.tv_sec;
    return fine.tv_sec;
}
