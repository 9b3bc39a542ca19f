"""A wall clock that can be set for everything on a ground,
by a small library that its processes load. Needs gcc."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from benchmarks.ground import Ground

# The wall clock of every process that has this loaded is off by the number in OFFSET_FILE; the monotonic
# clock is not touched.
CLOCK_C = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) {
    char text[32] = {0};
    int fd = open(OFFSET_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    long got = read(fd, text, 31);
    close(fd);
    return got > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t which, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, t);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) t->tv_sec += offset();
    return failed;
}
time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
int gettimeofday(struct timeval *restrict v, void *restrict zone) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    v->tv_sec = t.tv_sec;
    v->tv_usec = t.tv_nsec / 1000;
    return 0;
}
"""


def settable(ground: Ground) -> Callable[[int], None]:
    """A function that sets the wall clock of what is started on this ground from now on,
    in seconds from the true time."""
    source, library, offset = ground.root / "clock.c", ground.root / "clock.so", ground.root / "offset"
    source.write_text(CLOCK_C)
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            f'-DOFFSET_FILE="{offset}"',
            str(source),
            "-o",
            str(library),
            "-ldl",
        ],
        check=True,
    )
    ground.env["LD_PRELOAD"] = str(library)
    offset.write_text("0")

    def set_clock(seconds: int) -> None:
        beside = offset.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.replace(offset)
    return set_clock
