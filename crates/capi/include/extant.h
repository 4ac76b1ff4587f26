/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Extant: ext4 images and disks inside of a process. See extant(3).
 *
 * Results. A call returns 0, or a count or a position, or a negative errno. extant_error() has the
 * words of the calling thread's last failure.
 *
 * Pointers. A null pointer where a value is needed gives -EFAULT. Strings end with NUL and have at
 * most 4095 bytes. Paths begin at the root of the file system, with or without a slash; symbolic
 * links are followed inside of it.
 *
 * Threads. Every handle may be used by many threads at once. A call that takes a handle away
 * (extant_unmount, extant_close, extant_closedir, extant_queue_close) must be the only one on it.
 * Open files, listings and queues outlive their file system: their calls then return -EIO, and they
 * still have to be closed. The image stays in use until they are.
 *
 * Permissions. They are set and kept, and not checked: a process that can open the image can read
 * and write all of it. New files belong to root; the umask is 022.
 */
#ifndef EXTANT_H
#define EXTANT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mounted file system, an open regular file, a listing, a queue of direct requests. */
typedef struct extant_fs extant_fs;
typedef struct extant_file extant_file;
typedef struct extant_dir extant_dir;
typedef struct extant_queue extant_queue;

/* extant_mount: the file system may be changed. Without it, the image is never written. */
#define EXTANT_WRITE 1u
/* extant_mkfs: what is there may be overwritten. */
#define EXTANT_MKFS_FORCE 1u
/* extant_chown, extant_utimens: a symbolic link itself is changed. */
#define EXTANT_NOFOLLOW 1u
/* Operations of requests. */
#define EXTANT_READ_OP 0u
#define EXTANT_WRITE_OP 1u

/* A new file system. Zero, or null, leaves a choice to the library, as mke2fs would make it. */
struct extant_mkfs_options {
    size_t struct_size; /* sizeof(struct extant_mkfs_options) */
    uint32_t flags; /* EXTANT_MKFS_FORCE */
    uint32_t block_size; /* a power of two from 1024 to 65536 */
    uint32_t inode_size;
    uint32_t journal_mib;
    uint64_t bytes_per_inode;
    uint64_t inodes;
    const char *label; /* at most 16 bytes */
    const char *features; /* as mke2fs -O takes them: "^has_journal,mmp" */
    const uint8_t *uuid; /* 16 bytes */
    uint32_t root_uid; /* owner of the root directory */
    uint32_t root_gid;
};

struct extant_statfs {
    uint32_t block_size; /* bytes */
    uint32_t name_max;
    uint64_t blocks;
    uint64_t blocks_free;
    uint64_t blocks_available; /* without the reserve for root */
    uint64_t inodes;
    uint64_t inodes_free;
    uint8_t uuid[16];
};

struct extant_stat {
    uint64_t ino;
    uint64_t size; /* bytes */
    uint64_t blocks; /* units of 512 bytes */
    uint32_t mode; /* kind and permissions, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev; /* of a device node: major in bits 8-19, minor in 0-7 and 20-31 */
    uint32_t block_size; /* bytes */
    uint32_t generation; /* changes each time the inode number is used again */
    uint32_t has_btime; /* 0 where inodes have no room for the time of creation */
    struct timespec atime;
    struct timespec mtime;
    struct timespec ctime;
    struct timespec btime;
};

struct extant_dirent {
    uint64_t ino;
    uint32_t kind; /* DT_REG, DT_DIR ... of readdir(3) */
    uint32_t name_len;
    char name[256]; /* with its NUL */
};

struct extant_request {
    extant_file *file; /* of the queue's file system */
    void *buf;
    size_t len; /* at most 64 MiB */
    int64_t pos;
    uint64_t tag; /* comes back with the result */
    uint32_t op; /* EXTANT_READ_OP or EXTANT_WRITE_OP */
};

struct extant_completion {
    uint64_t tag;
    int64_t result; /* bytes, or a negative errno */
};

/* The version of the library, "MAJOR.MINOR.PATCH". */
const char *extant_version(void);
/* Copies the message of this thread's last failure, cut to size bytes with its NUL. Returns the
 * length of the whole message; with size 0 only that. */
ssize_t extant_error(char *buf, size_t size);
/* As extant_error(), with the kind of damage that this thread's last failed call found, such as
 * "ExtentNode.BadMagic"; empty if it failed for another reason. The kinds are those that the
 * command prints with --json. */
ssize_t extant_error_kind(char *buf, size_t size);

/* Makes a file system on a block device, or on a file, which is made if it is missing. A size of 0
 * takes all of what is there. options may be null. -EEXIST: the device holds something already. */
int extant_mkfs(const char *image, uint64_t size, const struct extant_mkfs_options *options);
/* Mounts an image file or a block device. options are Linux's mount options ("commit=1,noload"), or
 * null. -EBUSY: in use elsewhere. */
int extant_mount(const char *image, uint32_t flags, const char *options, extant_fs **fs);
/* Writes and flushes everything, marks the image clean and closes it. The handle is gone, whatever
 * the result: after a failure the next mount replays the journal. */
int extant_unmount(extant_fs *fs);
/* Makes everything durable that was done before the call. */
int extant_sync(extant_fs *fs);
int extant_statfs(extant_fs *fs, struct extant_statfs *totals);

/* Opens a regular file. flags are those of open(2): an access mode and O_CREAT, O_EXCL, O_TRUNC,
 * O_APPEND, O_DIRECT, O_DSYNC, O_SYNC; O_CLOEXEC and O_LARGEFILE change nothing. */
