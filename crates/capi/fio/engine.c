/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * fio's jobs on an image, inside of fio's process.
 *
 *   EXTANT_FIO_IMAGE=disk.img fio --ioengine=external:/usr/lib/extant/libextant-fio.so ...
 *
 * Built twice: libextant-fio.so goes through Extant's page cache, one request after the other, as
 * fio's psync does; libextant-fio-direct.so (EXTANT_FIO_DIRECT) keeps iodepth requests in flight
 * past the cache, as libaio does with direct=1. fio's option direct= changes neither.
 *
 * A file of a job is the file of that path in the image; missing directories are made. A job must
 * give size=. A file is laid out, to the job's end, by the first request that reads past its end.
 * Jobs that share an image share a mount, so they have to be threads (thread=1). EXTANT_FIO_OPTIONS
 * has mount options.
 *
 * fio has no header for engines outside of its source. The structures below hold what fio 3.33 has
 * on 64-bit Linux, up to the last field that is used here. fio compares the version of the engine's
 * table, and init() the version of fio, so that another fio is refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

#define FIO_VERSION "fio-3.33"
#define TABLE_VERSION 31

/* Flags of an engine. */
enum {
    SYNCHRONOUS = 1 << 0,
    NO_HOST_FILE = 1 << 2, /* fio leaves sizes, layout and caches to the engine */
    NO_EXTEND = 1 << 3,
    NO_DISK_STATISTICS = 1 << 4,
    NO_OFFLOAD = 1 << 15 /* the thread of the job makes all calls */
};

/* What queue() returns. */
enum { COMPLETED = 0, QUEUED = 1, BUSY = 2 };

/* What a request does. */
enum { DO_READ = 0, DO_WRITE = 1, DO_TRIM = 2, DO_SYNC = 3, DO_DATASYNC = 4 };

struct job; /* fio's thread_data: not looked into */

struct job_file {
    void *list[2];
    int kind;
    int fd;
    int shadow_fd;
    unsigned int major, minor;
    int number;
    const char *name;
    uint64_t host_len;
    uint64_t begin; /* of the job's part of the file */
    uint64_t len;   /* of that part */
};

struct request {
    struct timespec begun, issued;
    struct job_file *file;
    unsigned int flags;
    int direction;
    int accounted_as;
    unsigned short generation, priority, priority_index;
    unsigned long long whole_len;
    unsigned long long offset;
    unsigned long long verify_offset;
    void *whole;
    uint64_t seed;
    void *buf;
    unsigned long long len;
    unsigned long long filled;
    void *piece;
    unsigned long long missing;
    unsigned int error;
};

struct engine {
    void *list[2];
    const char *name;
    int version;
    int flags;
    void *library;
    int (*setup)(struct job *);
    int (*init)(struct job *);
    int (*after_init)(struct job *);
    int (*prepare)(struct job *, struct request *);
    int (*queue)(struct job *, struct request *);
    int (*commit)(struct job *);
    int (*get_events)(struct job *, unsigned int, unsigned int, const struct timespec *);
    struct request *(*event)(struct job *, int);
    char *(*describe_error)(struct request *);
    int (*cancel)(struct job *, struct request *);
    void (*clean_up)(struct job *);
    int (*open_file)(struct job *, struct job_file *);
    int (*close_file)(struct job *, struct job_file *);
    int (*invalidate)(struct job *, struct job_file *);
    int (*unlink_file)(struct job *, struct job_file *);
    int (*get_file_size)(struct job *, struct job_file *);
    int (*prepopulate_file)(struct job *, struct job_file *);
    void (*terminate)(struct job *);
    int (*allocate_memory)(struct job *, size_t);
    void (*free_memory)(struct job *);
    int (*init_request)(struct job *, struct request *);
    void (*free_request)(struct job *, struct request *);
    void *zones[4];
    int option_struct_size;
    void *options;
};

_Static_assert(offsetof(struct job_file, name) == 40, "fio's file");
_Static_assert(offsetof(struct job_file, len) == 64, "fio's file");
_Static_assert(offsetof(struct request, len) == 112, "fio's request");
_Static_assert(offsetof(struct request, error) == 144, "fio's request");
_Static_assert(offsetof(struct engine, option_struct_size) == 248, "fio's table");

/* The mount that all jobs of this process share. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static extant_fs *mounted;
static unsigned int users;
/* Some job has begun a write. Set under the lock, which a layout holds. */
static _Atomic int has_written;

struct open_file {
    const struct job_file *job_file;
    extant_file *file;
    uint64_t len; /* at least so long it is */
};

/* The state of this thread's job. */
static __thread struct open_file *files;
static __thread size_t file_count;
static __thread extant_queue *queue;
static __thread struct extant_completion *results;
static __thread unsigned int result_room;
static __thread int has_mount;

