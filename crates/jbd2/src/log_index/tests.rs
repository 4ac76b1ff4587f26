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
    index.end_batch(&batch).unwrap();
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
    index.release_to(DurableTail::written(tail)).unwrap();
    assert!(!index.is_resident(Pblk::new(1)));
    assert!(index.is_resident(Pblk::new(3)));
    assert_eq!(index.free(), 70);
    assert_eq!(checkpoint(&mut index, 100), [3]);
    let tail = index.next_tail().unwrap();
    assert_eq!((tail.start, tail.tid), (61, Tid::new(1)));
    index.release_to(DurableTail::written(tail)).unwrap();
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
    index.release_to(DurableTail::written(tail)).unwrap();
    assert!(index.is_resident(Pblk::new(1)));
    assert!(!index.is_resident(Pblk::new(2)));
}

#[test]
fn a_block_committed_again_in_flight_stays_pending() {
    let mut index = index();
    commit(&mut index, 10, &[1], &[]);
    let batch = index.begin_batch(&[1]);
    commit(&mut index, 10, &[1], &[]);
    index.end_batch(&batch).unwrap();
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 1);
    index.release_to(DurableTail::written(tail)).unwrap();
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
    index.end_batch(&batch).unwrap();
    assert!(!index.is_in_flight(&freed));
    assert_eq!(checkpoint(&mut index, 100), [2, 5]);
    assert!(index.is_resident(Pblk::new(1)));
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 2);
    index.release_to(DurableTail::written(tail)).unwrap();
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
fn a_transaction_with_pending_blocks_does_not_leave() {
    let mut index = index();
    commit(&mut index, 10, &[1], &[]);
    let tail = |tid, leaving| {
        DurableTail::written(Tail {
            start: 11,
            tid,
            leaving,
        })
    };
    let next = index.next();
    let first = Tid::new(u32::MAX);
    let mut refused = |tail| index.release_to(tail).unwrap_err().to_string();
    assert!(refused(tail(next, 1)).contains("J27: a transaction with pending blocks"));
    assert!(refused(tail(next, 2)).contains("J27: the log's tail passes its head"));
    assert_eq!(checkpoint(&mut index, 100), [1]);
    let backward = index.release_to(tail(first, 1)).unwrap_err();
    assert!(
        backward
            .to_string()
            .contains("J27: the log's tail moves backward")
    );
    assert_eq!(index.free(), 90, "nothing has left");
}

/// A wrong count stops the journal: it does not end the thread that meets it, which other threads
/// may be waiting for.
#[test]
fn a_wrong_count_is_an_error() {
    let mut index = index();
    commit(&mut index, 10, &[1, 2], &[]);
    let batch = index.begin_batch(&[1]);
    index.queue[0].pending = 0;
    let why = index.end_batch(&batch).unwrap_err().to_string();
    assert!(why.contains("does not count its pending block"), "{why}");
    let batch = index.begin_batch(&[2]);
    index.pending = 0;
    let why = index.end_batch(&batch).unwrap_err().to_string();
    assert!(why.contains("a pending block is not counted"), "{why}");
}
