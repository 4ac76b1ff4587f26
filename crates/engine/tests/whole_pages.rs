//! With `data=journal` what one write puts into a page of 4 KiB shows whole or not at all after a
//! power cut, however small the blocks and the journal are.

use std::collections::HashSet;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{Cred, Node, Volume, VolumeOptions};
use extant_testkit::crash::{Budget, Explorer};
use extant_testkit::{Image, Recorder};

const PAGE: usize = 4096;
/// Pages of the file: more than one transaction of the smallest journal can hold.
const PAGES: usize = 80;

fn open(device: Arc<dyn BlockDevice>) -> Result<Volume, extant_engine::Error> {
    let mut options = VolumeOptions::new();
    options.write(true).mount_options("data=journal");
    options.open_on(device)
}

fn find(volume: &Volume) -> Result<Node, extant_engine::Error> {
    volume.lookup(&volume.root()?, b"f")
}

/// Content of pages after the `version`th write: each of its bytes says so.
fn content(version: u8) -> Vec<u8> {
    vec![version; PAGES * PAGE]
}

/// The versions of all pages. A file may end at any page's end.
fn versions(volume: &Volume) -> Result<Vec<u8>, String> {
    let text = |error: extant_engine::Error| error.to_string();
    let node = find(volume).map_err(text)?;
    let mut bytes = vec![0; PAGES * PAGE];
    let len = volume.read(&node, 0, &mut bytes).map_err(text)?;
    let pages = bytes[..len].chunks(PAGE);
    let whole = pages.enumerate().map(|(number, page)| {
        let blocks: Vec<u8> = page.chunks(1024).map(|block| block[0]).collect();
        let same = page.len() == PAGE && page.iter().all(|byte| *byte == page[0]);
        same.then_some(page[0])
            .ok_or_else(|| format!("page {number}: {blocks:?}"))
    });
    whole.collect()
}

#[test]
fn a_page_is_in_one_transaction() {
    for mkfs in ["-b 1024", "-b 1024 -O ^extent,^64bit", "-b 2048 -J size=2"] {
        let image = Image::of_mib(10).args(mkfs).junk().make().unwrap();
        let volume = open(Arc::new(
            extant_engine::device::FileDevice::open(
                image.path(),
                extant_engine::device::OpenMode::ReadWrite,
            )
            .unwrap(),
        ))
        .unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        drop(volume.create(&root, b"f", 0o644, &cred).unwrap());
        drop(root);
        volume.unmount().unwrap();
        drop(volume);
        let base = std::fs::read(image.path()).unwrap();

        let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let volume = open(device).unwrap();
        let node = find(&volume).unwrap();
        // Into holes, then over what is there; all at once, then from another page on.
        for (version, first) in [(1, 0), (2, 0), (3, 7)] {
            let bytes = content(version);
            let from = &bytes[first * PAGE..];
            let pos = (first * PAGE) as u64;
            assert_eq!(volume.write(&node, pos, from, &cred).unwrap(), from.len());
        }
        volume.fsync(&node, false).unwrap();
        drop(node);
        volume.unmount().unwrap();
        drop(volume);
        let mut seen = HashSet::new();
        let explorer = Explorer::new(base, recorder.events(), 3, Budget::SHORT);
        let totals = explorer.run(|state| {
            let volume = open(state.device).map_err(|error| error.to_string())?;
            seen.insert(versions(&volume)?);
            volume.unmount().map_err(|error| error.to_string())
        });
        let totals = totals.unwrap_or_else(|f| panic!("{mkfs}, {}: {}", f.cut, f.why));
        // Transactions end within writes: it is pages that are whole.
        let mixed = seen
            .iter()
            .filter(|pages| pages.iter().collect::<HashSet<_>>().len() > 1);
        assert!(mixed.count() > 0, "{mkfs}: {} states", totals.all());
    }
}
