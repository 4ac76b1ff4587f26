//! `extant help`: the help of commands, and of topics that several commands share.

use crate::args;
use crate::failure::Outcome;
use crate::output::{self, Output};

/// A topic and its text.
type Topic = (&'static str, &'static str);

/// The topics, in the order in which they are listed.
pub(crate) const TOPICS: [Topic; 4] = [
    ("images", IMAGES),
    ("durability", DURABILITY),
    ("journal", JOURNAL),
    ("options", OPTIONS),
];

const IMAGES: &str = "\
Images

An image is a file, a block device, or an export of an NBD server that holds an ext4 volume. A path
inside of one is written IMAGE:/path:

  extant ls disk.img:/etc
  extant cp -r ./site /dev/sdb1:/srv
  extant cat nbd://server/export:/etc/hostname

The first colon before a slash divides the two. Symbolic links in an image lead to files of the same
image, never out of it. Users and groups in an image are numbers; names are looked up on this
machine.

One process may write an image, or many may read it. Another one is told that the image is in use.
A volume that Linux has mounted is refused, as its cache and this program's would not agree.

New images: extant mkfs makes an empty one, extant build one of folders, archives and container
images. extant check finds damage, extant fix repairs it, extant diff compares two trees.
";

const DURABILITY: &str = "\
Durability: what is there after a crash

- When a command ends with status 0, all that it changed is on the device.
- A command that is killed, or a host that loses power, leaves an image that is consistent once its
  journal is replayed. Some of the changes are there then, metadata in the order in which it was
  changed. The next command or mount replays it.
- On a mount, data is durable when fsync(2) or fdatasync(2) returns, or a write to a file opened
  with O_SYNC. What was not synced is committed every 5 seconds (-o commit=SECONDS). A rename over
  a file writes the new one's data first (-o auto_da_alloc, the default).
- sync without a file and sync -f do not reach a mount: the kernel hands over what it has cached,
  and does not ask for more. sync FILE and sync DIRECTORY do, as they are an fsync(2).
- extant umount returns once everything is on the device.
- After a flush that failed, nothing more is acknowledged until the next mount: which writes the
  device lost is not known. extant stats shows it as device_flush_failed.

With -o barrier=0 the device's cache is not flushed where order matters: faster, and a power cut can
damage the volume.
";

const JOURNAL: &str = "\
The journal

A change of names or attributes touches several blocks. They are first written to the journal, as
one transaction with a checksum, and later to their places. After a crash, complete transactions are
written again, and the one that was being written is ignored. That is the replay.

- A command that writes, and a mount, replays the journal when it opens the image. One that only
  reads does so in memory, and leaves the image as it is.
- extant info IMAGE says whether the journal holds anything. extant fix -n tells what a repair would
  do, after such a replay.
- -o noload leaves the journal alone: to look at a volume as it stands (with -o ro).
- File data goes to its place before the transaction that makes it visible (-o data=ordered), or
  through the journal as well (-o data=journal, or chattr +j for one file).
- extant mkfs -O ^has_journal makes a volume without one. A crash may damage such a volume.
";

const OPTIONS: &str = "\
Mount options

extant mount -o LIST takes ext4's options by Linux's names, and those of FUSE (allow_other, suid,
dev, fsname=NAME). An unknown option or a bad value is refused by name. The usual ones:

  ro                        refuse changes; a journal is still replayed
  noload                    leave the journal alone; needs ro
  commit=SECONDS            commit what is not synced after so long; 5
  data=ordered|writeback|journal
  errors=remount-ro|continue|panic
                            what follows damage; remount-ro
  noatime, relatime, lazytime
                            when times of access are stored; relatime
  discard                   tell the device of freed blocks; extant trim does it now and then
  sync, dirsync             changes are durable before a call returns
  acl, user_xattr           ACLs and attributes of users; on
  backend=auto|syscalls|io_uring
                            how the image is read and written
  memory=SIZE               bound the caches of the mount
  layer=FILE                write what changes an image in an object store to FILE
  record=FILE               write the order in which it is read to FILE
  prefetch=FILE             read it ahead in the order of FILE
  nosandbox                 do not confine the process that serves the mount

The manual page extant-options(5) has all of them, and docs/COMPATIBILITY.md says what each does
differently from Linux.
";

/// Prints the help of a command or of a topic; of all without words.
pub(crate) fn run(words: &[String]) -> Outcome {
    if let [word] = words
        && let Some((_, text)) = TOPICS.iter().find(|(name, _)| name == word)
    {
        let mut out = Output::new();
        return out
            .bytes(text.as_bytes())
            .and_then(|()| out.finish())
            .into();
    }
    let mut grammar = args::grammar();
    grammar.build();
    let mut command = &mut grammar;
    for word in words {
        let Some(found) = command.find_subcommand_mut(word) else {
            let topics = TOPICS.map(|(name, _)| name).join(", ");
            let what = format!("{word}: neither a command nor a topic: {topics}");
            return Outcome::Usage(what);
        };
        command = found;
    }
    output::printed(command.print_long_help()).into()
}
