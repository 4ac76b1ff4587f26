/* Each call of the interface once, with its outcome. Arguments: an image to be made. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "checks.h"

static extant_fs *fs;

static void files(void)
{
    extant_file *file;
    char buf[64] = "";
    OK(extant_create(fs, "/a", 0640, &file));
    EQUAL(extant_write(file, "hello", 5), 5);
    EQUAL(extant_pwrite(file, "HE", 2, 0), 2);
    EQUAL(extant_pread(file, buf, sizeof buf, 1), 4);
    OK(memcmp(buf, "Ello", 4));
    EQUAL(extant_lseek(file, 0, SEEK_CUR), 5);
    EQUAL(extant_lseek(file, -2, SEEK_END), 3);
    EQUAL(extant_read(file, buf, sizeof buf), 2);
    OK(memcmp(buf, "lo", 2));
    EQUAL(extant_read(file, buf, sizeof buf), 0);
    EQUAL(extant_lseek(file, -9, SEEK_CUR), -EINVAL);
    struct iovec out[2] = {{"head", 4}, {"body", 4}};
    EQUAL(extant_pwritev(file, out, 2, 100), 8);
    char head[3], rest[16];
    struct iovec in[2] = {{head, sizeof head}, {rest, sizeof rest}};
    EQUAL(extant_preadv(file, in, 2, 100), 8);
    OK(memcmp(head, "hea", 3) | memcmp(rest, "dbody", 5));
    EQUAL(extant_lseek(file, 200, SEEK_SET), 200);
    EQUAL(extant_writev(file, out, 2), 8);
    EQUAL(extant_lseek(file, 200, SEEK_SET), 200);
    EQUAL(extant_readv(file, in, 2), 8);
    OK(extant_fsync(file));
    OK(extant_fdatasync(file));
    OK(extant_ftruncate(file, 3 << 20));
    OK(extant_fallocate(file, 0, 1 << 20, 4096));
    OK(extant_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    EQUAL(extant_fallocate(file, 0x40000, 0, 4096), -EOPNOTSUPP);
    EQUAL(extant_pwrite(file, "data", 4, 2 << 20), 4);
    EQUAL(extant_lseek(file, 1 << 20 | 4096, SEEK_DATA), 2 << 20);
    EQUAL(extant_lseek(file, 2 << 20, SEEK_HOLE), (2 << 20) + 4096);
    struct extant_stat stat;
    OK(extant_fchmod(file, 0600));
    OK(extant_fchown(file, 7, (uint32_t)-1));
    struct timespec times[2] = {{1000000000, 5}, {0, UTIME_OMIT}};
    OK(extant_futimens(file, times));
    OK(extant_fstat(file, &stat));
    EQUAL(stat.size, 3 << 20);
    EQUAL(stat.mode, S_IFREG | 0600);
    EQUAL(stat.uid, 7);
    EQUAL(stat.gid, 0);
    EQUAL(stat.atime.tv_sec, 1000000000);
    EQUAL(stat.atime.tv_nsec, 5);
    TRUE(stat.mtime.tv_sec > 1000000000);
    TRUE(stat.has_btime);
    OK(extant_close(file));
    OK(extant_truncate(fs, "/a", 5));
    OK(extant_stat(fs, "/a", &stat));
    EQUAL(stat.size, 5);
}

static void opening(void)
{
    extant_file *file, *other;
    char buf[8];
    EQUAL(extant_open(fs, "/b", O_RDONLY, 0, &file), -ENOENT);
    OK(extant_open(fs, "/b", O_WRONLY | O_CREAT | O_EXCL, 0666, &file));
    EQUAL(extant_open(fs, "/b", O_WRONLY | O_CREAT | O_EXCL, 0666, &other), -EEXIST);
    EQUAL(extant_read(file, buf, 1), -EBADF);
    EQUAL(extant_write(file, "12345678", 8), 8);
    OK(extant_close(file));
    struct extant_stat stat;
    OK(extant_stat(fs, "b", &stat));
    EQUAL(stat.mode, S_IFREG | 0644);
    OK(extant_open(fs, "/b", O_RDWR | O_APPEND | O_DSYNC, 0, &file));
    EQUAL(extant_lseek(file, 2, SEEK_SET), 2);
    EQUAL(extant_write(file, "9", 1), 1);
    EQUAL(extant_lseek(file, 0, SEEK_CUR), 9);
    struct iovec more[2] = {{"a", 1}, {"b", 1}};
    EQUAL(extant_writev(file, more, 2), 2);
    EQUAL(extant_pread(file, buf, 3, 8), 3);
    OK(memcmp(buf, "9ab", 3));
    OK(extant_close(file));
    OK(extant_open(fs, "/b", O_RDWR | O_TRUNC | O_APPEND | O_SYNC, 0, &file));
    OK(extant_fstat(file, &stat));
    EQUAL(stat.size, 0);
    OK(extant_close(file));
    EQUAL(extant_open(fs, "/b", O_RDONLY | O_TRUNC, 0, &file), -EINVAL);
    EQUAL(extant_open(fs, "/b", O_RDONLY | O_TMPFILE, 0, &file), -EINVAL);
    EQUAL(extant_open(fs, "/b", 3, 0, &file), -EINVAL);
    EQUAL(extant_open(fs, "/", O_RDONLY, 0, &file), -EISDIR);
}

static void names(void)
{
    struct extant_stat stat;
    char buf[64];
    OK(extant_mkdir(fs, "/d", 0777));
    EQUAL(extant_mkdir(fs, "/d", 0777), -EEXIST);
    OK(extant_link(fs, "/a", "/d/link"));
    OK(extant_symlink(fs, "../a", "/d/soft"));
    EQUAL(extant_readlink(fs, "/d/soft", buf, sizeof buf), 4);
    OK(memcmp(buf, "../a", 4));
    EQUAL(extant_readlink(fs, "/d/soft", buf, 3), -ERANGE);
    EQUAL(extant_readlink(fs, "/d/soft", NULL, 0), 4);
    EQUAL(extant_readlink(fs, "/a", buf, sizeof buf), -EINVAL);
    OK(extant_lstat(fs, "/d/soft", &stat));
    EQUAL(stat.mode & S_IFMT, S_IFLNK);
    OK(extant_stat(fs, "/d/soft", &stat));
    EQUAL(stat.nlink, 2);
    OK(extant_mknod(fs, "/d/null", S_IFCHR | 0666, 0x103));
    OK(extant_stat(fs, "/d/null", &stat));
    EQUAL(stat.rdev, 0x103);
    EQUAL(extant_mknod(fs, "/d/odd", 0170000, 0), -EINVAL);
    OK(extant_chmod(fs, "/d", 0700));
    OK(extant_chown(fs, "/d/soft", 8, 9, EXTANT_NOFOLLOW));
    OK(extant_lstat(fs, "/d/soft", &stat));
    EQUAL(stat.gid, 9);
    EQUAL(extant_chown(fs, "/d", 8, 9, 2), -EINVAL);
    OK(extant_utimens(fs, "/d", NULL, 0));
    struct timespec bad[2] = {{0, 1000000000}, {0, 0}};
    EQUAL(extant_utimens(fs, "/d", bad, 0), -EINVAL);
    OK(extant_rename(fs, "/d/link", "/moved", 0));
    EQUAL(extant_rename(fs, "/moved", "/a", 1), -EEXIST);
    EQUAL(extant_rename(fs, "/moved", "/a", 64), -EINVAL);
    EQUAL(extant_rmdir(fs, "/d"), -ENOTEMPTY);

    extant_dir *dir;
    struct extant_dirent entry;
    int seen = 0, found;
    OK(extant_opendir(fs, "/d", &dir));
    while ((found = extant_readdir(dir, &entry)) == 1) {
        EQUAL(strlen(entry.name), entry.name_len);
        if (strcmp(entry.name, "soft") == 0) {
            EQUAL(entry.kind, DT_LNK);
        } else {
            OK(strcmp(entry.name, "null"));
            EQUAL(entry.kind, DT_CHR);
        }
        seen++;
    }
    OK(found);
    EQUAL(seen, 2);
    OK(extant_closedir(dir));
    EQUAL(extant_opendir(fs, "/a", &dir), -ENOTDIR);

    OK(extant_unlink(fs, "/d/soft"));
    OK(extant_unlink(fs, "/d/null"));
    OK(extant_rmdir(fs, "/d"));
    EQUAL(extant_unlink(fs, "/d/null"), -ENOENT);
    ssize_t words = extant_error(buf, sizeof buf);
    EQUAL(words, (ssize_t)strlen("No such file or directory"));
    OK(strcmp(buf, "No such file or directory"));
    EQUAL(extant_error_kind(buf, sizeof buf), 0);
}

static void xattrs(void)
{
    char buf[64];
    OK(extant_setxattr(fs, "/a", "user.note", "text", 4, XATTR_CREATE));
    EQUAL(extant_setxattr(fs, "/a", "user.note", "text", 4, XATTR_CREATE), -EEXIST);
    EQUAL(extant_setxattr(fs, "/a", "user.none", "text", 4, XATTR_REPLACE), -ENODATA);
    EQUAL(extant_getxattr(fs, "/a", "user.note", buf, sizeof buf), 4);
    OK(memcmp(buf, "text", 4));
    EQUAL(extant_getxattr(fs, "/a", "user.note", buf, 3), -ERANGE);
    EQUAL(extant_listxattr(fs, "/a", NULL, 0), 10);
    EQUAL(extant_listxattr(fs, "/a", buf, sizeof buf), 10);
    OK(memcmp(buf, "user.note", 10));
    OK(extant_removexattr(fs, "/a", "user.note"));
    EQUAL(extant_removexattr(fs, "/a", "user.note"), -ENODATA);
}

static void queues(void)
{
    enum { COUNT = 64, SIZE = 4096 };
    extant_file *file;
    extant_queue *queue;
    struct extant_completion done[COUNT];
    static char blocks[COUNT][SIZE];
    EQUAL(extant_queue_open(fs, 0, &queue), -EINVAL);
    OK(extant_queue_open(fs, 8, &queue));
    OK(extant_open(fs, "/queued", O_RDWR | O_CREAT | O_DIRECT, 0644, &file));
    for (int i = 0; i < COUNT; i++) {
        memset(blocks[0], 'A' + i % 26, SIZE);
        struct extant_request one = {file, blocks[0], SIZE, (int64_t)i * SIZE, i, EXTANT_WRITE_OP};
        OK(extant_queue_submit(queue, &one));
    }
    long long tags = 0;
    for (int left = COUNT; left > 0;) {
        int count = extant_queue_wait(queue, 1, done, 5);
        TRUE(count >= 1 && count <= 5);
        for (int i = 0; i < count; i++) {
            EQUAL(done[i].result, SIZE);
            tags += done[i].tag;
        }
        left -= count;
    }
    EQUAL(tags, COUNT * (COUNT - 1) / 2);
    EQUAL(extant_queue_wait(queue, 1, done, 5), 0);
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < COUNT; i++) {
        struct extant_request one = {file, blocks[i], SIZE, (int64_t)i * SIZE, i, EXTANT_READ_OP};
        OK(extant_queue_submit(queue, &one));
    }
    EQUAL(extant_queue_wait(queue, COUNT, done, COUNT), COUNT);
    for (int i = 0; i < COUNT; i++) {
        EQUAL(blocks[i][0], 'A' + i % 26);
        EQUAL(blocks[i][SIZE - 1], 'A' + i % 26);
    }
    struct extant_request bad = {file, blocks[0], SIZE, 0, 0, 7};
    EQUAL(extant_queue_submit(queue, &bad), -EINVAL);
    EQUAL(extant_queue_wait(queue, 2, done, 1), -EINVAL);
    bad = (struct extant_request){file, blocks[0], SIZE, COUNT * SIZE, 3, EXTANT_READ_OP};
    OK(extant_queue_submit(queue, &bad));
    OK(extant_close(file));
    EQUAL(extant_queue_wait(queue, 1, done, 1), 1);
    EQUAL(done[0].result, 0);
    OK(extant_queue_close(queue));
}

int main(int argc, char **argv)
{
    EQUAL(argc, 2);
    const char *image = argv[1];
    uint8_t uuid[16] = "a volume's UUID";
    struct extant_mkfs_options options = {sizeof options, 0, 4096, 256, 4, 0, 500, "c", "^mmp", uuid, 3, 4};
    OK(extant_mkfs(image, 32 << 20, &options));
    EQUAL(extant_mkfs(image, 0, NULL), -EEXIST);
    options.flags = EXTANT_MKFS_FORCE;
    OK(extant_mkfs(image, 0, &options));
    options.features = "no-such-feature";
    EQUAL(extant_mkfs(image, 0, &options), -EINVAL);
    options.struct_size = 8;
    EQUAL(extant_mkfs(image, 0, &options), -EINVAL);

    extant_fs *second;
    EQUAL(extant_mount("/no/such/image", EXTANT_WRITE, NULL, &fs), -ENOENT);
    EQUAL(extant_mount(image, EXTANT_WRITE, "no-such-option", &fs), -EINVAL);
    OK(extant_mount(image, EXTANT_WRITE, "commit=60", &fs));
    EQUAL(extant_mount(image, EXTANT_WRITE, NULL, &second), -EBUSY);
    struct extant_statfs totals;
    OK(extant_statfs(fs, &totals));
    EQUAL(totals.block_size, 4096);
    OK(memcmp(totals.uuid, uuid, 16));
    struct extant_stat stat;
    OK(extant_stat(fs, "/", &stat));
    EQUAL(stat.gid, 4);
    files();
    opening();
    names();
    xattrs();
    queues();
    OK(extant_sync(fs));

    extant_file *left;
    char buf[8];
    OK(extant_open(fs, "/a", O_RDWR, 0, &left));
    OK(extant_unmount(fs));
    EQUAL(extant_pread(left, buf, 1, 0), -EIO);
    EQUAL(extant_pwrite(left, buf, 1, 0), -EIO);
    OK(extant_close(left));

    OK(extant_mount(image, 0, NULL, &fs));
    EQUAL(extant_unlink(fs, "/a"), -EROFS);
    OK(extant_stat(fs, "/moved", &stat));
    OK(extant_unmount(fs));
    printf("libextant %s: every call\n", extant_version());
    return 0;
}
