/* Null pointers, lengths and strings that no call accepts: each is refused by its errno, and nothing
 * is read or written. Arguments: an image with a file system. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "checks.h"

#define FAULT(call) EQUAL(call, -EFAULT)

static void nulls(extant_fs *fs, extant_file *file, extant_dir *dir, extant_queue *queue)
{
    char buf[16];
    struct extant_stat stat;
    struct extant_request request = {file, NULL, 16, 0, 0, EXTANT_READ_OP};
    struct iovec vector = {NULL, 5};
    FAULT(extant_error(NULL, 5));
    FAULT(extant_mkfs(NULL, 0, NULL));
    FAULT(extant_mount(NULL, 0, NULL, &fs));
    FAULT(extant_mount("x", 0, NULL, NULL));
    FAULT(extant_unmount(NULL));
    FAULT(extant_sync(NULL));
    FAULT(extant_statfs(NULL, NULL) & extant_statfs(fs, NULL));
    FAULT(extant_open(NULL, "/x", O_RDONLY, 0, &file));
    FAULT(extant_open(fs, NULL, O_RDONLY, 0, &file));
    FAULT(extant_open(fs, "/x", O_RDONLY, 0, NULL));
    FAULT(extant_create(fs, "/x", 0, NULL));
    FAULT(extant_close(NULL));
    FAULT(extant_pread(NULL, buf, 1, 0));
    FAULT(extant_pread(file, NULL, 1, 0));
    FAULT(extant_pwrite(file, NULL, 1, 0));
    FAULT(extant_read(file, NULL, 1));
    FAULT(extant_write(file, NULL, 1));
    FAULT(extant_preadv(file, NULL, 1, 0));
    FAULT(extant_pwritev(file, &vector, 1, 0));
    FAULT(extant_readv(file, &vector, 1));
    FAULT(extant_writev(file, NULL, 1));
    FAULT(extant_lseek(NULL, 0, SEEK_SET));
    FAULT(extant_fsync(NULL) & extant_fdatasync(NULL) & extant_ftruncate(NULL, 0));
    FAULT(extant_fallocate(NULL, 0, 0, 1) & extant_fstat(NULL, &stat) & extant_fstat(file, NULL));
    FAULT(extant_fchmod(NULL, 0) & extant_fchown(NULL, 0, 0) & extant_futimens(NULL, NULL));
    FAULT(extant_opendir(fs, "/", NULL));
    FAULT(extant_opendir(fs, NULL, &dir));
    FAULT(extant_readdir(NULL, NULL) & extant_readdir(dir, NULL) & extant_closedir(NULL));
    FAULT(extant_stat(fs, NULL, &stat) & extant_stat(fs, "/", NULL) & extant_lstat(fs, "/", NULL));
    FAULT(extant_chmod(fs, NULL, 0) & extant_chown(fs, NULL, 0, 0, 0));
    FAULT(extant_utimens(fs, NULL, NULL, 0) & extant_truncate(fs, NULL, 0));
    FAULT(extant_mkdir(fs, NULL, 0) & extant_rmdir(fs, NULL) & extant_unlink(fs, NULL));
    FAULT(extant_mknod(fs, NULL, 0, 0) & extant_rename(fs, "/x", NULL, 0));
    FAULT(extant_link(fs, NULL, "/x") & extant_symlink(fs, NULL, "/x"));
    FAULT(extant_readlink(fs, NULL, buf, 1));
    FAULT(extant_getxattr(fs, "/", NULL, buf, 1));
    FAULT(extant_listxattr(fs, NULL, buf, 1));
    FAULT(extant_setxattr(fs, "/", "user.a", NULL, 1, 0));
    FAULT(extant_removexattr(fs, "/", NULL));
    FAULT(extant_queue_open(fs, 1, NULL));
    FAULT(extant_queue_submit(queue, NULL) & extant_queue_submit(queue, &request));
    FAULT(extant_queue_wait(queue, 0, NULL, 1));
    FAULT(extant_queue_close(NULL));
}

static void lengths(extant_fs *fs, extant_file *file)
{
    char buf[16], path[5000];
    struct iovec two[2] = {{buf, SIZE_MAX}, {buf, 2}};
    EQUAL(extant_pread(file, buf, SIZE_MAX, 0), -EINVAL);
    EQUAL(extant_pwrite(file, buf, (size_t)1 << 63, 0), -EINVAL);
    EQUAL(extant_pread(file, buf, 16, -1), -EINVAL);
    EQUAL(extant_pwrite(file, buf, 16, INT64_MIN), -EINVAL);
    EQUAL(extant_pwrite(file, buf, 16, INT64_MAX), -EFBIG);
    EQUAL(extant_preadv(file, two, 2, 0), -EINVAL);
    EQUAL(extant_preadv(file, two, -1, 0), -EINVAL);
    EQUAL(extant_pwritev(file, two, 1025, 0), -EINVAL);
    EQUAL(extant_pwrite(file, NULL, 0, 0), 0);
    EQUAL(extant_ftruncate(file, -1), -EINVAL);
    EQUAL(extant_fallocate(file, 0, INT64_MAX, INT64_MAX), -EFBIG);
    EQUAL(extant_fallocate(file, 0, 0, -5), -EINVAL);
    EQUAL(extant_lseek(file, 0, 9), -EINVAL);
    EQUAL(extant_setxattr(fs, "/", "user.a", buf, SIZE_MAX, 0), -EINVAL);
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = 0;
    EQUAL(extant_mkdir(fs, path, 0), -ENAMETOOLONG);
    /* A string without an end in the bounds of a path is not read behind them. */
    char *open_end = malloc(4096);
    memset(open_end, 'a', 4096);
    EQUAL(extant_unlink(fs, open_end), -ENAMETOOLONG);
    free(open_end);
    path[256] = 0;
    EQUAL(extant_mkdir(fs, path, 0), -ENAMETOOLONG);
    EQUAL(extant_mkdir(fs, "", 0), -ENOENT);
    EQUAL(extant_mount("x", 8, NULL, &fs), -EINVAL);
    EQUAL(extant_mount("x", 0, "\xff", &fs), -EINVAL);
}

int main(int argc, char **argv)
{
    EQUAL(argc, 2);
    extant_fs *fs;
    extant_file *file;
    extant_dir *dir;
    extant_queue *queue;
    OK(extant_mount(argv[1], EXTANT_WRITE, NULL, &fs));
    OK(extant_create(fs, "/file", 0644, &file));
    OK(extant_opendir(fs, "/", &dir));
    OK(extant_queue_open(fs, 4, &queue));
    nulls(fs, file, dir, queue);
    lengths(fs, file);
    OK(extant_queue_close(queue));
    OK(extant_closedir(dir));
    OK(extant_close(file));
    OK(extant_unmount(fs));
    puts("every mistake was refused");
    return 0;
}
