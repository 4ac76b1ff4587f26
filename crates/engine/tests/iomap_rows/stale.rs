//! No stale data: the device holds junk everywhere before mke2fs; whatever is written, cut,
//! extended, dropped from the cache, mounted again or found after a crash, no file ever shows it.

use extant_engine::{Cred, Node, SeekTarget};
use extant_testkit::{Rng, content};

use crate::rig::{Rig, WAYS, image, soak};

const SPAN: u64 = 400_000;
const SEED: u64 = 77;

/// Every byte is the content of its position, or zero: files are only ever written with that.
fn judge(rig: &Rig, name: &str, when: &str) {
    let found = rig.content(&rig.find(name));
    let wrong = content::first_foreign(SEED, 0, &found);
    assert_eq!(wrong, None, "{name} {when}, of {} bytes", found.len());
}

fn step(rig: &Rig, node: &Node, rng: &mut Rng) {
    let size = rig.volume.getattr(node).unwrap().size;
    match rng.below(13) {
        // Somewhere, in the block of the end, behind the end with a gap that ends within a block or
        // at its edge.
        0..=4 => {
            let pos = match rng.below(4) {
                0 => rng.below(SPAN),
                1 => size,
                2 => size + rng.below(9000),
                _ => (size + rng.below(20_000)) & !1023,
            };
            let most = [10, 3000, 70_000][rng.index(3)];
            let len = 1 + rng.below(most);
            let len = usize::try_from(len).unwrap();
            rig.write(node, pos, &content::fill(SEED, pos, len));
        }
        5..=6 => rig.truncate(node, rng.below(size + 1)),
        7 => rig.truncate(node, size + rng.below(30_000)),
        8 => rig.volume.fsync(node, rng.chance(50)).unwrap(),
        9 => rig.volume.sync().unwrap(),
        10 => rig.volume.drop_caches(),
        11 => {
            // As a store through a mapping: into holes as well, never past the end.
            let pos = rng.below(size + 1);
            let len = usize::try_from(1 + rng.below(20_000)).unwrap();
            let fill = |at: u64, bytes: &mut [u8]| {
                assert_eq!(content::first_foreign(SEED, at, bytes), None);
                bytes.copy_from_slice(&content::fill(SEED, at, bytes.len()));
            };
            rig.volume
                .edit(node, pos, len, &Cred::root(), fill)
                .unwrap();
        }
        _ => {
            // Holes that are looked at become cached zeros, which later writes must not take for
            // space.
            let mut buf = vec![0x55; 50_000];
            let pos = rng.below(SPAN);
            let done = rig.volume.read(node, pos, &mut buf).unwrap();
            assert_eq!(content::first_foreign(SEED, pos, &buf[..done]), None);
            let _ = rig.volume.seek(node, SeekTarget::Hole(pos));
        }
    }
    if size > 3 * SPAN {
        rig.truncate(node, SPAN / 2);
    }
}

fn run(args: &str, order: u8, options: &str, seed: u64) {
    let mut bytes = image(24, args);
    let mut rng = Rng::new(seed);
    let names = ["a", "b", "c"];
    for round in 0..3 {
        let rig = Rig::tuned(&bytes, options, |tuning| {
            tuning.max_folio_order = order;
            tuning.page_cache_bytes = Some(if round == 1 { 256 << 10 } else { 32 << 20 });
            tuning.flushers = u8::from(round == 1);
        });
        let nodes = names.map(|name| {
            if round == 0 {
                rig.create(name)
            } else {
                judge(&rig, name, "at mount");
                rig.find(name)
            }
        });
        for number in 0..90 {
            step(&rig, &nodes[rng.index(names.len())], &mut rng);
            if number % 15 == 14 {
                names
                    .iter()
                    .for_each(|name| judge(&rig, name, "in the run"));
                let crashed = rig.after_crash();
                for name in names {
                    // Its creation may not have arrived.
                    let root = crashed.volume.root().unwrap();
                    let Ok(node) = crashed.volume.lookup(&root, name.as_bytes()) else {
                        continue;
                    };
                    judge(&crashed, name, "after a crash");
                    // What lies behind the end must not come to light either.
                    let size = crashed.volume.getattr(&node).unwrap().size;
                    crashed.truncate(&node, size + 10_000);
                    judge(&crashed, name, "after a crash and an extension");
                }
                crashed.end();
            }
        }
        rig.check(false);
        rig.volume.unmount().unwrap();
        bytes = rig.device.to_bytes();
        rig.end();
    }
}

#[test]
fn nothing_stale_shows_in_blocks_of_1_kib() {
    run("-b 1024", 0, "", 11);
    run("-b 1024", 3, "", 12);
    run("-b 1024", 9, "", 13);
    run("-b 1024", 9, "nodelalloc", 14);
}

#[test]
fn nothing_stale_shows_in_blocks_of_2_kib() {
    run("-b 2048", 0, "", 21);
    run("-b 2048", 9, "", 22);
}

#[test]
fn nothing_stale_shows_in_blocks_of_4_kib() {
    run("-b 4096", 0, "", 31);
    run("-b 4096", 3, "", 32);
    run("-b 4096", 9, "", 33);
    run("-b 4096 -O ^metadata_csum,^64bit", 9, "nodelalloc", 34);
}

#[test]
fn nothing_stale_shows_on_the_other_path() {
    run("-b 1024", 3, "nobuffered_iomap", 41);
    run("-b 4096", 9, "nobuffered_iomap,dioread_lock", 42);
    run("-b 1024", 9, "nobuffered_iomap,data=journal", 43);
}

/// The same for as long as `EXTANT_SECONDS` says: a stage of the soak.
#[test]
fn soak_stale_data() {
    soak(|rng| {
        let args = ["-b 1024", "-b 2048", "-b 4096", "-b 8192", "-b 65536"][rng.index(5)];
        let order = [0, 1, 3, 9][rng.index(4)];
        let options = WAYS[rng.index(WAYS.len())];
        let seed = rng.next_u64();
        println!("stale data: {args}, order {order}, '{options}', seed {seed}");
        run(args, order, options, seed);
    });
}
