//! Positions stay valid while the directory changes.

use std::collections::{HashMap, HashSet};

use extant_disk::dir_hash::HashAlgorithm;

use super::memory_dir::{MemoryDir, Random};
use crate::dir::position;

/// Lists in steps of `step` entries and lets `meanwhile` change the directory between them. Names
/// that start with "stay" are never touched: each must be seen exactly once.
fn assert_stable(
    store: &MemoryDir,
    random: &mut Random,
    mut meanwhile: impl FnMut(&MemoryDir, &mut Random),
) {
    let staying: HashSet<String> = {
        let (all, _) = store.list(position::FIRST, usize::MAX).unwrap();
        all.into_iter()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("stay"))
            .collect()
    };
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut from = 0;
    while from < position::END {
        let (some, next) = store.list(from, 1 + random.below(40)).unwrap();
        for (name, _) in some {
            *seen.entry(name).or_default() += 1;
        }
        from = next;
        meanwhile(store, random);
    }
    for name in &staying {
        assert_eq!(seen.get(name), Some(&1), "{name}");
    }
    assert_eq!((seen.get("."), seen.get("..")), (Some(&1), Some(&1)));
}

fn churn(store: &MemoryDir, random: &mut Random) {
    for _ in 0..random.below(20) {
        let name = format!("come{:0w$}", random.below(700), w = 1 + random.below(20));
        match store.find(&name).unwrap() {
            Some(to) => store.remove(&name, to).unwrap(),
            None => store.insert(&name, 77).unwrap(),
        }
    }
}

#[test]
fn every_entry_that_stays_is_seen_once() {
    let algorithms = [
        HashAlgorithm::Legacy,
        HashAlgorithm::HalfMd4,
        HashAlgorithm::Tea,
    ];
    for (round, algorithm) in algorithms.into_iter().cycle().take(12).enumerate() {
        let mut store = MemoryDir::new(10, round % 2 == 0, algorithm);
        store.profile.dir_index = round % 4 != 3;
        let mut random = Random(round as u64);
        for i in 0..[3, 30, 600][round % 3] {
            store.insert(&format!("stay{i}"), 20 + i).unwrap();
            churn(&store, &mut random);
        }
        assert_stable(&store, &mut random, churn);
        assert_stable(&store, &mut random, |_, _| {});
    }
}

#[test]
fn a_reader_survives_the_conversion_to_an_index() {
    for step in 1..12 {
        let store = MemoryDir::new(10, true, HashAlgorithm::HalfMd4);
        for i in 0..20 {
            store.insert(&format!("stay{i}"), 20 + i).unwrap();
        }
        let mut random = Random(step);
        let mut added = 0;
        assert_stable(&store, &mut random, |store, _| {
            if added < 20 {
                for i in 0..10 {
                    store.insert(&format!("come{added}-{i}"), 9).unwrap();
                }
                added += 1;
            }
        });
    }
}

#[test]
fn any_position_is_accepted() {
    let store = MemoryDir::new(10, true, HashAlgorithm::Tea);
    for i in 0..300 {
        store.insert(&format!("n{i}"), 20).unwrap();
    }
    let mut random = Random(4);
    let all = store.list(position::FIRST, usize::MAX).unwrap().0;
    for _ in 0..300 {
        let from = (random.below(usize::MAX) as u64) >> random.below(64);
        let (some, end) = store.list(from, usize::MAX).unwrap();
        assert!(end >= position::END);
        if from >= position::FIRST {
            assert_eq!(some[..], all[all.len() - some.len()..]);
        }
    }
    assert!(store.list(u64::MAX, 1).unwrap().0.is_empty());
}
