//! A volume that runs full: rows 12 and 15, and the reservations of delayed data.

use extant_engine::{Cred, Error, ExtentState, Node};
use extant_testkit::{Image, Rng, content};

use crate::rig::{Rig, WAYS, image, number, soak};

fn user() -> Cred {
    Cred {
        uid: 1000,
        privileged: false,
        ..Cred::root()
    }
}

#[test]
fn iomap_15_new_space_is_promised_or_unwritten() {
    for (options, state) in [
        ("", ExtentState::Delayed),
        ("nodelalloc", ExtentState::Unwritten),
    ] {
        let rig = Rig::tuned(&image(32, "-b 1024"), options, |_| ());
        let node = rig.create("f");
        let counted = rig.counted(|| rig.write(&node, 0, &[1; 300_000]));
        let states: Vec<_> = rig.volume.map(&node, 0).map(|e| e.unwrap().state).collect();
        assert!(states.iter().all(|s| *s == state), "{states:?}");
        let direct = counted["direct_allocations"];
        assert_eq!(direct > 0, state == ExtentState::Unwritten);
        // 293 blocks, few mappings; what stat says has them all.
        assert!(counted["begin_calls"] <= 3, "{counted:?}");
        assert_eq!(rig.volume.getattr(&node).unwrap().blocks, 293 * 2);
        rig.volume.fsync(&node, false).unwrap();
        assert_eq!(rig.volume.getattr(&node).unwrap().blocks, 293 * 2);
        let states: Vec<_> = rig.volume.map(&node, 0).map(|e| e.unwrap().state).collect();
        assert_eq!(states, [ExtentState::Written]);
        rig.check(true);
        rig.end();
    }
}

#[test]
fn iomap_15_when_space_is_low_a_place_is_chosen_at_once() {
    for options in ["", "nobuffered_iomap", "nobuffered_iomap,dioread_lock"] {
        low_space(options);
    }
}

fn low_space(options: &str) {
    let rig = Rig::tuned(&image(32, "-b 4096"), options, |tuning| {
        tuning.page_cache_bytes = Some(256 << 20);
    });
    let free = rig.volume.statfs().unwrap().blocks_free;
    let half = rig.create("half");
    // Promises of more than two thirds of what is free end the delaying.
    let most = usize::try_from(free * 4096 * 3 / 4).unwrap();
    let counted = rig.counted(|| rig.write(&half, 0, &vec![1; most]));
    if options.is_empty() {
        assert_eq!(counted["direct_allocations"], 0, "one promise for one call");
    } else {
        // The buffer-head path asks before each folio.
        assert!(counted["direct_allocations"] > 0);
        assert!(counted["reserved"] > 0);
    }
    let more = rig.create("more");
    let counted = rig.counted(|| rig.write(&more, 0, &[1; 50_000]));
    assert!(counted["direct_allocations"] > 0);
    assert!(counted["low_space_flushes"] > 0);
    assert_eq!(counted["reserved"], 0, "no more promises");
    rig.check(false);
    rig.volume.sync().unwrap();
    rig.check(true);
    rig.end();
}

/// Bytes that one writer has got: of `content::fill`, from zero on.
struct Written {
    name: String,
    seed: u64,
    /// Bytes that `write` took.
    taken: u64,
    /// Of those, what a successful fsync covers.
    synced: u64,
}

