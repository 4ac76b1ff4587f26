/* Makes an image, writes a file into it and reads it back.
 *
 *   cc hello.c -o hello $(pkg-config --cflags --libs extant)
 *   ./hello disk.img
 */
#include <stdio.h>
#include <string.h>

#include <extant.h>

static int failed(const char *what)
{
    char words[512] = "";
    extant_error(words, sizeof words);
    fprintf(stderr, "%s: %s\n", what, words);
    return 1;
}

int main(int argc, char **argv)
{
    extant_fs *fs;
    extant_file *file;
    char text[64] = "";
    if (argc != 2) {
        fprintf(stderr, "usage: hello IMAGE\n");
        return 2;
    }
    if (extant_mkfs(argv[1], 64 << 20, NULL) < 0)
        return failed(argv[1]);
    if (extant_mount(argv[1], EXTANT_WRITE, NULL, &fs) < 0)
        return failed(argv[1]);
    if (extant_create(fs, "/hello", 0644, &file) < 0)
        return failed("/hello");
    if (extant_write(file, "hello, ext4\n", 12) != 12 || extant_fsync(file) < 0)
        return failed("/hello");
    if (extant_pread(file, text, sizeof text - 1, 0) < 0)
        return failed("/hello");
    extant_close(file);
    if (extant_unmount(fs) < 0)
        return failed(argv[1]);
    fputs(text, stdout);
    return 0;
}
