//! Random operations on files against vectors of bytes: the same bytes always, for every block size
//! and folio size, with caches dropped, mounts renewed and the power cut in between; and after
//! every few operations the walk over what is in memory (`Volume::verify`), which checks the
//! engine's invariants.
//!
//! A run is a list of episodes. Each has a volume of its own and follows from its configuration and
//! seed alone, so one line reproduces it; a failing one is cut down to the operations that matter
//! first. `EXTANT_OPS` sets the number of operations in all, `EXTANT_SEED` another seed,
//! `EXTANT_MODEL` one episode (the line that a failure prints), `EXTANT_CUT_DOWN` the seconds in
//! which a failing one is cut down.

mod config;
mod crash;
mod episode;
mod files;
mod moves;
mod ops;
mod queue;
mod ranges;
mod world;

use config::{Config, Size};
use extant_engine::FallocateMode;
use extant_failpoint::Failpoint;
use extant_testkit::Rng;
use ops::Op;

/// Operations of a short round, over all configurations.
const SHORT: u64 = 84_000;
/// Sizes of blocks, each with a test.
const SIZES: u64 = 7;
/// Operations of an episode.
const STEPS: usize = 1500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs every configuration of a block size for its part of the operations.
fn round(block: u32) {
    if let Ok(line) = std::env::var("EXTANT_MODEL") {
        let config: Config = line.parse().unwrap();
        if config.block == block {
            episode::run(config).unwrap_or_else(|why| panic!("{why}"));
        }
        return;
    }
    let configs = Config::all(block);
    let share = number("EXTANT_OPS").unwrap_or(SHORT) / SIZES / configs.len() as u64;
    let mut rng = Rng::new(number("EXTANT_SEED").unwrap_or(1) ^ u64::from(block) << 32);
    for config in configs {
        let mut done = 0;
        while done < share {
            let left = usize::try_from(share - done).unwrap_or(STEPS);
            let config = config.vary(&mut rng, left.min(STEPS));
            episode::run(config).unwrap_or_else(|why| panic!("{why}"));
            done += config.steps as u64;
        }
        let path = config::PATHS[config.path].0;
        let maps = if config.block_maps {
            ", block maps"
        } else {
            ""
        };
        println!(
            "{path}{maps}, block {block}, order {}: {done} operations",
            config.order
        );
    }
}

#[test]
fn j43_the_same_bytes_with_blocks_of_1_kib() {
    round(1024);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_2_kib() {
    round(2048);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_4_kib() {
    round(4096);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_8_kib() {
    round(8192);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_16_kib() {
    round(16384);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_32_kib() {
    round(32768);
}

#[test]
fn j43_the_same_bytes_with_blocks_of_64_kib() {
    round(65536);
}

#[test]
fn a_line_reproduces_a_configuration() {
    let mut rng = Rng::new(3);
    for config in Config::all(2048) {
        let config = config.vary(&mut rng, 77);
        assert_eq!(config.to_string().parse(), Ok(config));
    }
}

/// A model that forgets a write is found out, and the failure is cut down to a few operations.
#[test]
fn a_wrong_byte_is_found_and_the_run_cut_down() {
    let config = Config {
        size: Size::Roomy,
        steps: 400,
        seed: 5,
        ..Config::all(1024)[1]
    };
    let mut list = ops::list(config);
    let forgotten = list.iter().find(|op| matches!(op, Op::Write { .. }));
    let forgotten = Op::Lie(Box::new(forgotten.unwrap().clone()));
    list.extend([forgotten, Op::Sync, Op::Remount]);
    let why = episode::run_list(config, &list).unwrap_err();
    assert!(why.contains("Lie"), "{why}");
    assert!(why.lines().count() < 30, "{why}");
}

/// A failpoint that only a power cut shows is found within some episodes. (Those that take two
/// threads are `power_loss`'s.)
#[test]
fn a_failpoint_is_found() {
    let mut rng = Rng::new(9);
    let found = (0..20).any(|_| {
        let config = Config {
            size: Size::Roomy,
            span: 300_000,
            failpoint: Some(Failpoint::SizeBeforeData),
            ..Config::all(1024)[2].vary(&mut rng, 600)
        };
        episode::attempt(config, &ops::list(config)).is_err()
    });
    assert!(found);
}

/// Data that a write put behind the end of a file, before a cut lost its size, does not come back
/// with a later size, however that comes about.
#[test]
fn j31_lost_appends_do_not_come_back() {
    let config = Config {
        seed: 3,
        ..Config::all(1024)[2]
    };
    let write = |file, pos, len| Op::Write {
        file,
        pos,
        len,
        seed: pos,
    };
    let fsync = |file| Op::Fsync {
        file,
        datasync: false,
    };
    let allocate = |mode| Op::Fallocate {
        file: 0,
        mode,
        pos: 50_000,
        len: 3000,
    };
    let later = [
        Op::Truncate {
            file: 0,
            size: 60_000,
        },
        Op::Truncate {
            file: 0,
            size: 40_000,
        },
        allocate(FallocateMode::Allocate { keep_size: false }),
        allocate(FallocateMode::ZeroRange { keep_size: false }),
        Op::WriteDirect {
            file: 0,
            pos: 50_000,
            len: 3000,
            seed: 0,
        },
    ];
    for seed in 0..16 {
        let op = Box::new(fsync(0));
        let lost = [
            write(0, 2900, 526),
            Op::Sync,
            write(0, 2000, 25_000),
            Op::CrashDuring { op, seed },
        ];
        // Some of what was lost is written again, or nothing.
        for again in [Some(write(0, 12_288, 30_000)), None] {
            for later in &later {
                let mut list = lost.to_vec();
                list.extend(again.clone());
                list.push(later.clone());
                list.extend([write(1, 0, 10), fsync(1), Op::Crash { seed }]);
                episode::run_list(config, &list).unwrap_or_else(|why| panic!("{why}"));
            }
        }
    }
}
