//! `extant verity`: files are sealed and measured, in images and on mounts.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use extant_testkit::{Cmd, Image, Need, Result, TempDir, content, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("debugfs"),
];
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ETXTBSY: i32 = 26;

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result
        .err()
        .and_then(|error| error.raw_os_error())
        .unwrap_or(0)
}

/// The digest that is told of a file.
fn digest(file: &str) -> Result<String> {
    let told = extant(&["verity", "measure", "--json", file]).ok()?.out;
    let told: Value = serde_json::from_str(&told)?;
    Ok(told[0]["digest"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn files_in_images_are_sealed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("verity")?;
    let image = dir.join("image");
    let image = image.to_str().unwrap_or_default();
    let inside = |name: &str| format!("{image}:/{name}");
    extant(&["mkfs", "-q", "-b", "1024", "-O", "verity", image, "32M"]).ok()?;
    let (host, signature) = (dir.join("host"), dir.join("signature"));
    fs::write(&host, content::fill(1, 0, 100_000))?;
    fs::write(&signature, b"signed")?;
    for name in ["a", "b", "c"] {
        extant(&["cp", host.to_str().unwrap_or_default(), &inside(name)]).ok()?;
    }
    let (a, b) = (&*inside("a"), &*inside("b"));
    let o = extant(&["verity", "enable", a]).ok()?;
    ensure!(o.out.is_empty(), "{}", o.describe());
    let signature = signature.to_str().unwrap_or_default();
    let line = [
        "verity", "enable", "--json", "--hash", "sha512", "--salt", "00ff",
    ];
    let o = extant(&line).args(["--signature", signature, b]).ok()?;
    let told: Value = serde_json::from_str(&o.out)?;
    ensure!(
        told[0]["hash"] == "sha512" && told[0]["path"] == "/b",
        "{told}"
    );
    let lines = extant(&["verity", "measure", a, b]).ok()?.out;
    let expected = format!("sha256:{} /a\nsha512:{} /b\n", digest(a)?, digest(b)?);
    ensure!(lines == expected && digest(a)?.len() == 64, "{lines}");
    let o = extant(&["cat", a]).ok()?;
    ensure!(o.out.len() > 50_000, "the data is there");
    refusals(&inside, signature)?;
    extant(&["mv", a, &inside("e")]).ok()?;
    extant(&["chmod", "600", &inside("e")]).ok()?;
    extant(&["rm", b]).ok()?;
    extant(&["check", image]).ok()?;
    Image::fsck_clean_at(Path::new(image))
}

fn refusals(inside: &impl Fn(&str) -> String, signature: &str) -> Result<()> {
    let a = &*inside("a");
    for (args, says) in [
        (&["verity", "enable", a][..], "sealed by fs-verity already"),
        (
            &["verity", "measure", &inside("c")],
            "not sealed by fs-verity",
        ),
        (&["verity", "measure", &inside("d")], "No such file"),
        (&["verity", "enable", &inside("")], "Is a directory"),
        (
            &["verity", "enable", "--block-size", "4096", &inside("c")],
            "whose blocks have 1024",
        ),
        (&["fallocate", "-l", "1M", a], "Operation not permitted"),
        (&["cp", signature, a], "Operation not permitted"),
        (&["defrag", a], "Operation not permitted"),
        (
            &["verity", "enable", "--signature", "/dev/null", &inside("c")],
            "empty signature",
        ),
        (
            &["verity", "enable", "--salt", "0", &inside("c")],
            "hexadecimal",
        ),
        (
            &["verity", "enable", "--hash", "md5", &inside("c")],
            "sha256 or sha512",
        ),
    ] {
        let o = extant(args).run()?;
        let refused = o.code.is_some_and(|code| code != 0) && o.err.contains(says);
        ensure!(refused, "{args:?}: {}", o.describe());
    }
    Ok(())
}

#[test]
fn a_volume_without_the_feature_refuses() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let file = format!("{}:/f", image.path().display());
    extant(&["cp", "/etc/hostname", &file]).ok()?;
    let o = extant(&["verity", "enable", &file]).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("without the feature verity"),
        "{}",
        o.describe()
    );
    let o = extant(&["verity", "enable", "/proc/version"]).run()?;
    ensure!(o.code == Some(1), "{}", o.describe());
    image.fsck_clean()
}

/// Runs `work` in a mount of a volume with blocks of 4 KiB and the file `old`.
fn mounted(options: &str, work: impl Fn(&Path, &Image) -> Result<()>) -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Fuse]) {
        return Ok(());
    }
    let image = Image::of_mib(64).args("-O verity -b 4096").make()?;
    let dir = TempDir::new("verity")?;
    let old = dir.join("old");
    fs::write(&old, content::fill(4, 0, 400_000))?;
    let inside = format!("{}:/old", image.path().display());
    extant(&["cp", old.to_str().unwrap_or_default(), &inside]).ok()?;
    let point = dir.join("mnt");
    fs::create_dir(&point)?;
    let path = image.path().to_string_lossy().into_owned();
    let mnt = point.to_string_lossy().into_owned();
    extant(&["mount", "-o", options, &path, &mnt]).ok()?;
    let result = work(&point, &image);
    extant(&["umount", &mnt]).ok()?;
    result?;
    image.fsck_clean()
}