/// Appends pieces of random sizes until there is no space, with an fsync now and then.
fn fill(rig: &Rig, number: u64, seed: u64) -> (Node, Written) {
    let cred = if number.is_multiple_of(4) {
        Cred::root()
    } else {
        user()
    };
    let name = format!("f{number}");
    let node = rig.create(&name);
    let seed = seed ^ number << 32;
    let mut written = Written {
        name,
        seed,
        taken: 0,
        synced: 0,
    };
    let mut rng = Rng::new(seed);
    let mut refused = 0;
    while refused < 4 {
        let most = [900, 30_000, 300_000, 2_000_000][rng.index(4)] >> refused;
        let len = usize::try_from(1 + rng.below(most)).unwrap();
        let data = content::fill(seed, written.taken, len);
        match rig.volume.write(&node, written.taken, &data, &cred) {
            Ok(done) => {
                assert!(done > 0 && done <= len);
                written.taken += done as u64;
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if rng.chance(10) {
            // A promise is kept: no fsync may fail, full as the volume is.
            rig.volume.fsync(&node, rng.chance(50)).unwrap();
            written.synced = written.taken;
        }
    }
    (node, written)
}

/// A crash before the writeback shows what was synced, and no byte that is not the file's own.
fn check_crash(rig: &Rig, done: &[(Node, Written)]) {
    let crashed = rig.after_crash();
    for (_, written) in done {
        let found = crashed.content(&crashed.find(&written.name));
        assert!(found.len() as u64 >= written.synced && found.len() as u64 <= written.taken);
        let synced = usize::try_from(written.synced).unwrap();
        assert_eq!(
            content::first_wrong(written.seed, 0, &found[..synced]),
            None
        );
        assert_eq!(content::first_foreign(written.seed, 0, &found), None);
    }
    crashed.end();
}

/// Eight writers fill the volume through delayed allocation; then what they got is compared with
/// what is there.
fn fill_and_check(bytes: &[u8], options: &str, order: u8, seed: u64) {
    let rig = Rig::tuned(bytes, options, |tuning| {
        tuning.max_folio_order = order;
        tuning.flushers = 2;
        tuning.page_cache_bytes = Some(16 << 20);
    });
    let empty = rig.volume.statfs().unwrap();
    let done: Vec<(Node, Written)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|number| {
                let rig = &rig;
                scope.spawn(move || fill(rig, number, seed))
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let total: u64 = done.iter().map(|(_, w)| w.taken).sum();
    let user_bytes = empty.blocks_available * empty.block_size as u64;
    assert!(total > user_bytes * 9 / 10, "{total} of {user_bytes}");
    rig.check(false);
    check_crash(&rig, &done);

    rig.volume.sync().unwrap();
    rig.check(true);
    let counters = rig.counters();
    assert_eq!(
        (counters["reserved"], counters["reservation_leaks"]),
        (0, 0)
    );
    assert_eq!(counters["credit_overflow"], 0);
    let full = rig.volume.statfs().unwrap();
    let used: u64 = done
        .iter()
        .map(|(node, _)| rig.volume.getattr(node).unwrap().blocks * 512 / full.block_size as u64)
        .sum();
    let gone = empty.blocks_free - full.blocks_free;
    // The directory may have grown by a block.
    assert!(
        (used..=used + 2).contains(&gone),
        "{used} in files, {gone} gone"
    );
    rig.volume.drop_caches();
    for (node, written) in &done {
        assert_eq!(rig.volume.getattr(node).unwrap().size, written.taken);
        let found = rig.content(node);
        assert_eq!(content::first_wrong(written.seed, 0, &found), None);
    }
    rig.volume.unmount().unwrap();
    // Another mount, and e2fsck, count the same.
    let again = rig.after_crash();
    assert_eq!(again.volume.statfs().unwrap().blocks_free, full.blocks_free);
    for (_, written) in &done {
        let found = again.content(&again.find(&written.name));
        assert_eq!(found.len() as u64, written.taken);
        assert_eq!(content::first_wrong(written.seed, 0, &found), None);
    }
    again.end();
}

#[test]
fn eight_writers_fill_a_volume_and_lose_nothing() {
    let seed = number("EXTANT_SEED").unwrap_or(1);
    for (args, order) in [("-b 4096", 9), ("-b 1024", 3), ("-b 4096 -m 0", 0)] {
        fill_and_check(&image(64, args), "", order, seed);
    }
}

/// The same for as long as `EXTANT_SECONDS` says, with every shape of volume and data path: a
/// stage of the soak.
#[test]
fn soak_full_volumes() {
    let shapes = [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-b 4096 -m 0",
        "-b 1024 -J size=1",
    ];
    soak(|rng| {
        let (args, order) = (shapes[rng.index(shapes.len())], [0, 3, 9][rng.index(3)]);
        let (options, seed) = (WAYS[rng.index(WAYS.len())], rng.next_u64());
        println!("full volume: {args}, '{options}', order {order}, seed {seed}");
        fill_and_check(&image(64, args), options, order, seed);
    });
}

/// A write that space ends in the middle says how far it came; what came is kept, what did not is
/// not promised.
#[test]
fn lack_of_space_ends_a_write_where_it_met_it() {
    let rig = Rig::new("-b 1024");
    let free = rig.volume.statfs().unwrap().blocks_available;
    let node = rig.create("f");
    let data = content::fill(3, 0, usize::try_from((free + 500) * 1024).unwrap());
    let done = rig.volume.write(&node, 0, &data, &user()).unwrap();
    assert!(done < data.len() && done > data.len() / 2, "{done}");
    rig.check(false);
    rig.volume.fsync(&node, false).unwrap();
    rig.check(true);
    assert!(rig.content(&node) == data[..done]);
    // Nothing of it can be written again by going on, and everything after making room.
    let mut at = done;
    loop {
        match rig.volume.write(&node, at as u64, &data[at..], &user()) {
            Ok(more) => at += more,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                break;
            }
        }
    }
    rig.truncate(&node, 10_000);
    rig.write(&node, 10_000, &data[10_000..done]);
    rig.volume.fsync(&node, false).unwrap();
    assert!(rig.content(&node) == data[..done]);
    rig.end();
}

/// Writers and deleters at the edge of space, so that promises stand on blocks whose freeing is not
/// durable yet.
fn churn(args: &str, options: &str, seed: u64) {
    let rig = Rig::tuned(&image(24, args), options, |tuning| {
        tuning.flushers = 2;
        tuning.page_cache_bytes = Some(4 << 20);
    });
    let writer = |number: u64| {
        let root = rig.volume.root().unwrap();
        let mut rng = Rng::new(seed ^ number);
        for round in 0..20 {
            let name = format!("w{number}-{round}");
            let node = rig.create(&name);
            let mut size = 0;
            for _ in 0..12 {
                let len = usize::try_from(1 + rng.below(600_000)).unwrap();
                let data = content::fill(number, size, len);
                match rig.volume.write(&node, size, &data, &user()) {
                    Ok(done) => size += done as u64,
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
                if rng.chance(10) {
                    size = rng.below(size + 1);
                    rig.truncate(&node, size);
                }
            }
            if rng.chance(60) {
                rig.volume.fsync(&node, false).unwrap();
            }
            let wrong = content::first_wrong(number, 0, &rig.content(&node));
            assert_eq!(wrong, None, "'{options}', seed {seed}");
            rig.volume.unlink(&root, name.as_bytes()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let writer = &writer;
        for number in 0..4 {
            scope.spawn(move || writer(number));
        }
    });
    rig.volume.sync().unwrap();
    rig.check(true);
    rig.end();
}

#[test]
fn promises_hold_while_others_free_and_take() {
    churn("-b 1024", "", 1);
}

/// The same for as long as `EXTANT_SECONDS` says: a stage of the soak.
#[test]
fn soak_churn() {
    soak(|rng| {
        let args = ["-b 1024", "-b 4096", "-b 1024 -J size=1", "-b 16384"][rng.index(4)];
        let (options, seed) = (WAYS[rng.index(WAYS.len())], rng.next_u64());
        println!("churn: {args}, '{options}', seed {seed}");
        churn(args, options, seed);
    });
}

/// debugfs and e2fsck see what the counters say.
#[test]
fn counts_on_disk_are_those_in_memory() {
    let rig = Rig::new("-b 1024");
    let node = rig.create("f");
    rig.write(&node, 0, &[1; 3_000_001]);
    rig.write(&node, 9_000_000, &[1; 10]);
    rig.truncate(&node, 9_000_005);
    rig.volume.sync().unwrap();
    let free = rig.volume.statfs().unwrap().blocks_free;
    rig.volume.unmount().unwrap();
    let image = Image::of_bytes(&rig.device.to_bytes()).unwrap();
    assert_eq!(image.header("Free blocks").unwrap(), free.to_string());
    rig.end();
}
