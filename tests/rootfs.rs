//! Promise: `extant build` makes an image of a real root file system as an ordinary user: equal to
//! its archive, sound, and alive when it is mounted.
//!
//! The root is made of the host's own programs. With `EXTANT_ROOTFS=1`, as in the soak, Debian's
//! smallest comes from its mirror as well (by mmdebstrap, kept below the target directory), and one
//! with a kernel boots in a virtual machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::apart::LET_GO;
use extant_testkit::tools::{extant, target_dir};
use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, ensure, need};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("e2fsck"),
    Need::Tool("setpriv"),
    Need::Tool("unshare"),
];

/// Runs a script in `dir`; `$extant` is the command.
fn shell(dir: &Path, script: &str) -> Result<String> {
    let script = format!("set -e; {script}");
    let cmd = Cmd::new("bash").args(["-o", "pipefail", "-c", &script]);
    let cmd = cmd.dir(dir).env("extant", extant()?).env("let_go", LET_GO);
    Ok(cmd.limit(Duration::from_secs(1800)).ok()?.out)
}

/// A directory that any user may enter, and one in it that any user may write to.
fn host() -> Result<TempDir> {
    let host = TempDir::new("rootfs")?;
    shell(host.path(), "chmod 755 .; mkdir -m 777 out")?;
    Ok(host)
}

/// The archive at `archive`, as an image that is checked in every way; returns the image.
fn built(host: &TempDir, archive: &Path) -> Result<PathBuf> {
    let archive = archive.display();
    // Neither devices, as FUSE and loops are, nor privileges are at hand.
    let script = format!(
        "alone() {{
             unshare --mount sh -c \"$let_go\" ' ' bash -ec '
                 mkdir -p devices; mount -t tmpfs none devices
                 mknod -m 666 devices/null c 1 3
                 mkdir devices/shm; mount --bind /dev/shm devices/shm; mount --move devices /dev
                 exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
                     --bounding-set=-all \"$@\"' - \"$@\"
         }}
         alone id -u; alone ls /dev
         alone $extant build -q --free 16M {archive} out/image
         alone $extant diff out/image {archive}"
    );
    let said = shell(host.path(), &script)?;
    ensure!(said == "65534\nnull\nshm\n", "{said}");
    let image = host.join("out/image");
    Image::fsck_clean_at(&image)?;
    Ok(image)
}

#[test]
fn a_root_of_the_hosts_programs_is_equal_sound_and_alive() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir -p root/{bin,etc,tmp,dev,home/user}; cd root; ln -s bin sbin; chmod 1777 tmp
         for name in sh ls cat id stat; do
             at=$(command -v $name); cp -L $at bin
             for lib in $(ldd $at | grep -o '/[^ ]*'); do
                 mkdir -p .$(dirname $lib); cp -nL $lib .$lib
             done
         done
         mknod -m 666 dev/null c 1 3; echo 'root:x:0:0::/:/bin/sh' > etc/passwd
         echo text > home/user/file; chown -R 1000:1000 home/user; chmod 700 home/user
         tar --format=pax --numeric-owner -cf ../root.tar .",
    )?;
    let image = built(&host, &host.join("root.tar"))?;
    let mount = Subject::Ext4.mount(&image, "rw")?;
    let script = "read line < /home/user/file; echo $line; id -u; stat -c %u:%a /home/user
        ls / > /dev/null; echo new > /tmp/new; cat /tmp/new";
    let inside = Cmd::new("chroot").arg(mount.dir());
    let said = inside.args(["/bin/sh", "-c", script]).ok()?.out;
    ensure!(said == "text\n0\n1000:700\nnew\n", "{said}");
    drop(mount);
    Image::fsck_clean_at(&image)
}

/// Debian's smallest root with more `packages`, as an archive that is kept for the next run. A
/// mirror may be older than its lists are valid.
fn debian(name: &str, packages: &str) -> Result<PathBuf> {
    let kept = target_dir().join("rootfs");
    fs::create_dir_all(&kept)?;
    let archive = kept.join(format!("{name}.tar"));
    if !archive.is_file() {
        let script = format!(
            "mmdebstrap --quiet --variant=minbase --mode=root --format=tar \
             --aptopt='Acquire::Check-Valid-Until \"false\"' {packages} stable \
             {name}.part >&2; mv {name}.part {name}.tar"
        );
        shell(&kept, &script)?;
    }
    Ok(archive)
}

/// Returns whether the long tests are asked for.
fn asked_for(needs: &[Need]) -> bool {
    std::env::var_os("EXTANT_ROOTFS").is_some() && need(needs)
}

#[test]
fn debian_is_equal_sound_and_alive() -> Result<()> {
    if !asked_for(NEEDS) || !need(&[Need::Tool("mmdebstrap")]) {
        return Ok(());
    }
    let host = host()?;
    let image = built(&host, &debian("debian", "")?)?;
    let mount = Subject::Ext4.mount(&image, "rw")?;
    let script = "set -e; dpkg --audit; dpkg --list | grep -c ^ii; perl -e 'print 6 * 7, \"\\n\"'
        su -s /bin/sh daemon -c 'id -un'";
    let inside = Cmd::new("chroot").arg(mount.dir());
    let said = inside.args(["/bin/sh", "-c", script]).ok()?.out;
    ensure!(said.ends_with("\n42\ndaemon\n"), "{said}");
    drop(mount);
    Image::fsck_clean_at(&image)
}

#[test]
fn debian_boots() -> Result<()> {
    let tools = [Need::Tool("mmdebstrap"), Need::Tool("qemu-system-x86_64")];
    if !asked_for(NEEDS) || !need(&tools) {
        return Ok(());
    }
    let host = host()?;
    let packages = "--include=linux-image-cloud-amd64,initramfs-tools";
    let archive = debian("debian-kernel", packages)?;
    // A layer over it has what is started.
    let script = format!(
        "mkdir -p over/boot-test; cat > over/boot-test/init <<'END'
#!/bin/sh
mount -o remount,rw /
echo written > /boot-test/written
sync
echo \"the image has $(dpkg --list | grep -c ^ii) packages\"
mount -o remount,ro /
echo o > /proc/sysrq-trigger
sleep 60
END
         chmod 755 over/boot-test/init; mkdir boot
         tar -C boot -xf {0} --wildcards './boot/vmlinuz-*' './boot/initrd.img-*'
         $extant build -q --free 64M {0} over out/image
         timeout 900 qemu-system-x86_64 -m 1024 -nographic -no-reboot -net none \
             -kernel boot/boot/vmlinuz-* -initrd boot/boot/initrd.img-* \
             -drive file=out/image,format=raw,if=virtio -append \
             'root=/dev/vda ro console=ttyS0 panic=-1 quiet no_timer_check \
             init=/boot-test/init' </dev/null",
        archive.display()
    );
    let said = shell(host.path(), &script)?;
    ensure!(said.contains("the image has "), "{said}");
    let image = host.join("out/image");
    Image::fsck_clean_at(&image)?;
    let at = format!("{}:/boot-test/written", image.display());
    let written = Cmd::new(extant()?).args(["cat", &at]).ok()?.out;
    ensure!(written == "written\n", "{written}");
    Ok(())
}
