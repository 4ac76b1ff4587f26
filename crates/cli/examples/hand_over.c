/*
 * A launcher: opens an image and /dev/fuse with privileges, mounts, and hands both descriptors over
 * to a daemon of another user. That daemon never has a privilege.
 *
 * hand_over IMAGE DIR UID; "umount DIR" ends it. EXTANT_BIN says where extant is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	char words[128], image_number[16], fuse_number[16];
	const char *program = getenv("EXTANT_BIN");
	int image, fuse, status = 1;
	pid_t child;
	uid_t uid;

	if (argc != 4) {
		fprintf(stderr, "usage: hand_over IMAGE DIR UID\n");
		return 2;
	}
	uid = (uid_t)strtoul(argv[3], NULL, 10);
	if ((image = open(argv[1], O_RDWR)) < 0)
		fail(argv[1]);
	if ((fuse = open("/dev/fuse", O_RDWR)) < 0)
		fail("/dev/fuse");
	snprintf(words, sizeof words, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,"
		 "default_permissions,allow_other", fuse, uid, uid);
	if (mount(argv[1], argv[2], "fuse.extant", MS_NOSUID | MS_NODEV, words) < 0)
		fail(argv[2]);
	snprintf(image_number, sizeof image_number, "%d", image);
	snprintf(fuse_number, sizeof fuse_number, "%d", fuse);
	if ((child = fork()) == 0) {
		if (setgroups(0, NULL) || setgid((gid_t)uid) || setuid(uid))
			fail("another user");
		execlp(program ? program : "extant", "extant", "mount", "--image-fd", image_number,
		       "--fuse-fd", fuse_number, (char *)NULL);
		fail("extant");
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
		umount2(argv[2], MNT_DETACH);	/* the daemon has said why */
		return 1;
	}
	return 0;
}