static int failed(const char *what, int error)
{
    char words[512] = "";
    extant_error(words, sizeof words);
    fprintf(stderr, "extant: %s: %s\n", what, words[0] ? words : strerror(-error));
    return -error;
}

static int mount_image(void)
{
    const char *image = getenv("EXTANT_FIO_IMAGE");
    int error = 0;
    if (!image || !*image) {
        fprintf(stderr, "extant: EXTANT_FIO_IMAGE names no image\n");
        return EINVAL;
    }
    pthread_mutex_lock(&lock);
    if (users == 0)
        error = extant_mount(image, EXTANT_WRITE, getenv("EXTANT_FIO_OPTIONS"), &mounted);
    if (error == 0) {
        users++;
        has_mount = 1;
    }
    pthread_mutex_unlock(&lock);
    if (error == -EBUSY)
        fprintf(stderr, "extant: jobs on one image must be threads of one process: thread=1\n");
    return error ? failed(image, error) : 0;
}

static int init(struct job *job)
{
    const char *running = dlsym(RTLD_DEFAULT, "fio_version_string");
    (void)job;
    if (!running || strcmp(running, FIO_VERSION) != 0) {
        fprintf(stderr, "extant: this is %s, and the engine knows %s alone\n",
                running ? running : "an unknown fio", FIO_VERSION);
        return ENOTSUP;
    }
    int error = mount_image();
#ifdef EXTANT_FIO_DIRECT
    if (!error)
        error = -extant_queue_open(mounted, 4096, &queue);
#endif
    return error;
}

static void close_at(size_t at)
{
    extant_close(files[at].file);
    files[at] = files[--file_count];
}

static void clean_up(struct job *job)
{
    (void)job;
    if (queue)
        extant_queue_close(queue);
    queue = NULL;
    while (file_count)
        close_at(file_count - 1);
    free(files);
    free(results);
    files = NULL;
    results = NULL;
    result_room = 0;
    pthread_mutex_lock(&lock);
    /* fio also calls this after an init() that failed. */
    if (has_mount && --users == 0) {
        int error = extant_unmount(mounted);
        mounted = NULL;
        if (error)
            failed("unmount", error);
    }
    has_mount = 0;
    pthread_mutex_unlock(&lock);
}

/* Makes the directories above a path. */
static int make_parents(const char *path)
{
    char *part = strdup(path);
    if (!part)
        return -ENOMEM;
    int error = 0;
    for (char *at = part + 1; *at && (!error || error == -EEXIST); at++) {
        if (*at != '/')
            continue;
        *at = 0;
        error = extant_mkdir(mounted, part, 0755);
        *at = '/';
    }
    free(part);
    return error == -EEXIST ? 0 : error;
}

static int open_file(struct job *job, struct job_file *job_file)
{
    extant_file *file;
    int flags = O_RDWR | O_CREAT;
#ifdef EXTANT_FIO_DIRECT
    flags |= O_DIRECT;
#endif
    (void)job;
    int error = make_parents(job_file->name);
    if (!error)
        error = extant_open(mounted, job_file->name, flags, 0644, &file);
    if (error)
        return failed(job_file->name, error);
    struct open_file *more = realloc(files, (file_count + 1) * sizeof *files);
    if (!more) {
        extant_close(file);
        return ENOMEM;
    }
    files = more;
    files[file_count++] = (struct open_file){job_file, file, 0};
    return 0;
}

static struct open_file *opened(const struct job_file *job_file)
{
    for (size_t at = 0; at < file_count; at++)
        if (files[at].job_file == job_file)
            return &files[at];
    return NULL;
}

/* Extends a file to the end of the job's part. It gets data, and no hole, unless a job has written:
 * that may be in flight, behind the file's end of now. */
static int lay_out(struct open_file *open, const struct job_file *job_file)
{
    enum { PIECE = 1 << 20 };
    const uint64_t end = job_file->begin + job_file->len;
    struct extant_stat stat;
    int error = extant_fstat(open->file, &stat);
    if (error)
        return error;
    open->len = stat.size;
    if (open->len >= end)
        return 0;
    if (has_written)
        return extant_fallocate(open->file, 0, 0, (int64_t)end);
    void *piece = aligned_alloc(4096, PIECE);
    if (!piece)
        return -ENOMEM;
    memset(piece, 0xe4, PIECE);
    /* Direct writes are whole blocks. */
    uint64_t pos = (open->len + 4095) & ~4095ULL;
    int64_t done = 1;
    while (done > 0 && pos < end) {
        done = extant_pwrite(open->file, piece, PIECE, (int64_t)pos);
        pos += done > 0 ? (uint64_t)done : 0;
    }
    free(piece);
    if (done < 0)
        return (int)done;
    error = extant_ftruncate(open->file, (int64_t)end);
    return error ? error : extant_fdatasync(open->file);
}

