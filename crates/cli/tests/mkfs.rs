//! `extant mkfs`: what it prints, how it ends, and that the other commands take what it made.

use std::fs;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

const IDENTITY: &[&str] = &[
    "-U",
    "00112233-4455-6677-8899-aabbccddeeff",
    "-E",
    "hash_seed=2a2a2a2a-2a2a-2a2a-2a2a-2a2a2a2a2a2a",
];

#[test]
fn an_image_is_made_filled_and_checked() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let image = dir.join("new.img").display().to_string();
    for kind in [
        "default",
        "small",
        "largefile",
        "minimal",
        "firecracker",
        "android",
        "grub",
    ] {
        let _ = fs::remove_file(&image);
        let owner = "root_owner=1000:1000";
        extant(&[
            "mkfs", "-T", kind, "-L", "label", "-E", owner, &image, "64M",
        ])
        .ok()?;
        extant(&["mkdir", &format!("{image}:/dir")]).ok()?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs");
        let file = format!("{image}:/dir/file");
        extant(&["cp", source, &file]).ok()?;
        let back = extant(&["cat", &file]).ok()?.out;
        ensure!(
            back == fs::read_to_string(source)?,
            "{kind}: another file came back"
        );
        extant(&["check", &image]).ok()?;
        let root = extant(&["stat", "--json", &format!("{image}:/")]).ok()?.out;
        ensure!(root.contains("\"uid\":1000"), "{kind}: {root}");
        if need(&[Need::Tool("e2fsck")]) {
            Image::fsck_clean_at(fs::canonicalize(&image)?.as_path())?;
        }
    }
    Ok(())
}

#[test]
fn clusters_are_made_in_the_size_that_is_asked_for() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let image = dir.join("new.img").display().to_string();
    let made = [
        "mkfs", "-O", "bigalloc", "-C", "32K", "-b", "2048", &image, "64M",
    ];
    let said = extant(&made).ok()?.out;
    ensure!(
        said.contains("of 2048 bytes in clusters of 16, 1 groups"),
        "{said}"
    );
    extant(&["check", &image]).ok()?;
    if need(&[Need::Tool("e2fsck")]) {
        Image::fsck_clean_at(fs::canonicalize(&image)?.as_path())?;
    }
    let refused = extant(&["mkfs", "-F", "-C", "32K", &image, "64M"]).run()?;
    ensure!(refused.code == Some(1), "{refused:?}");
    ensure!(
        refused.err.contains("a size of clusters needs bigalloc"),
        "{}",
        refused.err
    );
    Ok(())
}

#[test]
fn json_has_what_was_made() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let image = dir.join("new.img").display().to_string();
    let mut args = vec!["mkfs", "--json", "--time", "1700000000"];
    args.extend(IDENTITY);
    args.extend([image.as_str(), "1G"]);
    let value: serde_json::Value = serde_json::from_str(&extant(&args).ok()?.out)?;
    for (key, expected) in [
        ("block_size", 4096),
        ("blocks", 262_144),
        ("free_blocks", 249_189),
        ("inodes", 65_536),
        ("groups", 8),
        ("journal_blocks", 8192),
        ("reserved_blocks", 13_107),
        ("time", 1_700_000_000),
    ] {
        ensure!(value[key] == expected, "{key}: {}", value[key]);
    }
    ensure!(
        value["made"] == true && value["uuid"] == IDENTITY[1],
        "{value}"
    );
    Ok(())
}

#[test]
fn a_dry_run_writes_nothing() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let image = dir.join("new.img");
    let name = image.display().to_string();
    let said = extant(&["mkfs", "-n", &name, "8M"]).ok()?.out;
    ensure!(
        said.contains("would have 8192 blocks of 1024 bytes"),
        "{said}"
    );
    ensure!(!image.exists(), "a file was made");
    extant(&["mkfs", "-q", &name, "8M"]).ok()?;
    let before = fs::read(&image)?;
    let said = extant(&["mkfs", "-n", "-F", "-b", "4096", &name]).ok()?.out;
    ensure!(
        said.contains("overwritten would be: an ext2, ext3 or ext4 file system"),
        "{said}"
    );
    ensure!(fs::read(&image)? == before, "the image was changed");
    Ok(())
}

/// Time comes from `SOURCE_DATE_EPOCH`; nothing else of the surroundings shows.
#[test]
fn the_same_options_give_the_same_bytes() -> Result<()> {
    let mut made = Vec::new();
    for (epoch, zone, umask) in [
        ("1", "UTC", "022"),
        ("1", "Asia/Tokyo", "077"),
        ("2", "UTC", "022"),
    ] {
        let dir = TempDir::new("mkfs")?;
        let image = dir.join("new.img").display().to_string();
        let args = IDENTITY.join(" ");
        let command = env!("CARGO_BIN_EXE_extant");
        let script = format!("umask {umask}; exec {command} mkfs -q {args} {image} 40M");
        let shell = Cmd::new("sh").args(["-c", &script]).env("TZ", zone);
        shell.env("SOURCE_DATE_EPOCH", epoch).ok()?;
        made.push(fs::read(&image)?);
    }
    ensure!(made[0] == made[1], "the surroundings show");
    ensure!(made[0] != made[2], "the time does not show");
    Ok(())
}

/// Options and size, the exit status, and what is said.
const REFUSED: &[(&str, i32, &str)] = &[
    ("IMAGE", 1, "there is no such file: give a size to make one"),
    (
        "IMAGE 10K",
        1,
        "10240 bytes are too few for a file system of this kind",
    ),
    (
        "-b 131072 IMAGE 1M",
        1,
        "the block size is 131072: it has to be",
    ),
    (
        "-O ^has_journal,orphan_file IMAGE 9M",
        1,
        "orphan_file needs has_journal",
    ),
    (
        "-E encoding_flags=strict IMAGE 9M",
        1,
        "encoding_flags=strict needs casefold",
    ),
    ("-O bogus IMAGE 9M", 2, "there is no feature of this name"),
    ("-O snapshot IMAGE 9M", 2, "volumes with it are not made"),
    ("-E bogus=1 IMAGE 9M", 2, "\"bogus=1\" is not known"),
    ("-U 1234 IMAGE 9M", 2, "\"1234\" is no UUID"),
    (
        "-J 4 IMAGE 9M",
        2,
        "only size=MIB, fast_commit_size=KIB and device=PATH are known",
    ),
    ("-i 4096 -N 9 IMAGE 9M", 2, "cannot be used with"),
    ("/ 9M", 1, "/: neither a regular file nor a block device"),
];

#[test]
fn refusals_have_a_line_and_a_status() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let image = dir.join("new.img").display().to_string();
    for (line, status, said) in REFUSED {
        let words = line.split(' ');
        let words = words.map(|word| {
            if word == "IMAGE" {
                image.as_str()
            } else {
                word
            }
        });
        let output = extant(&["mkfs"]).args(words).run()?;
        ensure!(
            output.code == Some(*status),
            "{line}: {}",
            output.describe()
        );
        ensure!(output.err.contains(said), "{line}: {}", output.describe());
        ensure!(!dir.join("new.img").exists(), "{line} left a file");
    }
    let made = extant(&["mkfs", &image, "9M"]).env("SOURCE_DATE_EPOCH", "soon");
    let bad = made.run()?;
    ensure!(
        bad.code == Some(1) && bad.err.contains("SOURCE_DATE_EPOCH is soon"),
        "{}",
        bad.err
    );
    Ok(())
}
