use super::*;

fn index() -> LogIndex {
    LogIndex::new(Ring::new(1, 101), Tid::new(u32::MAX))
}

fn blocks(numbers: &[u64]) -> Vec<Block> {
    numbers
        .iter()
        .map(|&p| Block::unloaded(Pblk::new(p)))
        .collect()
}

fn commit(index: &mut LogIndex, len: u32, logs: &[u64], frees: &[u64]) {
    let blocks = blocks(logs);
    let tid = index.next();
    index.mark_resident(tid, &blocks);
    let snapshots = blocks
        .into_iter()
        .map(|block| Snapshot {
            block,
            data: Arc::default(),
        })
        .collect();
    let freed = frees.iter().copied().collect();
    let logs = logs.to_vec();
    index.add_committed(len, logs, snapshots, &freed).unwrap();
}

fn checkpoint(index: &mut LogIndex, free: u64) -> Vec<u64> {
    let blocks = index.blocks_to_free(free);
    let batch = index.begin_batch(&blocks);
    index.end_batch(&batch);
    batch.iter().map(|block| block.pblk.get()).collect()
}

#[test]
fn the_tail_follows_the_checkpoint() {
    let mut index = index();
    commit(&mut index, 30, &[1, 2], &[]);
    commit(&mut index, 30, &[3], &[]);
    assert_eq!((index.free(), index.next_tail()), (40, None));
    assert_eq!(checkpoint(&mut index, 70), [1, 2]);
    let tail = index.next_tail().unwrap();
    assert_eq!((tail.start, tail.tid), (31, Tid::new(0)));
    // Until the superblock names the tail, the blocks are in the log.
    assert!(index.is_resident(Pblk::new(1)));
    assert_eq!(index.free(), 40);
    index.release_to(DurableTail::written(tail));
    assert!(!index.is_resident(Pblk::new(1)));
    assert!(index.is_resident(Pblk::new(3)));
    assert_eq!(index.free(), 70);
    assert_eq!(checkpoint(&mut index, 100), [3]);
    let tail = index.next_tail().unwrap();
    assert_eq!((tail.start, tail.tid), (61, Tid::new(1)));
    index.release_to(DurableTail::written(tail));
    assert!(!index.has_pending());
    assert_eq!((index.used, index.head()), (0, 61));
}

#[test]
fn a_later_commit_takes_a_block_over() {
    let mut index = index();
    commit(&mut index, 10, &[1, 2], &[]);
    commit(&mut index, 10, &[1], &[]);
    assert_eq!(
        checkpoint(&mut index, 81),
        [1, 2],
        "the newest versions are written"
    );
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 2);
    commit(&mut index, 10, &[1], &[]);
    index.release_to(DurableTail::written(tail));
    assert!(index.is_resident(Pblk::new(1)));
    assert!(!index.is_resident(Pblk::new(2)));
}

#[test]
fn a_block_committed_again_in_flight_stays_pending() {
    let mut index = index();
    commit(&mut index, 10, &[1], &[]);
    let batch = index.begin_batch(&[1]);
    commit(&mut index, 10, &[1], &[]);
    index.end_batch(&batch);
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 1);
    index.release_to(DurableTail::written(tail));
    assert_eq!(checkpoint(&mut index, 100), [1]);
}

#[test]
fn freed_blocks_are_not_written_and_stay_resident() {
    let mut index = index();
    commit(&mut index, 10, &[1, 2], &[]);
    let batch = index.begin_batch(&[1]);
    let freed: PblkSet = [1u64].into_iter().collect();
    commit(&mut index, 10, &[5], &[1]);
    assert!(index.is_in_flight(&freed));
    index.end_batch(&batch);
    assert!(!index.is_in_flight(&freed));
    assert_eq!(checkpoint(&mut index, 100), [2, 5]);
    assert!(index.is_resident(Pblk::new(1)));
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 2);
    index.release_to(DurableTail::written(tail));
    assert!(!index.is_resident(Pblk::new(1)));
    assert!(index.blocks.is_empty());
}

#[test]
fn a_full_log_and_full_memory_ask_for_a_checkpoint() {
    let mut index = index();
    assert_eq!(index.checkpoint_target(0), None);
    commit(&mut index, 10, &[1, 2, 3, 4], &[]);
    assert_eq!(index.checkpoint_target(4), None);
    assert_eq!(index.checkpoint_target(3), Some(95));
    // A block that is logged again is pending once; a freed one is not.
    commit(&mut index, 10, &[1, 2, 5], &[4]);
    assert_eq!(index.checkpoint_target(4), None);
    assert_eq!(index.checkpoint_target(3), Some(90));
    assert_eq!(checkpoint(&mut index, 90), [1, 2, 3]);
    assert_eq!(index.checkpoint_target(1), None);
    assert_eq!(index.checkpoint_target(0), Some(90));
    commit(&mut index, 31, &[7], &[]);
    assert_eq!(index.checkpoint_target(100), Some(75));
}

#[test]
#[should_panic(expected = "J27")]
fn a_transaction_with_pending_blocks_does_not_leave() {
    let mut index = index();
    commit(&mut index, 10, &[1], &[]);
    let tail = Tail {
        start: 11,
        tid: index.next(),
        leaving: 1,
    };
    index.release_to(DurableTail::written(tail));
}

#[test]
fn a_commit_does_not_overwrite_the_tail() {
    let mut index = index();
    commit(&mut index, 90, &[], &[]);
    let error = index.add_committed(11, vec![], vec![], &PblkSet::default());
    assert!(error.unwrap_err().to_string().contains("J27"));
}

#[test]
fn a_logged_block_is_resident() {
    let mut index = index();
    let block = Block::unloaded(Pblk::new(3));
    let data = Arc::default();
    let logged = index.add_committed(
        2,
        vec![],
        vec![Snapshot { block, data }],
        &PblkSet::default(),
    );
    assert!(logged.unwrap_err().to_string().contains("J28"));
}