int extant_open(extant_fs *fs, const char *path, int flags, uint32_t mode, extant_file **file);
/* As extant_open with O_RDWR | O_CREAT | O_TRUNC. */
int extant_create(extant_fs *fs, const char *path, uint32_t mode, extant_file **file);
/* Closes a file. Nothing is made durable by it. */
int extant_close(extant_file *file);

/* As their namesakes of POSIX. One call moves up to 0x7ffff000 bytes. A read returns less than asked
 * for only at the end of the file, a write only if space ran out. Writes to a file opened with
 * O_APPEND go to its end. Vectors have up to 1024 buffers, and each call on them is one operation. */
ssize_t extant_pread(extant_file *file, void *buf, size_t len, int64_t pos);
ssize_t extant_pwrite(extant_file *file, const void *buf, size_t len, int64_t pos);
ssize_t extant_preadv(extant_file *file, const struct iovec *vectors, int count, int64_t pos);
ssize_t extant_pwritev(extant_file *file, const struct iovec *vectors, int count, int64_t pos);
/* At the file's position, which they move. */
ssize_t extant_read(extant_file *file, void *buf, size_t len);
ssize_t extant_write(extant_file *file, const void *buf, size_t len);
ssize_t extant_readv(extant_file *file, const struct iovec *vectors, int count);
ssize_t extant_writev(extant_file *file, const struct iovec *vectors, int count);
/* With SEEK_DATA and SEEK_HOLE. */
int64_t extant_lseek(extant_file *file, int64_t offset, int whence);
/* Content and attributes are durable on return. A failed writeback is reported once. */
int extant_fsync(extant_file *file);
/* Content is durable, and the attributes that are needed to read it back. */
int extant_fdatasync(extant_file *file);
int extant_ftruncate(extant_file *file, int64_t size);
/* mode is 0 or FALLOC_FL_KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, COLLAPSE_RANGE,
 * INSERT_RANGE of fallocate(2). */
int extant_fallocate(extant_file *file, int mode, int64_t pos, int64_t len);
int extant_fstat(extant_file *file, struct extant_stat *stat);
int extant_fchmod(extant_file *file, uint32_t mode);
int extant_fchown(extant_file *file, uint32_t uid, uint32_t gid);
int extant_futimens(extant_file *file, const struct timespec times[2]);

int extant_opendir(extant_fs *fs, const char *path, extant_dir **dir);
/* 1 with an entry, 0 at the end. "." and ".." are left out. */
int extant_readdir(extant_dir *dir, struct extant_dirent *entry);
int extant_closedir(extant_dir *dir);

int extant_stat(extant_fs *fs, const char *path, struct extant_stat *stat);
int extant_lstat(extant_fs *fs, const char *path, struct extant_stat *stat);
int extant_chmod(extant_fs *fs, const char *path, uint32_t mode);
/* An id of (uint32_t)-1 stays as it is. flags: 0 or EXTANT_NOFOLLOW. */
int extant_chown(extant_fs *fs, const char *path, uint32_t uid, uint32_t gid, uint32_t flags);
/* Access and modification time, with UTIME_NOW and UTIME_OMIT; null for now. */
int extant_utimens(extant_fs *fs, const char *path, const struct timespec times[2], uint32_t flags);
int extant_truncate(extant_fs *fs, const char *path, int64_t size);

int extant_mkdir(extant_fs *fs, const char *path, uint32_t mode);
int extant_rmdir(extant_fs *fs, const char *path);
int extant_unlink(extant_fs *fs, const char *path);
/* A device node, pipe, socket or empty file: the kind is in mode, as in mknod(2). */
int extant_mknod(extant_fs *fs, const char *path, uint32_t mode, uint32_t rdev);
/* flags are those of renameat2(2). */
int extant_rename(extant_fs *fs, const char *from, const char *to, uint32_t flags);
int extant_link(extant_fs *fs, const char *original, const char *link);
int extant_symlink(extant_fs *fs, const char *target, const char *link);
/* The target without a NUL, and its length; with size 0 only the length. -ERANGE: it does not fit. */
ssize_t extant_readlink(extant_fs *fs, const char *path, char *buf, size_t size);

/* Of what the path leads to. With size 0 only the length is returned; -ERANGE: it does not fit. */
ssize_t extant_getxattr(extant_fs *fs, const char *path, const char *name, void *value, size_t size);
/* The names, each with its NUL. */
ssize_t extant_listxattr(extant_fs *fs, const char *path, char *names, size_t size);
/* flags: 0, XATTR_CREATE or XATTR_REPLACE. */
int extant_setxattr(extant_fs *fs, const char *path, const char *name, const void *value, size_t size, int flags);
int extant_removexattr(extant_fs *fs, const char *path, const char *name);

/* Up to depth (1 to 4096) direct requests in flight, past the page cache. Results come in any order.
 * Calls on one queue run one after the other. */
int extant_queue_open(extant_fs *fs, uint32_t depth, extant_queue **queue);
/* The memory of a read is the queue's until its result is taken; that of a write until this
 * returns. -EXDEV: the file is of another file system. */
int extant_queue_submit(extant_queue *queue, const struct extant_request *request);
/* Waits until min requests have finished, or as many as are in flight. Returns the number of
 * results, up to max. */
int extant_queue_wait(extant_queue *queue, uint32_t min, struct extant_completion *results, uint32_t max);
/* Waits for what is in flight. Results that were not taken are lost. */
int extant_queue_close(extant_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
