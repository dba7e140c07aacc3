/* The least that a durable log can do: write records of one size, so many at once, and fdatasync after each write.
 *
 *   append FILE RECORDS PER_COMMIT BYTES append|segment
 *
 * `append` lets the file grow; `segment` writes into a file that was filled with zeros and synced before the clock
 * starts, so that no sync has to store a new length. Prints the seconds that the loop took.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void preallocate(int file, off_t size) {
    static char zeros[1 << 20];
    if (posix_fallocate(file, 0, size) != 0) die("posix_fallocate");
    for (off_t at = 0; at < size; at += sizeof zeros) {
        size_t part = size - at < (off_t)sizeof zeros ? (size_t)(size - at) : sizeof zeros;
        if (pwrite(file, zeros, part, at) != (ssize_t)part) die("pwrite");
    }
    if (fdatasync(file) != 0) die("fdatasync");
}

int main(int count, char **given) {
    if (count != 6) return 2;
    long records = atol(given[2]), per_commit = atol(given[3]), bytes = atol(given[4]);
    size_t lot = per_commit * bytes;
    char *lines = malloc(lot);
    int file = open(given[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || lines == NULL) die(given[1]);
    if (strcmp(given[5], "segment") == 0) preallocate(file, records * bytes);
    double began = now();
    off_t at = 0;
    for (long done = 0; done < records; done += per_commit) {
        for (long each = 0; each < per_commit; each++) {
            char *line = lines + each * bytes;
            int used = snprintf(line, bytes, "{\"sequence\":%ld,\"payload\":\"", done + each + 1);
            memset(line + used, 'x', bytes - used - 3);
            memcpy(line + bytes - 3, "\"}\n", 3);
        }
        if (pwrite(file, lines, lot, at) != (ssize_t)lot) die("pwrite");
        if (fdatasync(file) != 0) die("fdatasync");
        at += lot;
    }
    printf("%.9f\n", now() - began);
    return 0;
}
