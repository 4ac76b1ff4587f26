//! `extant map` beside what Linux and debugfs say about the same files.

use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, ensure, need};
use rustix::fs::{FallocateFlags, fallocate};

const NEEDS: &[Need] = &[Need::Loop, Need::Tool("filefrag"), Need::Tool("debugfs")];

/// First block in the file, first block on the device, blocks, whether it has data.
type Run = (u64, u64, u64, bool);

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// Joins neighbours: Linux lists the entries of the tree, which are limited in length.
fn join(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last)
                if last.3 == run.3 && last.0 + last.2 == run.0 && last.1 + last.2 == run.1 =>
            {
                last.2 += run.2;
            }
            _ => all.push(run),
        }
    }
    all
}

/// The map by Linux.
fn filefrag(path: &Path) -> Result<Vec<Run>> {
    let text = Cmd::new("filefrag").arg("-v").arg(path).ok()?.out;
    let mut runs = Vec::new();
    for line in text.lines() {
        let numbers: Vec<u64> = line
            .split([':', '.', ' '])
            .filter_map(|word| word.parse().ok())
            .collect();
        // "  0:        0..      31:      34816..     34847:     32:             last,eof"
        if let [_, logical, _, physical, _, len, ..] = numbers[..]
            && line.matches("..").count() == 2
        {
            runs.push((logical, physical, len, !line.contains("unwritten")));
        }
    }
    Ok(join(runs))
}

/// The map by `extant map --json`; holes fill the gaps.
fn mapped(image: &Image, path: &str) -> Result<Vec<Run>> {
    let at = format!("{}:{path}", image.path().display());
    let all: serde_json::Value = serde_json::from_str(&extant(&["map", "--json", &at]).ok()?.out)?;
    let extents = all[0]["extents"].as_array().cloned().unwrap_or_default();
    let mut end = 0;
    let mut runs = Vec::new();
    for e in &extents {
        let number = |name: &str| e[name].as_u64().unwrap_or(u64::MAX);
        ensure!(number("logical") == end, "a gap before {e}");
        end += number("length");
        match e["state"].as_str() {
            Some("hole") => ensure!(e["physical"].is_null(), "{e}"),
            Some(state @ ("written" | "unwritten")) => runs.push((
                number("logical"),
                number("physical"),
                number("length"),
                state == "written",
            )),
            _ => ensure!(false, "{e}"),
        }
    }
    Ok(runs)
}

#[test]
fn it_agrees_with_linux_about_every_kind_of_file() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-b 4096",
        "-b 1024",
        "-b 1024 -O ^extents,^64bit,^metadata_csum",
    ] {
        let image = Image::of_mib(64).args(args).make()?;
        let with_extents = !args.contains("^extents");
        let mount = Subject::Ext4.mount(image.path(), "")?;
        let fragmented = File::create(mount.join("fragmented"))?;
        let other = File::create(mount.join("other"))?;
        for i in 0..40u64 {
            // Allocated alternately, with holes; in an old map this reaches into its third level.
            fragmented.write_all_at(&[1; 20_000], i * 50_000)?;
            fragmented.sync_all()?;
            other.write_all_at(&[2; 5000], i * 5000)?;
            other.sync_all()?;
        }
        other.set_len(1 << 20)?;
        drop((fragmented, other));
        if with_extents {
            let f = File::create(mount.join("unwritten"))?;
            fallocate(&f, FallocateFlags::empty(), 0, 300_000)?;
            f.write_all_at(&[3; 10_000], 100_000)?;
            fallocate(&f, FallocateFlags::KEEP_SIZE, 500_000, 100_000)?;
        }
        File::create(mount.join("empty"))?;
        symlink("x".repeat(50), mount.join("short"))?;
        symlink("y".repeat(100), mount.join("long"))?;
        Cmd::new("sync").arg("-f").arg(mount.dir()).ok()?;
        let names = ["fragmented", "other", "unwritten", "empty"];
        let names = names.iter().filter(|n| with_extents || **n != "unwritten");
        let mut expected = Vec::new();
        for name in names {
            expected.push((format!("/{name}"), filefrag(&mount.join(name))?));
        }
        mount.unmount()?;
        for path in ["/", "/long"] {
            let blocks = image.debugfs(&format!("blocks {path}"))?;
            let blocks = blocks.split_whitespace().filter_map(|b| b.parse().ok());
            let one_each = (0..).zip(blocks).map(|(i, b)| (i, b, 1, true));
            expected.push((path.to_owned(), join(one_each)));
        }
        expected.push(("/short".to_owned(), Vec::new()));
        let mut seen = 0;
        for (path, runs) in expected {
            let ours = mapped(&image, &path)?;
            ensure!(ours == runs, "{args}: {path}: {ours:?} is not {runs:?}");
            seen += runs.len();
        }
        ensure!(seen > 40, "{args}: {seen} runs in all");
    }
    Ok(())
}

