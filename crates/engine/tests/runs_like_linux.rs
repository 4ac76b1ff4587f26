//! A file that a kernel above writes back lies in as few runs as Linux gives it, in whatever order
//! the kernel's requests arrive.

use extant_engine::{Cred, Node, Volume, VolumeOptions};
use extant_testkit::{Image, Need, Result, Rng, Subject, ensure, need, report};

const SIZE: usize = 20 << 20;
const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Root, Need::Loop];
/// Requests that Linux has in flight at once, by default.
const IN_FLIGHT: usize = 12;

/// Runs on the device that hold the file's data.
fn runs(volume: &Volume, node: &Node) -> Result<usize> {
    let (mut runs, mut end) = (0, None);
    for extent in volume.map(node, 0) {
        let extent = extent?;
        if let Some(at) = extent.physical {
            runs += usize::from(end != Some(at));
            end = Some(at + extent.len);
        }
    }
    Ok(runs)
}

/// Number of runs that Linux makes of dd on a fresh volume.
fn linux(args: &str) -> Result<usize> {
    let image = Image::of_mib(256).args(args).make()?;
    let mount = Subject::Ext4.mount(image.path(), "")?;
    std::fs::write(mount.dir().join("f"), vec![7; SIZE])?;
    mount.unmount()?;
    let volume = VolumeOptions::new().open(image.path())?;
    let node = volume.lookup(&volume.root()?, b"f")?;
    let runs = runs(&volume, &node)?;
    volume.unmount()?;
    Ok(runs)
}

/// Writes the file in requests of `piece` bytes; any of those in flight may be the next to arrive.
fn ours(args: &str, piece: usize, seed: u64) -> Result<usize> {
    let image = Image::of_mib(256).args(args).make()?;
    let volume = VolumeOptions::new().write(true).open(image.path())?;
    let cred = Cred::root();
    let node = volume.create(&volume.root()?, b"f", 0o644, &cred)?;
    let mut rng = Rng::new(seed);
    let mut next = 0;
    let mut flying = Vec::new();
    let data = vec![7; piece];
    while next < SIZE || !flying.is_empty() {
        while next < SIZE && flying.len() < IN_FLIGHT {
            flying.push(next);
            next += piece;
        }
        let pos = flying.swap_remove(rng.index(flying.len()));
        ensure!(
            volume.write_back(&node, pos as u64, &data, &cred)? == data.len(),
            "a short write"
        );
    }
    volume.fsync(&node, false)?;
    let runs = runs(&volume, &node)?;
    volume.unmount()?;
    image.fsck_clean()?;
    Ok(runs)
}

#[test]
fn requests_out_of_order_do_not_scatter_a_file() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 4096";
    let linux = linux(args)?;
    let mut counts = Vec::new();
    for piece in [128 << 10, 1 << 20] {
        for seed in 0..4 {
            counts.push(ours(args, piece, seed)?);
        }
    }
    report(&format!("{linux} runs by Linux, {counts:?}"));
    let most = linux.max(2);
    ensure!(
        counts.iter().all(|&runs| runs <= most),
        "{linux} runs by Linux, {counts:?}"
    );
    Ok(())
}