/* The file of a request, which has what is to be read; NULL with the request's error. */
static extant_file *ready(struct request *request)
{
    struct open_file *open = opened(request->file);
    const uint64_t end = request->offset + request->len;
    int error = 0;
    if (request->direction == DO_WRITE && !has_written) {
        /* The first write waits until a layout, which another thread may be in, has ended. */
        pthread_mutex_lock(&lock);
        has_written = 1;
        pthread_mutex_unlock(&lock);
    }
    if (request->direction == DO_READ && end > open->len) {
        pthread_mutex_lock(&lock);
        error = lay_out(open, request->file);
        pthread_mutex_unlock(&lock);
    }
    if (error) {
        request->error = (unsigned int)failed(request->file->name, error);
        return NULL;
    }
    return open->file;
}

static int close_file(struct job *job, struct job_file *job_file)
{
    (void)job;
    for (size_t at = 0; at < file_count; at++)
        if (files[at].job_file == job_file) {
            close_at(at);
            break;
        }
    return 0;
}

static int unlink_file(struct job *job, struct job_file *job_file)
{
    (void)job;
    /* fio asks again at its end, when the image is unmounted and the file is gone. */
    if (!mounted)
        return 0;
    int error = extant_unlink(mounted, job_file->name);
    return error == -ENOENT ? 0 : -error;
}

/* The size stays unknown: fio takes the job's size=. */
static int get_file_size(struct job *job, struct job_file *job_file)
{
    (void)job;
    (void)job_file;
    return 0;
}

/* Notes the outcome of a request: bytes, or a negative errno. */
static void finish(struct request *request, int64_t outcome)
{
    if (outcome < 0)
        request->error = (unsigned int)-outcome;
    else
        request->missing = request->len - (unsigned long long)outcome;
}

/* Does a request that is done when the call returns; 1 if it is none of those. */
static int do_now(struct request *request, extant_file *file)
{
    int error;
    switch (request->direction) {
    case DO_SYNC:
        error = extant_fsync(file);
        break;
    case DO_DATASYNC:
        error = extant_fdatasync(file);
        break;
    case DO_TRIM:
        error = extant_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 (int64_t)request->offset, (int64_t)request->len);
        break;
    case DO_READ:
    case DO_WRITE:
        return 1;
    default:
        error = -EINVAL;
    }
    if (error)
        request->error = (unsigned int)-error;
    return 0;
}

#ifdef EXTANT_FIO_DIRECT

static int submit(struct job *job, struct request *request)
{
    (void)job;
    extant_file *file = ready(request);
    if (!file || !do_now(request, file))
        return COMPLETED;
    struct extant_request one = {
        file,
        request->buf,
        request->len,
        (int64_t)request->offset,
        (uint64_t)(uintptr_t)request,
        request->direction == DO_READ ? EXTANT_READ_OP : EXTANT_WRITE_OP,
    };
    int error = extant_queue_submit(queue, &one);
    if (error) {
        request->error = (unsigned int)-error;
        return COMPLETED;
    }
    return QUEUED;
}

static int get_events(struct job *job, unsigned int min, unsigned int max, const struct timespec *t)
{
    (void)job;
    (void)t;
    if (max > result_room) {
        struct extant_completion *more = realloc(results, max * sizeof *results);
        if (!more)
            return -ENOMEM;
        results = more;
        result_room = max;
    }
    return extant_queue_wait(queue, min, results, max);
}

static struct request *event(struct job *job, int number)
{
    (void)job;
    struct request *request = (struct request *)(uintptr_t)results[number].tag;
    finish(request, results[number].result);
    return request;
}

#else

static int submit(struct job *job, struct request *request)
{
    (void)job;
    extant_file *file = ready(request);
    if (!file || !do_now(request, file))
        return COMPLETED;
    int64_t pos = (int64_t)request->offset;
    if (request->direction == DO_READ)
        finish(request, extant_pread(file, request->buf, request->len, pos));
    else
        finish(request, extant_pwrite(file, request->buf, request->len, pos));
    return COMPLETED;
}

#endif

/* The name that fio looks for. */
struct engine ioengine = {
    .version = TABLE_VERSION,
    .init = init,
    .queue = submit,
#ifdef EXTANT_FIO_DIRECT
    .name = "extant-direct",
    .flags = NO_HOST_FILE | NO_EXTEND | NO_DISK_STATISTICS | NO_OFFLOAD,
    .get_events = get_events,
    .event = event,
#else
    .name = "extant",
    .flags = SYNCHRONOUS | NO_HOST_FILE | NO_EXTEND | NO_DISK_STATISTICS | NO_OFFLOAD,
#endif
    .clean_up = clean_up,
    .open_file = open_file,
    .close_file = close_file,
    .unlink_file = unlink_file,
    .get_file_size = get_file_size,
};
