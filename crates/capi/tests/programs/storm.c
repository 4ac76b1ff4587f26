/* Threads that write, read, cut and punch one file each, compare it with memory, and share a
 * directory and a log. Arguments: an image with a file system, seconds, a seed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "checks.h"

enum { THREADS = 4, SIZE = 1 << 20, RECORD = 64 };

static extant_fs *fs;
static extant_file *records;
static time_t end;
static unsigned long long seed;

struct worker {
    pthread_t thread;
    unsigned long long random;
    int number;
    long long rounds;
    unsigned char *content; /* SIZE bytes, zero behind size */
    size_t size;
};

static unsigned long long next(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

static void write_some(struct worker *worker, extant_file *file, size_t pos, size_t len)
{
    for (size_t i = 0; i < len; i++)
        worker->content[pos + i] = (unsigned char)(next(worker) >> 8);
    size_t cut = len / 3;
    struct iovec parts[2] = {{worker->content + pos, cut}, {worker->content + pos + cut, len - cut}};
    EQUAL(extant_pwritev(file, parts, 2, pos), (ssize_t)len);
    if (pos + len > worker->size)
        worker->size = pos + len;
}

static void compare(struct worker *worker, extant_file *file, size_t pos, size_t len)
{
    size_t there = pos < worker->size ? worker->size - pos : 0;
    there = there < len ? there : len;
    unsigned char *found = malloc(len);
    EQUAL(extant_pread(file, found, len, pos), (ssize_t)there);
    OK(memcmp(found, worker->content + pos, there));
    free(found);
}

static void names(struct worker *worker)
{
    char name[64], other[80];
    extant_file *file;
    struct extant_stat stat;
    snprintf(name, sizeof name, "/names/%d-%llu", worker->number, next(worker) % 8);
    snprintf(other, sizeof other, "%s.new", name);
    OK(extant_create(fs, name, 0644, &file));
    OK(extant_rename(fs, name, other, 0));
    OK(extant_fstat(file, &stat));
    EQUAL(stat.nlink, 1);
    OK(extant_unlink(fs, other));
    OK(extant_close(file));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    char name[64];
    extant_file *file;
    snprintf(name, sizeof name, "/file%d", worker->number);
    OK(extant_create(fs, name, 0644, &file));
    do {
        size_t pos = next(worker) % (SIZE - 1), len = 1 + next(worker) % (SIZE - pos);
        len = len > 100000 ? 100000 : len;
        switch (next(worker) % 8) {
        case 0: case 1: case 2:
            write_some(worker, file, pos, len);
            break;
        case 3:
            OK(extant_ftruncate(file, pos));
            memset(worker->content + pos, 0, SIZE - pos);
            worker->size = pos;
            break;
        case 4:
            OK(extant_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, pos, len));
            memset(worker->content + pos, 0, len);
            break;
        case 5:
            names(worker);
            break;
        case 6: {
            char record[RECORD];
            memset(record, '0' + worker->number, sizeof record);
            EQUAL(extant_write(records, record, sizeof record), RECORD);
            break;
        }
        default:
            OK(next(worker) % 16 ? 0 : extant_fdatasync(file));
        }
        compare(worker, file, pos, len);
        worker->rounds++;
    } while (time(NULL) < end || worker->rounds < 200);
    compare(worker, file, 0, SIZE);
    OK(extant_close(file));
    return NULL;
}

/* Each record of the shared log is whole. */
static void check_records(void)
{
    extant_file *file;
    char record[RECORD];
    OK(extant_open(fs, "/records", O_RDONLY, 0, &file));
    ssize_t count;
    while ((count = extant_read(file, record, sizeof record)) > 0) {
        EQUAL(count, RECORD);
        for (int i = 1; i < RECORD; i++)
            EQUAL(record[i], record[0]);
    }
    OK(count);
    OK(extant_close(file));
}

int main(int argc, char **argv)
{
    EQUAL(argc, 4);
    static struct worker workers[THREADS];
    end = time(NULL) + atoi(argv[2]);
    seed = strtoull(argv[3], NULL, 10);
    OK(extant_mount(argv[1], EXTANT_WRITE, NULL, &fs));
    OK(extant_mkdir(fs, "/names", 0755));
    OK(extant_open(fs, "/records", O_WRONLY | O_CREAT | O_APPEND, 0644, &records));
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].random = seed * THREADS + i + 1;
        workers[i].content = calloc(1, SIZE);
        OK(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    long long rounds = 0;
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(workers[i].thread, NULL));
        rounds += workers[i].rounds;
    }
    check_records();
    OK(extant_close(records));
    OK(extant_unmount(fs));
    OK(extant_mount(argv[1], 0, NULL, &fs));
    for (int i = 0; i < THREADS; i++) {
        char name[64];
        extant_file *file;
        snprintf(name, sizeof name, "/file%d", i);
        OK(extant_open(fs, name, O_RDONLY, 0, &file));
        compare(&workers[i], file, 0, SIZE);
        OK(extant_close(file));
        free(workers[i].content);
    }
    OK(extant_unmount(fs));
    printf("%lld rounds of %d threads\n", rounds, THREADS);
    return 0;
}