fn seal(file: &Path) -> Result<()> {
    let file = file.to_str().unwrap_or_default();
    extant(&["verity", "enable", file]).ok().map(drop)
}

/// Data that is only in the kernel's pages is sealed as well; writers that are still open are in
/// the way.
#[test]
fn a_mount_seals_what_programs_wrote() -> Result<()> {
    for options in ["rw", "nodefault_permissions"] {
        mounted(options, |mnt, _| {
            for round in 0..30_u64 {
                let file = mnt.join(format!("{round}"));
                let data = content::fill(round, 0, 300_000);
                let mut writer = File::create(&file)?;
                writer.write_all(&data)?;
                if round == 0 {
                    let o = extant(&["verity", "enable", file.to_str().unwrap_or_default()]);
                    let o = o.run()?;
                    let says = "open for writing";
                    ensure!(
                        o.code == Some(1) && o.err.contains(says),
                        "{}",
                        o.describe()
                    );
                }
                drop(writer);
                seal(&file)?;
                ensure!(fs::read(&file)? == data, "round {round}");
                ensure!(
                    digest(file.to_str().unwrap_or_default())?.len() == 64,
                    "a digest"
                );
                let denied = OpenOptions::new().write(true).open(&file);
                ensure!(errno(denied) == EPERM, "open");
                let denied = OpenOptions::new().append(true).open(&file);
                ensure!(errno(denied) == EPERM, "open to append");
                ensure!(errno(File::create(&file)) == EPERM, "open to truncate");
                ensure!(fs::metadata(&file)?.size() == 300_000, "its size");
            }
            let attributes = Cmd::new("lsattr").arg(mnt.join("0")).ok()?.out;
            ensure!(
                attributes
                    .split(' ')
                    .next()
                    .is_some_and(|a| a.contains('V')),
                "{attributes}"
            );
            fs::remove_file(mnt.join("0"))?;
            ensure!(errno(File::open(mnt.join("0"))) == ENOENT, "it is gone");
            Ok(())
        })?;
    }
    Ok(())
}

/// A mapping that writes keeps a file open after its descriptor is closed.
const MAPPER: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(fd, 0)
os.close(fd)
pages[5:10] = b'early'
print('mapped', flush=True)
sys.stdin.readline()
pages[5:10] = b'later'
";

#[test]
fn a_mapping_that_writes_is_a_writer() -> Result<()> {
    if !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    mounted("rw", |mnt, _| {
        let file = mnt.join("f");
        fs::write(&file, [7; 100_000])?;
        let mut mapper = Command::new("python3");
        let mapper = mapper.args(["-c", MAPPER]).arg(&file);
        let mut mapper = mapper
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(mapper.stdout.take().unwrap()).read_line(&mut line)?;
        let o = extant(&["verity", "enable", file.to_str().unwrap_or_default()]).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains("open for writing"),
            "{}",
            o.describe()
        );
        mapper.stdin.take().unwrap().write_all(b"go\n")?;
        ensure!(mapper.wait()?.success(), "the mapper");
        seal(&file)?;
        let kept = fs::read(&file)?;
        ensure!(&kept[5..10] == b"later", "{:?}", &kept[..12]);
        Ok(())
    })
}

/// The kernel drops the pages that it read before, so that bytes which were altered later show as
/// errors.
#[test]
fn pages_from_before_are_dropped() -> Result<()> {
    mounted("rw", |mnt, image| {
        let block: u64 = image.debugfs("bmap /old 20")?.trim().parse()?;
        let file = mnt.join("old");
        let data = fs::read(&file)?;
        seal(&file)?;
        image.patch(block * 4096 + 9, 1, |bytes| bytes[0] ^= 0x40)?;
        let open = File::open(&file)?;
        let mut page = [0; 4096];
        let read = errno(open.read_exact_at(&mut page, 20 * 4096));
        ensure!(read == EIO, "errno {read}");
        open.read_exact_at(&mut page, 60 * 4096)?;
        ensure!(page == data[60 * 4096..61 * 4096], "the rest is whole");
        Ok(())
    })
}

/// While a file is sealed, it cannot be opened for writing; after a failure it can.
#[test]
fn no_writer_opens_a_file_that_is_sealed() -> Result<()> {
    mounted("rw", |mnt, _| {
        let file = mnt.join("f");
        // Its tree takes a moment, and then finds no space.
        let large = File::create(&file)?;
        large.set_len(1 << 31)?;
        drop(large);
        let path = file.to_str().unwrap_or_default().to_owned();
        let mut busy = 0;
        std::thread::scope(|scope| {
            let sealing = scope.spawn(|| extant(&["verity", "enable", &path]).ok().map(drop));
            while !sealing.is_finished() {
                match errno(OpenOptions::new().write(true).open(&file)) {
                    ETXTBSY => busy += 1,
                    0 => std::thread::sleep(std::time::Duration::from_millis(20)),
                    _ => {}
                }
            }
            sealing
                .join()
                .unwrap_or_else(|_| Err(extant_testkit::Error::new("it panicked")))
        })?;
        ensure!(busy > 0, "it was never refused");
        Ok(())
    })
}