#[test]
fn a_listing_for_people() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).args("-b 4096").make()?;
    let at = |path: &str| format!("{}:{path}", image.path().display());
    let host = extant_testkit::TempDir::new("host")?;
    std::fs::write(host.join("f"), vec![7; 9000])?;
    let file = host.join("f").display().to_string();
    extant(&["cp", &file, &at("/f")]).ok()?;
    extant(&["ln", "-s", "f", &at("/link")]).ok()?;
    let text = extant(&["map", "-L", &at("/link")]).ok()?.out;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.len() == 3, "{text}");
    ensure!(
        lines[0] == "/link: 9000 bytes in blocks of 4096, iomap path",
        "{text}"
    );
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    ensure!(
        words[0] == "0..2" && words[2..] == ["3", "written"],
        "{text}"
    );
    ensure!(
        extant(&["map", &at("/link")]).ok()?.out.lines().count() == 2,
        "a short link has no blocks"
    );
    let missing = extant(&["map", "--json", &at("/none"), &at("/f")]).run()?;
    ensure!(missing.code == Some(1), "{}", missing.describe());
    let list: serde_json::Value = serde_json::from_str(&missing.out)?;
    ensure!(list[0]["path"] == "/f" && list[1].is_null(), "{list}");
    Ok(())
}

/// The number of pieces that `extant map --json` shows of a file: neighbours on the device are one.
fn pieces(image: &Image, path: &str) -> Result<usize> {
    let runs = mapped(image, path)?.into_iter();
    let placed: Vec<Run> = runs.filter(|run| run.1 > 0).collect();
    let apart = placed
        .windows(2)
        .filter(|two| two[0].1 + two[0].2 != two[1].1);
    Ok(apart.count() + 1)
}

#[test]
fn a_picture_counts_what_the_list_shows() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let dir = TempDir::new("picture")?;
    // A file with two others between its pieces.
    let disk = image.path().display();
    for (name, block) in [("a", 0), ("x", 0), ("a", 1), ("y", 0), ("a", 2)] {
        let file = format!("{disk}:/{name}<&.txt");
        let (offset, input) = ((block * 65536).to_string(), dir.join(name));
        let written = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&input)?;
        written.write_all_at(&[7; 65536], block * 65536)?;
        if block == 0 {
            extant(&["cp", &input.display().to_string(), &file]).ok()?;
        } else {
            extant(&["fallocate", "-o", &offset, "-l", "65536", &file]).ok()?;
        }
    }
    let svg = dir.join("map.svg").display().to_string();
    let (file, whole) = (format!("{disk}:/a<&.txt"), format!("{disk}:/"));
    extant(&["map", "--plot", &svg, &file, &whole]).ok()?;
    let text = std::fs::read_to_string(&svg)?;
    let right = pieces(&image, "/a<&.txt")?;
    ensure!(right > 1, "in one piece");
    let title = "/a&lt;&amp;.txt: 192 KiB in ";
    let (_, rest) = text.split_once(title).unwrap_or_default();
    let (said, _) = rest.split_once("</text>").unwrap_or_default();
    ensure!(
        said.ends_with(&format!(", {right} pieces")),
        "{right}: {said}"
    );
    // The root, lost+found and three files; and their cells, some with a later piece.
    ensure!(text.contains(">/: 5 files, "), "{text}");
    ensure!(text.contains("stroke=\"#c2272d\""), "{text}");
    if need(&[Need::Tool("rsvg-convert")]) {
        let png = dir.join("map.png");
        Cmd::new("rsvg-convert")
            .arg("-o")
            .arg(&png)
            .arg(&svg)
            .ok()?;
        ensure!(std::fs::read(png)?[1..4] == *b"PNG", "no picture");
    }
    let wrong = extant(&["map", "--plot", &svg, &format!("{disk}:/none")]).run()?;
    ensure!(wrong.code == Some(1), "{}", wrong.describe());
    // By another name of it, too.
    let alias = dir.join("alias");
    std::os::unix::fs::symlink(image.path(), &alias)?;
    let before = image.fingerprint()?;
    let over = extant(&["map", "--plot", &alias.display().to_string(), &file]).run()?;
    let said = over.err.ends_with(": the image itself\n");
    ensure!(over.code == Some(1) && said, "{}", over.describe());
    ensure!(image.fingerprint()? == before, "the image was written");
    Ok(())
}
