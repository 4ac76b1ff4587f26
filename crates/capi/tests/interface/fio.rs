//! fio's jobs on an image in its own process, through the engines of `crates/capi/fio`: the seeds'
//! command lines, with less data.

use std::path::Path;

use extant::Filesystem;
use extant_testkit::cmd::Output;
use extant_testkit::{Cmd, Image, Need, TempDir, need};
use serde_json::Value;

use crate::libraries;

const NEEDS: [Need; 3] = [Need::Tool("gcc"), Need::Tool("fio"), Need::Tool("mke2fs")];

/// Runs fio with one of the engines on `image`.
fn fio(image: &Path, engine: &str, args: &str) -> Output {
    let engine = libraries().join(engine);
    // fio leaves the state of a verification that failed in its working directory.
    let dir = TempDir::new("fio").unwrap();
    Cmd::new("fio")
        .dir(dir.path())
        .args(["--output-format=json", "--directory=/mnt"])
        .arg(format!("--ioengine=external:{}", engine.display()))
        .args(args.split_whitespace())
        .env("EXTANT_FIO_IMAGE", image)
        .run()
        .unwrap()
}

/// The first job's report of a run that worked.
fn job(output: &Output) -> Value {
    assert_eq!(output.code, Some(0), "{}", output.describe());
    let from = output.out.find('{').unwrap();
    let mut report: Value = serde_json::from_str(&output.out[from..]).unwrap();
    let job = report["jobs"][0].take();
    assert_eq!(job["error"], 0, "{}", output.out);
    job
}

fn count(job: &Value, direction: &str) -> u64 {
    job[direction]["total_ios"].as_u64().unwrap()
}

/// The seeds' lines for buffered writes and reads, which set fio's options in this order.
#[test]
fn the_seeds_lines_run_on_an_image() {
    if !need(&NEEDS) {
        return;
    }
    let image = Image::of_mib(128).make().unwrap();
    let line = "-direct=0 -iodepth=1 -numjobs=1 -runtime=60 -norandommap=0 -fallocate=none \
                -overwrite=0 -group_reportin -name=1 -size=8M";
    for (block, requests) in [("4k", 2048), ("64k", 128), ("1M", 8)] {
        for sync in [0, 1] {
            let args = format!("{line} -fsync={sync} -rw=write -bs={block}");
            let wrote = job(&fio(image.path(), "libextant-fio.so", &args));
            assert_eq!(count(&wrote, "write"), requests);
            // fio sends none after the last write.
            assert_eq!(count(&wrote, "sync"), sync * (requests - 1));
        }
        let args = format!("{line} -fsync=0 -rw=read -bs={block}");
        let read = job(&fio(image.path(), "libextant-fio.so", &args));
        assert_eq!(count(&read, "read"), requests);
    }
    image.fsck_clean().unwrap();
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(fs.metadata("/mnt/1.0.0").unwrap().len(), 8 << 20);
}

/// The seed of the I/O tree: direct random writes, many in flight, from several jobs on one file.
#[test]
fn direct_requests_are_in_flight_together() {
    if !need(&NEEDS) {
        return;
    }
    let image = Image::of_mib(128).make().unwrap();
    let line = "--rw=randwrite --fsync=0 --fallocate=none --group_reporting=1 --direct=1 \
                --iodepth=64 --bs=4K --filesize=16M --size=16M --filename=foobar --numjobs=2 \
                --thread --name=job";
    let wrote = job(&fio(image.path(), "libextant-fio-direct.so", line));
    assert_eq!(count(&wrote, "write"), 2 * 4096);
    assert!(
        wrote["iodepth_level"][">=64"].as_f64().unwrap() > 50.0,
        "{wrote}"
    );
    image.fsck_clean().unwrap();
}

/// A job that reads on a fresh image finds its file laid out, with data and to its last byte.
#[test]
fn files_that_are_read_are_laid_out() {
    if !need(&NEEDS) {
        return;
    }
    let image = Image::of_mib(64).make().unwrap();
    for (name, engine, args) in [
        ("one", "libextant-fio.so", "--rw=read --bs=20k --size=2500k"),
        (
            "two",
            "libextant-fio-direct.so",
            "--rw=randread --bs=4k --iodepth=8 --size=2500k",
        ),
    ] {
        let args = format!("{args} --name={name} --filename={name}");
        let read = job(&fio(image.path(), engine, &args));
        assert_eq!(read["read"]["io_bytes"], 2500 << 10);
        let fs = Filesystem::open(image.path()).unwrap();
        let laid_out = fs.read(format!("/mnt/{name}")).unwrap();
        assert_eq!(laid_out.len(), 2500 << 10);
        assert!(!laid_out.contains(&0));
    }
    image.fsck_clean().unwrap();
    // A job that reads and writes keeps what it has written, wherever the file ended then.
    let args = "--rw=randrw --bs=4k --size=2M --iodepth=8 --verify=crc32c --name=mixed";
    job(&fio(image.path(), "libextant-fio-direct.so", args));
    image.fsck_clean().unwrap();
}

/// fio reads back what it writes, by both engines; and it would say so if it did not.
#[test]
fn verification_is_clean_and_finds_damage() {
    if !need(&NEEDS) {
        return;
    }
    let image = Image::of_mib(128).make().unwrap();
    let line = "--bs=4K --size=8M --verify=crc32c --name=v --filename=verified";
    for (engine, more) in [
        ("libextant-fio.so", "--rw=write"),
        ("libextant-fio.so", "--rw=randwrite --fsync=64"),
        (
            "libextant-fio-direct.so",
            "--rw=randwrite --iodepth=32 --fdatasync=64",
        ),
    ] {
        let verified = job(&fio(image.path(), engine, &format!("{line} {more}")));
        assert_eq!(
            (count(&verified, "write"), count(&verified, "read")),
            (2048, 2048)
        );
    }
    image.fsck_clean().unwrap();
    let look = format!("{line} --rw=read");
    job(&fio(image.path(), "libextant-fio.so", &look));
    let fs = Filesystem::options()
        .write(true)
        .open(image.path())
        .unwrap();
    let mut options = fs.open_options();
    let file = options.write(true).open("/mnt/verified").unwrap();
    file.write_at(b"damage", 5_000_000).unwrap();
    drop(file);
    fs.unmount().unwrap();
    let found = fio(image.path(), "libextant-fio-direct.so", &look);
    assert_ne!(found.code, Some(0));
    assert!(found.err.contains("verify"), "{}", found.describe());
}

#[test]
fn jobs_that_cannot_run_say_why() {
    if !need(&NEEDS) {
        return;
    }
    let image = Image::of_mib(32).make().unwrap();
    let line = "--rw=write --bs=4K --size=4M --name=p";
    // The one that comes first has the image for longer than the other one waits for it.
    let processes = format!("{line} --numjobs=2 --time_based --runtime=6");
    let refused = fio(image.path(), "libextant-fio.so", &processes);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("thread=1"), "{}", refused.describe());
    let refused = fio(Path::new(""), "libextant-fio.so", line);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("EXTANT_FIO_IMAGE"),
        "{}",
        refused.describe()
    );
    let refused = fio(Path::new("/no/such/image"), "libextant-fio.so", line);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("No such file"),
        "{}",
        refused.describe()
    );
}
