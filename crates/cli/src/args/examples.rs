//! The examples of each command, and the pages beside its own. Tests run every line as it stands
//! here, in a folder that has what the lines name.

use clap::Command;

/// Parts of a command's help and manual page beside its grammar.
struct About {
    command: &'static str,
    /// Lines of a shell.
    examples: &'static [&'static str],
    /// Manual pages beside extant(1).
    see: &'static [&'static str],
}

const fn about(
    command: &'static str,
    examples: &'static [&'static str],
    see: &'static [&'static str],
) -> About {
    About {
        command,
        examples,
        see,
    }
}

const ALL: &[About] = &[
    about(
        "mount",
        &["extant mount disk.img ./mnt", "extant umount ./mnt"],
        &[
            "extant-umount(1)",
            "extant-options(5)",
            "mount(8)",
            "fusermount3(1)",
        ],
    ),
    about(
        "umount",
        &["extant umount ./mnt"],
        &["extant-mount(1)", "umount(8)"],
    ),
    about(
        "ls",
        &["extant ls disk.img", "extant ls -lh disk.img:/etc"],
        &["extant-tree(1)", "extant-stat(1)", "ls(1)"],
    ),
    about("tree", &["extant tree -L 2 disk.img:/"], &["extant-ls(1)"]),
    about(
        "find",
        &[
            "extant find --name '*.html' disk.img",
            "extant find --type d -0 disk.img:/etc",
        ],
        &["extant-tree(1)", "find(1)"],
    ),
    about(
        "du",
        &["extant du -sh disk.img:/srv"],
        &["extant-df(1)", "du(1)"],
    ),
    about(
        "df",
        &["extant df -h disk.img other.img"],
        &["extant-info(1)", "df(1)"],
    ),
    about(
        "touch",
        &["extant touch -d @0 disk.img:/etc/hosts"],
        &["extant-chmod(1)", "touch(1)"],
    ),
    about(
        "setfattr",
        &[
            "extant setfattr -n user.note -v hello disk.img:/etc/hosts",
            "extant setfattr -x user.note disk.img:/etc/hosts",
        ],
        &["extant-stat(1)", "setfattr(1)"],
    ),
    about(
        "stat",
        &[
            "extant stat disk.img:/etc/hosts",
            "extant stat --json disk.img:/etc disk.img:/srv",
        ],
        &["extant-ls(1)", "stat(1)"],
    ),
    about(
        "cat",
        &[
            "extant cat disk.img:/etc/hosts",
            "extant cat --sparse disk.img:/srv/data >data",
        ],
        &["extant-cp(1)"],
    ),
    about(
        "cp",
        &[
            "extant cp -r ./site disk.img:/site",
            "extant cp disk.img:/etc/hosts .",
            "extant cp -a disk.img:/etc other.img:/etc",
            "gzip -dc disk.img.gz | extant cp - disk.img:/srv/inner.img",
        ],
        &["extant-untar(1)", "extant-export(1)", "extant-build(1)"],
    ),
    about(
        "export",
        &[
            "extant export disk.img disk.tar",
            "extant export disk.img:/etc - | gzip >etc.tar.gz",
        ],
        &["extant-tar(1)", "extant-untar(1)", "tar(1)"],
    ),
    about(
        "tar",
        &["extant tar disk.img:/ | gzip >disk.tar.gz"],
        &["extant-export(1)", "extant-untar(1)", "tar(1)"],
    ),
    about(
        "untar",
        &[
            "gzip -dc site.tar.gz | extant untar disk.img:/srv",
            "extant untar -f site.tar disk.img:/",
        ],
        &["extant-tar(1)", "extant-build(1)", "tar(1)"],
    ),
    about(
        "mv",
        &["extant mv disk.img:/etc/hosts disk.img:/etc/hosts.old"],
        &["extant-cp(1)", "extant-rm(1)"],
    ),
    about("rm", &["extant rm -r disk.img:/srv"], &["extant-mv(1)"]),
    about(
        "mkdir",
        &["extant mkdir -p --owner 0:0 -m 755 disk.img:/opt/app/bin"],
        &["extant-cp(1)"],
    ),
    about(
        "ln",
        &["extant ln -s /etc/hosts disk.img:/hosts"],
        &["extant-cp(1)"],
    ),
    about(
        "chmod",
        &[
            "extant chmod 600 disk.img:/etc/hosts",
            "extant chmod -R go-w,+X disk.img:/etc",
        ],
        &["extant-chown(1)"],
    ),
    about(
        "chown",
        &["extant chown -R 0:0 disk.img:/etc"],
        &["extant-chmod(1)"],
    ),
    about(
        "fallocate",
        &[
            "extant fallocate -l 1M disk.img:/srv/log",
            "extant fallocate --punch-hole -o 64K -l 128K disk.img:/srv/log",
        ],
        &["extant-map(1)", "fallocate(1)"],
    ),
    about(
        "convert",
        &["extant convert disk.img:/srv/data"],
        &["extant-map(1)", "tune2fs(8)"],
    ),
    about(
        "defrag",
        &["extant defrag disk.img:/srv/data"],
        &["extant-map(1)", "e4defrag(8)"],
    ),
    about(
        "mkfs",
        &[
            "extant mkfs new.img 1G",
            "extant mkfs -n -L data -O ^has_journal small.img 64M",
        ],
        &["extant-build(1)", "mke2fs(8)"],
    ),
    about(
        "build",
        &[
            "extant build --owner 0:0 ./site site.img",
            "extant build --free 64M site.tar.gz ./site both.img",
        ],
        &["extant-mkfs(1)", "extant-untar(1)"],
    ),
    about(
        "info",
        &["extant info disk.img", "extant info --json disk.img"],
        &["dumpe2fs(8)"],
    ),
    about(
        "check",
        &["extant check disk.img"],
        &["extant-fix(1)", "e2fsck(8)"],
    ),
    about(
        "fix",
        &[
            "extant fix -n disk.img",
            "extant fix disk.img",
            "extant fix --unshare disk.img",
        ],
        &["extant-check(1)", "e2fsck(8)"],
    ),
    about(
        "resize",
        &["extant resize disk.img 128M", "extant resize disk.img min"],
        &["extant-info(1)", "resize2fs(8)"],
    ),
    about(
        "quota",
        &[
            "extant mkfs -O quota,project counted.img 64M",
            "extant quota edit -u 1000 --space-hard 10M --inodes-hard 500 counted.img",
            "extant quota project -R 42 counted.img:/",
            "extant quota report counted.img",
        ],
        &["extant-options(5)", "repquota(8)", "setquota(8)"],
    ),
    about(
        "verity",
        &[
            "extant mkfs -O verity sealed.img 64M",
            "extant cp -r ./site sealed.img:/site",
            "extant verity enable sealed.img:/site/index.html",
            "extant verity measure sealed.img:/site/index.html",
        ],
        &["extant-cp(1)", "fsverity(1)"],
    ),
    about(
        "key",
        &[
            "head -c 64 /dev/urandom >key",
            "extant mkfs -O encrypt secret.img 64M",
            "extant mkdir secret.img:/private",
            "extant key encrypt --key key secret.img:/private",
            "extant cp --key key -r ./site secret.img:/private",
            "extant ls --key key secret.img:/private",
            "extant mount --key key secret.img ./mnt && extant umount ./mnt",
        ],
        &["extant-mount(1)", "fscrypt(1)"],
    ),
    about(
        "diff",
        &["extant diff --no-times --no-owners ./site disk.img:/srv/site"],
        &["extant-cp(1)", "diff(1)"],
    ),
    about(
        "map",
        &[
            "extant map disk.img:/srv/data",
            "extant map --plot map.svg disk.img:/",
        ],
        &["extant-defrag(1)", "filefrag(8)"],
    ),
    about("trim", &["extant trim disk.img"], &["fstrim(8)"]),
    about(
        "push",
        &[
            "extant push disk.img file://$PWD/store/disk",
            "extant --layer changes touch file://$PWD/store/disk:/new",
            "extant push changes file://$PWD/store/disk",
        ],
        &["extant-pull(1)", "extant-versions(1)"],
    ),
    about(
        "pull",
        &["extant pull file://$PWD/store/disk@1 copy.img"],
        &["extant-push(1)"],
    ),
    about(
        "versions",
        &["extant versions file://$PWD/store/disk"],
        &["extant-push(1)", "extant-gc(1)"],
    ),
    about(
        "gc",
        &[
            "extant gc --keep 10 file://$PWD/store",
            "extant gc --dry-run file://$PWD/store",
        ],
        &["extant-versions(1)"],
    ),
    about(
        "nbd",
        &[
            "extant nbd --once --socket nbd.sock disk.img | (read -r ready at; extant ls \"$at\")",
            "extant nbd --once --socket nbd.sock ./site | (read -r ready at; extant tree \"$at\")",
        ],
        &["extant-mount(1)", "extant-build(1)", "nbdcopy(1)"],
    ),
    about(
        "vhost",
        &[
            "extant vhost --blk disk.sock disk.img &",
            "extant vhost --fs other.sock other.img &",
        ],
        &["extant-mount(1)", "qemu(1)"],
    ),
    about(
        "stats",
        &["extant stats ./mnt", "extant stats --watch --count 1 ./mnt"],
        &["extant-mount(1)"],
    ),
    about(
        "bench",
        &["extant bench overwrite --quick --runs 1 --only write_u1k --variant memcpy iomap"],
        &["fio(1)"],
    ),
];

/// The examples of a command; none of one that has no images.
pub(crate) fn examples_of(command: &str) -> &'static [&'static str] {
    let found = ALL.iter().find(|about| about.command == command);
    found.map_or(&[], |about| about.examples)
}

/// The manual pages beside that of a command.
pub(crate) fn see_also(command: &str) -> &'static [&'static str] {
    let found = ALL.iter().find(|about| about.command == command);
    found.map_or(&[], |about| about.see)
}

/// Ends the help of each command with its examples.
pub(crate) fn with_examples(command: Command) -> Command {
    match examples_of(command.get_name()) {
        [] => command,
        examples => {
            let help = format!("Examples:\n  {}", examples.join("\n  "));
            command.after_long_help(help)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_has_examples() {
        let grammar = Cli::command();
        let commands = grammar.get_subcommands().filter(|c| !c.is_hide_set());
        let names: Vec<&str> = commands.map(Command::get_name).collect();
        let mut without = names.iter().filter(|name| examples_of(name).is_empty());
        assert_eq!(without.next(), Some(&"help"));
        assert_eq!(without.next(), Some(&"completions"));
        assert_eq!(without.next(), None);
        for about in ALL {
            assert!(names.contains(&about.command), "{}", about.command);
        }
    }
}
